/* Memory, streams, events, graphs and exported arenas of one device: the second small
 * vtable beside the ops. The CPU implements it with plain memory and does the work of
 * a stream at once; the GPU backend with CUDA. Nothing here is model-specific. */
#ifndef KERNELS_BACKEND_H
#define KERNELS_BACKEND_H
#include "common/base/bytes.h"
#include "common/base/dtype.h"
#include "common/base/err.h"
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

struct stream;
struct event;
struct graph;

enum mem_kind {
	MEM_DEVICE, /* cudaMalloc */
	MEM_PINNED, /* host memory that the device reads and writes directly */
};

/* What another process needs to map an arena. Kinds are wire numbers. */
enum ticket_kind { TICKET_MEMFD = 1, TICKET_CUDA_IPC = 2 };
struct arena_ticket {
	enum ticket_kind kind;
	int fd;           /* MEMFD: passed by SCM_RIGHTS; otherwise -1 */
	uint8_t blob[64]; /* CUDA_IPC: the handle of the allocation's base */
	uint64_t bytes;
};

/* One piece of a transfer: bytes from src to dst, which do not overlap. */
struct copy_piece {
	const void *src;
	void *dst;
	uint64_t bytes;
};

/* How a list of pieces is copied. The copy engine takes one command per piece; a batch
 * takes one for all; a gather kernel occupies some multiprocessors. */
enum copy_kind { COPY_ENGINE, COPY_BATCH, COPY_GATHER };
struct copy_method {
	enum copy_kind kind;
	uint32_t blocks; /* GATHER: of the kernel's grid */
};

struct backend; /* one opened device */

struct backend_ops {
	void (*close)(struct backend *b);
	/* Zeroed memory, 256-byte aligned. Large and few: at start only. */
	status (*alloc)(struct backend *b, enum mem_kind kind, uint64_t bytes, void **out,
		struct err *err);
	void (*free)(struct backend *b, enum mem_kind kind, void *p);
	/* An allocation of its own that other processes can map (CPU: memfd). */
	status (*arena_create)(
		struct backend *b, uint64_t bytes, void **out, struct err *err);
	void (*arena_destroy)(struct backend *b, void *p);
	/* The fd in the ticket stays owned by the arena. */
	status (*arena_export)(
		struct backend *b, void *p, struct arena_ticket *out, struct err *err);
	/* Map another process's arena for reading; the fd is not consumed. */
	status (*arena_open)(struct backend *b, const struct arena_ticket *ticket,
		const void **out, struct err *err);
	status (*arena_close)(
		struct backend *b, const void *p, uint64_t bytes, struct err *err);
	/* Host memory that other processes map, too: the whole of a memfd, reachable by
	 * every device of this process. Not for request time: pinning is slow and waits
	 * for devices. The fd is not consumed. */
	status (*host_map)(
		struct backend *b, int fd, uint64_t bytes, void **out, struct err *err);
	status (*host_unmap)(struct backend *b, void *p, uint64_t bytes, struct err *err);
	/* Why this device and the one with that uuid cannot reach each other's memory;
	 * ST_OK: they can, as far as the driver says. NULL on a backend without peers. */
	status (*peer_check)(struct backend *b, const char *uuid, struct err *err);

	status (*stream_create)(struct backend *b, struct stream **out, struct err *err);
	void (*stream_destroy)(struct stream *s);
	status (*stream_sync)(struct stream *s, struct err *err);
	/* Host memory may be pageable; the call returns when it may be reused. */
	status (*upload)(struct stream *s, void *dst, const void *host, uint64_t bytes,
		struct err *err);
	status (*download)(struct stream *s, void *host, const void *src, uint64_t bytes,
		struct err *err);
	status (*zero)(struct stream *s, void *dst, uint64_t bytes, struct err *err);
	/* All pieces, in any order; src may be memory opened with arena_open. */
	status (*copy_list)(struct stream *s, const struct copy_piece *pieces, uint32_t n,
		struct err *err);
	/* The same by one method; NULL on a backend that has only one. */
	status (*copy_list_by)(struct stream *s, const struct copy_method *how,
		const struct copy_piece *pieces, uint32_t n, struct err *err);

	status (*event_create)(struct backend *b, struct event **out, struct err *err);
	void (*event_destroy)(struct event *e);
	status (*event_record)(struct event *e, struct stream *s, struct err *err);
	/* ST_AGAIN while the work before the record has not finished. */
	status (*event_query)(struct event *e, struct err *err);
	status (*event_wait)(struct event *e, struct stream *s, struct err *err);

	/* NULL on a backend without graphs (CPU). A capture that was broken by a call it
	 * forbids ends with ST_DEVICE, too, and the stream is as before it. */
	status (*capture_begin)(struct stream *s, struct err *err);
	status (*capture_end)(struct stream *s, struct graph **out, struct err *err);
	status (*graph_launch)(struct graph *g, struct stream *s, struct err *err);
	void (*graph_destroy)(struct graph *g);
};

struct backend {
	const struct backend_ops *ops;
	const char *name; /* "cpu", "cuda" */
	char device[64];  /* "cpu:0", "cuda:1 NVIDIA H200" */
	char uuid[64];    /* tells two workers whether they share a device */
	uint32_t arch;    /* CPU: KERNEL_CPU_* bits (registry.h); CUDA: 90, 120, ... */
	enum dtype act;   /* type of activations */
	uint64_t mem_total, mem_free; /* bytes, at open */
};

/* spec: "cpu:0", or "0", "1", ... for a GPU by index. A spec that this build or this
 * machine cannot serve is refused with a sentence. */
MUST_CHECK status backend_open(struct backend **out, const char *spec, struct err *err);
/* A GPU that is not here, for plans: it can be closed, and everything else about it is
 * what all GPUs have in common. No memory is known of it. */
MUST_CHECK status backend_describe(
	struct backend **out, const char *spec, struct err *err);
bool backend_is_described(const struct backend *b);
/* spec is a GPU's index, and no such GPU can be seen. */
bool backend_is_absent(const char *spec);
/* How many GPUs can be seen; 0 without a driver or in a build without CUDA. */
uint32_t backend_gpu_count(void);
/* Does this build have a backend for GPUs at all? */
bool backend_gpus_built(void);

#ifdef __cplusplus
}
#endif
#endif
