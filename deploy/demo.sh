#!/usr/bin/env bash
# From a fresh clone to an answer: installs what is missing, builds, starts a router, a
# prefill worker and a decode worker with the demo model on the CPU, asks a question and
# prints the answer as it streams. --once stops the cluster again and exits 0 only if the
# answer was right.
set -euo pipefail
cd "$(dirname "$0")/.."

once=
case "${1:-}" in
"") ;;
--once) once=1 ;;
*)
	echo "usage: deploy/demo.sh [--once]" >&2
	exit 2
	;;
esac

deploy/install.sh build
mkdir -p build
echo "building (the first time takes a minute or two)"
cmake --preset release -DWITH_CUDA=OFF >build/demo-build.log 2>&1 || { cat build/demo-build.log >&2; exit 1; }
cmake --build --preset release --target baton-router baton-prefill baton-decode batonctl baton-logits >>build/demo-build.log 2>&1 || { tail -40 build/demo-build.log >&2; exit 1; }

echo "starting the cluster of deploy/cluster.conf"
rc=0
deploy/baton status >/dev/null 2>&1 || rc=$?
if [ -n "$once" ] && [ "$rc" -le 1 ]; then
	echo "a cluster of deploy/cluster.conf runs already and would be stopped: deploy/baton down first" >&2
	exit 1
fi
deploy/baton up
[ -z "$once" ] || trap 'deploy/baton down' EXIT
runtime=/tmp/baton-$(id -u)
[ "$(id -u)" != 0 ] || runtime=/run/baton
rc=0
deploy/demo_client.py http://127.0.0.1:8000 "$runtime/logs/r0.log" || rc=$?
[ -z "$once" ] || exit "$rc"

cat <<'TEXT'
The cluster goes on running. Ask it something yourself:

  curl -N http://127.0.0.1:8000/v1/chat/completions -d '{"stream": true, "messages":
    [{"role": "user", "content": "Count from 1 to 20."}]}'

  deploy/baton status      the processes
  deploy/baton logs -f     what they say
  deploy/baton down        stop them

TEXT
exit "$rc"
