/* Sums among the ranks of one engine. Every rank calls the same operations
 * in the same order; the host version meets at a barrier of the rank threads, a device
 * version enqueues on the stream. The ranks' terms are added in ascending order of
 * rank, so a result does not depend on who came first, and every rank gets the same
 * bits. */
#ifndef COMMON_ENGINE_COLLECTIVE_H
#define COMMON_ENGINE_COLLECTIVE_H
#include "common/base/dtype.h"
#include "common/base/err.h"
#include "kernels/backend.h"

struct collective;

struct collective_ops {
	/* buf[i] = sum over ranks of buf[i]; n elements, F32 sums, rounded once. */
	status (*all_reduce)(struct collective *c, uint32_t rank, struct stream *s,
		void *buf, uint64_t n, enum dtype dtype, struct err *err);
	/* to[row][rank] = part[row] of each rank, `bytes` each, n rows, in rank 0's
	 * memory; the others give NULL for it. */
	status (*gather)(struct collective *c, uint32_t rank, struct stream *s, void *to,
		const void *part, uint64_t n, uint64_t bytes, struct err *err);
	/* Returns when every rank has called it; on the host, not on a stream. */
	status (*meet)(struct collective *c, uint32_t rank, struct err *err);
	/* This rank cannot go on: calls of other ranks that would wait for it fail with
	 * ST_CANCELLED, and those ranks see what this one wrote before. */
	void (*abort)(struct collective *c);
	void (*destroy)(struct collective *c);
};

struct collective {
	const struct collective_ops *ops;
	uint32_t n_ranks; /* 1: nobody calls anything */
};

/* The collective for these devices. ST_INVALID: this build has none for them. */
MUST_CHECK status collective_create(struct collective **out,
	struct backend *const *backends, uint32_t n_ranks, struct err *err);
/* Among threads whose buffers are plain memory. Never fails. */
struct collective *collective_host_create(uint32_t n_ranks);

#endif
