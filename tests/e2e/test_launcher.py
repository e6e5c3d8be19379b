"""The launcher: what it refuses, what it says, and that it never touches a stranger."""
import fcntl
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import sys
import time

import pytest

from cluster import CONVERSATIONS, LAUNCHER, Cluster, Stream, generate_body, wait_for
from launcher_rig import edited, supervisor


def run(*words):
    return subprocess.run([str(LAUNCHER), *map(str, words)], capture_output=True, text=True, timeout=120)


def programs(folder, build, router=None):
    """A build folder of the test's own, whose programs it may take away; router: a script."""
    (folder / "bin").mkdir(parents=True)
    for name in ("baton-router", "baton-prefill", "baton-decode"):
        (folder / "bin" / name).symlink_to(build / "bin" / name)
    if router:
        path = folder / "bin" / "baton-router"
        path.unlink()
        path.write_text(router)
        path.chmod(0o755)
    return folder


def slow_to_check(folder, build):
    """A build folder whose router takes a second for --check-config: an `up` is at its
    preparations for that long."""
    return programs(folder, build, '#!/bin/sh\ncase "$*" in *--check-config*) sleep 1;; esac\n'
                    f'exec {build}/bin/baton-router "$@"\n')


def begin_up(c):
    return subprocess.Popen([sys.executable, "-I", str(LAUNCHER), "up", "--wait", "60", "--conf", str(c.conf)],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def locked(c):
    try:
        fd = os.open(c.runtime, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def of_this_cluster(c):
    """Roles of the living processes that stand under this cluster's runtime directory."""
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            argv = (p / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if str(c.runtime) in argv and "--check-config" not in argv:
            found.append(argv[argv.index("--id") + 1])
    return sorted(found)


def test_a_port_in_use_is_refused_by_number(build, tmp_path):
    c = Cluster(tmp_path, build)
    with socket.socket() as s:
        s.bind(("127.0.0.1", c.port))
        s.listen()
        r = c.launcher("up", "--wait", "10")
    assert r.returncode == 2 and f"port {c.port}" in r.stderr
    assert c.launcher("status").returncode == 3


def test_bad_files_are_refused_with_a_sentence(build, tmp_path):
    for n, (old, new, word) in enumerate((
                           ("port = ", "port = x", "port"), ("[router r0]", "[king r0]", "[king r0]"),
                           ("gpus = cpu:0", "cpus = 0-9999", "CPUs"), ("gpus = ", "gpu = ", "'gpu'"),
                           ("flags = --", "flags = --no-such-flag --", "no"),
                           ("flags = --", "flags = --x 'y --", "quotation"), ("port = ", "port = \u00b2", "port"),
                           ("gpus = cpu:0", "cpus = 1-0", "cpus"), ("gpus = cpu:0", "cpus = 0 0", "cpus"),
                           ("gpus = cpu:0", "cpus = 0-99999999999", "cpus"), ("[cluster]", "[cluster]\0", "NUL"),
                           ("[cluster]", "[cluster]\nrestart_delay_max = 0", "restart_delay_max"),
                           ("[cluster]", "[cluster]\nno_such_key = 1", "no_such_key"))):
        folder = tmp_path / str(n)
        folder.mkdir()
        r = edited(Cluster(folder, build), old, new).launcher("up", "--wait", "10")
        assert r.returncode == 2 and word in r.stderr and "Traceback" not in r.stderr, r.stderr
    assert run("up", "--conf", tmp_path / "none.conf").returncode == 2
    (tmp_path / "latin.conf").write_bytes(b"[cluster]\nmodel = \xe9t\xe9\n")
    r = run("status", "--conf", tmp_path / "latin.conf")
    assert r.returncode == 2 and "utf-8" in r.stderr and "Traceback" not in r.stderr


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


def test_the_delay_before_a_restart_doubles_up_to_its_maximum(build, tmp_path):
    with Cluster(tmp_path, build, launcher_keys="restart_delay_max = 0.5") as c:
        for delay in ("0.2", "0.4", "0.5", "0.5"):
            pid = c.pid("d0")
            c.kill("d0")
            wait_for(lambda: c.pid("d0") not in (pid, None), 20)
            last = [line for line in c.log("launcher").splitlines() if "d0 ended with signal 9" in line][-1]
            assert last.endswith(f"restarting in {delay} s"), last
        wait_for(c.ready, 60)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"pid": 1}', "[" * 100000,
                                  '{"pid": 1, "birth": null, "conf": "x", "processes": [{}]}',
                                  '{"pid": "1", "birth": "1", "conf": "x", "processes": []}'], ids=range(8))
def test_a_state_file_of_another_shape_is_refused_with_a_sentence(build, tmp_path, text):
    c = Cluster(tmp_path, build)
    c.runtime.mkdir(mode=0o700)
    (c.runtime / "launcher.json").write_text(text)
    for verb in ("status", "up", "down"):
        r = c.launcher(verb)
        assert r.returncode == 2 and "launcher.json" in r.stderr and "Traceback" not in r.stderr, r.stderr


