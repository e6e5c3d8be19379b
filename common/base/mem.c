/* Allocation, with a seal for start-up memory and a budget for request memory. */
#include "common/base/mem.h"

#include "common/base/log.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Where the address space is limited, blocks of LARGE_BYTES and more leave SPARE_BYTES of
 * it: libraries end the process when a small block is refused. */
#define LARGE_BYTES (UINT64_C(1) << 20)
#define SPARE_BYTES (UINT64_C(32) << 20)

static atomic_bool sealed;
static _Atomic uint64_t budget = UINT64_C(1) << 30;
static _Atomic uint64_t taken;

static _Noreturn void die(const char *text)
{
	log_error("%s", text);
	abort();
}

void *mem_alloc(size_t n, size_t size)
{
	void *p;

	if (atomic_load(&sealed))
		die("start-up allocation after the seal");
	p = calloc(n > 0 ? n : 1, size > 0 ? size : 1);
	if (p == NULL)
		die("the system has no memory for start-up structures");
	return p;
}

void mem_free(void *p)
{
	free(p);
}

void mem_seal(void)
{
	atomic_store(&sealed, true);
}

void mem_budget(uint64_t bytes)
{
	/* Large blocks stay mapped each on its own, whatever was given back before: so
	 * growing one moves no bytes, and the system has it when it is given back. */
	mallopt(M_MMAP_THRESHOLD, (int)LARGE_BYTES);
	atomic_store(&budget, bytes);
}

/* Bytes of address space in use; 0: not known. */
static uint64_t address_space(void)
{
	char text[32] = {0};
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	return n <= 0 ? 0 : strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool system_has(uint64_t more)
{
	struct rlimit limit;

	return more < LARGE_BYTES || getrlimit(RLIMIT_AS, &limit) != 0 ||
	       limit.rlim_cur == RLIM_INFINITY ||
	       address_space() + more + SPARE_BYTES <= limit.rlim_cur;
}

/* Reserve first, then allocate: two threads cannot pass the budget together. */
static bool reserve(uint64_t bytes)
{
	uint64_t was = atomic_fetch_add(&taken, bytes);

	if (bytes > atomic_load(&budget) || was > atomic_load(&budget) - bytes) {
		atomic_fetch_sub(&taken, bytes);
		return false;
	}
	return true;
}

/* malloc_usable_size is what was reserved, up to rounding; account the real size
 * so that give and regrow need no header of their own. */
static void settle(void *p, uint64_t reserved)
{
	uint64_t real = malloc_usable_size(p);

	if (real >= reserved)
		atomic_fetch_add(&taken, real - reserved);
	else
		atomic_fetch_sub(&taken, reserved - real);
}

void *mem_take(size_t n, size_t size)
{
	size_t bytes;
	void *p;

	if (__builtin_mul_overflow(n, size, &bytes))
		return NULL;
	if (bytes == 0)
		bytes = 1;
	if (!system_has(bytes) || !reserve(bytes))
		return NULL;
	p = calloc(1, bytes);
	if (p == NULL) {
		atomic_fetch_sub(&taken, bytes);
		return NULL;
	}
	settle(p, bytes);
	return p;
}

void *mem_regrow(void *p, size_t size)
{
	uint64_t old;
	void *q;

	if (p == NULL)
		return mem_take(1, size);
	old = malloc_usable_size(p);
	if (size > old && (!system_has(size - old) || !reserve(size - old)))
		return NULL;
	q = realloc(p, size > 0 ? size : 1);
	if (q == NULL) {
		if (size > old)
			atomic_fetch_sub(&taken, size - old);
		return NULL;
	}
	settle(q, size > old ? size : old);
	return q;
}

void mem_give(void *p)
{
	if (p == NULL)
		return;
	atomic_fetch_sub(&taken, (uint64_t)malloc_usable_size(p));
	free(p);
}

uint64_t mem_taken(void)
{
	return atomic_load(&taken);
}

char *mem_dup(const void *at, size_t n)
{
	char *p = n < SIZE_MAX ? mem_take(1, n + 1) : NULL;

	if (p != NULL && n > 0)
		memcpy(p, at, n);
	return p;
}
