/* Reading of device memory and nothing else: what puts an op's data out of the L2 cache,
 * and the peer of every op that is bound by bytes. */
#ifndef TESTS_BENCH_OP_READ_H
#define TESTS_BENCH_OP_READ_H
#include "kernels/backend.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Enqueue: every byte of [at, at + bytes) is read once, through L2. at: aligned to 16
 * bytes, bytes: a multiple of 16. May be captured. For streams of the CUDA backend. */
MUST_CHECK status op_read_cuda(
	struct stream *s, const void *at, uint64_t bytes, struct err *err);
/* Enqueue: random words. Rates of zeros are not those of data. */
MUST_CHECK status op_fill_cuda(
	struct stream *s, void *at, uint64_t bytes, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
