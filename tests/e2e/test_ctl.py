"""batonctl against real processes: two routers, a prefill worker and two decode workers."""
import copy
import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest

from cluster import CONVERSATIONS, ROOT, Cluster, Stream, free_port, generate_body, wait_for
from lone_router import Router as LoneRouter
from worker_rig import MODEL

SHORT = CONVERSATIONS[0]
LONG = CONVERSATIONS[16]  # an answer of 243 tokens
DONE, REFUSED, USAGE, UNKNOWN, TIMEOUT, NO_ROUTER, STOPPED = 0, 1, 2, 3, 4, 5, 130
SLOW = "--debug-fault step_delay_ms=10"


def start_ctl(build, runtime, *words):
    return subprocess.Popen([build / "bin/batonctl", *words, "--runtime-dir", str(runtime)], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run_ctl(build, runtime, *words, timeout=40):
    p = start_ctl(build, runtime, *words)
    try:
        out, err = p.communicate(timeout=timeout)
    finally:
        p.kill()
    return subprocess.CompletedProcess(words, p.returncode, out, err)


class Scene:
    def __init__(self, folder, build):
        self.build = build
        self.first = Cluster(folder, build, decode=2, decode_flags=SLOW)
        self.other = copy.copy(self.first)
        self.other.port = free_port()
        self.first.conf.write_text(self.first.conf.read_text() +
                                   f"\n[router r1]\nport = {self.other.port}\nflags = --served-model-name demo\n")

    def ctl(self, *words):
        return run_ctl(self.build, self.first.runtime, *words)

    def start(self, *words):
        return start_ctl(self.build, self.first.runtime, *words)

    def states(self, router="r0"):
        answer = json.loads(self.ctl("status", "-o", "json", "--router", router).stdout)
        return {w["id"]: w["state"] for w in answer["routers"][0]["status"]["workers"]}

    def settled(self):
        up = {"p0": "up", "d0": "up", "d1": "up"}
        return self.states("r0") == up and self.states("r1") == up

    def pools(self, name):
        return json.loads(self.ctl("ask", name, "pools").stdout)

    def tokens_of(self, name):
        return json.loads(self.ctl("ask", name, "status").stdout)["stats"]["decode_tokens"]


@pytest.fixture(scope="module")
def cluster(build, tmp_path_factory):
    scene = Scene(tmp_path_factory.mktemp("ctl"), build)
    with scene.first:
        yield scene


@pytest.fixture
def scene(cluster):
    """Everybody serves before, and after."""
    wait_for(cluster.settled, 15)
    yield cluster
    for name in ("p0", "d0", "d1"):
        cluster.ctl("undrain", name)
    wait_for(cluster.settled, 15)


def ask_for(router, row, answers):
    answer = router.post("/v1/completions", generate_body(row, prompt=row["prompt_ids"]))
    answers.append((answer.status, answer.json()["choices"][0]["text"] == row["greedy_text"] if answer.status == 200
                    else answer.body))


class Load:
    """Requests to both routers until told to end."""

    def __init__(self, scene, threads=4):
        self.answers, self.ends = [], threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(router,)) for router in (scene.first, scene.other)
                        for _ in range(threads // 2)]
        for t in self.threads:
            t.start()

    def run(self, router):
        while not self.ends.is_set():
            ask_for(router, SHORT, self.answers)

    def __enter__(self):
        wait_for(lambda: len(self.answers) >= 4, 30)
        return self

    def __exit__(self, *_):
        self.ends.set()
        for t in self.threads:
            t.join()


def is_clean(pools):
    return all(pools[k]["free"] == pools[k]["total"] for k in ("pages", "slots")) and not pools["jobs"]


def stream_at(scene, name):
    """A long answer that this decode worker writes; the other one is drained meanwhile."""
    other = {"d0": "d1", "d1": "d0"}[name]
    assert scene.ctl("drain", other).returncode == DONE
    stream = Stream(scene.first, "/v1/completions", generate_body(LONG, prompt=LONG["prompt_ids"]))
    events = stream.events()
    text = next(events)["choices"][0]["text"]
    assert scene.ctl("undrain", other).returncode == DONE
    return stream, events, text


def rest_of(stream, events, text):
    return text + "".join(e["choices"][0]["text"] for e in events if e["choices"])


# ---- looking

def test_status_shows_routers_and_workers(scene):
    r = scene.ctl("status")
    assert r.returncode == DONE and r.stderr == "", r
    rows = {line.split()[0]: line.split() for line in r.stdout.splitlines() if line}
    assert rows["r0"][1:4] == ["ready", "demo", str(scene.first.port)]
    assert rows["r1"][1:4] == ["ready", "demo", str(scene.other.port)]
    assert rows["WORKER"][1:6] == ["ROLE", "STATE", "RUNNING", "QUEUED", "PAGES"]
    assert rows["p0"][1:3] == ["prefill", "up"] and rows["d1"][1:3] == ["decode", "up"]
    assert re.fullmatch(r"0/\d+", rows["d0"][5]) and re.fullmatch(r"0/\d+", rows["d0"][6])


def test_status_as_json_is_what_each_router_said(scene):
    r = scene.ctl("status", "-o", "json")
    answer = json.loads(r.stdout)
    assert r.returncode == DONE and [x["name"] for x in answer["routers"]] == ["r0", "r1"]
    for one in answer["routers"]:
        assert one["status"]["router"]["state"] == "ready"
        assert sorted(w["id"] for w in one["status"]["workers"]) == ["d0", "d1", "p0"]
    one = json.loads(scene.ctl("status", "-o", "json", "--router=r1").stdout)
    assert [x["name"] for x in one["routers"]] == ["r1"]


def test_ask_gives_what_a_worker_says(scene):
    assert is_clean(scene.pools("d0"))
    status = json.loads(scene.ctl("ask", "p0", "status").stdout)
    assert (status["id"], status["role"], status["state"]) == ("p0", "prefill", "serving")
    assert "kernels" in json.loads(scene.ctl("ask", "d1", "doctor").stdout)


def test_top_shows_tokens_per_second(scene):
    with Load(scene):
        r = scene.ctl("top", "-n", "3")
    assert r.returncode == DONE, r
    last = r.stdout.split("ROUTER")[-1]
    assert "TOKENS/S" in last and "\033" not in r.stdout
    assert int(next(line for line in last.splitlines() if line.startswith("d0")).split()[-1]) > 0


# ---- draining

def test_a_drain_under_load_loses_nothing_and_can_be_undone(scene):
    with Load(scene) as load:
        r = scene.ctl("drain", "d0")
        assert (r.returncode, r.stdout) == (DONE, "d0 is drained\n"), r
        assert scene.states("r0")["d0"] == scene.states("r1")["d0"] == "drained"
        tokens, n = scene.tokens_of("d0"), len(load.answers)
        assert is_clean(scene.pools("d0"))
        wait_for(lambda: len(load.answers) >= n + 8, 30)
        assert scene.tokens_of("d0") == tokens and scene.first.metric("baton_worker_state", worker="d0",
                                                                      state="drained") == 1
        r = scene.ctl("undrain", "d0")
        assert (r.returncode, r.stdout) == (DONE, "d0 takes work\n"), r
        wait_for(lambda: scene.tokens_of("d0") > tokens, 30)
    assert set(load.answers) == {(200, True)}, load.answers


def test_a_drained_role_is_refused_and_said(scene):
    answers = []
    assert scene.ctl("drain", "p0", "--force").returncode == DONE
    assert is_clean(scene.pools("p0"))
    ask_for(scene.first, SHORT, answers)
    assert answers[0][0] == 503 and b"Every prefill worker is draining" in answers[0][1], answers


def test_a_drain_through_one_router_counts_for_all(scene):
    assert scene.ctl("drain", "d0", "--router", "r0").returncode == DONE
    assert scene.states("r1")["d0"] == "drained"
    tokens, answers = scene.tokens_of("d0"), []
    for _ in range(3):
        ask_for(scene.other, SHORT, answers)
    assert answers == [(200, True)] * 3 and scene.tokens_of("d0") == tokens
    assert scene.ctl("drain", "d0").returncode == DONE  # again


def test_the_last_of_a_role_needs_force(scene):
    assert scene.ctl("drain", "d0").returncode == DONE
    r = scene.ctl("drain", "d1")
    assert r.returncode == REFUSED and "d1 is the last decode worker" in r.stderr and "--force" in r.stderr, r
    assert scene.states()["d1"] == "up" and scene.first.ready()
    r = scene.ctl("drain", "p0")
    assert r.returncode == REFUSED and "p0 is the last prefill worker" in r.stderr
    assert scene.ctl("drain", "d1", "--force").returncode == DONE
    assert scene.first.get("/ready").status == 503
    assert scene.ctl("undrain", "d1").returncode == DONE
    wait_for(scene.first.ready, 5)


def test_what_the_first_router_refuses_no_other_is_told(scene):
    assert scene.ctl("drain", "d0").returncode == DONE
    r = scene.ctl("drain", "d1")
    assert r.returncode == REFUSED and "router r0: d1 is the last" in r.stderr and "router r1" not in r.stderr, r


def test_two_drains_at_once_do_not_empty_a_role(scene):
    for _ in range(5):
        both = [scene.start("drain", name) for name in ("d0", "d1")]
        codes = sorted([(p.communicate(timeout=20), p.returncode)[1] for p in both])
        assert codes == [DONE, REFUSED]
        assert sorted(scene.states().values()) == ["drained", "up", "up"]
        for name in ("d0", "d1"):
            assert scene.ctl("undrain", name).returncode == DONE


def test_time_is_up_while_the_drain_goes_on(scene):
    stream, events, text = stream_at(scene, "d0")
    r = scene.ctl("drain", "d0", "--timeout", "0.3")
    assert r.returncode == TIMEOUT and "d0 goes on draining" in r.stderr, r
    assert scene.states() == {"p0": "up", "d0": "draining", "d1": "up"}
    assert rest_of(stream, events, text) == LONG["greedy_text"]
    assert scene.ctl("drain", "d0").returncode == DONE


def test_an_interrupt_ends_watching_and_not_the_drain(scene):
    stream, events, text = stream_at(scene, "d0")
    p = scene.start("drain", "d0")
    wait_for(lambda: scene.states()["d0"] == "draining", 5)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=10)
    assert p.returncode == STOPPED and "d0 goes on draining" in err and out == "", (out, err)
    assert rest_of(stream, events, text) == LONG["greedy_text"]
    wait_for(lambda: scene.states()["d0"] == "drained", 5)


