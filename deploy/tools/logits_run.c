/* One sequence through an engine, and its state read back. */
#include "deploy/tools/logits_run.h"

#include "common/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

/* Blocks until the engine has a result; a failed engine is an error. */
static status run_wait(
	struct engine *e, const struct eng_result **result, struct err *err)
{
	struct pollfd p = {.fd = engine_fd(e), .events = POLLIN};

	while ((*result = engine_poll(e)) == NULL)
		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			return err_set(err, ST_IO, "poll: %s", strerror(errno));
	if ((*result)->kind != ENG_FAILED)
		return ST_OK;
	*err = (*result)->err;
	return err->code;
}

status run_prefill(struct engine *e, const uint32_t *ids, uint32_t n, uint32_t chunk,
	const struct place *place, float *logits, struct err *err)
{
	uint64_t vocab = engine_config(e)->vocab;

	for (uint32_t at = 0; at < n; at += chunk) {
		const struct eng_result *r;
		struct eng_chunk c = {.ids = ids + at,
			.n_tokens = MIN(chunk, n - at),
			.pos = at,
			.pages = place->pages,
			.n_pages = place->n_pages,
			.zero_from = at == 0 ? 0 : place->n_pages,
			.slot = place->slot};
		uint64_t epoch;
		status st = engine_prefill(e, &c, 1, &epoch);

		if (st != ST_OK)
			return err_set(err, st, "ids %u..%u: not all below %llu", at,
				at + c.n_tokens, (unsigned long long)vocab);
		st = run_wait(e, &r, err);
		if (st != ST_OK)
			return st;
		memcpy(logits + at * vocab, r->logits, r->n_rows * vocab * sizeof(float));
	}
	return ST_OK;
}

status run_decode(struct engine *e, const uint32_t *ids, uint32_t at, uint32_t n,
	const struct place *place, float *logits, struct err *err)
{
	uint64_t vocab = engine_config(e)->vocab;
	const struct eng_result *r;
	struct eng_join join = {.tag = 1,
		.pages = place->pages,
		.n_pages = place->n_pages,
		.slot = place->slot,
		.n_tokens = at,
		.input = ids[at],
		.steps_max = n,
		.forced = ids + at + 1,
		.n_forced = n - 1};
	status st = engine_join(e, &join);

	if (st != ST_OK)
		return err_set(err, st, "ids %u..%u: not all below %llu", at, at + n,
			(unsigned long long)vocab);
	for (uint32_t i = 0; i < n; i++) {
		st = run_wait(e, &r, err);
		if (st != ST_OK)
			return st;
		memcpy(logits + i * vocab, r->logits, vocab * sizeof(float));
	}
	st = engine_leave(e, join.tag);
	return st == ST_OK ? run_wait(e, &r, err) : err_set(err, st, "leave");
}

/* Local heads [h][dv][dk] to [h][dk][dv] at the rank's first head. */
static void spread_state(
	const struct layout *l, uint32_t rank, const float *local, float *state)
{
	for (uint32_t h = 0; h < l->local_v; h++) {
		uint64_t size = (uint64_t)l->dk * l->dv;
		const float *from = local + h * size;
		float *to = state + (rank * l->local_v + h) * size;

		for (uint32_t v = 0; v < l->dv; v++)
			for (uint32_t k = 0; k < l->dk; k++)
				to[(uint64_t)k * l->dv + v] =
					from[(uint64_t)v * l->dk + k];
	}
}

/* Local channels [q | k | v] to their places in the whole model's. */
static void spread_conv(
	const struct layout *l, uint32_t rank, const void *local, float *conv)
{
	const uint32_t parts[] = {
		l->local_k * l->dk, l->local_k * l->dk, l->local_v * l->dv};
	uint64_t from = 0, to = 0, kept = l->taps - 1;

	for (size_t p = 0; p < COUNT(parts); p++) {
		uint64_t n = parts[p] * kept;

		for (uint64_t i = 0; i < n; i++)
			conv[to + rank * n + i] =
				load_as((enum dtype)l->conv_dtype, local, from + i);
		from += n;
		to += n * l->ranks;
	}
}

status run_read_state(struct engine *e, uint32_t slot, uint32_t ordinal, float *state,
	float *conv, struct err *err)
{
	const struct layout *l = engine_layout(e);
	uint64_t at = layout_slot_offset(l, engine_pages(e), slot);
	void *local = mem_take(1, MAX(l->rec_layer_bytes, l->conv_layer_bytes));
	status st = ST_OK;

	if (local == NULL)
		return err_set(err, ST_NOMEM, "no memory for a layer's state");
	for (uint32_t r = 0; st == ST_OK && r < engine_ranks(e); r++) {
		st = engine_read(e, r, at + ordinal * l->rec_layer_bytes, local,
			l->rec_layer_bytes, err);
		if (st != ST_OK)
			break;
		spread_state(l, r, local, state);
		st = engine_read(e, r,
			at + l->conv_offset + ordinal * l->conv_layer_bytes, local,
			l->conv_layer_bytes, err);
		if (st == ST_OK)
			spread_conv(l, r, local, conv);
	}
	mem_give(local);
	return st;
}
