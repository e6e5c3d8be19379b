"""Who serves: routers by /ready, workers by what the routers' /metrics say of them."""
import http.client
import re
import threading
import urllib.error
import urllib.request

EVERY = 0.1
UP = re.compile(r'^baton_worker_state\{worker="([^"]*)",.*state="up"\} 1$', re.M)


def get(port, path):
    """The body of a 200; None otherwise."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1) as r:
            return r.read().decode(errors="replace") if r.status == 200 else None
    except (urllib.error.URLError, http.client.HTTPException, OSError):
        return None


def ready(port):
    return get(port, "/ready") is not None


class Probe(threading.Thread):
    """Asks the routers of these ports again and again, beside the supervisor's loop, which
    no router may hold up. `rounds` counts the answers, so that an old one is told from one
    that was asked for after a change."""

    def __init__(self, ports):
        super().__init__(daemon=True)
        self.ports, self.rounds, self.ready, self.up = ports, 0, set(), {}
        self.ends = threading.Event()
        self.start()

    def run(self):
        while not self.ends.wait(EVERY):
            up, good = {}, set()
            for port in list(self.ports):
                text = get(port, "/metrics")
                if text is not None:
                    up[port] = set(UP.findall(text))
                if ready(port):
                    good.add(port)
            self.up, self.ready, self.rounds = up, good, self.rounds + 1

    def serves(self, p):
        """A worker that a router takes, by every router that answers; a router that is ready."""
        if p.child is None:
            return False
        if p.role == "router":
            return p.spec.port in self.ready
        return bool(self.up) and all(p.ident in ids for ids in self.up.values())

    def close(self):
        self.ends.set()
