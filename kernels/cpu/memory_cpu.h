/* Memory and arenas of the CPU backend; private to kernels/cpu. */
#ifndef KERNELS_CPU_MEMORY_CPU_H
#define KERNELS_CPU_MEMORY_CPU_H
#include "kernels/backend.h"

/* A worker has one arena for pages and one for state slots; tests open a few more. */
#define CPU_ARENAS_MAX 16u

struct cpu_arena {
	void *at; /* NULL: free entry */
	uint64_t bytes;
	int fd;
};

struct cpu_backend {
	struct backend base;
	struct cpu_arena arenas[CPU_ARENAS_MAX];
};

status memory_alloc(struct backend *b, enum mem_kind kind, uint64_t bytes, void **out,
	struct err *err);
void memory_free(struct backend *b, enum mem_kind kind, void *p);
status memory_arena_create(
	struct backend *b, uint64_t bytes, void **out, struct err *err);
void memory_arena_destroy(struct backend *b, void *p);
status memory_arena_export(
	struct backend *b, void *p, struct arena_ticket *out, struct err *err);
status memory_arena_open(struct backend *b, const struct arena_ticket *ticket,
	const void **out, struct err *err);
status memory_arena_close(
	struct backend *b, const void *p, uint64_t bytes, struct err *err);
status memory_host_map(
	struct backend *b, int fd, uint64_t bytes, void **out, struct err *err);
status memory_host_unmap(struct backend *b, void *p, uint64_t bytes, struct err *err);
/* Destroys the arenas that are left. */
void memory_release(struct cpu_backend *cpu);

#endif
