/* The exporter's part of the transport through host memory: it maps what an importer
 * gave and copies pieces of its arenas there when it is asked to. */
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/xfer/copier.h"
#include "common/xfer/exporter_impl.h"
#include "common/xfer/task.h"
#include "common/xfer/xfer_transport.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct export_fetch {
	struct task task; /* first */
	struct export_stage *stage;
	struct list_node node; /* of export_stage.fetches */
	uint64_t buffer;
	struct stage_piece pieces[STAGE_PIECES_MAX];
	uint32_t n;
	status code;
	struct err err;
};

struct export_stage {
	struct exporter *exporter;
	struct list_node node; /* of exporter.stages */
	uint64_t link;         /* may have ended */
	bool ended;
	uint8_t *at;
	uint64_t buffers, buffer_bytes;
	struct lanes *lanes;
	struct list fetches;
};

/* GPUs and kernel must not lose the memory while they use it. */
static status check_memory(int fd, const struct msg_stage *m, struct err *err)
{
	struct stat sb;
	int seals;

	if (fd < 0)
		return err_set(err, ST_INVALID, "stage came without a descriptor");
	if (m->buffers == 0 || m->buffer_bytes == 0)
		return err_set(err, ST_INVALID,
			"stage of %" PRIu64 " buffers of %" PRIu64 " bytes", m->buffers,
			m->buffer_bytes);
	if (fstat(fd, &sb) != 0 || (uint64_t)sb.st_size != m->buffers * m->buffer_bytes)
		return err_set(err, ST_INVALID,
			"stage of %" PRIu64 " bytes is not what its descriptor has",
			m->buffers * m->buffer_bytes);
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
		return err_set(
			err, ST_INVALID, "stage memory could shrink (seals %d)", seals);
	return ST_OK;
}

static void release(struct export_stage *s)
{
	struct exporter *x = s->exporter;
	struct backend *b = x->side.backend[0];
	struct err err;

	list_remove(&s->node);
	/* The process ends with what it has mapped. */
	if (xfer_park(&x->side, &err) != ST_OK) {
		xfer_failed(&x->side, &err);
		return;
	}
	if (s->at != NULL &&
		b->ops->host_unmap(b, s->at, s->buffers * s->buffer_bytes, &err) != ST_OK)
		log_error("%s", err.text);
	lanes_destroy(s->lanes);
	xfer_unpark(&x->side);
	mem_give(s);
}

static status map_memory(struct export_stage *s, int fd, struct err *err)
{
	struct exporter *x = s->exporter;
	struct backend *b = x->side.backend[0];
	void *at = NULL;
	status st = xfer_park(&x->side, err);

	if (st != ST_OK)
		return st;
	st = b->ops->host_map(b, fd, s->buffers * s->buffer_bytes, &at, err);
	s->at = at;
	if (st == ST_OK)
		st = lanes_create(&s->lanes, &x->side, err);
	xfer_unpark(&x->side);
	return st;
}

status export_stage_open(
	struct export_link *e, const struct msg_stage *m, int *fd, struct err *err)
{
	struct exporter *x = e->exporter;
	struct export_stage *s;
	status st;

	if (!e->opened || e->stage != NULL)
		return err_set(err, ST_INVALID, "stage came %s",
			e->opened ? "twice" : "before open");
	st = check_memory(*fd, m, err);
	if (st != ST_OK)
		return st;
	s = mem_take(1, sizeof(*s));
	if (s == NULL)
		return err_set(err, ST_LIMIT, "no request memory for staged copies");
	s->exporter = x;
	s->link = e->id;
	s->buffers = m->buffers;
	s->buffer_bytes = m->buffer_bytes;
	list_add(&x->stages, &s->node);
	st = map_memory(s, *fd, err);
	close(*fd); /* the mapping stays */
	*fd = -1;
	if (st != ST_OK) {
		xfer_failed(&x->side, err);
		release(s);
		return st;
	}
	e->stage = s;
	log_info("link=%" PRIu64 " importer=%s is served through host memory, %" PRIu64
		 " buffers of %" PRIu64 " bytes",
		e->id, e->peer_id, s->buffers, s->buffer_bytes);
	return ST_OK;
}

static void run_fetch(struct task *t)
{
	struct export_fetch *f = (struct export_fetch *)t;
	struct export_stage *s = f->stage;
	const struct xfer_side *side = &s->exporter->side;
	uint8_t *to = s->at + f->buffer * s->buffer_bytes;
	struct copier c;

	copier_begin(&c, side, s->lanes, &f->err);
	for (uint32_t i = 0; i < f->n; i++) {
		const struct stage_piece *p = &f->pieces[i];

		copier_add(&c, p->rank, NULL,
			(struct copy_piece){
				.src = (uint8_t *)side->arena[p->rank] + p->offset,
				.dst = to,
				.bytes = p->bytes});
		to += p->bytes;
	}
	f->code = copier_end(&c);
}

