/* The identity of the weights, from samples: a model of 234 GB in 280,000 tensors costs
 * one short read for each, of files that loading has just read. What is sampled:
 *   a tensor of at most SMALL bytes as a whole; of a larger one PIECES pieces at equal
 *   distances, the first and the last bytes among them;
 *   of an expert's tensor, which has thousands of siblings, one piece, at another place
 *   for each of them.
 * Training, merging, quantising and converting change numbers everywhere and are seen. A
 * change between the pieces of one large tensor is not. */
#include "common/model/weights_impl.h"

#include "common/base/hash.h"

#include <string.h>

#define PIECE  1024u
#define PIECES 64u
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

/* The place of a tensor in the model, by words that do not depend on prefixes. */
static uint64_t hash_name(const struct weight_name *n)
{
	const char *text = module_text(n->module);
	uint64_t h = hash64(text, strlen(text), n->in_layer ? n->layer + 1 : 0);

	h = hash64_u64(h, (uint64_t)n->part);
	return module_style(n->module) == STYLE_EXPERT ? hash64_u64(h, n->expert) : h;
}

static status add_tensor(struct digest *d, const struct st_tensor *t,
	const struct weight_name *n, struct err *err)
{
	const char *dtype = st_dtype_name(t->dtype);
	uint64_t h = hash64(dtype, strlen(dtype), hash_name(n));
	status st;

	for (uint32_t i = 0; i < t->n_dims; i++)
		h = hash64_u64(h, t->dim[i]);
	st = module_style(n->module) == STYLE_EXPERT ? add_expert_sample(d, t, &h, err)
						     : add_samples(d, t, &h, err);
	d->sum += h;
	return st;
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
	for (uint32_t i = w->rank; i < st_count(w->st) && st == ST_OK; i += w->n_ranks) {
		struct weight_name n = weight_name_read(st_at(w->st, i)->name);

		if (n.kind == NAME_PART && !(n.module == MOD_LM_HEAD && w->config->tied))
			st = add_tensor(&d, st_at(w->st, i), &n, err);
	}
	if (st == ST_OK)
		*out = d.sum;
	return st;
}
