/* Lists of copies from a peer's memory into ours, by three methods; which one a pair of
 * workers uses is timed when they meet (common/xfer). Bound by the link.
 *
 * The gather kernel sees the pieces as one row of tiles of 32 KiB: block b takes tiles
 * b, b + blocks, ...; a thread has four loads of 16 bytes in flight, which is what a link
 * with a microsecond of latency needs. Pieces come as kernel arguments, so that nothing
 * has to be uploaded first. */
#include "kernels/cuda/backend_impl.cuh"

enum {
	PIECES_MAX = 128,
	BLOCK = 512,
	LOADS = 4, /* of 16 bytes, per thread and tile */
	TILE_UNITS = BLOCK * LOADS,
	BLOCKS_MAX = 1024,
};

struct job {
	struct copy_piece piece[PIECES_MAX];
	uint32_t first[PIECES_MAX + 1]; /* tile */
	uint32_t n;
};
static_assert(sizeof(struct job) <= 4096, "kernel arguments");

/* The piece that a tile belongs to. */
static __device__ __forceinline__ uint32_t find_piece(
	const struct job &job, uint32_t tile)
{
	uint32_t low = 0, high = job.n - 1;

	while (low < high) {
		uint32_t middle = (low + high + 1) / 2;

		if (job.first[middle] <= tile)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

static __global__ void __launch_bounds__(BLOCK)
	gather_kernel(const __grid_constant__ struct job job)
{
	for (uint32_t tile = blockIdx.x; tile < job.first[job.n]; tile += gridDim.x) {
		uint32_t p = find_piece(job, tile);
		const uint4 *src = (const uint4 *)job.piece[p].src;
		uint4 *dst = (uint4 *)job.piece[p].dst;
		uint64_t units = job.piece[p].bytes / sizeof(uint4);
		uint64_t at = (uint64_t)(tile - job.first[p]) * TILE_UNITS + threadIdx.x;
		uint4 v[LOADS];

#pragma unroll
		for (uint32_t i = 0; i < LOADS; i++)
			if (at + i * BLOCK < units)
				v[i] = __ldcs(src + at + i * BLOCK);
#pragma unroll
		for (uint32_t i = 0; i < LOADS; i++)
			if (at + i * BLOCK < units)
				dst[at + i * BLOCK] = v[i];
	}
}

static status copy_one_by_one(
	struct stream *s, const struct copy_piece *pieces, uint32_t n, struct err *err)
{
	status st = ST_OK;

	for (uint32_t i = 0; i < n && st == ST_OK; i++) {
		if (pieces[i].bytes > 0)
			st = cuda_check(s->backend, "cudaMemcpyAsync",
				cudaMemcpyAsync(pieces[i].dst, pieces[i].src,
					pieces[i].bytes, cudaMemcpyDefault, s->cuda),
				err);
	}
	return st;
}

static status copy_batch(
	struct stream *s, const struct copy_piece *pieces, uint32_t n, struct err *err)
{
	struct cudaMemcpyAttributes how = {};
	void *dst[PIECES_MAX];
	const void *src[PIECES_MAX];
	size_t bytes[PIECES_MAX], how_from = 0;
	cudaError_t rc;

	how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
	for (uint32_t i = 0; i < n; i++) {
		dst[i] = pieces[i].dst;
		src[i] = pieces[i].src;
		bytes[i] = pieces[i].bytes;
	}
	rc = cudaMemcpyBatchAsync(dst, src, bytes, n, &how, &how_from, 1, s->cuda);
	if (rc != cudaSuccess)
		(void)cudaGetLastError(); /* or the next launch would report it */
	return cuda_check(s->backend, "cudaMemcpyBatchAsync", rc, err);
}

static status copy_gather(struct stream *s, const struct copy_piece *pieces, uint32_t n,
	uint32_t blocks, struct err *err)
{
	struct job job;

	if (blocks == 0 || blocks > BLOCKS_MAX)
		return err_set(err, ST_LIMIT, "copy/gather: %u blocks, 1 to %d", blocks,
			BLOCKS_MAX);
	job.n = 0;
	job.first[0] = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct copy_piece *p = &pieces[i];
		uint64_t units = p->bytes / sizeof(uint4);

		/* Odd ends of a state: few and small, so the copy engine takes them. */
		if (((uintptr_t)p->src | (uintptr_t)p->dst | p->bytes) % sizeof(uint4) !=
			0) {
			status st = copy_one_by_one(s, p, 1, err);

			if (st != ST_OK)
				return st;
			continue;
		}
		job.piece[job.n] = *p;
		job.first[job.n + 1] = job.first[job.n] +
				       (uint32_t)CEIL_DIV(units, (uint64_t)TILE_UNITS);
		job.n++;
	}
	if (job.n == 0)
		return ST_OK;
	gather_kernel<<<blocks, BLOCK, 0, s->cuda>>>(job);
	return cuda_check(s->backend, "copy/gather", cudaGetLastError(), err);
}

status cuda_copy_list_by(struct stream *s, const struct copy_method *how,
	const struct copy_piece *pieces, uint32_t n, struct err *err)
{
	status st = cuda_enter(s->backend, err);

	for (uint32_t at = 0; at < n && st == ST_OK; at += PIECES_MAX) {
		uint32_t part = MIN(n - at, (uint32_t)PIECES_MAX);

		if (how->kind == COPY_ENGINE)
			st = copy_one_by_one(s, pieces + at, part, err);
		else if (how->kind == COPY_BATCH)
			st = copy_batch(s, pieces + at, part, err);
		else
			st = copy_gather(s, pieces + at, part, how->blocks, err);
	}
	return st;
}

status cuda_copy_list(
	struct stream *s, const struct copy_piece *pieces, uint32_t n, struct err *err)
{
	status st = cuda_enter(s->backend, err);

	return st == ST_OK ? copy_one_by_one(s, pieces, n, err) : st;
}
