/* The CUDA backend itself: which devices it takes, memory, order of streams, events,
 * graphs, and an arena that another process maps and reads.
 *
 * usage: backend_test GPU_OF_OWNER GPU_OF_READER */
#include "kernels/backend.h"
#include "kernels/cuda/backend_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (3u << 20)

static uint8_t sent[BYTES], got[BYTES];

static void need(bool right, const char *what, const struct err *err)
{
	if (right)
		return;
	printf("FAIL %s: %s\n", what, err->text);
	(void)fflush(stdout);
	_exit(1);
}

/* need_ok(call): the call's status must be ST_OK. */
#define need_ok(call) need((call) == ST_OK, #call, &err)

/* Which devices are opened, with facts of devices that need not be here. */
static void check_judge(void)
{
	static const uint32_t both[] = {90, 120};
	static const struct {
		const char *name;
		uint32_t arch, n_built_for;
		const char *refusal; /* NULL: accepted */
	} cases[] = {
		{"NVIDIA H200", 90, 2, NULL},
		{"NVIDIA GeForce RTX 5090", 120, 2, NULL},
		{"NVIDIA H200 MIG 1g.18gb", 90, 2,
			"cuda:7 is a MIG instance: other processes cannot map its memory "
			"(CUDA IPC); use a whole GPU"},
		{"NVIDIA A100-SXM4-80GB", 80, 2,
			"cuda:7 is sm_80; this build has machine code for sm_90a and "
			"sm_120a"},
		{"NVIDIA A100-SXM4-80GB MIG 1g.10gb", 80, 2, "cuda:7 is sm_80; "},
		{"NVIDIA B200", 100, 2, "cuda:7 is sm_100; "},
		{"NVIDIA GB10", 121, 2, "cuda:7 is sm_121; "},
		{"NVIDIA H200", 90, 1, NULL},
		{"NVIDIA GeForce RTX 5090", 120, 1,
			"cuda:7 is sm_120; this build has machine code for sm_90a"},
	};
	struct err err = {.text = "accepted"};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct cuda_facts facts = {"cuda:7", cases[i].name, cases[i].arch, both,
			cases[i].n_built_for};
		status st = backend_cuda_judge(&facts, &err);

		if (cases[i].refusal == NULL)
			need(st == ST_OK, cases[i].name, &err);
		else
			need(st == ST_DEVICE && strncmp(err.text, cases[i].refusal,
							strlen(cases[i].refusal)) == 0,
				cases[i].name, &err);
	}
}

static void fill(uint32_t seed)
{
	for (uint32_t i = 0; i < BYTES; i++)
		sent[i] = (uint8_t)((i * 2654435761u + seed) >> 13);
}

static void check_memory(struct backend *b, struct stream *s)
{
	void *device = NULL, *other = NULL, *pinned = NULL;
	struct err err = {.text = "other bytes"};

	need_ok(b->ops->alloc(b, MEM_DEVICE, BYTES, &device, &err));
	need_ok(b->ops->alloc(b, MEM_DEVICE, BYTES, &other, &err));
	need_ok(b->ops->alloc(b, MEM_PINNED, BYTES, &pinned, &err));
	need_ok(b->ops->download(s, got, device, BYTES, &err));
	for (uint32_t i = 0; i < BYTES; i++)
		need(got[i] == 0 && ((uint8_t *)pinned)[i] == 0, "zeroed memory", &err);
	fill(1);
	memcpy(pinned, sent, BYTES);
	need_ok(b->ops->upload(s, device, pinned, BYTES, &err));
	memset(pinned, 0, BYTES);
	need_ok(b->ops->copy_list(s,
		(struct copy_piece[3]){{device, other, 1000},
			{(uint8_t *)device + 1000, (uint8_t *)other + 1000, 0},
			{(uint8_t *)device + 1000, (uint8_t *)other + 1000,
				BYTES - 1000}},
		3, &err));
	need_ok(b->ops->download(s, got, other, BYTES, &err));
	need(memcmp(sent, got, BYTES) == 0, "copied bytes", &err);
	need_ok(b->ops->zero(s, other, 777, &err));
	need_ok(b->ops->download(s, got, other, BYTES, &err));
	need(got[776] == 0 && memcmp(sent + 777, got + 777, BYTES - 777) == 0,
		"zeroed part", &err);
	b->ops->free(b, MEM_DEVICE, device);
	b->ops->free(b, MEM_DEVICE, other);
	b->ops->free(b, MEM_PINNED, pinned);
}

