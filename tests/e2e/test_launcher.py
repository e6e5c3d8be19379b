"""The launcher: what it refuses, what it says, and that it never touches a stranger."""
import os
import signal
import socket
import subprocess
import time

from cluster import CONVERSATIONS, LAUNCHER, Cluster, Stream, generate_body, wait_for


def run(*words):
    return subprocess.run([str(LAUNCHER), *map(str, words)], capture_output=True, text=True, timeout=120)


def edited(c, old, new):
    text = c.conf.read_text()
    assert old in text
    c.conf.write_text(text.replace(old, new))
    return c


def test_a_port_in_use_is_refused_by_number(build, tmp_path):
    c = Cluster(tmp_path, build)
    with socket.socket() as s:
        s.bind(("127.0.0.1", c.port))
        s.listen()
        r = c.launcher("up", "--wait", "10")
    assert r.returncode == 2 and f"port {c.port}" in r.stderr
    assert c.launcher("status").returncode == 3


def test_bad_files_are_refused_with_a_sentence(build, tmp_path):
    for old, new, word in (("port = ", "port = x", "port"), ("[router r0]", "[king r0]", "[king r0]"),
                           ("gpus = cpu:0", "cpus = 0-9999", "CPUs"), ("gpus = ", "gpu = ", "'gpu'"),
                           ("flags = --", "flags = --no-such-flag --", "no"),
                           ("[cluster]", "[cluster]\nrestart_delay_max = 0", "restart_delay_max"),
                           ("[cluster]", "[cluster]\nno_such_key = 1", "no_such_key")):
        folder = tmp_path / str(abs(hash(new)))
        folder.mkdir()
        r = edited(Cluster(folder, build), old, new).launcher("up", "--wait", "10")
        assert r.returncode == 2 and word in r.stderr and "Traceback" not in r.stderr, r.stderr
    assert run("up", "--conf", tmp_path / "none.conf").returncode == 2


def test_a_model_that_is_not_there_ends_up_with_the_reason(build, tmp_path):
    r = Cluster(tmp_path, build, model=str(tmp_path / "no-model")).launcher("up", "--wait", "20")
    assert r.returncode in (1, 2) and "no-model" in r.stderr


def test_a_process_that_cannot_start_is_shown_at_the_time_out(build, tmp_path):
    c = Cluster(tmp_path, build, decode_gpus="0")
    r = c.launcher("up", "--wait", "3")
    c.down()
    assert r.returncode in (1, 2, 4) and "GPU" in r.stderr + r.stdout + c.log("d0")


def test_twice_is_no_error_and_another_cluster_is_refused(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        r = c.launcher("up")
        assert r.returncode == 0 and "already running" in r.stdout
        other = tmp_path / "other.conf"
        other.write_text(c.conf.read_text())
        r = run("up", "--conf", other)
        assert r.returncode == 2 and str(c.conf) in r.stderr


def test_work_that_was_cut_is_status_6(build, tmp_path):
    row = CONVERSATIONS[60]
    c = Cluster(tmp_path, build, router_flags="--shutdown-timeout 1",
                decode_flags="--debug-fault step_delay_ms=50 --shutdown-timeout 1").up()
    s = Stream(c, "/v1/completions", generate_body(row, prompt=row["prompt_ids"]))
    next(s.events())
    r = c.down()
    assert r.returncode == 6 and "cut" in r.stderr
    assert c.down().stdout.strip() == "nothing runs"


def test_down_finds_what_a_dead_supervisor_left(build, tmp_path):
    c = Cluster(tmp_path, build).up()
    boss = next(int(p.name) for p in (os.scandir("/proc")) if p.name.isdigit()
                and str(c.conf) in open(f"/proc/{p.name}/cmdline").read() and "foreground" in
                open(f"/proc/{p.name}/cmdline").read())
    pids = [p["pid"] for p in c.rows().values()]
    os.kill(boss, signal.SIGKILL)
    time.sleep(0.2)
    r = c.launcher("up")
    assert r.returncode == 2 and "baton down" in r.stderr
    assert c.down().returncode == 6
    wait_for(lambda: not any(os.path.exists(f"/proc/{p}/exe") for p in pids), 5)
    with c:
        assert c.ready()


def test_the_delay_before_a_restart_doubles_up_to_its_maximum(build, tmp_path):
    with Cluster(tmp_path, build, launcher_keys="restart_delay_max = 0.5") as c:
        for delay in ("0.2", "0.4", "0.5", "0.5"):
            pid = c.pid("d0")
            c.kill("d0")
            wait_for(lambda: c.pid("d0") not in (pid, None), 20)
            last = [line for line in c.log("launcher").splitlines() if "d0 ended with signal 9" in line][-1]
            assert last.endswith(f"restarting in {delay} s"), last
        wait_for(c.ready, 60)
