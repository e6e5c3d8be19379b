/* Logprobs of tokens: kept as they come, written in the shapes of the two APIs. */
#ifndef ROUTER_OUT_LOGPROBS_H
#define ROUTER_OUT_LOGPROBS_H
#include "common/base/bytes.h"
#include "common/model/tokenizer.h"
#include "common/wire/wire.h"
#include <stdbool.h>

struct logprob_entry {
	uint32_t token;
	float logprob;
	bool none;    /* the first token of a prompt has no logprob */
	uint32_t top; /* first of its n_top in the list's tops */
	uint32_t n_top;
};

/* Request memory; zeroed is empty. */
struct logprob_list {
	struct logprob_entry *entry;
	struct wire_logprob *top;
	uint32_t n, cap, n_top, cap_top;
	uint32_t written;    /* entries that were written out already */
	uint64_t characters; /* of text before the next one to be written */
	bool as_ids;         /* tokens are shown as "token_id:N", not as texts */
};

/* tops: struct wire_logprob each. false: no memory; the list is as it was. */
MUST_CHECK bool logprobs_add(
	struct logprob_list *l, struct wire_logprob own, bool none, struct bytes tops);
/* Appends all entries of `from`, with at most n_top of the likeliest of each, of their
 * likeliest at most n_top. */
MUST_CHECK bool logprobs_append(
	struct logprob_list *l, const struct logprob_list *from, uint32_t n_top);
void logprobs_clear(struct logprob_list *l);
void logprobs_release(struct logprob_list *l);

/* What was not written yet. Chat: {"content":[...]}; completions: the four lists, whose
 * text_offset counts characters of the choice's text. */
void out_logprobs_chat(
	struct sink *out, const struct tokenizer *t, struct logprob_list *l);
void out_logprobs_completion(
	struct sink *out, const struct tokenizer *t, struct logprob_list *l);
/* vLLM's prompt_logprobs: null for the first token, then by token id, with at most n_top
 * of the likeliest. */
void out_logprobs_prompt(struct sink *out, const struct tokenizer *t,
	const struct logprob_list *l, uint32_t n_top);

#endif
