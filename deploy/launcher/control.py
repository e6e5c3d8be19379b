"""Orders to a running supervisor: a Unix socket in the runtime directory, which nobody else
may enter. One JSON object a line: {"order": VERB, ...} goes in; {"say": TEXT} comes out any
number of times, then {"done": EXIT STATUS, "say": TEXT}. Whoever hangs up stops watching,
not the work."""
import json
import os
import select
import socket

from launcher.state import identity

LINE_MAX = 65536
CLIENTS_MAX = 32


class Client:
    def __init__(self, sock):
        self.sock, self.text, self.open = sock, b"", True
        sock.setblocking(False)

    def send(self, answer):
        if not self.open:
            return
        try:
            self.sock.send(json.dumps(answer).encode() + b"\n")
        except OSError:  # gone, or does not read
            self.close()

    def say(self, text):
        self.send({"say": text})

    def done(self, code, text):
        self.send({"done": code, "say": text})
        self.close()

    def close(self):
        self.sock.close()
        self.open = False

    def read(self):
        """The order, once its line is whole."""
        try:
            data = self.sock.recv(LINE_MAX + 1)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self.close()
            return None
        self.text += data
        if b"\n" not in self.text:
            if len(self.text) > LINE_MAX:
                self.done(2, f"an order of over {LINE_MAX} bytes")
            return None
        try:
            order = json.loads(self.text.split(b"\n", 1)[0])
        except (ValueError, RecursionError):
            order = None
        if not isinstance(order, dict) or not isinstance(order.get("order"), str):
            self.done(2, 'expected {"order": VERB, ...}')
            return None
        return order


class Orders:
    """The supervisor's end."""

    def __init__(self, path):
        self.path, self.sock, self.clients, self.wrote = path, None, [], None

    def stands(self):
        return self.wrote is not None and self.wrote == identity(self.path)

    def open(self):
        """By the holder of the lock only: what stands there is a dead one's."""
        if self.sock:
            self.sock.close()
        self.path.unlink(missing_ok=True)
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.bind(str(self.path))
        self.sock.listen(CLIENTS_MAX)
        self.sock.setblocking(False)
        self.wrote = identity(self.path)

    def turn(self, seconds):
        """Waits, and returns whole orders as (client, order)."""
        if self.sock is None:
            select.select([], [], [], seconds)
            return []
        self.clients = [c for c in self.clients if c.open]
        ready = select.select([self.sock, *(c.sock for c in self.clients)], [], [], seconds)[0]
        if self.sock in ready:
            try:
                self.clients.append(Client(self.sock.accept()[0]))
            except OSError:
                pass
            for c in self.clients[:-CLIENTS_MAX]:
                c.close()
        found = [(c, c.read()) for c in self.clients if c.open and c.sock in ready]
        self.clients = [c for c in self.clients if c.open and c not in [w for w, order in found if order]]
        return [(c, order) for c, order in found if order]

    def close(self):
        for c in self.clients:
            c.close()
        if self.sock:
            if self.stands():
                os.unlink(self.path)
            self.sock.close()


def ask(cluster, order, say):
    """Sends an order and passes on what is said. Returns the exit status; None: the
    supervisor was gone before it answered."""
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(str(cluster.socket_path))
            s.sendall(json.dumps(order).encode() + b"\n")
            for line in s.makefile():
                answer = json.loads(line)
                if answer["say"]:
                    say(answer["say"], answer.get("done", 0))
                if "done" in answer:
                    return answer["done"]
        except (OSError, ValueError, KeyError):
            pass
    return None
