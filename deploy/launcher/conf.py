"""The cluster file: what shall run, and what of it can be refused before anything starts."""
import configparser
import os
import pathlib
import re
import shlex
import socket
import stat
import subprocess

from launcher import Refused
from launcher.proc import DELAY_FIRST, Process
from launcher.state import Lock

HERE = pathlib.Path(__file__).resolve().parent.parent
ROOT = HERE.parent
PROGRAM = {"router": "baton-router", "prefill": "baton-prefill", "decode": "baton-decode"}
CLUSTER_KEYS = {"model", "runtime_dir", "log_dir", "bin", "restart_delay_max"}
PROCESS_KEYS = {"port", "gpus", "cpus", "flags"}


def cpu_list(text, name):
    cpus, have = set(), os.sched_getaffinity(0)
    for part in filter(None, (p.strip() for p in text.split(","))):
        m = re.fullmatch("([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        if not m or m[2] and int(m[2]) < int(m[1]):
            raise Refused(f"{name}: cpus = {text!r}: expected something like 0-3,8")
        cpus.update(range(int(m[1]), int(m[2] or m[1]) + 1))
    if cpus - have:
        raise Refused(f"{name}: cpus = {text!r}: not all of these CPUs are here (there are {sorted(have)})")
    return cpus


class Cluster:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        ini = configparser.ConfigParser(interpolation=None, strict=True)
        try:
            text = self.path.read_text(encoding="utf-8")
            if "\0" in text:
                raise ValueError("a NUL byte in a text file")
            ini.read_string(text, str(self.path))
        except (OSError, ValueError, configparser.Error) as e:
            raise Refused(f"{self.path}: {e}") from e
        if "cluster" not in ini:
            raise Refused(f"{self.path}: no [cluster] section")
        head = dict(ini["cluster"])
        self.refuse_unknown("[cluster]", head, CLUSTER_KEYS)
        default = "/run/baton" if os.geteuid() == 0 else f"/tmp/baton-{os.geteuid()}"
        self.runtime = pathlib.Path(head.get("runtime_dir") or default)
        if not self.runtime.is_absolute():
            raise Refused(f"{self.path}: runtime_dir = {str(self.runtime)!r}: expected an absolute path")
        self.logs = self.under_root(head.get("log_dir") or str(self.runtime / "logs"))
        self.bin = self.under_root(head.get("bin", "build/release/bin"))
        self.model = self.under_root(head.get("model", "deploy/demo-model"))
        self.delay_max = self.seconds(head.get("restart_delay_max", "10"))
        self.processes, self.ports = [], []
        for section in ini.sections():
            if section != "cluster":
                self.add(section, dict(ini[section]))
        if not self.ports:
            raise Refused(f"{self.path}: no [router NAME] section: nothing would answer")
        self.conf = str(self.path.resolve())
        self.lock = Lock(self.runtime / "launcher.lock")
        self.state_path = self.runtime / "launcher.json"
        self.last_path = self.runtime / "launcher.last"  # how the last supervisor ended

    def under_root(self, text):
        p = pathlib.Path(text)
        return p if p.is_absolute() else ROOT / p

    def seconds(self, text):
        if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", text) or float(text) < DELAY_FIRST:
            raise Refused(f"{self.path}: restart_delay_max = {text!r}: expected seconds, {DELAY_FIRST} to 9999")
        return float(text)

    def refuse_unknown(self, section, values, known):
        for key in values:
            if key not in known:
                raise Refused(f"{self.path}: {section}: unknown key {key!r}; known: {', '.join(sorted(known))}")

    def add(self, section, values):
        role, _, name = section.partition(" ")
        if role not in PROGRAM or not name.isidentifier():
            raise Refused(f"{self.path}: [{section}]: expected [router NAME], [prefill NAME] or [decode NAME]")
        self.refuse_unknown(f"[{section}]", values, PROCESS_KEYS)
        if name in [p.name for p in self.processes]:
            raise Refused(f"{self.path}: two processes are named {name}")
        argv = [str(self.bin / PROGRAM[role]), "--id", name, "--model", str(self.model),
                "--runtime-dir", str(self.runtime)]
        if role == "router":
            port = values.get("port", "8000")
            if not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
                raise Refused(f"{self.path}: [{section}]: port = {port!r}: expected 1 to 65535")
            if int(port) in self.ports:
                raise Refused(f"{self.path}: two routers have port {port}")
            argv += ["--port", port]
            self.ports.append(int(port))
        else:
            argv += ["--gpus", values.get("gpus", "cpu:0")]
        try:
            argv += shlex.split(values.get("flags", ""))
        except ValueError as e:
            raise Refused(f"{self.path}: [{section}]: flags = {values['flags']!r}: {e}") from e
        self.processes.append(Process(name, role, argv, cpu_list(values.get("cpus", ""), section),
                                      self.logs / f"{name}.log", self.delay_max))

    def make_folders(self):
        try:
            self.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = os.lstat(self.runtime)
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
                raise Refused(f"{self.runtime} must be a directory of this user with mode 0700")
            self.logs.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise Refused(f"cannot make {e.filename}: {e.strerror}") from e

    def prepare(self):
        for port in self.ports:
            self.refuse_taken(port)
        for p in self.processes:
            if not os.access(p.argv[0], os.X_OK):
                raise Refused(f"{p.argv[0]} is not there: build first (cmake --preset release && "
                              "cmake --build --preset release)")
            try:
                check = subprocess.run(p.argv + ["--check-config"], cwd=ROOT, capture_output=True, text=True,
                                       errors="replace")
            except OSError as e:
                raise Refused(f"{p.name}: cannot be started: {e}") from e
            if check.returncode != 0:
                raise Refused(f"{p.name}: {(check.stderr or check.stdout).strip()}")

    def refuse_taken(self, port):
        """Another server there would answer /ready in place of ours."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as e:
                raise Refused(f"port {port}: {e.strerror}; another server uses it, or it is reserved") from e
