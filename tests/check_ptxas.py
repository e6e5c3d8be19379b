#!/usr/bin/python3
"""Reads the build log of the CUDA kernels (-Xptxas -v) and prints, per kernel and
architecture, registers, static shared memory and spilled bytes.

usage: tests/check_ptxas.py LOG [--all]

Fails when a kernel of HOT spills or is missing from the log for an architecture, when
static shared memory exceeds what a block of SM120 may have (dynamic shared memory is not in
the log; the kernels assert it), and when there is code for another architecture. A log holds
only what was compiled, so build from nothing:

    ninja -C build/cuda -t clean baton_cuda
    ninja -C build/cuda baton_cuda > ptxas.log

--all prints every instantiation, not only the largest of each kernel.
"""
import re
import sys

ARCHES = ("sm_90a", "sm_120a")
SMEM_MAX = 101376  # bytes of shared memory of an SM120 block

# Kernels that a pass spends its time in: no instantiation may spill.
HOT = (
	"add_norm_kernel",
	"attn_merge_kernel",
	"attn_prep_kernel",
	"attn_rows_kernel",
	"attn_tiles_kernel",
	"fp4_kernel",
	"gdn_chunks_kernel",
	"gdn_prep_kernel",
	"gdn_steps_kernel",
	"large_kernel",
	"moe_rings_kernel",
	"moe_route_cluster_kernel",
	"moe_route_kernel",
	"moe_route_spread_kernel",
	"moe_sort",
	"moe_sum",
	"sample_kernel",
	"stream_kernel",
	"swiglu_kernel",
	"tile_kernel",
)

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SMEM = re.compile(r"(\d+) bytes smem")


def plain_name(mangled):
	"""The first name inside a mangled one: a length, then so many letters."""
	m = re.match(r"_Z(?:N\w*?)?L?(\d+)", mangled)
	if m is None:
		return mangled
	return mangled[m.end():m.end() + int(m.group(1))]


def parse(lines):
	"""(name, instantiation, arch, registers, shared memory, spilled bytes) each."""
	entry, spilled, found = None, 0, []
	for line in lines:
		m = ENTRY.search(line)
		if m:
			entry, spilled = m.groups(), 0
			continue
		m = SPILL.search(line)
		if m:
			spilled = int(m.group(1)) + int(m.group(2))
			continue
		m = USED.search(line)
		if m and entry is not None:
			smem = SMEM.search(line)
			found.append((plain_name(entry[0]), entry[0], entry[1], int(m.group(1)),
				int(smem.group(1)) if smem else 0, spilled))
			entry = None
	return found


def faults(kernels):
	for name, mangled, arch, _, smem, spilled in kernels:
		if spilled and name in HOT:
			yield f"{name} ({mangled}) spills {spilled} bytes on {arch}"
		if smem > SMEM_MAX and arch == "sm_120a":
			yield f"{name} has {smem} bytes of shared memory on {arch}"
		if arch not in ARCHES:
			yield f"{name} has machine code for {arch}"
	for name in HOT:
		for arch in ARCHES:
			if not any(k[0] == name and k[2] == arch for k in kernels):
				yield f"{name} was not compiled for {arch}; is this a whole build?"


def print_table(kernels, every):
	rows = {}
	for name, mangled, arch, registers, smem, spilled in kernels:
		key = (mangled if every else name, arch)
		n, r, s, b = rows.get(key, (0, 0, 0, 0))
		rows[key] = (n + 1, max(r, registers), max(s, smem), max(b, spilled))
	print(f"{'kernel':<40} {'arch':<8} {'forms':>5} {'registers':>9} {'smem':>6} {'spilled':>7}")
	for (name, arch), (n, r, s, b) in sorted(rows.items()):
		print(f"{name:<40} {arch:<8} {n:>5} {r:>9} {s:>6} {b:>7}")


def main(argv):
	args = [a for a in argv[1:] if a != "--all"]
	if len(args) != 1:
		print(__doc__)
		return 2
	with open(args[0], encoding="utf-8", errors="replace") as f:
		kernels = parse(f)
	print_table(kernels, "--all" in argv)
	wrong = list(faults(kernels))
	for line in wrong:
		print("check_ptxas:", line)
	print(f"{len(kernels)} kernels, {len(wrong)} faults")
	return 1 if wrong else 0


if __name__ == "__main__":
	sys.exit(main(sys.argv))
