"""Flags that are refused before anything is loaded, with status 2 and the key's name."""
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


DEEP = "/" + "d" * 100
WORKER = [("--log-level=loud", "log_level"), ("--kv-dtype=f16", "kv_dtype"), ("--gpus=cpu:x", "gpus"),
          ("--transport=cuda_ipc", "transport"), ("--load-format=gguf", "load_format"),
          ("--dummy-format=q4", "dummy_format"), ("--kernels=linear/best", "kernels: no variant for cpu"),
          ("--kernels=linear/plain,moe/plane", "kernels: no variant for cpu"), ("--runtime-dir=here", "runtime_dir"),
          (f"--runtime-dir={DEEP}", "runtime_dir"), ("--debug-fault=pause@nowhere", "debug_fault"),
          ("--max-num-seqs=4097", "max_num_seqs"), ("--lost-ms=999", "lost_ms"), ("--kv-pages=1", "kv_pages"),
          ("--plan=maybe", "plan")]
ROUTER = [("--log-level=loud", "log_level"), ("--generation-config=maybe", "generation_config"),
          ("--host=localhost", "host"), ("--host=127.0.0.256", "host"), (f"--uds={DEEP}{DEEP}", "uds"),
          ("--runtime-dir=here", "runtime_dir"), (f"--runtime-dir={DEEP}", "runtime_dir"), ("--port=65536", "port"),
          ("--probe-port=8000", "probe_port"), ("--max-replays=3", "max_replays"),
          ("--lost-ms=100", "lost_ms"), ("--debug-fault=pause@nowhere", "debug_fault"),
          ("--keepalive-s=nan", "keepalive_s"), ("--strict-template=2", "strict_template")]


@pytest.mark.parametrize("how", ["--check-config", "at start"])
@pytest.mark.parametrize("role,flag,text", [("prefill", *r) for r in WORKER] + [("decode", *r) for r in WORKER] +
                         [("router", *r) for r in ROUTER])
def test_a_bad_value_is_refused_by_its_key(build, runtime, role, flag, text, how):
    flags = [flag] + (["--check-config"] if how == "--check-config" else [])
    if not flag.startswith("--runtime-dir"):
        flags.append(f"--runtime-dir={runtime}")
    r = subprocess.run([build / "bin" / f"baton-{role}", "--model", "/no/such/model", "--id=x0", *flags],
                       capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and text in r.stderr and r.stdout == "", r.stderr + r.stdout
    assert len(r.stderr.splitlines()) == 1 and not list(runtime.iterdir()), r.stderr


@pytest.mark.parametrize("role", ["prefill", "decode", "router"])
def test_a_good_configuration_is_ok_and_leaves_nothing_behind(build, runtime, role):
    flags = ["--served-model-name="] if role == "router" else ["--kernels=linear/plain,moe/plain"]
    r = subprocess.run([build / "bin" / f"baton-{role}", "--model", ROOT / "deploy/demo-model", "--id=x0",
                        f"--runtime-dir={runtime}/made", *flags, "--check-config"],
                       capture_output=True, text=True, timeout=60)
    assert (r.returncode, r.stdout, r.stderr) == (0, "ok\n", "")
    assert not list(runtime.iterdir())


def test_a_plan_and_a_kernel_table_need_no_name(build):
    for flag, text in (("--plan", "at most"), ("--doctor", "linear/plain")):
        r = subprocess.run([build / "bin" / "baton-prefill", "--model", ROOT / "deploy/demo-model", flag],
                           capture_output=True, text=True, timeout=60)
        assert r.returncode == 0 and text in r.stdout, r.stderr
