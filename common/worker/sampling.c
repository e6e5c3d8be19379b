/* Bounds of the sampling parameters; the wire checks only their magnitude. */
#include "common/worker/sampling.h"

#include "common/base/mem.h"

bool sampling_needs_prompt(const struct sample_row *how)
{
	return how->repetition != 0.0f && how->repetition != 1.0f;
}

bool sampling_needs_answer(const struct sample_row *how)
{
	return sampling_needs_prompt(how) || how->presence != 0.0f ||
	       how->frequency != 0.0f;
}

static status check_numbers(const struct wire_sampling *s, struct err *err)
{
	if (s->temperature < 0)
		return err_set(
			err, ST_INVALID, "temperature %g is negative", s->temperature);
	if (s->top_p <= 0 || s->top_p > 1)
		return err_set(err, ST_INVALID, "top_p %g is not in (0, 1]", s->top_p);
	if (s->min_p < 0 || s->min_p > 1)
		return err_set(err, ST_INVALID, "min_p %g is not in [0, 1]", s->min_p);
	if (s->repetition < 0)
		return err_set(
			err, ST_INVALID, "repetition %g is negative", s->repetition);
	return ST_OK;
}

static status add_edit(struct sampling_terms *t, uint32_t i, struct sample_edit edit,
	uint32_t n_valid, struct err *err)
{
	if (edit.id >= n_valid)
		return err_set(err, ST_INVALID,
			"id %u of a bias or ban; the vocabulary has %u", edit.id,
			n_valid);
	if (!(edit.add >= -100.0f && edit.add <= 100.0f))
		return err_set(err, ST_INVALID, "bias %g of id %u is not in [-100, 100]",
			(double)edit.add, edit.id);
	t->edits[i] = edit;
	return ST_OK;
}

static status add_edits(struct sampling_terms *t, const struct wire_sampling *s,
	uint32_t n_valid, struct err *err)
{
	uint32_t n_bias = (uint32_t)wire_count(s->bias, struct wire_bias);
	uint32_t n_bans = (uint32_t)wire_count(s->bans, uint32_t);
	status st = ST_OK;

	if (n_bans >= n_valid)
		return err_set(err, ST_INVALID, "%u bans of a vocabulary of %u", n_bans,
			n_valid);
	if (n_bias + n_bans == 0)
		return ST_OK;
	t->edits = mem_take(n_bias + n_bans, sizeof(*t->edits));
	if (t->edits == NULL)
		return err_set(err, ST_LIMIT, "no request memory for a bias");
	for (uint32_t i = 0; st == ST_OK && i < n_bias; i++) {
		struct wire_bias b;

		wire_get(s->bias, i, &b, sizeof(b));
		st = add_edit(t, i, (struct sample_edit){b.token, b.add}, n_valid, err);
	}
	for (uint32_t i = 0; st == ST_OK && i < n_bans; i++)
		st = add_edit(t, n_bias + i,
			(struct sample_edit){.id = wire_u32(s->bans, i)}, n_valid, err);
	t->how.n_bias = (uint16_t)n_bias;
	t->how.n_bans = (uint16_t)n_bans;
	return st;
}

status sampling_make(struct sampling_terms *out, const struct wire_sampling *s,
	uint64_t n_prompt, uint32_t n_valid, struct err *err)
{
	struct sampling_terms t = {.edits = NULL};
	status st = check_numbers(s, err);

	if (st != ST_OK)
		return st;
	t.how = (struct sample_row){
		.temperature = (float)s->temperature,
		.top_p = (float)s->top_p,
		.min_p = (float)s->min_p,
		.top_k = (uint32_t)s->top_k,
		.seed = s->seed,
		.presence = (float)s->presence,
		.frequency = (float)s->frequency,
		.repetition = (float)s->repetition,
		.ban_until = (uint32_t)MIN(n_prompt + s->min_tokens, UINT32_MAX),
		.n_top = (uint32_t)s->top_logprobs,
	};
	st = add_edits(&t, s, n_valid, err);
	if (st == ST_OK)
		*out = t;
	else
		sampling_release(&t);
	return st;
}

void sampling_release(struct sampling_terms *t)
{
	mem_give(t->edits);
	t->edits = NULL;
}
