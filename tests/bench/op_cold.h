/* The time of work that finds nothing of its data in the L2 cache.
 *
 * A chain of n times (a read of other memory, several times L2; the work) is captured in
 * a graph, a second chain has the reads alone, and both are replayed in turn, several
 * replays between two waits. The difference, over the number of works, is one round; the
 * median of the rounds counts. So the launch of the host is no part of it, the kernel
 * boundary in a graph is; what the work leaves dirty in L2 is written back during the
 * next read and is part of it, too. A read leaves nothing dirty behind.
 *
 * The warm time is that of a third chain without reads, the work after itself. Work that
 * takes more than 20 ms is timed once, through the stream; that is both times.
 *
 * On a backend without graphs (CPU) the chains are enqueued one by one. */
#ifndef TESTS_BENCH_OP_COLD_H
#define TESTS_BENCH_OP_COLD_H
#include "kernels/backend.h"

struct cold;

/* Enqueues the same work every time; may be captured. */
struct cold_job {
	status (*enqueue)(struct stream *s, void *what, struct err *err);
	void *what;
};

struct cold_times {
	double cold_us; /* 0: less than the rounds differ by */
	double warm_us;
};

/* Takes 2 GiB of a GPU's memory, 88 MiB of the CPU's, and measures the two rates. */
MUST_CHECK status cold_open(struct cold **out, struct backend *b, struct err *err);
void cold_close(struct cold *c);

MUST_CHECK status cold_time(struct cold *c, const struct cold_job *job,
	struct cold_times *out, struct err *err);
/* A plain read of as many bytes; *us is 0 when there are more than the memory has. */
MUST_CHECK status cold_time_read(
	struct cold *c, double bytes, double *us, struct err *err);

/* Bytes per second: of a large read; of a large copy, its reads and writes counted. */
double cold_read_rate(const struct cold *c);
double cold_copy_rate(const struct cold *c);

#endif
