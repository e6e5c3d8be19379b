"""A checkpoint that was changed in place is another model: a worker that loads it does not
join those that hold the old one, and comes back with the old bytes."""
import pathlib
import shutil

from cluster import Cluster, wait_for
from small_model import read_header

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUESTION = {"messages": [{"role": "user", "content": "Count from 1 to 5."}], "max_tokens": 20, "temperature": 0}


def flip(path, tensor):
    """Another file at the same name, one bit changed in the first byte of a tensor: what is sampled of a
    large tensor begins there (weights_digest.c)."""
    header, data = read_header(path)
    begin, _ = header[tensor]["data_offsets"]
    blob = bytearray(path.read_bytes())
    blob[len(blob) - len(data) + begin] ^= 1
    other = path.with_suffix(".new")
    other.write_bytes(blob)
    other.rename(path)


def test_other_weights_under_the_same_name_are_refused(build, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(ROOT / "deploy/demo-model", model)
    weights = model / "model.safetensors"
    tensor = next(n for n in read_header(weights)[0] if n.endswith("layers.3.self_attn.k_proj.weight"))
    with Cluster(tmp_path, build, model=model, launcher_keys="restart_delay_max = 1") as c:
        want = c.post("/v1/chat/completions", QUESTION)
        assert want.status == 200
        flip(weights, tensor)
        c.kill("d0")
        wait_for(lambda: "another checkpoint, or one that was changed since" in c.log("d0"), 30)
        refused = next(line for line in c.log("d0").splitlines() if "another checkpoint" in line)
        assert "weights " in refused and " of d0, those of p0 are " in refused
        assert c.post("/v1/chat/completions", QUESTION, timeout=30).status == 503
        flip(weights, tensor)
        wait_for(c.ready, 30)
        again = c.post("/v1/chat/completions", QUESTION)
        assert again.status == 200
        assert again.json()["choices"][0]["message"] == want.json()["choices"][0]["message"]
