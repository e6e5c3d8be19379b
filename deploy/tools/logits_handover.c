/* The importing side: starts the exporter, sends orders, pulls. */
#include "deploy/tools/logits_handover.h"

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/xfer/xfer.h"
#include "deploy/tools/logits_order.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGS_MAX 32u

struct handover {
	pid_t child;
	int order_fd;
	float *logits;
	uint64_t logits_bytes;
	char dir[sizeof("/tmp/baton-logits-XXXXXX")];
	struct engine *e;
	struct loop *loop;
	struct importer *importer;
	struct pull_result pulled;
};

/* In the new process. Descriptors keep their numbers through exec. */
static void become_exporter(const struct handover *h, const char *const *argv,
	uint32_t n_args, int order_fd, int logits_fd)
{
	char order[32], share[32], dir[sizeof(h->dir) + 32];
	char *args[ARGS_MAX + 4];

	if (n_args > ARGS_MAX)
		_exit(126);
	for (uint32_t i = 0; i < n_args; i++)
		memcpy(&args[i], &argv[i], sizeof(args[i]));
	(void)snprintf(order, sizeof(order), "--export_order_fd=%d", order_fd);
	(void)snprintf(share, sizeof(share), "--export_logits_fd=%d", logits_fd);
	(void)snprintf(dir, sizeof(dir), "--export_dir=%s", h->dir);
	args[n_args] = order;
	args[n_args + 1] = share;
	args[n_args + 2] = dir;
	args[n_args + 3] = NULL;
	(void)execv("/proc/self/exe", args);
	_exit(127);
}

static status start_child(struct handover *h, const char *const *argv, uint32_t n_args,
	int pair[2], int logits_fd, struct err *err)
{
	h->child = fork();
	if (h->child < 0)
		return err_set(err, ST_IO, "fork: %s", strerror(errno));
	if (h->child == 0) {
		(void)close(pair[0]);
		become_exporter(h, argv, n_args, pair[1], logits_fd);
	}
	return ST_OK;
}

status handover_start(struct handover **out, const char *const *argv, uint32_t n_args,
	uint64_t logits_bytes, struct err *err)
{
	struct handover *h = mem_alloc(1, sizeof(*h));
	int pair[2] = {-1, -1};
	int logits_fd = memfd_create("baton-logits", 0);
	status st = ST_OK;

	h->order_fd = -1;
	h->logits_bytes = logits_bytes;
	h->logits = MAP_FAILED;
	memcpy(h->dir, "/tmp/baton-logits-XXXXXX", sizeof(h->dir));
	if (logits_fd >= 0 && ftruncate(logits_fd, (off_t)logits_bytes) == 0)
		h->logits = mmap(NULL, logits_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			logits_fd, 0);
	if (h->logits == MAP_FAILED ||
		socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0 ||
		mkdtemp(h->dir) == NULL)
		st = err_set(err, ST_IO, "memory, sockets or folder for a hand-over: %s",
			strerror(errno));
	if (st == ST_OK)
		st = start_child(h, argv, n_args, pair, logits_fd, err);
	h->order_fd = pair[0];
	if (pair[1] >= 0)
		(void)close(pair[1]);
	if (logits_fd >= 0)
		(void)close(logits_fd);
	if (st == ST_OK)
		*out = h;
	else
		handover_end(h);
	return st;
}

status handover_attach(
	struct handover *h, struct engine *e, const char *transport, struct err *err)
{
	struct xfer_side side = {.id = "logits-d", .incarnation = rng_entropy64()};

	h->e = e;
	h->loop = loop_create();
	side.loop = h->loop;
	side.runtime_dir = h->dir;
	side.transport = transport;
	order_side(&side, e);
	return importer_create(&h->importer, &side, err);
}

static void on_pulled(void *ctx, const struct pull_result *r)
{
	struct handover *h = ctx;

	h->pulled = *r;
	loop_stop(h->loop);
}

static status pull_state(struct handover *h, const struct offer *offer,
	const struct place *place, uint64_t *bytes, struct err *err)
{
	struct pull p = {.link_path = offer->path,
		.worker_id = offer->worker_id,
		.incarnation = offer->incarnation,
		.lease = offer->lease,
		.n_tokens = offer->n_tokens,
		.src_pages = offer->pages,
		.dst_pages = place->pages,
		.n_pages = offer->n_pages,
		.src_slot = offer->slot,
		.dst_slot = place->slot,
		.digest = true};
	uint64_t handle;
	status st = importer_pull(h->importer, &p, on_pulled, h, &handle, err);

	if (st != ST_OK)
		return st;
	loop_run(h->loop);
	*bytes = h->pulled.bytes;
	if (h->pulled.code != ST_OK)
		*err = h->pulled.err;
	return h->pulled.code;
}

status handover_run(struct handover *h, const uint32_t *ids, uint32_t n,
	const struct place *place, float *logits, uint64_t *bytes, struct err *err)
{
	uint64_t vocab = engine_config(h->e)->vocab;
	struct offer *offer = mem_take(1, sizeof(*offer));
	status st;

	if (offer == NULL)
		return err_set(err, ST_NOMEM, "no memory for an offer");
	st = order_send(h->order_fd, ids, n, err);
	if (st == ST_OK)
		st = offer_receive(h->order_fd, offer, err);
	if (st == ST_OK && offer->code != ST_OK)
		st = err_set(err, offer->code, "exporter: %s", offer->text);
	if (st == ST_OK) {
		memcpy(logits, h->logits, n * vocab * sizeof(float));
		st = pull_state(h, offer, place, bytes, err);
	}
	mem_give(offer);
	return st;
}

void handover_end(struct handover *h)
{
	if (h == NULL)
		return;
	if (h->importer != NULL)
		importer_destroy(h->importer);
	if (h->loop != NULL)
		loop_destroy(h->loop);
	if (h->order_fd >= 0)
		(void)close(h->order_fd); /* the other process ends by it */
	if (h->child > 0)
		(void)waitpid(h->child, NULL, 0);
	if (h->logits != MAP_FAILED)
		(void)munmap(h->logits, h->logits_bytes);
	(void)rmdir(h->dir);
	mem_free(h);
}