static void fetch_done(struct task *t)
{
	struct export_fetch *f = (struct export_fetch *)t;
	struct export_stage *s = f->stage;
	struct export_link *e = exporter_link_find(s->exporter, s->link);
	struct msg_fetched m = {.buffer = f->buffer, .ok = f->code == ST_OK};

	list_remove(&f->node);
	if (m.ok == 0) {
		xfer_failed(&s->exporter->side, &f->err);
		m.text = bytes_of_str(f->err.text);
		m.has_text = true;
	}
	if (e != NULL)
		link_send(e->link, MSG_fetched, &m, -1);
	mem_give(f);
	if (s->ended && s->fetches.n == 0)
		release(s);
}

static status take_pieces(struct export_fetch *f, const struct exporter *x,
	const struct msg_fetch *m, uint64_t room, struct err *err)
{
	uint64_t sum = 0;

	if (m->pieces.len == 0 || m->pieces.len % sizeof(f->pieces[0]) != 0 ||
		m->pieces.len > sizeof(f->pieces))
		return err_set(
			err, ST_INVALID, "fetch of %zu bytes of pieces", m->pieces.len);
	f->n = (uint32_t)(m->pieces.len / sizeof(f->pieces[0]));
	memcpy(f->pieces, m->pieces.at, m->pieces.len);
	for (uint32_t i = 0; i < f->n; i++) {
		const struct stage_piece *p = &f->pieces[i];

		if (p->rank >= x->side.n_ranks || p->bytes > x->side.arena_bytes ||
			p->offset > x->side.arena_bytes - p->bytes)
			return err_set(err, ST_INVALID,
				"fetch of %u bytes at %" PRIu64 " of rank %u", p->bytes,
				p->offset, p->rank);
		sum += p->bytes;
	}
	if (sum > room)
		return err_set(err, ST_INVALID,
			"fetch of %" PRIu64 " bytes into %" PRIu64, sum, room);
	return ST_OK;
}

status export_stage_fetch(
	struct export_link *e, const struct msg_fetch *m, struct err *err)
{
	struct exporter *x = e->exporter;
	struct export_stage *s = e->stage;
	struct lease *l = lease_find(x->leases, m->lease);
	struct export_fetch *f;
	status st;

	if (s == NULL || m->buffer >= s->buffers)
		return err_set(err, ST_INVALID, "fetch into buffer %" PRIu64 " of %s",
			m->buffer, s == NULL ? "nothing" : "fewer");
	list_each (other, &s->fetches, struct export_fetch, node)
		if (other->buffer == m->buffer)
			return err_set(err, ST_INVALID,
				"fetch into buffer %" PRIu64 ", which is being filled",
				m->buffer);
	f = mem_take(1, sizeof(*f));
	if (f == NULL)
		return err_set(err, ST_LIMIT, "no request memory for a staged copy");
	st = take_pieces(f, x, m, s->buffer_bytes, err);
	/* A lease that was withdrawn meanwhile is the peer's bad luck, not its fault. */
	if (st == ST_OK && (l == NULL || l->claimer != e->id)) {
		struct err gone;
		struct msg_fetched answer = {.buffer = m->buffer, .has_text = true};

		(void)err_set(&gone, ST_PEER, "lease %" PRIu64 " is not claimed by it",
			m->lease);
		answer.text = bytes_of_str(gone.text);
		link_send(e->link, MSG_fetched, &answer, -1);
		mem_give(f);
		return ST_OK;
	}
	f->task.run = run_fetch;
	f->task.done = fetch_done;
	f->stage = s;
	f->buffer = m->buffer;
	if (st == ST_OK && task_start(x->side.loop, &f->task) != ST_OK)
		st = err_set(err, ST_LIMIT, "no request memory to start a staged copy");
	if (st != ST_OK) {
		mem_give(f);
		return st;
	}
	list_add(&s->fetches, &f->node);
	return ST_OK;
}

void export_stage_end(struct export_link *e)
{
	struct export_stage *s = e->stage;

	e->stage = NULL;
	if (s == NULL)
		return;
	s->ended = true;
	if (s->fetches.n == 0)
		release(s);
}

void export_stage_abandon(struct exporter *x)
{
	list_each (s, &x->stages, struct export_stage, node) {
		list_each (f, &s->fetches, struct export_fetch, node) {
			list_remove(&f->node);
			task_abandon(&f->task);
		}
		release(s);
	}
}
