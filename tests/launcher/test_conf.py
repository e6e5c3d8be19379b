"""The cluster file, read without starting anything."""
import os

import pytest

from launcher import Refused
from launcher.conf import Cluster, cpu_list, other_id
from launcher.proc import ROOT

HEAD = "[cluster]\nruntime_dir = {runtime}\n"
FILE = HEAD + "[router r0]\nport = 8001\n[decode d0]\ngpus = cpu:0\nflags = --max-num-seqs 4 --id-x 'a b'\n"


def cluster(tmp_path, text=FILE, runtime=None):
    path = tmp_path / "c.conf"
    path.write_text(text.format(runtime=runtime or "/tmp/run"))
    return Cluster(path)


def test_a_section_becomes_a_command_line(tmp_path):
    c = cluster(tmp_path)
    r0, d0 = c.specs
    assert (r0.name, r0.role, r0.port, c.ports) == ("r0", "router", 8001, [8001])
    assert d0.argv("d0.2") == [f"{ROOT}/build/release/bin/baton-decode", "--id", "d0.2", "--model",
                               f"{ROOT}/deploy/demo-model", "--runtime-dir", "/tmp/run", "--gpus", "cpu:0",
                               "--max-num-seqs", "4", "--id-x", "a b"]
    assert d0.log == "/tmp/run/logs/d0.log"


def test_the_same_file_gives_equal_specs_and_a_changed_flag_another(tmp_path):
    assert cluster(tmp_path).specs == cluster(tmp_path).specs
    other = cluster(tmp_path, FILE.replace("--max-num-seqs 4", "--max-num-seqs 5")).specs
    assert other[0] == cluster(tmp_path).specs[0] and other[1] != cluster(tmp_path).specs[1]


def test_relative_folders_are_below_the_source_tree(tmp_path):
    c = cluster(tmp_path, FILE + "", runtime="some/../run")
    assert c.runtime == ROOT / "run" and c.logs == ROOT / "run" / "logs" and c.specs[0].rest[3] == str(ROOT / "run")


@pytest.mark.parametrize("role, tail", [("router", len("/routers/x.2.sock")), ("decode", len("/x.2..link") + 16)])
def test_a_path_of_107_bytes_is_taken_and_one_of_108_refused_with_its_length(tmp_path, role, tail):
    text = HEAD + "[router r]\n" + (f"[{role} x]\n" if role != "router" else "[router x]\nport = 8001\n")
    fits = "/tmp/" + "x" * (107 - tail - 5)
    assert cluster(tmp_path, text, fits).runtime
    with pytest.raises(Refused, match=f"runtime_dir: {fits}x has {108 - tail} bytes.* of 108, at most 107"):
        cluster(tmp_path, text, fits + "x")


def test_bytes_are_counted_not_letters(tmp_path):
    with pytest.raises(Refused, match="has 107 bytes"):
        cluster(tmp_path, FILE, "/tmp/" + "ä" * 51)


def test_a_successor_and_its_successor_take_turns_in_two_ids():
    assert other_id("d0", "d0") == "d0.2" and other_id("d0", "d0.2") == "d0"


def test_cpus_are_ranges_and_single_numbers():
    first = min(os.sched_getaffinity(0))
    assert cpu_list("", "x") == () and cpu_list(f"{first}, {first}-{first}", "x") == (first,)
    for bad in ("1-0", "a", "0-", "-1", "0 0", "99999", "0,,x"):
        with pytest.raises(Refused, match="x: cpus"):
            cpu_list(bad, "x")