def test_a_restart_that_finds_no_program_is_tried_again(build, tmp_path):
    own = programs(tmp_path / "own", build)
    with Cluster(tmp_path, own) as c:
        boss, program = supervisor(c), own / "bin" / "baton-decode"
        program.rename(program.with_name("away"))
        c.kill("d0")
        tries = wait_for(lambda: [t for t in c.log("launcher").splitlines() if "d0 could not be started" in t][1:], 5)
        assert "No such file" in tries[0] and str(program) in tries[0] and "tried again in 0.8 s" in tries[0], tries
        assert c.rows()["d0"]["state"] == "restarting" and c.launcher("status").returncode == 0
        program.with_name("away").rename(program)
        wait_for(lambda: c.rows()["d0"]["state"] == "running" and c.ready(), 30)
        assert supervisor(c) == boss


def test_a_removed_runtime_folder_is_made_again(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        boss = supervisor(c)
        shutil.rmtree(c.runtime)
        wait_for(lambda: (c.runtime / "launcher.json").exists() and c.ready(), 30)
        time.sleep(1.2)
        assert stat.S_IMODE(c.runtime.stat().st_mode) == 0o700 and supervisor(c) == boss and locked(c)
        assert c.log("launcher").count("made again") == 1
        assert c.launcher("status").stdout.count("running") == 3
        (c.runtime / "launcher.json").write_text("[]")
        wait_for(lambda: c.launcher("status").returncode == 0, 10)


def test_a_process_that_starts_finds_its_removed_log_folder_again(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        shutil.rmtree(c.logs)
        c.kill("d0")
        wait_for(lambda: (c.logs / "d0.log").exists() and c.log("d0") and c.ready(), 30)
        wait_for(lambda: (c.logs / "launcher.log").exists() and "made again" in c.log("launcher"), 10)


def test_ups_at_the_same_time_bring_up_one_cluster(build, tmp_path):
    c = Cluster(tmp_path, slow_to_check(tmp_path / "own", build))
    ups = [begin_up(c) for _ in range(2)]
    wait_for(c.runtime.exists, 5)
    ups.append(begin_up(c))
    said = [p.communicate(timeout=60)[0] for p in ups]
    with c:
        assert [p.returncode for p in ups] == [0, 0, 0], said
        assert all("ready: " in t for t in said) and sum("being started by process" in t for t in said) == 2, said
        assert of_this_cluster(c) == ["d0", "p0", "r0"]
        assert c.log("launcher").count(" started, pid") == 3


def test_down_stops_what_is_being_started(build, tmp_path):
    c = Cluster(tmp_path, slow_to_check(tmp_path / "own", build))
    up = begin_up(c)
    wait_for(c.runtime.exists, 5)
    time.sleep(0.2)
    other = tmp_path / "other.conf"
    other.write_text(c.conf.read_text())
    said = [c.launcher("status"), run("up", "--conf", other), c.down()]
    left = up.wait(60), of_this_cluster(c)
    last = c.down()
    assert "being started" in said[0].stdout, said[0]
    assert said[1].returncode == 2 and str(c.conf) in said[1].stderr, said[1]
    assert said[2].returncode in (0, 6) and "nothing runs" not in said[2].stdout, said[2]
    assert left == (1, []) and last.stdout.strip() == "nothing runs"


def test_an_up_after_a_stop_has_begun_starts_again(build, tmp_path):
    c = Cluster(tmp_path, build).up()
    boss = supervisor(c)
    down = subprocess.Popen([sys.executable, "-I", str(LAUNCHER), "down", "--conf", str(c.conf)])
    wait_for(lambda: "draining" in c.log("launcher"), 5)
    with c:
        assert down.wait(10) == 0 and supervisor(c) != boss and of_this_cluster(c) == ["d0", "p0", "r0"]


def test_a_wrong_mode_of_the_runtime_folder_costs_only_time(build, tmp_path):
    with Cluster(tmp_path, build, launcher_keys="restart_delay_max = 0.3") as c:
        c.runtime.chmod(0o755)
        c.kill("d0")
        wait_for(lambda: "d0 could not be started: " in c.log("launcher") and "mode 0700; tried again in" in
                 c.log("launcher"), 10)
        c.runtime.chmod(0o700)
        wait_for(lambda: c.rows()["d0"]["state"] == "running", 10)
        wait_for(c.ready, 30)


def test_another_conf_file_neither_stops_nor_shows_a_cluster(build, tmp_path):
    with Cluster(tmp_path, build) as c:
        other = tmp_path / "other.conf"
        other.write_text(c.conf.read_text())
        for word in ("down", "status"):
            r = run(word, "--conf", other)
            assert r.returncode == 2 and str(c.conf) in r.stderr, r
        assert c.ready()


def test_a_cluster_without_a_router_is_refused(tmp_path):
    conf = tmp_path / "c.conf"
    conf.write_text(f"[cluster]\nruntime_dir = {tmp_path}/run\n[decode d0]\n")
    r = run("up", "--conf", conf, "--wait", "5")
    assert r.returncode == 2 and "[router NAME]" in r.stderr
