"""Two workers that cannot hand over to each other: others serve, and where there are none it shows."""
import re
import resource
import subprocess

from cluster import CONVERSATIONS, Cluster, generate_body, wait_for

ROW = CONVERSATIONS[0]
ROOM = 16 << 20  # address space that a worker may still take: an arena is larger


def ask(c):
    return c.post("/v1/completions", generate_body(ROW, prompt=ROW["prompt_ids"]))


def right(answer):
    return answer.status == 200 and answer.json()["choices"][0]["text"] == ROW["greedy_text"]


def tighten(c, name):
    """It cannot map the arena of a peer. Returns what undoes it."""
    pid = c.pid(name)
    with open(f"/proc/{pid}/statm") as f:
        size = int(f.read().split()[0]) * resource.getpagesize()
    before = resource.prlimit(pid, resource.RLIMIT_AS, (size + ROOM, resource.RLIM_INFINITY))
    return lambda: resource.prlimit(pid, resource.RLIMIT_AS, before)


def failures(c):
    return sum(v for (name, _), v in c.metrics().items() if name == "baton_pair_failures")


def shown(build, c, *words):
    """The lines of batonctl about pairs: (prefill worker, decode worker, failures, router, reason)."""
    out = subprocess.run([build / "bin/batonctl", *words, "--runtime-dir", str(c.runtime)], text=True,
                         capture_output=True, timeout=20, check=True).stdout
    return re.findall(r"^PAIR (\S+) -> (\S+) FAILED (\d+) times \(router (\S+)\), tried again in [0-9.]+ s: (.+)$",
                      out, re.MULTILINE)


def test_where_no_pair_works_readiness_says_why_and_comes_back(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        undo = tighten(c, "d0")
        r = ask(c)
        assert r.status == 503, r.body
        wait_for(lambda: ask(c).status == 503 and not c.ready(), 20)
        r = ask(c)
        if r.status == 503:  # between two tries
            assert "d0 cannot take over from prefill worker p0" in r.json()["error"]["message"]
        assert failures(c) >= 3
        pairs = c.get("/status").json()["pairs_failed"]
        assert [(p["prefill"], p["decode"]) for p in pairs] == [("p0", "d0")] and pairs[0]["failures"] >= 3
        for words in (["status"], ["top", "-n", "1"]):
            [(prefill, decode, n, router, reason)] = shown(build, c, *words)
            assert (prefill, decode, router) == ("p0", "d0", "r0") and int(n) >= 3 and "cannot" in reason, words
        undo()
        wait_for(lambda: right(ask(c)), 70, step=0.2)
        wait_for(lambda: c.ready() and failures(c) == 0, 5)
        assert shown(build, c, "status") == []


def test_another_decode_worker_serves_what_a_failed_pair_cannot(build, tmp_path):
    with Cluster(tmp_path, build, decode=2) as c:
        tighten(c, "d0")
        for _ in range(12):
            assert right(ask(c))
        assert c.ready()
