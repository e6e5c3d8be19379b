/* Buffers in host memory between a peer's devices and ours, for transports whose copies
 * start there. A buffer is asked for (fetch), filled by the exporter (fetched), copied by
 * a task of its pull, and free again. Each pull has at most two at a time, so that one is
 * filled while the other is emptied, and uses them in the order of its plan. */
#include "common/base/mem.h"
#include "common/xfer/importer_impl.h"
#include <assert.h>
#include <string.h>

#define OF_ONE_PULL 2u

/*   FREE --fetch sent--> FETCHING --fetched--> FULL --task starts--> COPYING --over-->
 * FREE |                  +--- its pull ends ---> FREE
 *                            +--- its pull ends ---> ORPHAN --fetched--> FREE */
enum buffer_state {
	BUFFER_FREE,
	BUFFER_FETCHING,
	BUFFER_FULL,
	BUFFER_COPYING,
	BUFFER_ORPHAN,
	BUFFER__STATES
};

static const uint8_t may_follow[BUFFER__STATES] = {
	[BUFFER_FREE] = MAY(BUFFER_FETCHING),
	[BUFFER_FETCHING] = MAY(BUFFER_FULL) | MAY(BUFFER_ORPHAN) | MAY(BUFFER_FREE),
	[BUFFER_FULL] = MAY(BUFFER_COPYING) | MAY(BUFFER_FREE),
	[BUFFER_COPYING] = MAY(BUFFER_FREE),
	[BUFFER_ORPHAN] = MAY(BUFFER_FREE),
};

struct stage_buffer {
	enum buffer_state state;
	struct import_pull *pull;
	uint64_t order; /* of the fetch */
	struct plan_copy pieces[STAGE_PIECES_MAX];
	uint32_t n;
};

struct stage {
	struct peer *peer;
	struct stage_room room;
	uint64_t last_order;
	struct loop_timer deadline; /* an answer to a fetch is due */
	struct loop_timer resume;   /* a buffer has become free */
	struct stage_buffer buffer[STAGE_BUFFERS_MAX];
};

status stage_open(struct peer *peer, struct stage_room room, struct err *err)
{
	struct stage *s = mem_take(1, sizeof(*s));
	struct msg_stage m = {.buffers = room.buffers, .buffer_bytes = room.buffer_bytes};

	if (s == NULL)
		return err_set(err, ST_LIMIT, "no request memory for staged copies");
	assert(room.buffers <= STAGE_BUFFERS_MAX && room.buffer_bytes <= UINT32_MAX);
	s->peer = peer;
	s->room = room;
	peer->stage = s;
	link_send(peer->link, MSG_stage, &m, room.fd);
	return ST_OK;
}

void stage_close(struct peer *peer)
{
	if (peer->stage == NULL)
		return;
	loop_timer_stop(&peer->stage->deadline);
	loop_timer_stop(&peer->stage->resume);
	mem_give(peer->stage);
	peer->stage = NULL;
}

static uint32_t count(
	const struct stage *s, enum buffer_state state, const struct import_pull *of)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->room.buffers; i++)
		n += s->buffer[i].state == state &&
		     (of == NULL || s->buffer[i].pull == of);
	return n;
}

static void on_deadline(void *ctx)
{
	struct peer *peer = ctx;
	struct err err;

	(void)err_set(&err, ST_PEER, "no answer to a fetch within %u ms",
		peer->importer->side.timeout_ms);
	peer_end(peer, &err);
}

static void watch_answers(struct stage *s)
{
	struct importer *m = s->peer->importer;

	if (count(s, BUFFER_FETCHING, NULL) + count(s, BUFFER_ORPHAN, NULL) == 0)
		loop_timer_stop(&s->deadline);
	else
		loop_timer_wait(m->side.loop, &s->deadline, m->side.timeout_ms,
			on_deadline, s->peer);
}

/* Pulls that found no buffer. */
static void on_resume(void *ctx)
{
	struct peer *peer = ctx;
	struct importer *m = peer->importer;

	for (uint32_t i = 0; i < IMPORTER_PULLS_MAX && peer->stage != NULL; i++)
		if (m->pulls[i].peer == peer)
			pull_resume(&m->pulls[i]);
}

/* A buffer is a pull's from the fetch until it is free or an orphan. */
static void set_state(struct stage_buffer *b, enum buffer_state state)
{
	assert((may_follow[b->state] & MAY(state)) != 0);
	b->state = state;
	if (state == BUFFER_FREE || state == BUFFER_ORPHAN)
		b->pull = NULL;
	assert((b->pull == NULL) == (state == BUFFER_FREE || state == BUFFER_ORPHAN));
}

static void set_free(struct stage *s, struct stage_buffer *b)
{
	set_state(b, BUFFER_FREE);
	loop_timer_start(
		s->peer->importer->side.loop, &s->resume, 0, 0, on_resume, s->peer);
}

