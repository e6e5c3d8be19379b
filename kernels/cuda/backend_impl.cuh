/* The two files of the CUDA backend: what a device is, and how its errors are told. */
#ifndef KERNELS_CUDA_BACKEND_IMPL_CUH
#define KERNELS_CUDA_BACKEND_IMPL_CUH
#include "kernels/cuda/cuda_common.cuh"
extern "C" {
#include "common/base/log.h"
#include "common/base/mem.h"
}

/* Arenas of one device: a worker has one, a worker of both roles two. */
#define CUDA_ARENAS_MAX 8u

struct cuda_backend {
	struct backend base;
	int index;
	struct blas *blas; /* of linear/blas, made when the first weight is prepared */
	/* Exported allocations: the size goes into the ticket. */
	struct {
		void *at;
		uint64_t bytes;
	} arenas[CUDA_ARENAS_MAX];
};

static inline struct cuda_backend *cuda_of(struct backend *b)
{
	return (struct cuda_backend *)(void *)((char *)b -
					       offsetof(struct cuda_backend, base));
}

static inline status cuda_check(
	const struct backend *b, const char *what, cudaError_t rc, struct err *err)
{
	if (rc == cudaSuccess)
		return ST_OK;
	(void)cudaGetLastError(); /* told here; the next launch would report it again */
	return err_set(err, ST_DEVICE, "%s: %s: %s (%s)", b->device, what,
		cudaGetErrorString(rc), cudaGetErrorName(rc));
}

static inline status cuda_enter(struct backend *b, struct err *err)
{
	return cuda_check(b, "cudaSetDevice", cudaSetDevice(cuda_of(b)->index), err);
}

/* Where nobody can be told. */
static inline void cuda_log(const struct backend *b, const char *what, cudaError_t rc)
{
	if (rc != cudaSuccess)
		log_error("%s: %s: %s", b->device, what, cudaGetErrorString(rc));
}

/* memory_cuda.cu; the members of struct backend_ops of the same names. */
status cuda_memory_alloc(struct backend *b, enum mem_kind kind, uint64_t bytes,
	void **out, struct err *err);
void cuda_memory_free(struct backend *b, enum mem_kind kind, void *p);
status cuda_arena_create(struct backend *b, uint64_t bytes, void **out, struct err *err);
void cuda_arena_destroy(struct backend *b, void *p);
status cuda_arena_export(
	struct backend *b, void *p, struct arena_ticket *out, struct err *err);
status cuda_arena_open(struct backend *b, const struct arena_ticket *ticket,
	const void **out, struct err *err);
status cuda_arena_close(
	struct backend *b, const void *p, uint64_t bytes, struct err *err);

/* shared_cuda.cu, likewise */
status cuda_host_map(
	struct backend *b, int fd, uint64_t bytes, void **out, struct err *err);
status cuda_host_unmap(struct backend *b, void *p, uint64_t bytes, struct err *err);
status cuda_peer_check(struct backend *b, const char *uuid, struct err *err);
/* "GPU-" and the uuid, as in struct backend. */
void cuda_uuid_text(const cudaDeviceProp *p, char *out, size_t size);

/* copy_list.cu, likewise */
status cuda_copy_list(
	struct stream *s, const struct copy_piece *pieces, uint32_t n, struct err *err);
status cuda_copy_list_by(struct stream *s, const struct copy_method *how,
	const struct copy_piece *pieces, uint32_t n, struct err *err);

#endif
