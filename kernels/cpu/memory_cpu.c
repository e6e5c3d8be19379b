/* Memory of the CPU backend. Allocations come from the system page by page, between a
 * page that holds their size and one that may not be touched, so that a kernel that
 * runs over the end of its memory stops there. Arenas are memfds: sealed against
 * shrinking, so that a reader in another process cannot be killed by SIGBUS. */
#include "kernels/cpu/memory_cpu.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE      UINT64_C(4096)
/* From here on huge pages are asked for: weights are read from end to end. */
#define HUGE_MIN  (UINT64_C(4) << 20)
/* More than any machine has, and far from overflow when rounded up. */
#define BYTES_MAX (UINT64_C(1) << 46)

static uint64_t whole_pages(uint64_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

static struct cpu_backend *cpu_of(struct backend *b)
{
	return container_of(b, struct cpu_backend, base);
}

status memory_alloc(struct backend *b, __attribute__((unused)) enum mem_kind kind,
	uint64_t bytes, void **out, struct err *err)
{
	uint64_t body = bytes < BYTES_MAX ? whole_pages(bytes) : 0;
	uint8_t *at;

	if (bytes >= BYTES_MAX)
		return err_set(err, ST_LIMIT, "%s: an allocation of %llu bytes",
			b->device, (unsigned long long)bytes);
	at = mmap(NULL, body + 2 * PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return err_set(err, ST_NOMEM, "%s: an allocation of %llu bytes: %s",
			b->device, (unsigned long long)bytes, strerror(errno));
	if (mprotect(at + PAGE + body, PAGE, PROT_NONE) != 0) {
		int cause = errno;

		(void)munmap(at, body + 2 * PAGE);
		return err_set(
			err, ST_NOMEM, "%s: guard page: %s", b->device, strerror(cause));
	}
	if (body >= HUGE_MIN)
		(void)madvise(
			at + PAGE, body, MADV_HUGEPAGE); /* a hint; may be refused */
	memcpy(at, &body, sizeof(body));
	*out = at + PAGE;
	return ST_OK;
}

void memory_free(__attribute__((unused)) struct backend *b,
	__attribute__((unused)) enum mem_kind kind, void *p)
{
	uint8_t *at = p;
	uint64_t body;

	if (p == NULL)
		return;
	memcpy(&body, at - PAGE, sizeof(body));
	(void)munmap(at - PAGE, body + 2 * PAGE);
}

/* A sealed memfd of this size, or -1 with errno. */
static int arena_fd(uint64_t bytes)
{
	int fd = memfd_create("baton-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)bytes) != 0 ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
		int cause = errno;

		(void)close(fd);
		errno = cause;
		return -1;
	}
	return fd;
}

status memory_arena_create(struct backend *b, uint64_t bytes, void **out, struct err *err)
{
	struct cpu_backend *cpu = cpu_of(b);
	struct cpu_arena *free_entry = NULL;
	void *at;
	int fd;

	for (uint32_t i = 0; i < CPU_ARENAS_MAX && free_entry == NULL; i++) {
		if (cpu->arenas[i].at == NULL)
			free_entry = &cpu->arenas[i];
	}
	if (free_entry == NULL)
		return err_set(err, ST_LIMIT, "%s: more than %u arenas", b->device,
			CPU_ARENAS_MAX);
	if (bytes == 0 || bytes >= BYTES_MAX)
		return err_set(err, ST_LIMIT, "%s: an arena of %llu bytes", b->device,
			(unsigned long long)bytes);
	fd = arena_fd(bytes);
	if (fd < 0)
		return err_set(err, ST_NOMEM, "%s: arena of %llu bytes: %s", b->device,
			(unsigned long long)bytes, strerror(errno));
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) {
		int cause = errno;

		(void)close(fd);
		return err_set(err, ST_NOMEM, "%s: map arena of %llu bytes: %s",
			b->device, (unsigned long long)bytes, strerror(cause));
	}
	*free_entry = (struct cpu_arena){at, bytes, fd};
	*out = at;
	return ST_OK;
}

static struct cpu_arena *find_arena(struct backend *b, const void *p)
{
	struct cpu_backend *cpu = cpu_of(b);

	for (uint32_t i = 0; i < CPU_ARENAS_MAX; i++) {
		if (p != NULL && cpu->arenas[i].at == p)
			return &cpu->arenas[i];
	}
	return NULL;
}

void memory_arena_destroy(struct backend *b, void *p)
{
	struct cpu_arena *a = find_arena(b, p);

	if (p == NULL)
		return;
	assert(a != NULL);
	(void)munmap(a->at, a->bytes);
	(void)close(a->fd);
	*a = (struct cpu_arena){.at = NULL};
}

status memory_arena_export(
	struct backend *b, void *p, struct arena_ticket *out, struct err *err)
{
	struct cpu_arena *a = find_arena(b, p);

	if (a == NULL)
		return err_set(err, ST_INVALID, "%s: export of memory that is no arena",
			b->device);
	*out = (struct arena_ticket){
		.kind = TICKET_MEMFD, .fd = a->fd, .bytes = a->bytes};
	return ST_OK;
}

status memory_arena_open(struct backend *b, const struct arena_ticket *ticket,
	const void **out, struct err *err)
{
	struct stat sb;
	void *at;
	int seals;

	if (ticket->kind != TICKET_MEMFD)
		return err_set(err, ST_PEER,
			"%s: cannot open an arena of kind %d, only a memfd", b->device,
			(int)ticket->kind);
	if (ticket->bytes == 0 || ticket->bytes >= BYTES_MAX)
		return err_set(err, ST_PEER, "%s: a ticket for an arena of %llu bytes",
			b->device, (unsigned long long)ticket->bytes);
	if (fstat(ticket->fd, &sb) != 0)
		return err_set(err, ST_PEER, "%s: arena descriptor: %s", b->device,
			strerror(errno));
	if ((uint64_t)sb.st_size < ticket->bytes)
		return err_set(err, ST_PEER,
			"%s: an arena of %lld bytes announced as %llu", b->device,
			(long long)sb.st_size, (unsigned long long)ticket->bytes);
	seals = fcntl(ticket->fd, F_GET_SEALS);
	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
		return err_set(err, ST_PEER,
			"%s: the peer's arena could shrink (seals %d)", b->device, seals);
	at = mmap(NULL, ticket->bytes, PROT_READ, MAP_SHARED, ticket->fd, 0);
	if (at == MAP_FAILED)
		return err_set(err, ST_IO, "%s: map the peer's arena of %llu bytes: %s",
			b->device, (unsigned long long)ticket->bytes, strerror(errno));
	*out = at;
	return ST_OK;
}

status memory_arena_close(
	struct backend *b, const void *p, uint64_t bytes, struct err *err)
{
	void *at;

	/* munmap takes a plain pointer; nothing is written through it. */
	memcpy(&at, &p, sizeof(at));
	if (munmap(at, bytes) != 0)
		return err_set(err, ST_IO, "%s: unmap the peer's arena: %s", b->device,
			strerror(errno));
	return ST_OK;
}

status memory_host_map(
	struct backend *b, int fd, uint64_t bytes, void **out, struct err *err)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return err_set(err, ST_NOMEM, "%s: map %llu bytes of shared memory: %s",
			b->device, (unsigned long long)bytes, strerror(errno));
	*out = at;
	return ST_OK;
}

status memory_host_unmap(struct backend *b, void *p, uint64_t bytes, struct err *err)
{
	if (munmap(p, bytes) != 0)
		return err_set(err, ST_IO, "%s: unmap shared memory: %s", b->device,
			strerror(errno));
	return ST_OK;
}

void memory_release(struct cpu_backend *cpu)
{
	for (uint32_t i = 0; i < CPU_ARENAS_MAX; i++)
		memory_arena_destroy(&cpu->base, cpu->arenas[i].at);
}
