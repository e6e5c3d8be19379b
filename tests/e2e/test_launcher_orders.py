"""scale, restart and reload of a running cluster, under load."""
import json
import os
import signal
import socket
import subprocess
import sys
import threading

from cluster import CONVERSATIONS, LAUNCHER, Cluster, free_port, generate_body, wait_for
from launcher_rig import DECODE, edited, kill_supervisor, pids, section, supervisor


class Load:
    """Short conversations with known answers, a few at a time, until it ends; every answer
    must be right."""

    def __init__(self, cluster, threads=4):
        self.cluster, self.ends, self.n, self.bad = cluster, threading.Event(), 0, []
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(threads)]

    def run(self, i):
        rows = [r for r in CONVERSATIONS if len(r["greedy_ids"]) < 60][i::len(self.threads)]
        while not self.ends.is_set():
            row = rows[self.n % len(rows)]
            try:
                a = self.cluster.post("/v1/completions", generate_body(row, prompt=row["prompt_ids"]))
                if a.status != 200 or a.json()["choices"][0]["text"] != row["greedy_text"]:
                    self.bad.append((a.status, a.body[:300]))
            except OSError as e:
                self.bad.append(e)
            self.n += 1

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, kind, *_):
        self.ends.set()
        for t in self.threads:
            t.join()
        if kind is None:
            assert self.n > 10 and not self.bad, (self.n, self.bad[:3])


def up_at_router(c, role):
    return sorted(dict(labels)["worker"] for (name, labels), v in c.metrics().items()
                  if name == "baton_worker_state" and v == 1 and {("role", role), ("state", "up")} <= labels)


