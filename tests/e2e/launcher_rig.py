"""What the tests of the launcher share."""
import json
import os
import signal

from cluster import wait_for

DECODE = "\n[decode d9]\ngpus = cpu:0\nflags = --memory-bytes 1500000000 --max-num-seqs 32\n"


def edited(c, old, new):
    text = c.conf.read_text()
    assert old in text
    c.conf.write_text(text.replace(old, new))
    return c


def section(c, text):
    c.conf.write_text(c.conf.read_text() + text)


def supervisor(c):
    return json.loads((c.runtime / "launcher.json").read_text())["pid"]


def kill_supervisor(c):
    boss = supervisor(c)
    os.kill(boss, signal.SIGKILL)
    wait_for(lambda: not os.path.exists(f"/proc/{boss}/exe"), 5)


def pids(c):
    return {name: row["pid"] for name, row in c.rows().items()}
