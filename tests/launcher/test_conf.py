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


def test_a_runtime_dir_of_76_bytes_is_taken_and_one_of_77_refused_with_its_length(tmp_path):
    fits = "/tmp/" + "ä" * 35 + "x"
    assert str(cluster(tmp_path, FILE, fits + "/").runtime) == fits
    with pytest.raises(Refused, match=f"runtime_dir: {fits}y has 77 bytes, at most 76: .* 107$"):
        cluster(tmp_path, FILE, fits + "y")


@pytest.mark.parametrize("role, most", [("decode", 107 - 75 - 1 - len(".2..link") - 16), ("router", 107 - 75 - 9 - 7)])
def test_a_name_is_refused_when_its_successors_socket_would_be_too_long(tmp_path, role, most):
    def with_name(n):
        return cluster(tmp_path, HEAD + f"[router r]\n[{role} {'x' * n}]\nport = 8001\n".replace(
            "port = 8001\n", "port = 8001\n" if role == "router" else ""), "/tmp/" + "d" * 70)
    assert with_name(most).specs[1].role == role
    with pytest.raises(Refused, match=rf"\[{role} x+\]: in runtime_dir its socket /tmp/d+/.*xx has 108 bytes, at most 107".replace(
            "xx has", "link has" if role == "decode" else "sock has")):
        with_name(most + 1)


def test_a_name_leaves_room_for_that_of_its_successor(tmp_path):
    assert cluster(tmp_path, HEAD + f"[router {'r' * 46}]\n")
    with pytest.raises(Refused, match="a name of 47 bytes, at most 46"):
        cluster(tmp_path, HEAD + f"[router {'r' * 47}]\n")


def test_a_successor_and_its_successor_take_turns_in_two_ids():
    assert other_id("d0", "d0") == "d0.2" and other_id("d0", "d0.2") == "d0"


def test_cpus_are_ranges_and_single_numbers():
    first = min(os.sched_getaffinity(0))
    assert cpu_list("", "x") == () and cpu_list(f"{first}, {first}-{first}", "x") == (first,)
    for bad in ("1-0", "a", "0-", "-1", "0 0", "99999", "0,,x"):
        with pytest.raises(Refused, match="x: cpus"):
            cpu_list(bad, "x")


def test_a_file_of_keys_is_the_routers_and_below_the_source_tree(tmp_path):
    keyed = FILE.replace("port = 8001\n", "port = 8001\napi_key_file = etc/keys\n")
    rest = cluster(tmp_path, keyed).specs[0].rest
    assert rest[rest.index("--api-key-file") + 1] == str(ROOT / "etc/keys")
    for key in ("api_key_file = keys", "port = 8002"):
        with pytest.raises(Refused, match=rf"\[decode d0\]: unknown key '{key.split()[0]}'; known: cpus, flags, gpus"):
            cluster(tmp_path, FILE + key + "\n")
