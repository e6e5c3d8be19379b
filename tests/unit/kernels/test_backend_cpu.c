/* The CPU as a device: specs, memory, arenas across mappings and processes, streams. */
#include "kernel_test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void specs_are_served_or_refused(void **state)
{
	static const char *const good[] = {"cpu:0", "cpu:1", "cpu:17"};
	static const struct {
		const char *spec, *text;
	} bad[] = {
		{"", "expected cpu:N"},
		{"cpu", "expected cpu:N"},
		{"cpu:", "expected cpu:N"},
		{"cpu:x", "expected cpu:N"},
		{"cpu:-1", "expected cpu:N"},
		{"cpu:100", "expected cpu:N"},
		{"0x1", "expected cpu:N"},
		{"gpu", "\"gpu\""},
	};
	struct backend *b;
	struct err err;

	(void)state;
	for (size_t i = 0; i < COUNT(good); i++) {
		assert_int_equal(backend_open(&b, good[i], &err), ST_OK);
		assert_string_equal(b->device, good[i]);
		assert_string_equal(b->name, "cpu");
		assert_int_equal(b->act, DT_F32);
		assert_true((b->arch & KERNEL_CPU_PLAIN) != 0);
		assert_true(b->mem_total >= b->mem_free && b->mem_free > 1u << 20);
		b->ops->close(b);
	}
	for (size_t i = 0; i < COUNT(bad); i++) {
		assert_int_equal(backend_open(&b, bad[i].spec, &err), ST_INVALID);
		assert_non_null(strstr(err.text, bad[i].text));
	}
	if (backend_gpu_count() == 0)
		assert_int_not_equal(backend_open(&b, "0", &err), ST_OK);
}

static void uuids_tell_devices_apart(void **state)
{
	struct backend *a, *b, *again;
	struct err err;

	(void)state;
	assert_int_equal(backend_open(&a, "cpu:0", &err), ST_OK);
	assert_int_equal(backend_open(&b, "cpu:1", &err), ST_OK);
	assert_int_equal(backend_open(&again, "cpu:0", &err), ST_OK);
	assert_string_equal(a->uuid, again->uuid);
	assert_string_not_equal(a->uuid, b->uuid);
	assert_true(strlen(a->uuid) > 36);
	a->ops->close(a);
	b->ops->close(b);
	again->ops->close(again);
}

static void memory_is_aligned_zeroed_and_fenced(void **state)
{
	static const uint64_t sizes[] = {0, 1, 4096, 5000, 5u << 20};
	struct backend *b = test_backend();
	struct err err;

	(void)state;
	for (size_t i = 0; i < COUNT(sizes); i++) {
		uint8_t *p;
		void *out;

		assert_int_equal(
			b->ops->alloc(b, MEM_DEVICE, sizes[i], &out, &err), ST_OK);
		p = out;
		assert_int_equal((uintptr_t)p % 256, 0);
		for (uint64_t j = 0; j < sizes[i]; j++)
			assert_int_equal(p[j], 0);
		if (sizes[i] > 0)
			memset(p, 1, sizes[i]);
		b->ops->free(b, MEM_DEVICE, p);
	}
	b->ops->free(b, MEM_PINNED, NULL);
	assert_int_equal(b->ops->alloc(b, MEM_DEVICE, UINT64_MAX, &(void *){NULL}, &err),
		ST_LIMIT);
	assert_non_null(strstr(err.text, "18446744073709551615 bytes"));
}

/* A write into the page behind an allocation ends the process that does it. */
static void overruns_stop_at_the_guard_page(void **state)
{
	struct backend *b = test_backend();
	struct err err;
	void *out;
	int status_word;
	pid_t pid;

	(void)state;
	assert_int_equal(b->ops->alloc(b, MEM_DEVICE, 4096, &out, &err), ST_OK);
	pid = fork();
	if (pid == 0) {
		(void)signal(SIGSEGV, SIG_DFL);
		((volatile uint8_t *)out)[4096] = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status_word, 0), pid);
	assert_true(WIFSIGNALED(status_word) && WTERMSIG(status_word) == SIGSEGV);
	b->ops->free(b, MEM_DEVICE, out);
}

/* A child maps the exported arena, sees what the parent writes later, and cannot write.
 */
static void arenas_are_read_by_other_processes(void **state)
{
	struct backend *b = test_backend();
	struct arena_ticket ticket;
	struct err err;
	void *arena;
	int status_word;
	pid_t pid;

	(void)state;
	assert_int_equal(b->ops->arena_create(b, 10000, &arena, &err), ST_OK);
	assert_int_equal(b->ops->arena_export(b, arena, &ticket, &err), ST_OK);
	assert_int_equal(ticket.kind, TICKET_MEMFD);
	assert_int_equal(ticket.bytes, 10000);
	memset(arena, 7, 10000);
	pid = fork();
	if (pid == 0) {
		const void *view = NULL;
		void *writable;
		bool right;

		(void)signal(SIGSEGV, SIG_DFL);
		right = b->ops->arena_open(b, &ticket, &view, &err) == ST_OK &&
			view != arena && ((const uint8_t *)view)[9999] == 7;
		if (!right)
			_exit(1);
		memcpy(&writable, &view, sizeof(writable));
		*(volatile uint8_t *)writable = 1; /* read-only: SIGSEGV */
		_exit(2);
	}
	assert_int_equal(waitpid(pid, &status_word, 0), pid);
	assert_true(WIFSIGNALED(status_word) && WTERMSIG(status_word) == SIGSEGV);
	b->ops->arena_destroy(b, arena);
}

