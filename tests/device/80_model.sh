#!/bin/bash
# Runs tests/device/model_gpu.py, which says what it measures, with the packed programs.
# usage: tests/device/80_model.sh [DIR [ARGUMENTS]]; DIR (default .dev): made by pack.sh.
# Logs, traces and the table go to $OUT (default: a temporary folder).
set -u
cd "$(dirname "$0")/../.."
dir=${1:-.dev}
[ $# = 0 ] || shift
export LD_LIBRARY_PATH=$PWD/$dir:/usr/local/cuda/lib64 CUDA_MODULE_LOADING=EAGER
exec python3 tests/device/model_gpu.py "$dir" "$@"
