/* What the writers of OpenAI's two dialects share. Private to router/out_*.c. */
#ifndef ROUTER_OUT_OPENAI_H
#define ROUTER_OUT_OPENAI_H
#include "common/base/json_write.h"
#include "router/api_out.h"

/* A chunk: one event that holds one object, from openai_begin to openai_end. object:
 * "chat.completion.chunk". In between stand its choices, and nothing else. */
void openai_begin(struct json_out *w, struct sink *out, const struct out_head *head,
	const char *object);
/* usage: NULL without. prompt: whose ids the answer carries beside its choices, or NULL.
 */
void openai_end(
	struct json_out *w, const struct out_usage *usage, const struct out_ids *prompt);

/* Opens the object of a whole answer, up to and with the list of choices. */
void openai_open(struct json_out *w, const struct out_head *head, const char *object);

/* Members */
void openai_usage(struct json_out *w, const struct out_usage *usage);
/* logprobs and finish_reason */
void openai_finish(struct json_out *w, struct bytes logprobs, enum out_finish finish);
void openai_stop(struct json_out *w, struct out_stop stop);
void openai_prompt_logprobs(struct json_out *w, struct bytes json);

void openai_token_ids(struct json_out *w, const struct out_ids *ids);
void openai_prompt_ids(struct json_out *w, const struct out_ids *ids);

/* Events */
void openai_done(struct sink *out, const struct out_head *head); /* data: [DONE] */
/* The error, then done. */
void openai_error_event(
	struct sink *out, const struct out_head *head, const struct api_error *e);

#endif
