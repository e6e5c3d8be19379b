#!/bin/bash
# Collects programs of a CUDA build with the libraries that they need, for a machine that
# has an NVIDIA driver and the CUDA toolkit and nothing else of this project.
# usage: tests/device/pack.sh [BUILD [DIR]]; default build/cuda and .dev. Fails when a
# program is missing from BUILD, a library is not found, or DIR is larger than 35 MiB.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build/cuda}
dir=${2:-.dev}
limit_kib=35840
# C library and run times of the compiler, whose newer ones there serve, too; driver, and
# what the toolkit there has.
have='^(libresolv|libgcc_s|libstdc\+\+|linux-vdso|ld-linux-x86-64|libc|libm|libpthread|librt|libdl|libcuda|libcudart|libcublas|libcublasLt|libnccl)\.so'
programs="tests/op_test tests/op_bench tests/backend_test tests/wrong_test tests/kernel_trace.so
	bin/baton-router bin/baton-prefill bin/baton-decode bin/baton-logits"
missing=0

rm -rf "$dir.new"
mkdir -p "$dir.new"
for program in $programs; do
	if [ ! -x "$build/$program" ]; then
		echo "missing: $build/$program"
		missing=1
		continue
	fi
	cp "$build/$program" "$dir.new/"
	strip "$dir.new/$(basename "$program")"
done
# One line of ldd: "name => path (address)"; "not found" has no path.
for program in "$dir.new"/*; do
	[ -x "$program" ] && ldd "$program"
done | awk '{print $1, $3}' | sort -u | while read -r name path; do
	name=$(basename "$name")
	echo "$name" | grep -Eq "$have" && continue
	if [ ! -f "$path" ]; then
		echo "missing: library $name"
		touch "$dir.new/.missing"
		continue
	fi
	cp -L "$path" "$dir.new/$name"
	strip "$dir.new/$name"
done
[ ! -e "$dir.new/.missing" ] || missing=1
rm -f "$dir.new/.missing"
rm -rf "$dir"
mv "$dir.new" "$dir"
size_kib=$(du -sk "$dir" | cut -f1)
echo "$dir: $size_kib KiB in $(ls "$dir" | wc -l) files, limit $limit_kib"
[ "$size_kib" -le "$limit_kib" ] || missing=1
exit $missing
