/* A kernel that reads, and one that fills what it reads. */
#include "tests/bench/op_read.h"

#include "kernels/cuda/cuda_common.cuh"

enum {
	BLOCK = 256,
	LOADS = 4, /* of 16 bytes, in flight per thread: 128 KB per multiprocessor */
	TILE_UNITS = BLOCK * LOADS,
	BLOCKS = 8, /* per multiprocessor: 2048 threads, all that it holds */
};

/* A store that hardly ever happens, to where the host could look: without a use of
 * everything that was read the compilers leave out the loads. */
#define IMPROBABLE 0x9E3779B9u
__device__ uint32_t op_read_sink;

static __global__ void __launch_bounds__(BLOCK)
	read_kernel(const uint4 *__restrict__ from, uint64_t units)
{
	uint64_t step = (uint64_t)gridDim.x * TILE_UNITS;
	uint4 all = make_uint4(0, 0, 0, 0);

	for (uint64_t at = (uint64_t)blockIdx.x * TILE_UNITS + threadIdx.x; at < units;
		at += step) {
		uint4 v[LOADS];

#pragma unroll
		for (uint32_t i = 0; i < LOADS; i++)
			v[i] = at + i * BLOCK < units ? __ldcg(from + at + i * BLOCK)
						      : make_uint4(0, 0, 0, 0);
#pragma unroll
		for (uint32_t i = 0; i < LOADS; i++) {
			all.x ^= v[i].x;
			all.y ^= v[i].y;
			all.z ^= v[i].z;
			all.w ^= v[i].w;
		}
	}
	if ((all.x ^ all.y ^ all.z ^ all.w) == IMPROBABLE)
		op_read_sink = all.x;
}

/* The finaliser of MurmurHash3 over the number of the word. */
static __global__ void __launch_bounds__(BLOCK) fill_kernel(uint32_t *to, uint64_t words)
{
	for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < words;
		i += (uint64_t)gridDim.x * BLOCK) {
		uint32_t h = (uint32_t)i + 1;

		h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
		h = (h ^ (h >> 13)) * 0xC2B2AE35u;
		to[i] = h ^ (h >> 16);
	}
}

static status count_blocks(const struct stream *stream, uint64_t *blocks, struct err *err)
{
	int n = 0;

	CUDA_ENTER("read");
	CUDA_TRY("multiprocessors of the device",
		cudaDeviceGetAttribute(
			&n, cudaDevAttrMultiProcessorCount, stream->device));
	*blocks = (uint64_t)n * BLOCKS;
	return ST_OK;
}

extern "C" status op_read_cuda(
	struct stream *stream, const void *at, uint64_t bytes, struct err *err)
{
	uint64_t units = bytes / sizeof(uint4);
	uint64_t tiles = CEIL_DIV(units, (uint64_t)TILE_UNITS), blocks = 0;
	status st = count_blocks(stream, &blocks, err);

	if (st != ST_OK)
		return st;
	if (!is_aligned(at, 16) || bytes % 16 != 0)
		return err_set(err, ST_LIMIT,
			"read: %llu bytes at %p: multiples of 16 are read",
			(unsigned long long)bytes, at);
	if (units == 0)
		return ST_OK;
	read_kernel<<<(uint32_t)MIN(tiles, blocks), BLOCK, 0, stream->cuda>>>(
		(const uint4 *)at, units);
	return cuda_launched("read", err);
}

extern "C" status op_fill_cuda(
	struct stream *stream, void *at, uint64_t bytes, struct err *err)
{
	uint64_t blocks = 0;
	status st = count_blocks(stream, &blocks, err);

	if (st != ST_OK)
		return st;
	fill_kernel<<<(uint32_t)blocks, BLOCK, 0, stream->cuda>>>(
		(uint32_t *)at, bytes / 4);
	return cuda_launched("fill", err);
}
