#!/usr/bin/env bash
# The two commands of the README on a fresh Debian: a minimal system made by debootstrap
# in a folder, a clone of this tree's HEAD in it, deploy/demo.sh --once, deploy/test.sh.
# Needs root and debootstrap. usage: tests/clean.sh [FOLDER] [-- test.sh options]
set -euo pipefail
cd "$(dirname "$0")/.."
root=${1:-/var/tmp/baton-clean}
[ $# -gt 0 ] && shift
[ "${1:-}" = -- ] && shift

[ "$(id -u)" = 0 ] || { echo "tests/clean.sh needs root" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "debootstrap is not installed" >&2; exit 2; }
if mountpoint -q "$root/proc"; then
	umount "$root/proc"
fi
rm -rf "$root"
debootstrap --variant=minbase bookworm "$root" >"$root.log" 2>&1 || { tail "$root.log" >&2; exit 1; }
mount -t proc proc "$root/proc"
trap 'umount "$root/proc"' EXIT
# A proxy or mirror that the host's apt is configured for is the host's own matter.
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
cp /etc/apt/sources.list "$root/etc/apt/sources.list" 2>/dev/null || true
[ -d /etc/apt/sources.list.d ] && cp -r /etc/apt/sources.list.d/. "$root/etc/apt/sources.list.d/"
[ -d /etc/ssl/certs ] && mkdir -p "$root/etc/ssl" && cp -rL /etc/ssl/certs "$root/etc/ssl/" 2>/dev/null || true
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
git clone -q . "$root/baton"
clean() {
	chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
		/bin/bash -c "cd /baton && $1"
}
clean "./deploy/demo.sh --once"
clean "./deploy/test.sh $*"
