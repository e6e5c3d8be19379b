/* /v1/completions: its answers and events. */
#include "router/format.h"
#include "router/out_openai.h"

#define OBJECT     "text_completion"
/* OpenAI's default. */
#define MAX_TOKENS 16

static void open_choice(struct json_out *w, uint32_t index, struct bytes text,
	struct bytes logprobs, enum out_finish how)
{
	json_open(w, '{');
	json_add_u64(w, "index", index);
	json_add_bytes(w, "text", text);
	openai_finish(w, logprobs, how);
}

static void put_ids(struct json_out *w, const struct out_ids *ids)
{
	openai_prompt_ids(w, ids);
	openai_token_ids(w, ids);
}

static void whole(struct sink *out, const struct out_head *head,
	const struct out_choice *choices, size_t n, const struct out_usage *usage)
{
	struct json_out w;

	json_out_init(&w, out);
	openai_open(&w, head, OBJECT);
	for (size_t i = 0; i < n; i++) {
		const struct out_choice *c = &choices[i];

		open_choice(&w, c->index, c->content, c->logprobs, c->finish);
		openai_stop(&w, c->stop);
		openai_prompt_logprobs(&w, c->prompt_logprobs);
		put_ids(&w, &c->ids);
		json_close(&w);
	}
	json_close(&w);
	openai_usage(&w, usage);
	json_close(&w);
}

/* No template splits a completion: all of it is content. */
static void delta(struct sink *out, const struct out_head *head, uint32_t index,
	const struct out_part *part)
{
	struct json_out w;

	openai_begin(&w, out, head, OBJECT);
	open_choice(&w, index, part->text, head->logprobs, ANSWER_OPEN);
	put_ids(&w, &head->ids);
	json_close(&w);
	openai_end(&w, head->usage, NULL);
}

static void finish(struct sink *out, const struct out_head *head, uint32_t index,
	enum out_finish how, struct out_stop stop)
{
	struct json_out w;

	openai_begin(&w, out, head, OBJECT);
	open_choice(&w, index, BYTES_STR(""), head->logprobs, how);
	openai_stop(&w, stop);
	put_ids(&w, &head->ids);
	json_close(&w);
	openai_end(&w, head->usage, NULL);
}

static void usage_chunk(
	struct sink *out, const struct out_head *head, const struct out_usage *usage)
{
	struct json_out w;

	openai_begin(&w, out, head, OBJECT);
	openai_end(&w, usage, NULL);
}

const struct answer_format format_completion = {
	.path = "/v1/completions",
	.id_prefix = "cmpl-",
	.max_tokens = MAX_TOKENS,
	.parse = api_parse_completion,
	.whole = whole,
	.delta = delta,
	.finish = finish,
	.usage = usage_chunk,
	.done = openai_done,
	.keepalive = out_sse_keepalive,
	.logprobs = out_logprobs_completion,
	.error = out_error,
	.error_event = openai_error_event,
};
