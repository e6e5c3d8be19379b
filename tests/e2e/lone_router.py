"""baton-router without a launcher or workers, for what it does alone."""
import http.client
import os
import pathlib
import resource
import subprocess

from cluster import free_port, wait_for


class Router:
    """baton-router alone, on one core."""

    def __init__(self, build, runtime, model, *flags, address_space=None):
        self.port = free_port()
        core = min(os.sched_getaffinity(0))

        def before():
            os.sched_setaffinity(0, {core})
            if address_space is not None:
                resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))

        self.log = pathlib.Path(runtime) / "r0.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [build / "bin/baton-router", f"--model={model}", f"--runtime-dir={runtime}",
                 f"--port={self.port}", "--served-model-name=demo", *flags], stderr=log,
                preexec_fn=before)
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
