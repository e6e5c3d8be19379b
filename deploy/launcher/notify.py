"""What systemd is told of the supervisor: ready, what it does, that its loop turns."""
import os
import socket
import time


class Notify:
    """Does nothing where no NOTIFY_SOCKET is set. The variables are taken out of the
    environment: the processes are not systemd's."""

    def __init__(self):
        path = os.environ.pop("NOTIFY_SOCKET", "")
        usec, pid = os.environ.pop("WATCHDOG_USEC", ""), os.environ.pop("WATCHDOG_PID", "")
        self.address = "\0" + path[1:] if path.startswith("@") else path if path.startswith("/") else None
        mine = usec.isdecimal() and (not pid or pid == str(os.getpid()))
        self.every = int(usec) / 2e6 if mine and self.address else None
        self.due = self.more_at = 0.0
        self.text = None

    def send(self, *lines):
        if not self.address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as s:
                s.sendto("\n".join(lines).encode(), self.address)
        except OSError:  # systemd goes on without; its watchdog says so if it matters
            pass

    def status(self, text):
        if text != self.text:
            self.text = text
            self.send(f"STATUS={text}")

    def ready(self):
        self.send("READY=1")

    def stopping(self):
        self.send("STOPPING=1")

    def turn(self):
        """Of the loop; tells at most as often as the watchdog asks for."""
        if self.every is None or time.monotonic() < self.due:
            return
        self.due = time.monotonic() + self.every / 2
        self.send("WATCHDOG=1")

    def extend(self, seconds):
        """While it starts: there is more to wait for."""
        if time.monotonic() >= self.more_at:
            self.more_at = time.monotonic() + seconds / 6
            self.send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")