def test_an_undrain_by_another_ends_the_watch(scene):
    stream, events, text = stream_at(scene, "d0")
    p = scene.start("drain", "d0")
    wait_for(lambda: scene.states()["d0"] == "draining", 5)
    assert scene.ctl("undrain", "d0").returncode == DONE
    out, err = p.communicate(timeout=10)
    assert p.returncode == REFUSED and "undone" in err, (out, err)
    assert rest_of(stream, events, text) == LONG["greedy_text"]


def test_a_drained_worker_stays_so_when_its_router_is_replaced(scene):
    assert scene.ctl("drain", "d0").returncode == DONE
    old = scene.first.pid("r0")
    scene.first.kill("r0")
    wait_for(lambda: scene.first.pid("r0") != old and scene.first.ready(), 30)
    wait_for(lambda: scene.states().get("d0") == "drained", 10)


def test_the_launcher_counts_a_drained_worker_as_running(scene):
    before = {n: scene.first.pid(n) for n in ("p0", "d0", "d1")}
    assert scene.ctl("drain", "d0").returncode == DONE
    r = scene.first.launcher("up")
    assert r.returncode == 0, r
    assert {n: scene.first.pid(n) for n in before} == before
    assert scene.states()["d0"] == "drained"


# ---- refusals

def test_an_id_that_nobody_has(scene):
    for words in (["drain", "d7"], ["undrain", "d7"], ["ask", "d7", "status"]):
        r = scene.ctl(*words)
        assert r.returncode == UNKNOWN and "no worker of this id" in r.stderr and r.stdout == "", r


