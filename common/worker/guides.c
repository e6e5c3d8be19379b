/* Grammars of requests: made from their text, brought to where the answer stands. */
#include "common/worker/guides.h"

#include "common/base/mem.h"

/* Added tokens are marks of the template, no text of an answer. */
void guides_start(struct worker *w)
{
	struct bytes *tokens;
	const struct tok_added *added;
	size_t n_added;

	if (!engine_takes_guides(w->engine))
		return;
	tokens = mem_alloc(w->n_valid, sizeof(*tokens));
	for (uint32_t id = 0; id < w->n_valid; id++)
		tokens[id] = tokenizer_token_bytes(w->tokenizer, id);
	added = tokenizer_added(w->tokenizer, &n_added);
	for (size_t i = 0; i < n_added; i++)
		if (added[i].id < w->n_valid)
			tokens[added[i].id] = (struct bytes){NULL, 0};
	w->vocab = vocab_make(tokens, w->n_valid);
	mem_free(tokens);
}

void guides_stop(struct worker *w)
{
	vocab_destroy(w->vocab);
	w->vocab = NULL;
}

bool guides_can(const struct worker *w, struct err *err)
{
	size_t n_ends;
	status st = ST_OK;

	(void)tokenizer_eos(w->tokenizer, &n_ends);
	if (w->vocab == NULL)
		st = err_set(err, ST_INVALID,
			"Structured output is not supported by workers on GPUs");
	else if (!vocab_is_whole(w->vocab))
		st = err_set(err, ST_INVALID,
			"Structured output needs a token for each byte, and this model "
			"has not all of them");
	else if (n_ends == 0)
		st = err_set(err, ST_INVALID,
			"Structured output needs a token that ends an answer, and this "
			"model names none");
	return st == ST_OK;
}

static status follow(struct guide *g, struct bytes generated, struct err *err)
{
	for (size_t i = 0; i < wire_count(generated, uint32_t); i++)
		if (!guide_take(g, wire_u32(generated, i)))
			return err_set(err, ST_INVALID,
				"generated id %u at %zu does not follow the grammar",
				wire_u32(generated, i), i);
	return ST_OK;
}

status guides_make(struct guide **out, const struct worker *w,
	const struct wire_sampling *s, struct bytes generated, struct err *err)
{
	struct guide_terms terms = {.kind = (enum grammar_kind)s->grammar_kind,
		.text = s->grammar,
		.after = s->grammar_after == 0 ? GUIDE_AT_ONCE
					       : (uint32_t)(s->grammar_after - 1),
		.vocab = w->vocab};
	struct guide *g = NULL;
	status st;

	*out = NULL;
	if (s->grammar_kind == 0)
		return ST_OK;
	terms.ends = tokenizer_eos(w->tokenizer, &terms.n_ends);
	if (s->bans.len > 0)
		return err_set(err, ST_INVALID, "a grammar beside bans");
	st = guide_make(&g, &terms, err);
	if (st == ST_OK)
		st = follow(g, generated, err);
	if (st == ST_OK)
		*out = g;
	else
		guide_destroy(g);
	/* What was too complex for a grammar is no matter of memory. */
	return st == ST_LIMIT ? ST_INVALID : st == ST_NOMEM ? ST_LIMIT : st;
}
