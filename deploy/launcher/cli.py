"""Start and stop the processes of one host from a cluster file.

  baton up [--conf FILE] [--wait SECONDS] [--foreground]
  baton status [--conf FILE] [-o json]
  baton logs [NAME] [-f] [--conf FILE]
  baton down [--conf FILE] [--timeout SECONDS]
  baton scale ROLE=N... [--conf FILE] [--wait SECONDS]
  baton restart ID|ROLE|all [--drain-first] [--conf FILE] [--wait SECONDS]
  baton reload [--drain-first] [--conf FILE] [--wait SECONDS]

`up` starts a supervisor, which starts every process of the file, pins it to its CPUs and
restarts it with a growing delay when it ends by a signal or with status 1, 4, 5 or 6. It
does not restart after 0 (drained), 2 (configuration) or 3 (model). On a running cluster
`up` starts what the file wants and does not run, and says what else differs; what a dead
supervisor left is taken over. `down` drains the routers, then the workers, and cuts what
is left after the time-out (exit status 6 then).
`scale` starts copies of a role's last process or drains some. `restart` replaces processes
one by one: a new worker serves before the old one drains. `reload` starts, replaces and
drains until what runs is what the file says. --wait is the time for each new process to
serve; --drain-first ends the old one first, when the two cannot stand side by side.
Exit status: 0 done, 1 failed, or the supervisor is gone, 2 usage or configuration, or what
runs differs from it, 3 nothing runs, 4 timed out, 5 busy with another order, 6 stopped with
work cut.
"""
import argparse
import os
import pathlib
import sys

from launcher import Refused, commands
from launcher.conf import Cluster
from launcher.proc import ROOT


def default_conf():
    """Of the source tree; where it is installed, of the system (deploy/install.cmake)."""
    own = ROOT / "deploy" / "cluster.conf"
    told = ROOT / "etc"
    return own if own.exists() or not told.exists() else pathlib.Path(told.read_text().strip()) / "baton" / "cluster.conf"


def parser():
    ap = argparse.ArgumentParser(prog="baton", description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = ap.add_subparsers(dest="verb", required=True)
    verb = {}
    for name in ("up", "down", "status", "logs", "scale", "restart", "reload"):
        verb[name] = sub.add_parser(name)
        verb[name].add_argument("--conf", default=str(default_conf()))
    for name in ("up", "scale", "restart", "reload"):
        verb[name].add_argument("--wait", type=float, default=120.0)
    for name in ("restart", "reload"):
        verb[name].add_argument("--drain-first", action="store_true")
    verb["up"].add_argument("--foreground", action="store_true")
    verb["up"].add_argument("--lock-fd", type=int, help=argparse.SUPPRESS)  # from `up` to its supervisor
    verb["down"].add_argument("--timeout", type=float, default=60.0)
    verb["status"].add_argument("-o", "--output", choices=["table", "json"], default="table")
    verb["logs"].add_argument("name", nargs="?")
    verb["logs"].add_argument("-f", "--follow", action="store_true")
    verb["scale"].add_argument("counts", nargs="+", metavar="ROLE=N")
    verb["restart"].add_argument("target", metavar="ID|ROLE|all")
    return ap


def fill_standard():
    """Descriptors 0 to 2 stand for something, so that no file or socket gets such a number."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number: fd


def main():
    fill_standard()
    args = parser().parse_args()
    try:
        return getattr(commands, args.verb)(Cluster(args.conf), args)
    except Refused as e:
        print(f"baton: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 1
