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
from launcher.proc import DELAY_FIRST, ROOT, Spec
from launcher.state import Lock

PROGRAM = {"router": "baton-router", "prefill": "baton-prefill", "decode": "baton-decode"}
CLUSTER_KEYS = {"model", "runtime_dir", "log_dir", "bin", "restart_delay_max"}
WORKER_KEYS = {"gpus", "cpus", "flags"}
PROCESS_KEYS = {"router": {"port", "api_key_file", "cpus", "flags"}, "prefill": WORKER_KEYS, "decode": WORKER_KEYS}
SOCKET_PATH_MAX = 107  # bytes of sun_path, less the zero
RUNTIME_DIR_MAX = 76  # bytes; RUNTIME_DIR_BYTES_MAX of common/loop/runtime.h
ID_MAX = 48  # bytes, as the programs have it


def cpu_list(text, name):
    cpus, have = set(), os.sched_getaffinity(0)
    for part in filter(None, (p.strip() for p in text.split(","))):
        m = re.fullmatch("([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        if not m or m[2] and int(m[2]) < int(m[1]):
            raise Refused(f"{name}: cpus = {text!r}: expected something like 0-3,8")
        cpus.update(range(int(m[1]), int(m[2] or m[1]) + 1))
    if cpus - have:
        raise Refused(f"{name}: cpus = {text!r}: not all of these CPUs are here (there are {sorted(have)})")
    return tuple(sorted(cpus))


def other_id(name, ident):
    """Of a process that takes the place of one of this id: a router knows two that live by
    two ids."""
    return name if ident != name else f"{name}.2"


def socket_name(role, ident):
    """Of the longest path that a process makes in the runtime directory."""
    return f"routers/{ident}.sock" if role == "router" else f"{ident}.{0:016x}.link"


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
        self.runtime = self.under_root(head.get("runtime_dir") or default)
        self.logs = self.under_root(head.get("log_dir") or str(self.runtime / "logs"))
        self.bin = self.under_root(head.get("bin", "build/release/bin"))
        self.model = self.under_root(head.get("model", "deploy/demo-model"))
        self.delay_max = self.seconds(head.get("restart_delay_max", "10"))
        self.conf = str(self.path.resolve())
        self.state_path = self.runtime / "launcher.json"
        self.socket_path = self.runtime / "launcher.sock"
        self.lock = Lock(self.runtime)
        n = len(os.fsencode(self.runtime))
        if n > RUNTIME_DIR_MAX:
            raise Refused(f"{self.path}: runtime_dir: {self.runtime} has {n} bytes, at most {RUNTIME_DIR_MAX}: a "
                          f"socket's path in it must fit into {SOCKET_PATH_MAX}")
        self.specs, self.ports = [], []
        for section in ini.sections():
            if section != "cluster":
                self.add(section, dict(ini[section]))
        if not self.ports:
            raise Refused(f"{self.path}: no [router NAME] section: nothing would answer")

    def under_root(self, text):
        p = pathlib.Path(text)
        return p if p.is_absolute() else pathlib.Path(os.path.normpath(ROOT / p))

    def seconds(self, text):
        if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", text) or float(text) < DELAY_FIRST:
            raise Refused(f"{self.path}: restart_delay_max = {text!r}: expected seconds, {DELAY_FIRST} to 9999")
        return float(text)

    def refuse_unknown(self, section, values, known):
        for key in values:
            if key not in known:
                raise Refused(f"{self.path}: {section}: unknown key {key!r}; known: {', '.join(sorted(known))}")

    def refuse_long(self, role, name):
        """Before anything runs: a name with which the process or its successor could not."""
        longest = other_id(name, name)
        if len(longest.encode()) > ID_MAX:
            raise Refused(f"{self.path}: [{role} {name}]: a name of {len(name.encode())} bytes, at most "
                          f"{ID_MAX - len(longest) + len(name)}")
        path = self.runtime / socket_name(role, longest)
        n = len(os.fsencode(path))
        if n > SOCKET_PATH_MAX:
            raise Refused(f"{self.path}: [{role} {name}]: in runtime_dir its socket {path} has {n} bytes, at most "
                          f"{SOCKET_PATH_MAX}")

    def add(self, section, values):
        role, _, name = section.partition(" ")
        if role not in PROGRAM or not name.isidentifier():
            raise Refused(f"{self.path}: [{section}]: expected [router NAME], [prefill NAME] or [decode NAME]")
        self.refuse_unknown(f"[{section}]", values, PROCESS_KEYS[role])
        if name in [s.name for s in self.specs]:
            raise Refused(f"{self.path}: two processes are named {name}")
        self.refuse_long(role, name)
        rest, port = ["--model", str(self.model), "--runtime-dir", str(self.runtime)], None
        if role == "router":
            text = values.get("port", "8000")
            if not re.fullmatch("[0-9]{1,5}", text) or not 0 < int(text) < 65536:
                raise Refused(f"{self.path}: [{section}]: port = {text!r}: expected 1 to 65535")
            port = int(text)
            if port in self.ports:
                raise Refused(f"{self.path}: two routers have port {port}")
            rest += ["--port", text]
            if values.get("api_key_file"):
                rest += ["--api-key-file", str(self.under_root(values["api_key_file"]))]
            self.ports.append(port)
        else:
            rest += ["--gpus", values.get("gpus", "cpu:0")]
        try:
            rest += shlex.split(values.get("flags", ""))
        except ValueError as e:
            raise Refused(f"{self.path}: [{section}]: flags = {values['flags']!r}: {e}") from e
        self.specs.append(Spec(name, role, str(self.bin / PROGRAM[role]), tuple(rest),
                               cpu_list(values.get("cpus", ""), section), str(self.logs / f"{name}.log"), port))

    def make_folders(self):
        try:
            self.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = os.lstat(self.runtime)
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
                raise Refused(f"{self.runtime} must be a directory of this user with mode 0700")
            self.logs.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise Refused(f"cannot make {e.filename}: {e.strerror}") from e

    def prepare(self, rows):
        """What is in the file and not among the living (rows) could start."""
        have = {r["name"]: r["port"] for r in rows}
        for s in self.specs:
            if s.port and s.port not in have.values():
                self.refuse_taken(s.port)
        for s in self.specs:
            if not os.access(s.program, os.X_OK):
                raise Refused(f"{s.program} is not there: build first (cmake --preset release && "
                              "cmake --build --preset release)")
            try:
                check = subprocess.run(s.argv(s.name) + ["--check-config"], cwd=ROOT, capture_output=True, text=True,
                                       errors="replace")
            except OSError as e:
                raise Refused(f"{s.name}: cannot be started: {e}") from e
            if check.returncode != 0:
                raise Refused(f"{s.name}: {(check.stderr or check.stdout).strip()}")

    def refuse_taken(self, port):
        """Another server there would answer /ready in place of ours."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as e:
                raise Refused(f"port {port}: {e.strerror}; another server uses it, or it is reserved") from e