def test_a_router_that_stands_still_is_named(scene):
    scene.first.kill("r1", signal.SIGSTOP)
    try:
        r = scene.ctl("status")
        assert r.returncode == NO_ROUTER and "router r1" in r.stderr and "silent" in r.stdout, r
        assert "d0" in r.stdout
        r = scene.ctl("drain", "d0", "--router", "r1")
        assert r.returncode == NO_ROUTER and "r1 does not answer" in r.stderr, r
    finally:
        scene.first.kill("r1", signal.SIGCONT)


def test_where_no_router_is(build, runtime):
    for words in (["status"], ["drain", "d0"], ["status", "--router", "r0"]):
        r = run_ctl(build, runtime, *words)
        assert r.returncode == NO_ROUTER and str(runtime) in r.stderr and r.stdout == "", r
    assert os.listdir(runtime) == []


@pytest.mark.parametrize("words, says", [
    ([], "a command is missing"), (["drian", "d0"], "drian"), (["drain"], "usage: batonctl drain ID"),
    (["drain", "d0", "--timeout", "soon"], "--timeout 'soon'"), (["undrain", "d0", "--force"], "--force"),
    (["ask", "d0", "weather"], "weather"), (["status", "-o", "yaml"], "yaml"), (["status", "--router"], "--router"),
    (["status", "--router", "../x"], "../x"), (["drain", "x" * 49], "x"), (["status", "--fast"], "--fast"),
    (["top", "-n", "0"], "-n '0'"), (["status", "--router=a", "--router=b"], "twice")])
