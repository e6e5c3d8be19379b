"""Flags of a worker that no single key can refuse by itself."""
import subprocess

import pytest

from cluster import ROOT

ROWS = [
    (["--id", "p0", "--max-model-len", "100000"], 2, "max_position_embeddings 32768"),
    (["--plan", "--max-model-len", "100000"], 2, "max_position_embeddings 32768"),
    ([], 2, "id is not given"),
    (["--plan", "--doctor"], 2, "exclude each other"),
]


@pytest.mark.parametrize("flags,status,text", ROWS, ids=range(len(ROWS)))
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_what_does_not_fit_together_is_refused(build, runtime, role, flags, status, text):
    r = subprocess.run([build / "bin" / f"baton-{role}", "--model", ROOT / "deploy/demo-model", "--runtime-dir",
                        runtime, *flags], capture_output=True, text=True, timeout=60)
    assert r.returncode == status and text in r.stderr, r.stderr


def test_a_plan_and_a_kernel_table_need_no_name(build):
    for flag, text in (("--plan", "at most"), ("--doctor", "linear/plain")):
        r = subprocess.run([build / "bin" / "baton-prefill", "--model", ROOT / "deploy/demo-model", flag],
                           capture_output=True, text=True, timeout=60)
        assert r.returncode == 0 and text in r.stdout, r.stderr
