/* The two kernels of gdn_prefill/chunks: what a chunk needs beside its rows, found for
 * all chunks side by side by the first, used in order by the second. */
#ifndef KERNELS_CUDA_GDN_CHUNK_CUH
#define KERNELS_CUDA_GDN_CHUNK_CUH
#include "kernels/cuda/gdn_common.cuh"

enum { CHUNK = 64, CHUNK_WARPS = 8, CHUNK_BLOCK = CHUNK_WARPS * 32 };
static_assert(GDN_D == 128, "rows of 16 pieces");

/* Of one chunk and value head, in op.work; matrices as they stand in shared memory. */
struct chunk_record {
	bf16 inverse[CHUNK * CHUNK]; /* T */
	bf16 weights[CHUNK * CHUNK]; /* of new values in the output */
	float past[CHUNK];           /* exp(G) */
	float left[CHUNK];           /* exp(G_last - G) */
	float beta[CHUNK];
};
static_assert(sizeof(struct chunk_record) % 16 == 0, "copied in pieces of 16 bytes");

/* Rows t..t + n - 1 of one head. */
struct chunk {
	uint64_t t;
	uint32_t n, head;
};

/* Chunk i of a sequence whose first row is `first`. The numbers of different sequences
 * differ: a sequence has at most one chunk more than its rows / 64. */
static __device__ __forceinline__ struct chunk_record *record_of(
	const struct op_gdn_prefill &op, uint32_t seq, uint64_t first, uint32_t i,
	uint32_t head)
{
	uint64_t number = first / CHUNK + seq + i;

	return (struct chunk_record *)op.work + number * op.n_v + head;
}

static inline uint64_t records_bytes(uint64_t rows, uint64_t seqs, uint64_t heads)
{
	return (rows / CHUNK + seqs + 1) * heads * sizeof(struct chunk_record);
}

/* gdn_pairs.cu: the records of all chunks of the pass. */
status gdn_pairs_launch(
	struct stream *stream, const struct op_gdn_prefill *op, struct err *err);

/* Element at which a 16-byte piece of a row of 128 (or 64) begins; permuted so that
 * eight rows at one place touch all banks. */
static __device__ __forceinline__ uint32_t at128(uint32_t row, uint32_t piece)
{
	return row * 128 + ((piece ^ (row & 7u)) * 8);
}

static __device__ __forceinline__ uint32_t at64(uint32_t row, uint32_t piece)
{
	return row * CHUNK + ((piece ^ (row & 7u)) * 8);
}

static __device__ __forceinline__ void load_rows(
	bf16 *to, const bf16 *from, uint64_t stride, uint32_t n)
{
#pragma unroll
	for (uint32_t i = 0; i < CHUNK * 16 / CHUNK_BLOCK; i++) {
		uint32_t row = (i * CHUNK_BLOCK + threadIdx.x) / 16;
		uint32_t piece = threadIdx.x % 16;

		copy16_async(&to[at128(row, piece)],
			from + min(row, n - 1) * stride + piece * 8, row < n);
	}
}

#endif