def test_a_wrong_command_line_is_refused_with_a_sentence(build, words, says):
    r = subprocess.run([build / "bin/batonctl", *words], capture_output=True, text=True, timeout=10)
    assert r.returncode == USAGE and says in r.stderr and r.stdout == "", r


def test_version_and_help(build):
    for words, says in ((["version"], r"batonctl \d+\.\d+\.\d+\n"), (["--help"], r"(?s).*Exit status: 0 done.*")):
        r = subprocess.run([build / "bin/batonctl", *words], capture_output=True, text=True, timeout=10)
        assert r.returncode == DONE and re.fullmatch(says, r.stdout), r


def test_bash_completes_commands_options_and_ids(scene):
    def complete(*words):
        line = " ".join(f"'{w}'" for w in (scene.build / "bin/batonctl", *words))
        script = (f"source deploy/ctl/batonctl.bash; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _batonctl; "
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        return subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=20).stdout.split()

    here = ["--runtime-dir", str(scene.first.runtime)]
    assert complete("") == ["status", "top", "drain", "undrain", "ask", "version", "help"]
    assert complete("un") == ["undrain"]
    assert complete("status", "--r") == ["--runtime-dir", "--router"]
    assert sorted(complete(*here, "drain", "")) == ["d0", "d1", "p0"]
    assert complete("status", *here, "--router", "") == ["r0", "r1"]
    assert complete("ask", "d0", "d") == ["doctor"] and complete("status", "-o", "j") == ["json"]


# ---- workers alone

# Not the short times of the rig: these workers have a real router.
TIMES = dict(beat_ms=500, lost_ms=4000, lease_ms=20000)


def test_a_drain_waits_for_readers_of_pages(build, rig):
    rig.worker("prefill", "p0", **TIMES)
    rig.worker("decode", "d0", debug_fault="pause@pull", **TIMES)
    router, answers = LoneRouter(build, rig.runtime, MODEL), []
    try:
        wait_for(lambda: router.ask("GET", "/ready")[0] == 200, 10)
        body = json.dumps(generate_body(SHORT, prompt=SHORT["prompt_ids"]))
        t = threading.Thread(target=lambda: answers.append(router.ask("POST", "/v1/completions", body)))
        t.start()
        wait_for(lambda: json.loads(run_ctl(build, rig.runtime, "ask", "p0", "pools").stdout)["leases"] == 1, 10)
        r = run_ctl(build, rig.runtime, "drain", "p0", "--force", "--timeout", "1")
        assert r.returncode == TIMEOUT and "p0 goes on draining" in r.stderr, r
        rig.go("pull")
        assert run_ctl(build, rig.runtime, "drain", "p0").returncode == DONE
        assert is_clean(json.loads(run_ctl(build, rig.runtime, "ask", "p0", "pools").stdout))
        t.join()
        assert answers[0][0] == 200 and json.loads(answers[0][1])["choices"][0]["text"] == SHORT["greedy_text"]
    finally:
        router.close()


def test_a_drained_worker_ends_at_once_by_a_signal(build, rig):
    d, other = rig.worker("decode", "d0", **TIMES), rig.worker("decode", "d1", **TIMES)
    router = LoneRouter(build, rig.runtime, MODEL)
    try:
        wait_for(lambda: run_ctl(build, rig.runtime, "drain", "d0").returncode == DONE, 10)
        begun = time.monotonic()
        d.kill(signal.SIGTERM)
        assert d.exit_code(5) == 0 and time.monotonic() - begun < 2
        assert other.process.poll() is None
    finally:
        router.close()


def test_what_ends_by_a_signal_is_neither_drained_nor_undrained(scene):
    stream, events, text = stream_at(scene, "d0")
    pid = scene.first.pid("d0")
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: scene.states()["d0"] == "draining", 5)
    for verb in ("undrain", "drain"):
        r = scene.ctl(verb, "d0")
        assert r.returncode == REFUSED and "ends" in r.stderr, r
    assert rest_of(stream, events, text) == LONG["greedy_text"]
    wait_for(lambda: not os.path.exists(f"/proc/{pid}/exe"), 10)
    assert scene.first.launcher("up").returncode == 0  # started again
