/* Logprobs as JSON. A token can hold part of a character: chat shows U+FFFD for it and
 * has the true bytes beside it; the older form of completions names it "bytes:\\xe2\\x82"
 * as OpenAI does, because texts are keys there. */
#include "router/out_logprobs.h"

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "router/put_json.h"

#include <inttypes.h>
#include <string.h>

static bool grow(void **at, uint32_t *cap, uint64_t need, size_t size)
{
	uint64_t more = MAX(need, (uint64_t)*cap * 3 / 2 + 16);
	void *grown;

	if (need <= *cap)
		return true;
	if (more > UINT32_MAX)
		return false;
	grown = mem_regrow(*at, (size_t)more * size);
	if (grown == NULL)
		return false;
	*at = grown;
	*cap = (uint32_t)more;
	return true;
}

bool logprobs_add(
	struct logprob_list *l, struct wire_logprob own, bool none, struct bytes tops)
{
	uint32_t n_top = (uint32_t)wire_count(tops, struct wire_logprob);
	void *entry = l->entry, *top = l->top;
	bool fits = grow(&entry, &l->cap, (uint64_t)l->n + 1, sizeof(*l->entry));

	l->entry = entry;
	fits = fits &&
	       grow(&top, &l->cap_top, (uint64_t)l->n_top + n_top, sizeof(*l->top));
	l->top = top;
	if (!fits)
		return false;
	l->entry[l->n++] = (struct logprob_entry){.token = own.token,
		.logprob = own.logprob,
		.none = none,
		.top = l->n_top,
		.n_top = n_top};
	if (n_top > 0)
		memcpy(l->top + l->n_top, tops.at, tops.len);
	l->n_top += n_top;
	return true;
}

bool logprobs_append(
	struct logprob_list *l, const struct logprob_list *from, uint32_t n_top)
{
	for (uint32_t i = 0; i < from->n; i++) {
		const struct logprob_entry *e = &from->entry[i];
		struct bytes tops = {(const uint8_t *)(from->top + e->top),
			MIN(e->n_top, n_top) * sizeof(*from->top)};

		if (!logprobs_add(l, (struct wire_logprob){e->token, e->logprob}, e->none,
			    tops))
			return false;
	}
	return true;
}

void logprobs_clear(struct logprob_list *l)
{
	l->n = l->n_top = l->written = 0;
	l->characters = 0;
}

void logprobs_release(struct logprob_list *l)
{
	mem_give(l->entry);
	mem_give(l->top);
	*l = (struct logprob_list){0};
}

static void put_named(struct sink *out, struct bytes piece)
{
	if (utf8_valid_len(piece) == piece.len) {
		put_json_string(out, piece);
		return;
	}
	sink_str(out, "\"bytes:");
	for (size_t i = 0; i < piece.len; i++)
		sink_fmt(out, "\\\\x%02x", piece.at[i]);
	sink_str(out, "\"");
}

static void put_logprob(struct sink *out, float logprob)
{
	sink_fmt(out, "%.9g", (double)MAX(logprob, -9999.0f));
}

/* ---- chat ---- */

static void put_chat_token(
	struct sink *out, const struct tokenizer *t, uint32_t token, float logprob)
{
	struct bytes piece = tokenizer_token_bytes(t, token);

	sink_str(out, "{\"token\":");
	put_json_bytes(out, piece);
	sink_str(out, ",\"logprob\":");
	put_logprob(out, logprob);
	sink_str(out, ",\"bytes\":[");
	for (size_t i = 0; i < piece.len; i++)
		sink_fmt(out, "%s%u", i > 0 ? "," : "", piece.at[i]);
	sink_str(out, "]");
}

void out_logprobs_chat(
	struct sink *out, const struct tokenizer *t, struct logprob_list *l)
{
	sink_str(out, "{\"content\":[");
	for (uint32_t first = l->written; l->written < l->n; l->written++) {
		const struct logprob_entry *e = &l->entry[l->written];

		if (l->written > first)
			sink_str(out, ",");
		put_chat_token(out, t, e->token, e->logprob);
		sink_str(out, ",\"top_logprobs\":[");
		for (uint32_t k = 0; k < e->n_top; k++) {
			const struct wire_logprob *top = &l->top[e->top + k];

			if (k > 0)
				sink_str(out, ",");
			put_chat_token(out, t, top->token, top->logprob);
			sink_str(out, "}");
		}
		sink_str(out, "]}");
	}
	sink_str(out, "],\"refusal\":null}");
}

/* ---- completions ---- */