/* A captured zero runs when the graph is launched, not before. */
static void check_order(struct backend *b, struct stream *s)
{
	struct err err = {.text = "wrong"};
	struct stream *second = NULL;
	struct event *e = NULL;
	struct graph *g = NULL;
	void *device = NULL;
	status st;

	need_ok(b->ops->alloc(b, MEM_DEVICE, BYTES, &device, &err));
	need_ok(b->ops->stream_create(b, &second, &err));
	need_ok(b->ops->event_create(b, &e, &err));
	need_ok(b->ops->upload(s, device, sent, BYTES, &err));
	need_ok(b->ops->capture_begin(s, &err));
	need_ok(b->ops->zero(s, device, BYTES, &err));
	need_ok(b->ops->capture_end(s, &g, &err));
	need_ok(b->ops->download(s, got, device, BYTES, &err));
	need(memcmp(sent, got, BYTES) == 0, "capture runs nothing", &err);
	need_ok(b->ops->graph_launch(g, s, &err));
	need_ok(b->ops->event_record(e, s, &err));
	need_ok(b->ops->event_wait(e, second, &err));
	need_ok(b->ops->download(second, got, device, BYTES, &err));
	for (uint32_t i = 0; i < BYTES; i++)
		need(got[i] == 0, "launched graph, seen by another stream", &err);
	while ((st = b->ops->event_query(e, &err)) == ST_AGAIN)
		;
	need(st == ST_OK, "event_query", &err);
	need_ok(b->ops->stream_sync(s, &err));
	b->ops->graph_destroy(g);
	b->ops->event_destroy(e);
	b->ops->stream_destroy(second);
	b->ops->free(b, MEM_DEVICE, device);
}

/* The other process: map the arena, read it on its own GPU, say so. */
static int read_arena(const char *gpu, int from, int to)
{
	struct arena_ticket ticket;
	const void *theirs = NULL;
	void *mine = NULL;
	struct backend *b = NULL;
	struct stream *s = NULL;
	struct err err = {.text = "other bytes"};

	if (read(from, &ticket, sizeof(ticket)) != (ssize_t)sizeof(ticket))
		return 1;
	need_ok(backend_open(&b, gpu, &err));
	need_ok(b->ops->stream_create(b, &s, &err));
	need_ok(b->ops->alloc(b, MEM_DEVICE, BYTES, &mine, &err));
	need_ok(b->ops->arena_open(b, &ticket, &theirs, &err));
	need_ok(b->ops->copy_list(s, &(struct copy_piece){theirs, mine, BYTES}, 1, &err));
	need_ok(b->ops->download(s, got, mine, BYTES, &err));
	fill(2);
	need(memcmp(sent, got, BYTES) == 0, "bytes of the other process", &err);
	need_ok(b->ops->arena_close(b, theirs, ticket.bytes, &err));
	memset(ticket.blob, 0xA5, sizeof(ticket.blob));
	need(b->ops->arena_open(b, &ticket, &theirs, &err) == ST_PEER,
		"a damaged handle is the peer's fault", &err);
	need_ok(b->ops->upload(s, mine, sent, BYTES, &err));
	return write(to, "k", 1) == 1 ? 0 : 1;
}

int main(int argc, char **argv)
{
	int there[2], back[2], code = 1;
	struct arena_ticket ticket;
	struct backend *b = NULL;
	struct stream *s = NULL;
	struct err err = {.text = "accepted"};
	void *arena = NULL;
	char answer;
	pid_t child;

	if (argc != 3 || pipe(there) != 0 || pipe(back) != 0) {
		printf("usage: backend_test GPU_OF_OWNER GPU_OF_READER\n");
		return 2;
	}
	check_judge();
	child = fork(); /* before this process has a context */
	if (child == 0)
		return read_arena(argv[2], there[0], back[1]);
	need(backend_open(&b, "99", &err) == ST_DEVICE, "GPU 99", &err);
	need_ok(backend_open(&b, argv[1], &err));
	printf("%s %s sm_%u, %.1f of %.1f GB free\n", b->device, b->uuid, b->arch,
		(double)b->mem_free * 1e-9, (double)b->mem_total * 1e-9);
	need_ok(b->ops->stream_create(b, &s, &err));
	check_memory(b, s);
	check_order(b, s);
	need_ok(b->ops->arena_create(b, BYTES, &arena, &err));
	fill(2);
	need_ok(b->ops->upload(s, arena, sent, BYTES, &err));
	need_ok(b->ops->arena_export(b, arena, &ticket, &err));
	need(write(there[1], &ticket, sizeof(ticket)) == (ssize_t)sizeof(ticket), "write",
		&err);
	close(back[1]);
	need(read(back[0], &answer, 1) == 1, "the reader's answer", &err);
	(void)waitpid(child, &code, 0);
	need(code == 0, "the reader's exit", &err);
	b->ops->arena_destroy(b, arena);
	b->ops->stream_destroy(s);
	b->ops->close(b);
	printf("backend_test %s %s: right\n", argv[1], argv[2]);
	return 0;
}