def begin(c, *words):
    return subprocess.Popen([sys.executable, "-I", str(LAUNCHER), *words, "--conf", str(c.conf)], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_scale_up_and_down_under_load_loses_no_request(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        before = pids(c)
        with Load(c):
            r = c.launcher("scale", "prefill=2", "decode=3")
            assert r.returncode == 0 and "prefill=2, decode=3" in r.stdout, r
            assert "d2.log" in c.launcher("logs").stdout
            assert up_at_router(c, "prefill") == ["p0", "p1"] and up_at_router(c, "decode") == ["d0", "d1", "d2"]
            r = c.launcher("scale", "prefill=1", "decode=1")
            assert r.returncode == 0, r
        assert pids(c) == before and sorted(c.rows()) == ["d0", "p0", "r0"]


def test_scale_below_the_file_drains_until_up_wants_it_again(build, tmp_path):
    with Cluster(tmp_path, build, decode=2) as c:
        assert c.launcher("scale", "decode=1").returncode == 0
        assert c.rows()["d1"]["state"] == "stopped" and up_at_router(c, "decode") == ["d0"]
        r = c.launcher("up")
        assert r.returncode == 0 and "d1 starts" in r.stdout and up_at_router(c, "decode") == ["d0", "d1"], r


def test_scale_refuses_what_cannot_be_done(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        for words, text in ((["decode=0"], "decode=0"), (["decode=x"], "decode=x"), (["decode=65"], "64"),
                            (["router=2"], "port"), (["decode=2", "decode=3"], "decode=3"), (["king=2"], "prefill=N")):
            r = c.launcher("scale", *words)
            assert r.returncode == 2 and text in r.stderr and "Traceback" not in r.stderr, r
        assert sorted(c.rows()) == ["d0", "p0", "r0"]


def test_a_rolling_restart_of_the_workers_under_load_loses_no_request(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        before = pids(c)
        with Load(c):
            for role, name in (("decode", "d0"), ("prefill", "p0"), ("d0", "d0")):
                r = c.launcher("restart", role)
                assert r.returncode == 0 and f"restarted: {name}" in r.stdout, r
        now = pids(c)
        assert now["r0"] == before["r0"] and now["p0"] != before["p0"] and now["d0"] != before["d0"]
        assert sorted(c.rows()) == ["d0", "p0", "r0"]
        said = [t.split(": ", 1)[1].split(",")[0] for t in c.log("launcher").splitlines() if "d0" in t and "restart:" not in t]
        assert said[1:5] == ["d0.2 started", "d0 ended with status 0", "d0 started", "d0.2 ended with status 0"], said


def test_a_router_alone_on_its_port_is_restarted_only_when_told_to_drain_first(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        before = pids(c)
        for target in ("r0", "all"):
            r = c.launcher("restart", target)
            assert r.returncode == 2 and f"port {c.port}" in r.stderr and "--drain-first" in r.stderr, r
        assert pids(c) == before
        r = c.launcher("restart", "router", "--drain-first")
        assert r.returncode == 0 and c.ready(), r
        assert pids(c)["r0"] != before["r0"] and pids(c)["d0"] == before["d0"]


def test_restart_all_of_two_routers_leaves_one_that_answers(build, tmp_path):
    c = Cluster(tmp_path, build)
    other = free_port()
    section(c, f"\n[router r1]\nport = {other}\nflags = --served-model-name demo\n")
    with c:
        before, answered = pids(c), []
        stop = threading.Event()

        def look():
            port = c.port
            while not stop.is_set():
                c2 = Cluster.__new__(Cluster)
                good = False
                for c2.port in (port, other):
                    good = good or c2.ready()
                answered.append(good)
        t = threading.Thread(target=look)
        t.start()
        r = c.launcher("restart", "all")
        stop.set()
        t.join()
        assert r.returncode == 0 and "restarted: p0, d0, r0, r1" in r.stdout, r
        assert all(answered) and not set(before.values()) & set(pids(c).values())


def test_a_restart_whose_successor_does_not_serve_keeps_the_old_one(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        before = pids(c)
        edited(c, "--max-num-seqs 32 \n\n[decode d0]", "--max-num-seqs 32 --kv-pages 1000000000\n\n[decode d0]")
        r = c.launcher("reload", "--wait", "20")
        assert r.returncode in (1, 2) and "p0" in r.stderr, r
        assert pids(c) == before and c.ready()


def test_reload_makes_what_runs_what_the_file_says(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        before = pids(c)
        text = c.conf.read_text()
        with Load(c):
            section(c, DECODE)
            edited(c, "--max-num-seqs 32", "--max-num-seqs 16")
            r = c.launcher("reload")
            assert r.returncode == 0 and "started: d9; restarted: p0, d0" in r.stdout, r
            assert up_at_router(c, "decode") == ["d0.2", "d9"] and up_at_router(c, "prefill") == ["p0.2"]
            c.conf.write_text(text)
            r = c.launcher("reload")
            assert r.returncode == 0 and "restarted: p0, d0; drained: d9" in r.stdout, r
        assert sorted(c.rows()) == ["d0", "p0", "r0"] and pids(c)["r0"] == before["r0"]
        r = c.launcher("reload")
        assert r.returncode == 0 and "nothing differs" in r.stdout, r


def test_reload_moves_a_router_to_another_port_without_a_gap(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        old, c.port = c.port, free_port()
        edited(c, f"port = {old}", f"port = {c.port}")
        r = c.launcher("reload")
        assert r.returncode == 0 and c.ready() and c.rows()["r0"]["id"] == "r0.2", r
        with socket.socket() as s:
            assert s.connect_ex(("127.0.0.1", old)) != 0


def test_a_supervisor_that_dies_in_a_restart_leaves_one_of_each(build, tmp_path):
    slow = "--debug-fault step_delay_ms=1"
    with Cluster(tmp_path, build, decode_flags=slow) as c:
        p = begin(c, "restart", "d0")
        wait_for(lambda: "d0.2" in [r["id"] for r in json.loads((c.runtime / "launcher.json").read_text())
                                    ["processes"]], 10)
        kill_supervisor(c)
        assert p.wait(20) == 1 and "did not answer" in p.stderr.read()
        assert c.launcher("up").returncode == 0
        wait_for(lambda: sorted(r["name"] for r in json.loads((c.runtime / "launcher.json").read_text())["processes"]
                                if r["pid"]) == ["d0", "p0", "r0"], 20)
        wait_for(c.ready, 20)


def test_orders_come_one_after_another_and_foreign_bytes_are_refused(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        p = begin(c, "restart", "d0")
        wait_for(lambda: "d0.2" in [r["id"] for r in json.loads((c.runtime / "launcher.json").read_text())
                                    ["processes"]], 10)
        r = c.launcher("scale", "decode=2")
        assert r.returncode == 5 and "restart" in r.stderr, r
        assert p.wait(60) == 0
        boss = supervisor(c)
        for text in (b"\n", b"[]\n", b"{}\n", b'{"order": 1}\n', b'{"order": "no"}\n', b"x" * 70000, b"[" * 60000 + b"\n",
                     b'{"order": "scale", "counts": {"decode": "2"}}\n', b'{"order": "up", "wait": "x"}\n',
                     b'{"order": "restart", "target": []}\n', b"\xff\n", b"half"):
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(10)
                s.connect(str(c.runtime / "launcher.sock"))
                try:
                    s.sendall(text)
                except OSError:
                    pass
                try:
                    last = s.makefile().read().splitlines()[-1] if text != b"half" else ""
                except ConnectionResetError:  # what was not read of an order without end
                    assert len(text) > 65536
                    continue
                assert not last or json.loads(last)["done"] == 2, (text[:50], last)
        assert supervisor(c) == boss and c.launcher("status").returncode == 0


def test_a_watcher_that_leaves_does_not_end_the_work(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        before = c.pid("d0")
        p = begin(c, "restart", "d0")
        wait_for(lambda: "d0.2 started" in c.log("launcher"), 10)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=10)
        wait_for(lambda: "restart: restarted: d0" in c.log("launcher"), 60)
        assert c.pid("d0") != before and os.path.exists(f"/proc/{c.pid('d0')}")


def test_down_during_a_restart_ends_all_of_it(build, tmp_path):
    c = Cluster(tmp_path, build).up()
    p = begin(c, "restart", "all", "--drain-first")
    wait_for(lambda: "p0 ended" in c.log("launcher") or "p0.2 started" in c.log("launcher"), 10)
    assert c.down().returncode in (0, 6)
    assert p.wait(20) == 1 and "stopped meanwhile" in p.stderr.read()
    assert c.down().stdout.strip() == "nothing runs" and not (c.runtime / "launcher.sock").exists()