/* The likeliest, and the token itself when it is not among them. */
static void put_top_map(struct sink *out, const struct tokenizer *t,
	const struct logprob_list *l, const struct logprob_entry *e)
{
	bool listed = false;

	sink_str(out, "{");
	for (uint32_t k = 0; k < e->n_top; k++) {
		const struct wire_logprob *top = &l->top[e->top + k];

		listed |= top->token == e->token;
		if (k > 0)
			sink_str(out, ",");
		put_named(out, tokenizer_token_bytes(t, top->token));
		sink_str(out, ":");
		put_logprob(out, top->logprob);
	}
	if (!listed) {
		if (e->n_top > 0)
			sink_str(out, ",");
		put_named(out, tokenizer_token_bytes(t, e->token));
		sink_str(out, ":");
		put_logprob(out, e->logprob);
	}
	sink_str(out, "}");
}

/* One of the four lists: each entry by `put`, or null where there is none. */
typedef void put_entry(struct sink *out, const struct tokenizer *t,
	const struct logprob_list *l, const struct logprob_entry *e);

static void put_own(struct sink *out, const struct tokenizer *t,
	const struct logprob_list *l, const struct logprob_entry *e)
{
	(void)t;
	(void)l;
	put_logprob(out, e->logprob);
}

static void put_list(struct sink *out, const struct tokenizer *t,
	const struct logprob_list *l, const char *name, put_entry *put)
{
	sink_fmt(out, ",\"%s\":[", name);
	for (uint32_t i = l->written; i < l->n; i++) {
		if (i > l->written)
			sink_str(out, ",");
		if (l->entry[i].none)
			sink_str(out, "null");
		else
			put(out, t, l, &l->entry[i]);
	}
	sink_str(out, "]");
}

/* Bytes that begin a character, so that a token's part of one counts once. */
static uint64_t characters(struct bytes piece)
{
	uint64_t n = 0;

	for (size_t i = 0; i < piece.len; i++)
		n += (piece.at[i] & 0xC0) != 0x80;
	return n;
}

void out_logprobs_completion(
	struct sink *out, const struct tokenizer *t, struct logprob_list *l)
{
	sink_str(out, "{\"tokens\":[");
	for (uint32_t i = l->written; i < l->n; i++) {
		if (i > l->written)
			sink_str(out, ",");
		put_named(out, tokenizer_token_bytes(t, l->entry[i].token));
	}
	sink_str(out, "],\"text_offset\":[");
	for (uint32_t i = l->written; i < l->n; i++) {
		sink_fmt(out, "%s%" PRIu64, i > l->written ? "," : "", l->characters);
		l->characters += characters(tokenizer_token_bytes(t, l->entry[i].token));
	}
	sink_str(out, "]");
	put_list(out, t, l, "token_logprobs", put_own);
	put_list(out, t, l, "top_logprobs", put_top_map);
	sink_str(out, "}");
	l->written = l->n;
}

/* ---- prompts ---- */

/* Rank 0: it is not known, because the token is not among the likeliest. */
static void put_prompt_token(
	struct sink *out, const struct tokenizer *t, struct wire_logprob p, uint32_t rank)
{
	sink_fmt(out, "\"%" PRIu32 "\":{\"logprob\":", p.token);
	put_logprob(out, p.logprob);
	sink_str(out, ",\"rank\":");
	if (rank > 0)
		sink_fmt(out, "%" PRIu32, rank);
	else
		sink_str(out, "null");
	sink_str(out, ",\"decoded_token\":");
	put_json_bytes(out, tokenizer_token_bytes(t, p.token));
	sink_str(out, "}");
}

void out_logprobs_prompt(struct sink *out, const struct tokenizer *t,
	const struct logprob_list *l, uint32_t n_top)
{
	sink_str(out, "[");
	for (uint32_t i = 0; i < l->n; i++) {
		const struct logprob_entry *e = &l->entry[i];
		uint32_t rank = 0;

		sink_str(out, i > 0 ? "," : "");
		if (e->none) {
			sink_str(out, "null");
			continue;
		}
		for (uint32_t k = 0; k < e->n_top; k++)
			if (l->top[e->top + k].token == e->token)
				rank = k + 1;
		sink_str(out, "{");
		put_prompt_token(
			out, t, (struct wire_logprob){e->token, e->logprob}, rank);
		for (uint32_t k = 0; k < MIN(e->n_top, n_top); k++) {
			if (k + 1 == rank)
				continue;
			sink_str(out, ",");
			put_prompt_token(out, t, l->top[e->top + k], k + 1);
		}
		sink_str(out, "}");
	}
	sink_str(out, "]");
}
