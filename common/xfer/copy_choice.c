/* Timing the ways of copying. */
#include "common/xfer/copy_choice.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include <inttypes.h>
#include <stdio.h>

#define ROUNDS       9u /* the first one warms up */
#define PAGES_MAX    256u
#define GOOD_PERCENT 90u

/* From the cheapest to a running step to the dearest. */
static const struct {
	const char *name;
	struct copy_method how;
} methods[] = {
	{"engine", {COPY_ENGINE, 0}},
	{"batch", {COPY_BATCH, 0}},
	{"gather/4", {COPY_GATHER, 4}},
	{"gather/8", {COPY_GATHER, 8}},
	{"gather/16", {COPY_GATHER, 16}},
	{"gather/32", {COPY_GATHER, 32}},
	{"gather/64", {COPY_GATHER, 64}},
};

struct trial {
	const struct xfer_side *side;
	uint32_t rank;
	struct stream *stream;
	struct copy_piece *pieces;
	uint32_t n;
	uint64_t bytes;
};

/* Pages 1.. of the peer, all into our page 0, as the plan cuts them for this rank. */
static status make_pieces(struct trial *t, const struct peer_arenas *peer,
	const uint8_t *const *arena, struct err *err)
{
	const struct layout *l = &t->side->layout;
	uint64_t fit = MAX(COPY_CHOICE_BYTES / l->page_bytes, 1);
	uint32_t n_pages = (uint32_t)MIN(MIN(fit, PAGES_MAX), MAX(peer->pages, 2) - 1);
	uint64_t max = plan_copies_max(&peer->layout, l, n_pages, false), n = 0;
	uint32_t *pages = mem_take(2 * (size_t)n_pages, sizeof(*pages));
	struct plan_copy *copies = mem_take(MAX(max, 1), sizeof(*copies));
	status st = ST_OK;

	t->pieces = mem_take(MAX(max, 1), sizeof(*t->pieces));
	if (pages == NULL || copies == NULL || t->pieces == NULL)
		st = err_set(err, ST_LIMIT, "no request memory to time copies");
	for (uint32_t i = 0; st == ST_OK && i < n_pages; i++)
		pages[i] = (uint32_t)MIN(i + 1, peer->pages - 1);
	if (st == ST_OK) {
		struct plan_refs from = {pages, n_pages, 0, peer->pages};
		struct plan_refs to = {pages + n_pages, n_pages, 0, t->side->arena_pages};

		st = plan_build(&peer->layout, &from, l, &to, copies, max, &n, err);
	}
	for (uint64_t i = 0; st == ST_OK && i < n; i++) {
		if (copies[i].dst_rank != t->rank)
			continue;
		t->pieces[t->n++] = (struct copy_piece){
			.src = arena[copies[i].src_rank] + copies[i].src_offset,
			.dst = (uint8_t *)t->side->arena[t->rank] + copies[i].dst_offset,
			.bytes = copies[i].bytes};
		t->bytes += copies[i].bytes;
	}
	mem_give(pages);
	mem_give(copies);
	return st;
}

/* The best round in nanoseconds. */
static status time_method(const struct trial *t, const struct copy_method *how,
	uint64_t *best_ns, struct err *err)
{
	const struct backend_ops *ops = t->side->backend[t->rank]->ops;
	status st = ST_OK;

	*best_ns = UINT64_MAX;
	for (uint32_t i = 0; i < ROUNDS && st == ST_OK; i++) {
		uint64_t began = clock_ns(), took;

		st = ops->copy_list_by(t->stream, how, t->pieces, t->n, err);
		if (st == ST_OK)
			st = ops->stream_sync(t->stream, err);
		took = MAX(clock_ns() - began, 1);
		if (i > 0)
			*best_ns = MIN(*best_ns, took);
	}
	return st;
}

static status time_all(const struct trial *t, struct copy_choice *out, struct err *err)
{
	uint64_t ns[COUNT(methods)], fastest = UINT64_MAX;
	size_t chosen = COUNT(methods);
	int at;

	for (size_t i = 0; i < COUNT(methods); i++) {
		status st = time_method(t, &methods[i].how, &ns[i], err);

		/* The copy engine must do; a driver may lack another method. */
		if (st != ST_OK && i == 0)
			return err_wrap(err, "copy/%s", methods[i].name);
		if (st != ST_OK) {
			log_warn("copy/%s: %s", methods[i].name, err->text);
			ns[i] = UINT64_MAX;
		}
		fastest = MIN(fastest, ns[i]);
	}
	for (size_t i = 0; i < COUNT(methods) && chosen == COUNT(methods); i++)
		if (ns[i] / 100 * GOOD_PERCENT <= fastest)
			chosen = i;
	out->how = methods[chosen].how;
	out->name = methods[chosen].name;
	at = snprintf(out->text, sizeof(out->text),
		"%s pieces=%u bytes=%" PRIu64 " GB/s:", methods[chosen].name, t->n,
		t->bytes);
	for (size_t i = 0; i < COUNT(methods) && (size_t)at < sizeof(out->text); i++)
		at += snprintf(out->text + at, sizeof(out->text) - (size_t)at, " %s=%.1f",
			methods[i].name, (double)t->bytes / (double)ns[i]);
	return ST_OK;
}

status copy_choose(struct copy_choice *out, const struct xfer_side *side,
	const struct peer_arenas *peer, uint32_t dst_rank, const uint8_t *const *arena,
	struct err *err)
{
	struct backend *b = side->backend[dst_rank];
	struct trial t = {.side = side, .rank = dst_rank};
	status st = make_pieces(&t, peer, arena, err);

	if (st == ST_OK)
		st = b->ops->stream_create(b, &t.stream, err);
	if (st == ST_OK)
		st = time_all(&t, out, err);
	if (t.stream != NULL)
		b->ops->stream_destroy(t.stream);
	mem_give(t.pieces);
	return st;
}
