"""One question through the command `llm`, told of the server by its own file."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

given = json.load(sys.stdin)
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "extra-openai-models.yaml").write_text(
        f"- model_id: demo\n  model_name: demo\n  api_base: http://127.0.0.1:{given['port']}/v1\n")
    program = pathlib.Path(sys.executable).parent / "llm"
    env = {**os.environ, "LLM_USER_PATH": folder, "OPENAI_API_KEY": "none"}

    def ask(*more):
        done = subprocess.run([program, "-m", "demo", "-o", "temperature", "0", *more, given["prompt"]], env=env, text=True,
                              capture_output=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return done.stdout.rstrip("\n")
    print(json.dumps({"streamed": ask(), "whole": ask("--no-stream"), "system": ask("-s", given["system"])}))
