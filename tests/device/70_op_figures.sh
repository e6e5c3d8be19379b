#!/bin/bash
# Times every CUDA op at the shapes of 35B-A3B beside its floor (tests/bench/op_bench.c says
# how) and prints all variants, then the fastest of each case. About 100 s on an H200.
# usage: tests/device/70_op_figures.sh [DIR [ARGUMENTS]]; DIR (default .dev): made by
# pack.sh. The same goes to op_bench.txt in $OUT (default: a temporary folder).
set -u
cd "$(dirname "$0")/../.."
dir=${1:-.dev}
[ $# = 0 ] || shift
out=${OUT:-$(mktemp -d)}
export LD_LIBRARY_PATH=$PWD/$dir:/usr/local/cuda/lib64 CUDA_MODULE_LOADING=EAGER
timeout 175 "$dir/op_bench" --seconds 150 "$@" 2>&1 | tee "$out/op_bench.txt"
exit "${PIPESTATUS[0]}"
