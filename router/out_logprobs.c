/* Logprobs as JSON. A token can hold part of a character: chat shows U+FFFD for it and
 * has the true bytes beside it; the older form of completions names it "bytes:\\xe2\\x82"
 * as OpenAI does, because texts are keys there. */
#include "router/out_logprobs.h"

#include "common/base/json_write.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
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

/* A name or value for a token: its text, or where that is no text "bytes:" and each; or
 * its id, by which tokens of one text differ. */
struct named {
	char text[sizeof("bytes:") + 4 * TOK_TOKEN_BYTES_MAX];
	struct bytes bytes;
};

static void name_id(struct named *name, uint32_t token)
{
	int n = snprintf(name->text, sizeof(name->text), "token_id:%" PRIu32, token);

	name->bytes = (struct bytes){(const uint8_t *)name->text, (size_t)n};
}

static void name_token(struct named *name, const struct tokenizer *t,
	const struct logprob_list *l, uint32_t token)
{
	static const char digits[] = "0123456789abcdef";
	struct bytes piece = tokenizer_token_bytes(t, token);
	char *at = name->text;

	if (l->as_ids) {
		name_id(name, token);
		return;
	}
	name->bytes = piece;
	if (utf8_valid_len(piece) == piece.len)
		return;
	memcpy(at, "bytes:", 6);
	at += 6;
	for (size_t i = 0; i < piece.len; i++) {
		*at++ = '\\';
		*at++ = 'x';
		*at++ = digits[piece.at[i] >> 4];
		*at++ = digits[piece.at[i] & 15];
	}
	name->bytes =
		(struct bytes){(const uint8_t *)name->text, (size_t)(at - name->text)};
}

/* As many digits as a 32-bit number has. */
static void put_logprob(struct json_out *w, float logprob)
{
	char text[32];

	snprintf(text, sizeof(text), "%.9g", (double)MAX(logprob, -9999.0f));
	json_put_raw(w, bytes_of_str(text));
}

static void add_logprob(struct json_out *w, float logprob)
{
	json_name(w, "logprob");
	put_logprob(w, logprob);
}

/* ---- chat ---- */

/* The object stays open. */
static void open_chat_token(struct json_out *w, const struct tokenizer *t,
	const struct logprob_list *l, struct wire_logprob p)
{
	struct bytes piece = tokenizer_token_bytes(t, p.token);
	struct named name;

	name.bytes = piece;
	if (l->as_ids)
		name_id(&name, p.token);
	json_open(w, '{');
	json_name(w, "token");
	json_put_pieces(w, name.bytes);
	add_logprob(w, p.logprob);
	json_name(w, "bytes");
	json_open(w, '[');
	for (size_t i = 0; i < piece.len; i++)
		json_put_u64(w, piece.at[i]);
	json_close(w);
}

void out_logprobs_chat(
	struct sink *out, const struct tokenizer *t, struct logprob_list *l)
{
	struct json_out w;

	json_out_init(&w, out);
	json_open(&w, '{');
	json_name(&w, "content");
	json_open(&w, '[');
	for (; l->written < l->n; l->written++) {
		const struct logprob_entry *e = &l->entry[l->written];

		open_chat_token(&w, t, l, (struct wire_logprob){e->token, e->logprob});
		json_name(&w, "top_logprobs");
		json_open(&w, '[');
		for (uint32_t k = 0; k < e->n_top; k++) {
			open_chat_token(&w, t, l, l->top[e->top + k]);
			json_close(&w);
		}
		json_close(&w);
		json_close(&w);
	}
	json_close(&w);
	json_add_null(&w, "refusal");
	json_close(&w);
}

/* ---- completions ---- */

static void put_top(struct json_out *w, const struct tokenizer *t,
	const struct logprob_list *l, struct wire_logprob p)
{
	struct named name;

	name_token(&name, t, l, p.token);
	json_name_bytes(w, name.bytes);
	put_logprob(w, p.logprob);
}

