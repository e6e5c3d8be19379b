/* Memory of a GPU and arenas that other processes map through CUDA IPC. An arena is one
 * plain cudaMalloc, because pooled and virtual-memory allocations have no IPC handle;
 * the handle is of its base, peers send offsets. The owner frees it only after every
 * importer has closed (the importers' leases see to that). */
#include "kernels/cuda/backend_impl.cuh"

#include <string.h>

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(((struct arena_ticket *)0)->blob),
	"a ticket carries a whole handle");

/* Zeroed, and the zeros are there when this returns. */
static status take_device(
	struct backend *b, uint64_t bytes, const char *what, void **out, struct err *err)
{
	cudaError_t rc;
	void *p = NULL;
	status st = cuda_enter(b, err);

	if (st != ST_OK)
		return st;
	rc = cudaMalloc(&p, MAX(bytes, 1));
	if (rc == cudaErrorMemoryAllocation) {
		size_t mem_free = 0, mem_total = 0;

		(void)cudaGetLastError();
		(void)cudaMemGetInfo(&mem_free, &mem_total);
		return err_set(err, ST_NOMEM,
			"%s: no room for %llu bytes of %s, %llu of %llu are free",
			b->device, (unsigned long long)bytes, what,
			(unsigned long long)mem_free, (unsigned long long)mem_total);
	}
	st = cuda_check(b, "cudaMalloc", rc, err);
	if (st == ST_OK)
		st = cuda_check(b, "cudaMemset", cudaMemset(p, 0, MAX(bytes, 1)), err);
	/* The null stream does not order the streams of this backend. */
	if (st == ST_OK)
		st = cuda_check(b, "cudaMemset", cudaStreamSynchronize(0), err);
	if (st != ST_OK) {
		if (p != NULL)
			cuda_log(b, "cudaFree", cudaFree(p));
		return st;
	}
	*out = p;
	return ST_OK;
}

status cuda_memory_alloc(struct backend *b, enum mem_kind kind, uint64_t bytes,
	void **out, struct err *err)
{
	status st;

	if (kind == MEM_DEVICE)
		return take_device(b, bytes, "device memory", out, err);
	st = cuda_enter(b, err);
	if (st == ST_OK)
		st = cuda_check(b, "cudaHostAlloc",
			cudaHostAlloc(out, MAX(bytes, 1),
				cudaHostAllocMapped | cudaHostAllocPortable),
			err);
	if (st == ST_OK)
		memset(*out, 0, bytes);
	return st;
}

void cuda_memory_free(struct backend *b, enum mem_kind kind, void *p)
{
	if (p == NULL)
		return;
	cuda_log(b, "cudaSetDevice", cudaSetDevice(cuda_of(b)->index));
	if (kind == MEM_DEVICE)
		cuda_log(b, "cudaFree", cudaFree(p));
	else
		cuda_log(b, "cudaFreeHost", cudaFreeHost(p));
}

status cuda_arena_create(struct backend *b, uint64_t bytes, void **out, struct err *err)
{
	struct cuda_backend *cuda = cuda_of(b);

	for (uint32_t i = 0; i < CUDA_ARENAS_MAX; i++) {
		status st;

		if (cuda->arenas[i].at != NULL)
			continue;
		st = take_device(b, bytes, "the state arena", &cuda->arenas[i].at, err);
		if (st != ST_OK)
			return st;
		cuda->arenas[i].bytes = bytes;
		*out = cuda->arenas[i].at;
		return ST_OK;
	}
	return err_set(
		err, ST_LIMIT, "%s: more than %u arenas", b->device, CUDA_ARENAS_MAX);
}

static uint32_t find_arena(const struct cuda_backend *cuda, const void *p)
{
	uint32_t i = 0;

	while (i < CUDA_ARENAS_MAX && cuda->arenas[i].at != p)
		i++;
	return i;
}

void cuda_arena_destroy(struct backend *b, void *p)
{
	struct cuda_backend *cuda = cuda_of(b);
	uint32_t i;

	if (p == NULL)
		return;
	i = find_arena(cuda, p);
	if (i < CUDA_ARENAS_MAX)
		cuda->arenas[i].at = NULL;
	cuda_memory_free(b, MEM_DEVICE, p);
}

status cuda_arena_export(
	struct backend *b, void *p, struct arena_ticket *out, struct err *err)
{
	struct cuda_backend *cuda = cuda_of(b);
	uint32_t i = find_arena(cuda, p);
	cudaIpcMemHandle_t handle;
	status st;

	if (i == CUDA_ARENAS_MAX)
		return err_set(err, ST_INVALID, "%s: %p is not an arena", b->device, p);
	st = cuda_enter(b, err);
	if (st == ST_OK)
		st = cuda_check(
			b, "cudaIpcGetMemHandle", cudaIpcGetMemHandle(&handle, p), err);
	if (st != ST_OK)
		return st;
	out->kind = TICKET_CUDA_IPC;
	out->fd = -1;
	out->bytes = cuda->arenas[i].bytes;
	memcpy(out->blob, &handle, sizeof(out->blob));
	return ST_OK;
}

status cuda_arena_open(struct backend *b, const struct arena_ticket *ticket,
	const void **out, struct err *err)
{
	cudaIpcMemHandle_t handle;
	void *p = NULL;
	cudaError_t rc;
	status st;

	if (ticket->kind != TICKET_CUDA_IPC)
		return err_set(err, ST_INVALID, "%s: cannot map a ticket of kind %d",
			b->device, (int)ticket->kind);
	st = cuda_enter(b, err);
	if (st != ST_OK)
		return st;
	memcpy(&handle, ticket->blob, sizeof(handle));
	rc = cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess);
	if (rc != cudaSuccess) {
		(void)cudaGetLastError();
		/* The peer's handle, not this device: the process may go on. */
		return err_set(err, ST_PEER,
			"%s: cudaIpcOpenMemHandle: %s; both processes must be in one "
			"PID namespace and see both GPUs, and the owner must be alive",
			b->device, cudaGetErrorString(rc));
	}
	*out = p;
	return ST_OK;
}

status cuda_arena_close(struct backend *b, const void *p,
	__attribute__((unused)) uint64_t bytes, struct err *err)
{
	status st = cuda_enter(b, err);

	if (st != ST_OK)
		return st;
	return cuda_check(b, "cudaIpcCloseMemHandle",
		cudaIpcCloseMemHandle((void *)(uintptr_t)p), err);
}
