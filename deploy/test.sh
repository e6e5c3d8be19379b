#!/usr/bin/env bash
# Installs what is missing, builds, runs every test, and ends with one line:
# "N passed, N failed, N skipped". Options go to tests/run_all.py (--help lists them).
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/install.sh test
exec /usr/bin/python3 tests/run_all.py "$@"
