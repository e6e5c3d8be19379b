"""baton-router without a launcher or workers, for what it does alone."""
import http.client
import os
import pathlib
import subprocess

from cluster import free_port, wait_for


class Router:
    """baton-router alone, on one core."""

    def __init__(self, build, runtime, model, *flags):
        self.port = free_port()
        core = min(os.sched_getaffinity(0))
        self.log = pathlib.Path(runtime) / "r0.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [build / "bin/baton-router", f"--model={model}", f"--runtime-dir={runtime}",
                 f"--port={self.port}", "--served-model-name=demo", *flags], stderr=log,
                preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        wait_for(self.listens, 60)

    def listens(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.ask("GET", "/live")[0] == 200
        except OSError:
            return False

    def ask(self, method, path, body=None):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        conn.request(method, path, body, {"Content-Type": "application/json"})
        answer = conn.getresponse()
        out = answer.status, answer.read()
        conn.close()
        return out

    def close(self):
        self.process.kill()
        self.process.wait()
