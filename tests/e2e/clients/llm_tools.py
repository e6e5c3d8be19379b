"""A function of the user's, called through the command `llm`."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

given = json.load(sys.stdin)
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "extra-openai-models.yaml").write_text(
        f"- model_id: demo\n  model_name: demo\n  supports_tools: true\n  api_base: http://127.0.0.1:{given['port']}/v1\n")
    env = {**os.environ, "LLM_USER_PATH": folder, "OPENAI_API_KEY": "none"}
    program = [sys.executable, "-m", "llm"]
    done = subprocess.run([*program, "-m", "demo", "-o", "temperature", "0", "--functions", given["functions"], given["prompt"]],
                          env=env, text=True, capture_output=True, timeout=200)
    assert done.returncode == 0, done.stderr
    print(json.dumps(done.stdout.rstrip("\n")))