/* From where the pull's fetches stand, up to a buffer's bytes. */
static void fill_buffer(struct stage_buffer *b, uint64_t room, struct import_pull *p)
{
	uint64_t at = 0;

	b->n = 0;
	while (p->fetch < p->n_copies && b->n < STAGE_PIECES_MAX && at < room) {
		struct plan_copy c = p->copies[p->fetch];

		c.src_offset += p->fetch_bytes;
		c.dst_offset += p->fetch_bytes;
		c.bytes = MIN(c.bytes - p->fetch_bytes, room - at);
		b->pieces[b->n++] = c;
		at += c.bytes;
		p->fetch_bytes += c.bytes;
		if (p->fetch_bytes == p->copies[p->fetch].bytes) {
			p->fetch++;
			p->fetch_bytes = 0;
		}
	}
}

static void send_fetch(struct stage *s, struct stage_buffer *b, struct import_pull *p)
{
	struct stage_piece pieces[STAGE_PIECES_MAX];
	struct msg_fetch m = {
		.lease = p->what.lease, .buffer = (uint64_t)(b - s->buffer)};
	uint64_t at = 0;

	fill_buffer(b, s->room.buffer_bytes, p);
	for (uint32_t i = 0; i < b->n; i++) {
		pieces[i] = (struct stage_piece){.offset = b->pieces[i].src_offset,
			.rank = b->pieces[i].src_rank,
			.bytes = (uint32_t)b->pieces[i].bytes};
		b->pieces[i].src_rank = (uint32_t)m.buffer;
		b->pieces[i].src_offset = at;
		at += b->pieces[i].bytes;
	}
	m.pieces = (struct bytes){(const uint8_t *)pieces, b->n * sizeof(pieces[0])};
	b->pull = p;
	b->order = ++s->last_order;
	set_state(b, BUFFER_FETCHING);
	link_send(s->peer->link, MSG_fetch, &m, -1);
}

static void fetch_ahead(struct stage *s, struct import_pull *p)
{
	for (uint32_t i = 0; i < s->room.buffers && p->fetch < p->n_copies; i++) {
		uint32_t has = count(s, BUFFER_FETCHING, p) + count(s, BUFFER_FULL, p) +
			       count(s, BUFFER_COPYING, p);

		if (has >= OF_ONE_PULL)
			break;
		if (s->buffer[i].state == BUFFER_FREE)
			send_fetch(s, &s->buffer[i], p);
	}
	watch_answers(s);
}

uint32_t stage_next(struct import_pull *p, struct plan_copy *pieces, uint32_t *buffer)
{
	struct stage *s = p->peer->stage;
	struct stage_buffer *first = NULL;

	fetch_ahead(s, p);
	for (uint32_t i = 0; i < s->room.buffers; i++) {
		struct stage_buffer *b = &s->buffer[i];

		if (b->pull == p && (first == NULL || b->order < first->order))
			first = b;
	}
	if (first == NULL || first->state != BUFFER_FULL)
		return 0;
	set_state(first, BUFFER_COPYING);
	memcpy(pieces, first->pieces, first->n * sizeof(*pieces));
	*buffer = (uint32_t)(first - s->buffer);
	return first->n;
}

void stage_copied(struct peer *peer, uint32_t buffer)
{
	struct stage *s = peer->stage;

	if (s == NULL)
		return;
	assert(s->buffer[buffer].state == BUFFER_COPYING);
	set_free(s, &s->buffer[buffer]);
}

void stage_pull_ended(struct import_pull *p)
{
	struct stage *s = p->peer != NULL ? p->peer->stage : NULL;

	for (uint32_t i = 0; s != NULL && i < s->room.buffers; i++) {
		struct stage_buffer *b = &s->buffer[i];

		if (b->pull != p)
			continue;
		if (b->state == BUFFER_FETCHING)
			set_state(b, BUFFER_ORPHAN);
		else
			set_free(s, b);
	}
}

status stage_fetched(struct peer *peer, const struct msg_fetched *m, struct err *err)
{
	struct stage *s = peer->stage;
	struct stage_buffer *b;
	struct import_pull *p;
	struct err why;

	if (s == NULL || m->buffer >= s->room.buffers ||
		(s->buffer[m->buffer].state != BUFFER_FETCHING &&
			s->buffer[m->buffer].state != BUFFER_ORPHAN))
		return err_set(err, ST_INVALID,
			"fetched for buffer %llu, which was not asked for",
			(unsigned long long)m->buffer);
	b = &s->buffer[m->buffer];
	p = b->pull;
	if (b->state == BUFFER_ORPHAN || m->ok == 0)
		set_free(s, b);
	else
		set_state(b, BUFFER_FULL);
	watch_answers(s);
	if (p == NULL)
		return ST_OK;
	if (m->ok != 0) {
		pull_resume(p);
		return ST_OK;
	}
	(void)err_set(&why, ST_PEER, "%s: %.*s", peer->id, (int)m->text.len,
		(const char *)m->text.at);
	pull_stop(p, &why);
	return ST_OK;
}
