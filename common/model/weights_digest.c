/* The identity of the weights, from samples, so that 234 GB in 370,000 tensors cost
 * about 0.1 s of one core and 42,000 short reads. What is sampled:
 *   a tensor of at most SMALL bytes as a whole; of a larger one PIECES pieces at equal
 *   distances, the first and the last bytes among them;
 *   of an expert, which has thousands of siblings, one piece of one of its three
 *   matrices, at another place for each of them. Of the others of its tensors names,
 *   types and shapes count.
 * Training, merging, quantising and converting change numbers everywhere and are seen. A
 * change between the pieces of one large tensor is not, nor one of experts' scales alone.
 */
#include "common/model/weights_impl.h"

#include "common/base/hash.h"

#include <string.h>

#define PIECE  1024u
#define PIECES 16u
#define SMALL  (PIECES * PIECE)

struct digest {
	const struct weights *w;
	uint8_t buf[SMALL];
	uint64_t sum;
};

static status add_bytes(struct digest *d, const struct st_tensor *t, uint64_t at,
	uint64_t len, uint64_t *h, struct err *err)
{
	status st = st_read(d->w->st, t, at, d->buf, len, err);

	if (st == ST_OK)
		*h = hash64(d->buf, len, *h);
	return st;
}

static status add_samples(
	struct digest *d, const struct st_tensor *t, uint64_t *h, struct err *err)
{
	status st = ST_OK;

	if (t->bytes <= SMALL)
		return add_bytes(d, t, 0, t->bytes, h, err);
	/* Tensors are far below 2^58 bytes: the product fits. */
	for (uint32_t i = 0; i < PIECES && st == ST_OK; i++)
		st = add_bytes(
			d, t, (t->bytes - PIECE) * i / (PIECES - 1), PIECE, h, err);
	return st;
}

/* *h is the hash of the name, which chooses the place. */
static status add_expert_sample(
	struct digest *d, const struct st_tensor *t, uint64_t *h, struct err *err)
{
	if (t->bytes <= PIECE)
		return add_bytes(d, t, 0, t->bytes, h, err);
	return add_bytes(d, t, *h % (t->bytes - PIECE + 1), PIECE, h, err);
}

/* Where a tensor stands in the model, whatever its file calls it. */
struct place {
	enum module module;
	uint32_t layer, expert;
	enum part part;
};

/* By words that do not depend on prefixes. */
static uint64_t hash_place(const struct place *p)
{
	const char *text = module_text(p->module);
	bool in_layer = module_where(p->module) != WHERE_global;
	uint64_t h = hash64(text, strlen(text), in_layer ? p->layer + 1 : 0);

	h = hash64_u64(h, (uint64_t)p->part);
	return module_style(p->module) == STYLE_EXPERT ? hash64_u64(h, p->expert) : h;
}

/* Of three matrices of an expert one, in turns. */
static bool is_sampled(const struct place *p)
{
	return (p->part == PART_WEIGHT || p->part == PART_PACKED) &&
	       (p->layer + p->expert) % 3 == (uint32_t)(p->module - MOD_EXP_GATE);
}

static status add_tensor(struct digest *d, const struct st_tensor *t,
	const struct place *p, struct err *err)
{
	const char *dtype = st_dtype_name(t->dtype);
	uint64_t h = hash64(dtype, strlen(dtype), hash_place(p));
	status st = ST_OK;

	for (uint32_t i = 0; i < t->n_dims; i++)
		h = hash64_u64(h, t->dim[i]);
	if (module_style(p->module) != STYLE_EXPERT)
		st = add_samples(d, t, &h, err);
	else if (is_sampled(p))
		st = add_expert_sample(d, t, &h, err);
	d->sum += h;
	return st;
}

/* The tensors of one module of one layer, or of one expert there. A tensor belongs to one
 * rank, by its number. */
static status add_piece(struct digest *d, struct place p, struct err *err)
{
	const struct weights *w = d->w;
	const struct piece *piece = weights_piece(w, p.module, p.layer, p.expert);

	for (uint32_t i = 0; i < PART__COUNT; i++) {
		uint32_t at = piece->at[i];
		status st;

		p.part = (enum part)i;
		if (at == 0 || (at - 1) % w->n_ranks != w->rank)
			continue;
		st = add_tensor(d, st_at(w->st, at - 1), &p, err);
		if (st != ST_OK)
			return st;
	}
	return ST_OK;
}

static status add_module(struct digest *d, enum module m, uint32_t layer, struct err *err)
{
	uint32_t n = module_style(m) == STYLE_EXPERT ? d->w->config->n_experts : 1;

	for (uint32_t e = 0; e < n; e++) {
		status st = add_piece(
			d, (struct place){.module = m, .layer = layer, .expert = e}, err);

		if (st != ST_OK)
			return st;
	}
	return ST_OK;
}

status weights_digest(const struct weights *w, uint64_t *out, struct err *err)
{
	struct digest d = {.w = w};
	status st = ST_OK;

	if (w->st == NULL) { /* dummy weights: their numbers follow from the formats */
		for (size_t i = 0; i < (size_t)WR__COUNT * w->config->n_layers; i++)
			d.sum = hash64_u64(d.sum, w->entries[i].info.format);
		*out = w->rank == 0 ? d.sum : 0;
		return ST_OK;
	}
	for (uint32_t layer = 0; layer < w->config->n_layers; layer++) {
		for (uint32_t m = 0; m < MOD__COUNT && st == ST_OK; m++)
			st = add_module(&d, (enum module)m, layer, err);
	}
	if (st == ST_OK)
		*out = d.sum;
	return st;
}