static void arenas_stay_in_step_and_close(void **state)
{
	struct backend *b = test_backend();
	struct arena_ticket ticket;
	struct err err;
	const void *view;
	void *arena;

	(void)state;
	assert_int_equal(b->ops->arena_create(b, 1 << 20, &arena, &err), ST_OK);
	assert_int_equal(b->ops->arena_export(b, arena, &ticket, &err), ST_OK);
	assert_int_equal(b->ops->arena_open(b, &ticket, &view, &err), ST_OK);
	((uint8_t *)arena)[123456] = 42;
	assert_int_equal(((const uint8_t *)view)[123456], 42);
	assert_int_equal(b->ops->arena_close(b, view, ticket.bytes, &err), ST_OK);
	b->ops->arena_destroy(b, arena);
	assert_int_equal(b->ops->arena_export(b, &err, &ticket, &err), ST_INVALID);
}

static void foreign_arenas_are_checked(void **state)
{
	struct backend *b = test_backend();
	struct arena_ticket ticket = {.kind = TICKET_MEMFD, .bytes = 4096};
	struct err err;
	const void *view;
	int open_fd;

	(void)state;
	ticket.fd = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(ticket.fd >= 0 && ftruncate(ticket.fd, 4095) == 0);
	assert_int_equal(b->ops->arena_open(b, &ticket, &view, &err), ST_PEER);
	assert_non_null(strstr(err.text, "4095 bytes announced as 4096"));
	/* It could still be cut down under us. */
	assert_int_equal(ftruncate(ticket.fd, 4096), 0);
	assert_int_equal(b->ops->arena_open(b, &ticket, &view, &err), ST_PEER);
	assert_non_null(strstr(err.text, "could shrink"));
	assert_int_equal(fcntl(ticket.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(b->ops->arena_open(b, &ticket, &view, &err), ST_OK);
	assert_int_equal(b->ops->arena_close(b, view, ticket.bytes, &err), ST_OK);
	ticket.bytes = 0;
	assert_int_equal(b->ops->arena_open(b, &ticket, &view, &err), ST_PEER);
	ticket.bytes = 4096;
	ticket.kind = TICKET_CUDA_IPC;
	assert_int_equal(b->ops->arena_open(b, &ticket, &view, &err), ST_PEER);
	assert_non_null(strstr(err.text, "kind 2"));
	ticket.kind = TICKET_MEMFD;
	open_fd = ticket.fd;
	ticket.fd = -1;
	assert_int_equal(b->ops->arena_open(b, &ticket, &view, &err), ST_PEER);
	assert_int_equal(close(open_fd), 0);
}

static void arenas_are_counted(void **state)
{
	struct backend *b;
	struct err err;
	void *arena;
	uint32_t n = 0;
	status st;

	(void)state;
	assert_int_equal(backend_open(&b, "cpu:3", &err), ST_OK);
	while ((st = b->ops->arena_create(b, 4096, &arena, &err)) == ST_OK)
		n++;
	assert_int_equal(st, ST_LIMIT);
	assert_int_equal(n, 16);
	b->ops->arena_destroy(b, arena);
	assert_int_equal(b->ops->arena_create(b, 4096, &arena, &err), ST_OK);
	assert_int_equal(b->ops->arena_create(b, 0, &arena, &err), ST_LIMIT);
	b->ops->close(b); /* takes what is left with it */
}

static void streams_and_events_do_work_at_once(void **state)
{
	struct backend *b = test_backend();
	const struct backend_ops *ops = b->ops;
	uint8_t from[64], to[64], back[64];
	struct copy_piece pieces[3] = {
		{from, to + 10, 5}, {from + 5, to, 10}, {from, to, 0}};
	struct stream *s;
	struct event *e;
	struct err err;

	(void)state;
	for (uint8_t i = 0; i < 64; i++)
		from[i] = i;
	assert_int_equal(ops->stream_create(b, &s, &err), ST_OK);
	assert_int_equal(ops->event_create(b, &e, &err), ST_OK);
	assert_int_equal(ops->upload(s, to, from, 64, &err), ST_OK);
	assert_int_equal(ops->download(s, back, to, 64, &err), ST_OK);
	assert_memory_equal(from, back, 64);
	assert_int_equal(ops->zero(s, to, 64, &err), ST_OK);
	assert_int_equal(ops->copy_list(s, pieces, 3, &err), ST_OK);
	assert_memory_equal(to,
		((uint8_t[16]){5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0, 1, 2, 3, 4}), 16);
	assert_int_equal(ops->event_record(e, s, &err), ST_OK);
	assert_int_equal(ops->event_query(e, &err), ST_OK);
	assert_int_equal(ops->event_wait(e, s, &err), ST_OK);
	assert_int_equal(ops->stream_sync(s, &err), ST_OK);
	assert_null(ops->capture_begin);
	ops->event_destroy(e);
	ops->stream_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(specs_are_served_or_refused),
		cmocka_unit_test(uuids_tell_devices_apart),
		cmocka_unit_test(memory_is_aligned_zeroed_and_fenced),
		cmocka_unit_test(overruns_stop_at_the_guard_page),
		cmocka_unit_test(arenas_are_read_by_other_processes),
		cmocka_unit_test(arenas_stay_in_step_and_close),
		cmocka_unit_test(foreign_arenas_are_checked),
		cmocka_unit_test(arenas_are_counted),
		cmocka_unit_test(streams_and_events_do_work_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
