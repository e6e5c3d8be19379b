#!/usr/bin/env bash
# Installs the Debian packages that building, running and testing Baton need. Does
# nothing when all of them are there. Needs root, or sudo.
set -euo pipefail

BUILD="gcc g++ make cmake ninja-build pkg-config ccache git ca-certificates
libmicrohttpd-dev libuv1-dev libzmq3-dev libmsgpack-dev libjansson-dev libutf8proc-dev
libxxhash-dev libcmocka-dev python3 python3-jinja2 curl"
TEST="clang libclang-rt-14-dev clang-format python3-pytest python3-numpy python3-zmq
systemd dpkg-dev file python3-msgpack python3-venv python3-pip iproute2 chromium chromium-driver python3-selenium
python3-jsonschema"

want=$BUILD
[ "${1:-build}" = test ] && want="$BUILD $TEST"

missing=
for p in $want; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0

echo "installing:$missing"
as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
$as_root apt-get update -q >/dev/null
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -q --no-install-recommends $missing >/dev/null
