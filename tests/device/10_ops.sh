#!/bin/bash
# Every op on the GPU against the CPU's kernels, and compute-sanitizer on small cases.
# usage: tests/device/10_ops.sh DIR [op_test arguments]; DIR holds op_test, backend_test
# and the libraries that the GPU machine lacks. Logs go to $OUT (default: a temporary folder).
set -u
dir=$1
shift
out=${OUT:-$(mktemp -d)}
export LD_LIBRARY_PATH=$dir:/usr/local/cuda/lib64
san=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer \
	/opt/nvidia/*/*/compute-sanitizer 2>/dev/null | head -1)
last=$(($(nvidia-smi -L | wc -l) - 1)) # the sanitizers run on another GPU if there is one
rc=0

nvidia-smi -L | cut -d'(' -f1
tools="memcheck racecheck initcheck synccheck"
why="no compute-sanitizer here"
if [ -n "$san" ]; then # some machines do not let it near the GPU
	timeout 60 "$san" "$dir/op_test" --small --op embed --gpu $last >"$out/san.log" 2>&1
	why=$(grep -m1 'not supported' "$out/san.log")
fi
if [ -n "$why" ]; then
	echo "$tools: not run: $why"
	tools=""
fi
for tool in $tools; do
	timeout 240 "$san" --tool $tool --error-exitcode 9 "$dir/op_test" --small \
		--gpu $last "$@" >"$out/$tool.log" 2>&1 &
	pids+=($!)
done
timeout 240 "$dir/op_test" "$@" >"$out/op_test.log" 2>&1 || rc=1
grep -E '^(FAIL|time)' "$out/op_test.log" | head -60
sed -n '/^variant/,$p' "$out/op_test.log"
[ $rc = 0 ] || tail -3 "$out/op_test.log"
if [ $# = 0 ]; then # everything
	for pair in "0 0" "0 $last" "$last 0"; do
		timeout 60 "$dir/backend_test" $pair || rc=1
	done
	timeout 100 "$dir/op_test" --select >"$out/select.log" 2>&1 || rc=1
	cat "$out/select.log"
fi
for tool in $tools; do
	wait "${pids[0]}"
	code=$?
	pids=("${pids[@]:1}")
	[ $code = 0 ] || rc=1
	echo "$tool: exit $code; $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$out/$tool.log" |
		tail -1); $(tail -1 "$out/$tool.log" | cut -c1-60)"
	grep -E '^FAIL|=========     (Invalid|Uninit|Error|Race)' "$out/$tool.log" | sort | uniq -c | head -5
done
echo "exit $rc"
exit $rc
