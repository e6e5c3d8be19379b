"""The lock, the state file, and what stands in a log for one that is gone."""
import json
import os
import subprocess
import types

import pytest

from launcher import Refused
from launcher.proc import Adopted, Process, Spec, birth
from launcher.state import Lock, refuse_stranger, running, save, saved, starter

SPEC = Spec("d0", "decode", "/bin/sleep", ("--x",), (0,), "/tmp/d0.log")
GONE = {"name": "d0", "role": "decode", "id": "d0", "pid": 1, "birth": "never", "log": "none"}


def place(tmp_path, conf="a.conf"):
    return types.SimpleNamespace(state_path=tmp_path / "launcher.json", conf=conf, runtime=tmp_path)


def test_the_folder_has_one_holder_and_a_replaced_one_keeps_nobody_out(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    a, b = Lock(folder), Lock(folder)
    assert a.take() and a.take() and not b.take() and b.held()
    folder.rename(tmp_path / "away")
    folder.mkdir()
    assert not a.stands() and b.take() and not a.take()
    b.release()
    assert a.take() and a.stands() and not b.stands()


def test_what_is_saved_is_read_and_lives_by_pid_and_start_time(tmp_path):
    c, child = place(tmp_path), subprocess.Popen(["sleep", "60"])
    p = Process(SPEC, 1.0)
    p.child, p.state = child, "running"
    save(c, "running", [p.row()], None)
    boss, rows = running(c)
    q = Process.adopt(rows[0], 1.0)
    child.kill()
    child.wait()
    assert boss["pid"] == os.getpid() and q.spec == SPEC and q.child.pid == child.pid
    assert running(c) == (boss, []) and q.child.poll() == 1


@pytest.mark.parametrize("change", [{"pid": "1"}, {"processes": {}}, {"processes": [{}]}, {"last": 1}, {"phase": None}])
def test_a_state_of_another_shape_is_refused(tmp_path, change):
    c = place(tmp_path)
    save(c, "running", [], None)
    assert saved(c)["processes"] == []
    c.state_path.write_text(json.dumps({**saved(c), **change}))
    with pytest.raises(Refused, match="launcher.json"):
        saved(c)


def test_another_conf_file_is_a_stranger_while_somebody_lives(tmp_path):
    a, b = place(tmp_path), place(tmp_path, "b.conf")
    for phase, who in (("running", f"supervisor {os.getpid()}"), ("starting", f"by process {os.getpid()}")):
        save(a, phase, [], None)
        refuse_stranger(a)
        with pytest.raises(Refused, match=who):
            refuse_stranger(b)
    assert starter(a)["pid"] == os.getpid()
    save(a, "ended", [], None)
    refuse_stranger(b)
    assert running(a) == (None, []) and starter(a) is None


@pytest.mark.parametrize("code, lines", [
    (0, ["x info decode/d0 worker.c: 0.1.0 id=d0", "x info decode/d0 worker.c: exit code=0"]),
    (6, ["x info decode/d0 worker.c: exit code=6", "x info decode/d0 exporter.c: link=1 ended"]),
    (1, ["x info decode/d0 worker.c: exit code=0", "x info decode/d0 worker.c: 0.1.0 id=d0 exit code=0 "]),
    (1, ["x info decode/d0.2 worker.c: exit code=0", "x info prefill/d0 worker.c: exit code=0"]),
    (1, [])])
def test_how_a_process_ended_that_is_no_child_is_what_it_logged_last(tmp_path, code, lines):
    log = tmp_path / "d0.log"
    log.write_text("\n".join(["noise"] * 3 + lines) + "\n")
    assert Adopted({**GONE, "log": str(log)}).poll() == code
    assert Adopted(GONE).poll() == 1


def test_a_number_that_came_to_another_process_is_never_signalled():
    child = subprocess.Popen(["sleep", "60"])
    Adopted({**GONE, "pid": child.pid}).kill()
    alive = child.poll() is None and birth(child.pid)
    child.kill()
    child.wait()
    assert alive and birth(child.pid) is None
