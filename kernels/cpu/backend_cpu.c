/* The CPU as a device: plain memory, streams that do their work at once, arenas in
 * memfds that another process maps for reading. */
#include "kernels/cpu/backend_cpu.h"

#include "common/base/mem.h"
#include "kernels/cpu/memory_cpu.h"
#include "kernels/registry.h"

#include <cpuid.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct stream {
	struct backend *backend;
};

/* Work is done when it is issued, so an event has always happened. */
struct event {
	struct backend *backend;
};

static void cpu_close(struct backend *b)
{
	struct cpu_backend *cpu = container_of(b, struct cpu_backend, base);

	memory_release(cpu);
	mem_give(cpu);
}

static status cpu_stream_create(struct backend *b, struct stream **out, struct err *err)
{
	struct stream *s = mem_take(1, sizeof(*s));

	if (s == NULL)
		return err_set(err, ST_NOMEM, "no memory for a stream of %s", b->device);
	s->backend = b;
	*out = s;
	return ST_OK;
}

static void cpu_stream_destroy(struct stream *s)
{
	mem_give(s);
}

static status cpu_stream_sync(
	__attribute__((unused)) struct stream *s, __attribute__((unused)) struct err *err)
{
	return ST_OK;
}

static status cpu_copy(__attribute__((unused)) struct stream *s, void *dst,
	const void *src, uint64_t bytes, __attribute__((unused)) struct err *err)
{
	if (bytes > 0)
		memcpy(dst, src, bytes);
	return ST_OK;
}

static status cpu_zero(__attribute__((unused)) struct stream *s, void *dst,
	uint64_t bytes, __attribute__((unused)) struct err *err)
{
	if (bytes > 0)
		memset(dst, 0, bytes);
	return ST_OK;
}

static status cpu_copy_list(__attribute__((unused)) struct stream *s,
	const struct copy_piece *pieces, uint32_t n,
	__attribute__((unused)) struct err *err)
{
	for (uint32_t i = 0; i < n; i++) {
		if (pieces[i].bytes > 0)
			memcpy(pieces[i].dst, pieces[i].src, pieces[i].bytes);
	}
	return ST_OK;
}

static status cpu_event_create(struct backend *b, struct event **out, struct err *err)
{
	struct event *e = mem_take(1, sizeof(*e));

	if (e == NULL)
		return err_set(err, ST_NOMEM, "no memory for an event of %s", b->device);
	e->backend = b;
	*out = e;
	return ST_OK;
}

static void cpu_event_destroy(struct event *e)
{
	mem_give(e);
}

static status cpu_event_record(__attribute__((unused)) struct event *e,
	__attribute__((unused)) struct stream *s, __attribute__((unused)) struct err *err)
{
	return ST_OK;
}

static status cpu_event_query(
	__attribute__((unused)) struct event *e, __attribute__((unused)) struct err *err)
{
	return ST_OK;
}

static const struct backend_ops cpu_ops = {
	.close = cpu_close,
	.alloc = memory_alloc,
	.free = memory_free,
	.arena_create = memory_arena_create,
	.arena_destroy = memory_arena_destroy,
	.arena_export = memory_arena_export,
	.arena_open = memory_arena_open,
	.arena_close = memory_arena_close,
	.host_map = memory_host_map,
	.host_unmap = memory_host_unmap,
	.stream_create = cpu_stream_create,
	.stream_destroy = cpu_stream_destroy,
	.stream_sync = cpu_stream_sync,
	.upload = cpu_copy,
	.download = cpu_copy,
	.zero = cpu_zero,
	.copy_list = cpu_copy_list,
	.event_create = cpu_event_create,
	.event_destroy = cpu_event_destroy,
	.event_record = cpu_event_record,
	.event_query = cpu_event_query,
	.event_wait = cpu_event_record,
};

/* The first line of a small text file of /proc, or the line that begins with key. */
static bool read_line(const char *path, const char *key, char *line, size_t size)
{
	FILE *f = fopen(path, "re");
	bool found = false;

	if (f == NULL)
		return false;
	while (!found && fgets(line, (int)size, f) != NULL)
		found = strncmp(line, key, strlen(key)) == 0;
	(void)fclose(f);
	line[strcspn(line, "\n")] = 0;
	return found;
}

static uint64_t meminfo_bytes(const char *key)
{
	char line[128];

	if (!read_line("/proc/meminfo", key, line, sizeof(line)))
		return 0;
	return strtoull(line + strlen(key), NULL, 10) * 1024;
}

/* The vector kernels use all three; the compiler's check covers that the system saves
 * the registers, but clang 14 does not know the name of F16C. */
static uint32_t cpu_arch(void)
{
	uint32_t a, b, c, d;
	bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
	uint32_t arch = KERNEL_CPU_PLAIN;

	if (f16c && __builtin_cpu_supports("avx2") != 0 &&
		__builtin_cpu_supports("fma") != 0)
		arch |= KERNEL_CPU_AVX2;
	return arch;
}

status backend_cpu_open(struct backend **out, uint32_t index, struct err *err)
{
	struct cpu_backend *cpu;
	char boot[64];

	/* Two workers share a device only within one boot of one machine. */
	if (!read_line("/proc/sys/kernel/random/boot_id", "", boot, sizeof(boot)))
		return err_set(err, ST_IO, "cpu:%u: /proc/sys/kernel/random/boot_id: %s",
			index, strerror(errno));
	cpu = mem_take(1, sizeof(*cpu));
	if (cpu == NULL)
		return err_set(err, ST_NOMEM, "cpu:%u: no memory for the backend", index);
	cpu->base = (struct backend){.ops = &cpu_ops,
		.name = "cpu",
		.arch = cpu_arch(),
		.act = DT_F32,
		.mem_total = meminfo_bytes("MemTotal:"),
		.mem_free = meminfo_bytes("MemAvailable:")};
	(void)snprintf(cpu->base.device, sizeof(cpu->base.device), "cpu:%u", index);
	(void)snprintf(
		cpu->base.uuid, sizeof(cpu->base.uuid), "cpu:%u %.36s", index, boot);
	*out = &cpu->base;
	return ST_OK;
}
