/* What two processes share besides arenas: which GPUs reach each other's memory, and
 * pinned host memory in a memfd for those that do not. */
#include "kernels/cuda/backend_impl.cuh"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* Portable: one staging area serves every GPU of the process. */
status cuda_host_map(
	struct backend *b, int fd, uint64_t bytes, void **out, struct err *err)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	status st;

	if (at == MAP_FAILED)
		return err_set(err, ST_NOMEM, "%s: map %llu bytes of shared memory: %s",
			b->device, (unsigned long long)bytes, strerror(errno));
	st = cuda_enter(b, err);
	if (st == ST_OK)
		st = cuda_check(b, "cudaHostRegister",
			cudaHostRegister(at, bytes,
				cudaHostRegisterPortable | cudaHostRegisterMapped),
			err);
	if (st != ST_OK) {
		(void)cudaGetLastError();
		(void)munmap(at, bytes);
		return st;
	}
	*out = at;
	return ST_OK;
}

status cuda_host_unmap(struct backend *b, void *p, uint64_t bytes, struct err *err)
{
	status st = cuda_enter(b, err);

	if (st == ST_OK)
		st = cuda_check(b, "cudaHostUnregister", cudaHostUnregister(p), err);
	(void)munmap(p, bytes);
	return st;
}

/* The number of the GPU with this uuid among those that the process sees, or -1. */
static int find_gpu(const char *uuid)
{
	uint32_t n = backend_cuda_count();

	for (uint32_t i = 0; i < n; i++) {
		char text[64];
		cudaDeviceProp prop;

		if (cudaGetDeviceProperties(&prop, (int)i) != cudaSuccess) {
			(void)cudaGetLastError();
			continue;
		}
		cuda_uuid_text(&prop, text, sizeof(text));
		if (strcmp(text, uuid) == 0)
			return (int)i;
	}
	return -1;
}

/* Both directions, though a pull only reads: a link that works one way is broken. */
status cuda_peer_check(struct backend *b, const char *uuid, struct err *err)
{
	int mine = cuda_of(b)->index, other, to = 0, from = 0;
	status st = cuda_enter(b, err);

	if (st != ST_OK || strcmp(b->uuid, uuid) == 0)
		return st;
	other = find_gpu(uuid);
	if (other < 0)
		return err_set(err, ST_INVALID,
			"this process does not see the peer's GPU %s "
			"(CUDA_VISIBLE_DEVICES, or another host)",
			uuid);
	st = cuda_check(b, "cudaDeviceCanAccessPeer",
		cudaDeviceCanAccessPeer(&to, mine, other), err);
	if (st == ST_OK)
		st = cuda_check(b, "cudaDeviceCanAccessPeer",
			cudaDeviceCanAccessPeer(&from, other, mine), err);
	if (st == ST_OK && (to == 0 || from == 0))
		st = err_set(err, ST_INVALID,
			"no peer access between cuda:%d and cuda:%d (%s, %s)", mine,
			other, to != 0 ? "only there" : "not there",
			from != 0 ? "only back" : "not back");
	return st;
}
