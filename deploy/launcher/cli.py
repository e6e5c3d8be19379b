"""Start and stop the processes of one host from a cluster file.

  baton up [--conf FILE] [--wait SECONDS] [--foreground]
  baton status [--conf FILE] [-o json]
  baton logs [NAME] [-f] [--conf FILE]
  baton down [--conf FILE] [--timeout SECONDS]

`up` starts a supervisor, which starts every process of the file, pins it to its CPUs and
restarts it with a growing delay when it ends by a signal or with status 1, 4, 5 or 6. It
does not restart after 0 (drained), 2 (configuration) or 3 (model). `down` drains the
routers, then the workers, and cuts what is left after the time-out (exit status 6 then).
Exit status: 0 done, 1 failed, 2 usage or configuration, 3 nothing runs, 4 timed out,
6 stopped with work cut.
"""
import argparse
import sys

from launcher import Refused
from launcher.commands import down, logs, status, up
from launcher.conf import HERE, Cluster


def main():
    ap = argparse.ArgumentParser(prog="baton", description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = ap.add_subparsers(dest="verb", required=True)
    verbs = {"up": up, "down": down, "status": status, "logs": logs}
    for verb in verbs:
        p = sub.add_parser(verb)
        p.add_argument("--conf", default=str(HERE / "cluster.conf"))
        if verb == "up":
            p.add_argument("--wait", type=float, default=120.0)
            p.add_argument("--foreground", action="store_true")
            p.add_argument("--lock-fd", type=int, help=argparse.SUPPRESS)  # from `up` to its supervisor
        elif verb == "down":
            p.add_argument("--timeout", type=float, default=60.0)
        elif verb == "status":
            p.add_argument("-o", "--output", choices=["table", "json"], default="table")
        else:
            p.add_argument("name", nargs="?")
            p.add_argument("-f", "--follow", action="store_true")
    args = ap.parse_args()
    try:
        return verbs[args.verb](Cluster(args.conf), args)
    except Refused as e:
        print(f"baton: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 1