/* The likeliest, and the token itself when it is not among them. */
static void put_top_map(struct json_out *w, const struct tokenizer *t,
	const struct logprob_list *l, const struct logprob_entry *e)
{
	bool listed = false;

	json_open(w, '{');
	for (uint32_t k = 0; k < e->n_top; k++) {
		const struct wire_logprob *top = &l->top[e->top + k];

		listed |= top->token == e->token;
		put_top(w, t, l, *top);
	}
	if (!listed)
		put_top(w, t, l, (struct wire_logprob){e->token, e->logprob});
	json_close(w);
}

/* One of the lists: each entry by `put`, or null where there is none. */
typedef void put_entry(struct json_out *w, const struct tokenizer *t,
	const struct logprob_list *l, const struct logprob_entry *e);

static void put_own(struct json_out *w, const struct tokenizer *t,
	const struct logprob_list *l, const struct logprob_entry *e)
{
	(void)t;
	(void)l;
	put_logprob(w, e->logprob);
}

static void put_list(struct json_out *w, const struct tokenizer *t,
	const struct logprob_list *l, const char *name, put_entry *put)
{
	json_name(w, name);
	json_open(w, '[');
	for (uint32_t i = l->written; i < l->n; i++) {
		if (l->entry[i].none)
			json_put_null(w);
		else
			put(w, t, l, &l->entry[i]);
	}
	json_close(w);
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
	struct json_out w;
	struct named name;

	json_out_init(&w, out);
	json_open(&w, '{');
	json_name(&w, "tokens");
	json_open(&w, '[');
	for (uint32_t i = l->written; i < l->n; i++) {
		name_token(&name, t, l, l->entry[i].token);
		json_put_bytes(&w, name.bytes);
	}
	json_close(&w);
	json_name(&w, "text_offset");
	json_open(&w, '[');
	for (uint32_t i = l->written; i < l->n; i++) {
		json_put_u64(&w, l->characters);
		l->characters += characters(tokenizer_token_bytes(t, l->entry[i].token));
	}
	json_close(&w);
	put_list(&w, t, l, "token_logprobs", put_own);
	put_list(&w, t, l, "top_logprobs", put_top_map);
	json_close(&w);
	l->written = l->n;
}

/* ---- prompts ---- */

/* Rank 0: it is not known, because the token is not among the likeliest. */
static void put_prompt_token(struct json_out *w, const struct tokenizer *t,
	struct wire_logprob p, uint32_t rank)
{
	char id[16];

	snprintf(id, sizeof(id), "%" PRIu32, p.token);
	json_name(w, id);
	json_open(w, '{');
	add_logprob(w, p.logprob);
	if (rank > 0)
		json_add_u64(w, "rank", rank);
	else
		json_add_null(w, "rank");
	json_name(w, "decoded_token");
	json_put_pieces(w, tokenizer_token_bytes(t, p.token));
	json_close(w);
}

void out_logprobs_prompt(struct sink *out, const struct tokenizer *t,
	const struct logprob_list *l, uint32_t n_top)
{
	struct json_out w;

	json_out_init(&w, out);
	json_open(&w, '[');
	for (uint32_t i = 0; i < l->n; i++) {
		const struct logprob_entry *e = &l->entry[i];
		uint32_t rank = 0;

		if (e->none) {
			json_put_null(&w);
			continue;
		}
		for (uint32_t k = 0; k < e->n_top; k++)
			if (l->top[e->top + k].token == e->token)
				rank = k + 1;
		json_open(&w, '{');
		put_prompt_token(
			&w, t, (struct wire_logprob){e->token, e->logprob}, rank);
		for (uint32_t k = 0; k < MIN(e->n_top, n_top); k++)
			if (k + 1 != rank)
				put_prompt_token(&w, t, l->top[e->top + k], k + 1);
		json_close(&w);
	}
	json_close(&w);
}
