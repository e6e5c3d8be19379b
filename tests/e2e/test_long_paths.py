"""Paths that a socket cannot have: every program and the launcher say so alike, before
anything is loaded or made; a long path of a model is nothing special."""
import os
import subprocess

import pytest

from cluster import ROOT, Cluster

PROGRAMS = ("baton-router", "baton-prefill", "baton-decode")


def check_config(build, program, runtime, *more):
    return subprocess.run([build / "bin" / program, "--id", "x0", "--model", ROOT / "deploy/demo-model",
                           "--runtime-dir", runtime, "--check-config", *more], capture_output=True, text=True)


def long_dir(n):
    """n bytes, not all of them ASCII."""
    path = "/tmp/" + "\u00e4" * 10 + "x" * (n - 25)
    assert len(path.encode()) == n
    return path


def in_dir(c, folder, runtime):
    c.conf.write_text(c.conf.read_text().replace(f"runtime_dir = {folder}/run", f"runtime_dir = {runtime}"))
    return c


@pytest.mark.parametrize("n", [77, 90, 107, 108, 150])
def test_a_long_runtime_dir_is_refused_by_all_alike(build, tmp_path, n):
    path, c = long_dir(n), Cluster(tmp_path, build)
    why = f"runtime_dir: {path} has {n} bytes, at most 76: a socket's path in it must fit into 107\n"
    for program in PROGRAMS:
        r = check_config(build, program, path)
        assert r.returncode == 2 and r.stderr.endswith(why), (program, r)
    in_dir(c, tmp_path, path)
    for verb in ("up", "status", "down"):
        r = c.launcher(verb)
        assert r.returncode == 2 and r.stderr.endswith(why), r
    assert not os.path.exists(path), "made before it was refused"


def test_a_runtime_dir_of_76_bytes_serves(build, tmp_path):
    path = long_dir(76)
    for program in PROGRAMS:
        assert check_config(build, program, path).returncode == 0
    c = in_dir(Cluster(tmp_path, build), tmp_path, path)
    try:
        r = c.launcher("up")
        assert r.returncode == 0 and c.ready() and c.launcher("restart", "d0").returncode == 0, r
    finally:
        down = c.launcher("down")
        subprocess.run(["rm", "-r", path], check=True)
    assert down.returncode == 0, down


def test_a_model_path_of_300_bytes_serves_or_says_what_is_not_there(build, tmp_path):
    path = tmp_path / ("a" * 120) / ("b" * (300 - 122 - len(str(tmp_path))))
    assert len(str(path)) == 300
    r = Cluster(tmp_path, build, model=str(path)).launcher("up", "--wait", "20")
    assert r.returncode == 1 and str(path) in r.stderr and "No such file or directory" in r.stderr, r
    path.parent.mkdir()
    path.symlink_to(ROOT / "deploy/demo-model")
    with Cluster(tmp_path, build, model=str(path)) as c:
        assert c.ready()
