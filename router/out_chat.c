/* /v1/chat/completions: its answers and events. */
#include "router/format.h"
#include "router/out_openai.h"

#define CHUNK "chat.completion.chunk"

/* Both names for the same text: clients disagree on which they read. */
static void put_reasoning(struct json_out *w, struct bytes text)
{
	json_add_bytes(w, "reasoning", text);
	json_add_bytes(w, "reasoning_content", text);
}

static void put_function(struct json_out *w, struct bytes name, struct bytes arguments)
{
	json_name(w, "function");
	json_open(w, '{');
	if (name.at != NULL)
		json_add_bytes(w, "name", name);
	json_add_bytes(w, "arguments", arguments);
	json_close(w);
}

/* id, type and name stand in a call's first piece only: clients join what is repeated. */
static void put_call(struct json_out *w, const uint32_t *index,
	const struct out_call *call, struct bytes arguments)
{
	json_open(w, '{');
	if (index != NULL)
		json_add_u64(w, "index", *index);
	if (call != NULL) {
		json_add_text(w, "id", call->id);
		json_add_text(w, "type", "function");
	}
	put_function(w, call != NULL ? call->name : (struct bytes){NULL, 0}, arguments);
	json_close(w);
}

static void put_calls(struct json_out *w, const struct out_choice *c)
{
	if (c->n_calls == 0)
		return;
	json_name(w, "tool_calls");
	json_open(w, '[');
	for (size_t i = 0; i < c->n_calls; i++)
		put_call(w, NULL, &c->calls[i], sink_bytes(&c->calls[i].arguments));
	json_close(w);
}

static void put_choice(struct json_out *w, const struct out_choice *c)
{
	json_open(w, '{');
	json_add_u64(w, "index", c->index);
	json_name(w, "message");
	json_open(w, '{');
	json_add_text(w, "role", "assistant");
	if (c->content.at != NULL)
		json_add_bytes(w, "content", c->content);
	else
		json_add_null(w, "content");
	if (c->reasoning.at != NULL)
		put_reasoning(w, c->reasoning);
	put_calls(w, c);
	json_close(w);
	openai_finish(w, c->logprobs, c->finish);
	openai_stop(w, c->stop);
	openai_token_ids(w, &c->ids);
	json_close(w);
}

static void whole(struct sink *out, const struct out_head *head,
	const struct out_choice *choices, size_t n, const struct out_usage *usage)
{
	struct json_out w;

	json_out_init(&w, out);
	openai_open(&w, head, "chat.completion");
	for (size_t i = 0; i < n; i++)
		put_choice(&w, &choices[i]);
	json_close(&w);
	if (n > 0) {
		openai_prompt_logprobs(&w, choices[0].prompt_logprobs);
		openai_prompt_ids(&w, &choices[0].ids);
	}
	openai_usage(&w, usage);
	json_close(&w);
}

/* A chunk with one choice, up to and with the brace of its delta. */
static void open_delta(
	struct json_out *w, struct sink *out, const struct out_head *head, uint32_t index)
{
	openai_begin(w, out, head, CHUNK);
	json_open(w, '{');
	json_add_u64(w, "index", index);
	json_name(w, "delta");
	json_open(w, '{');
}

static void close_delta(struct json_out *w, const struct out_head *head)
{
	json_close(w);
	openai_finish(w, head->logprobs, ANSWER_OPEN);
	openai_token_ids(w, &head->ids);
	json_close(w);
	openai_end(w, head->usage, &head->ids);
}

static void first(struct sink *out, const struct out_head *head, uint32_t index)
{
	struct json_out w;

	open_delta(&w, out, head, index);
	json_add_text(&w, "role", "assistant");
	json_add_text(&w, "content", "");
	close_delta(&w, head);
}

static void put_call_delta(struct json_out *w, const struct out_part *part)
{
	bool begins = part->kind == PART_CALL;

	json_name(w, "tool_calls");
	json_open(w, '[');
	put_call(w, &part->index, begins ? part->call : NULL,
		begins ? BYTES_STR("") : part->text);
	json_close(w);
}

static void delta(struct sink *out, const struct out_head *head, uint32_t index,
	const struct out_part *part)
{
	struct json_out w;

	if (part->kind == PART_CALL_END)
		return;
	open_delta(&w, out, head, index);
	if (part->kind == PART_REASONING)
		put_reasoning(&w, part->text);
	else if (part->kind == PART_CONTENT)
		json_add_bytes(&w, "content", part->text);
	else
		put_call_delta(&w, part);
	close_delta(&w, head);
}

static void finish(struct sink *out, const struct out_head *head, uint32_t index,
	enum out_finish how, struct out_stop stop)
{
	struct json_out w;

	open_delta(&w, out, head, index);
	json_close(&w);
	openai_finish(&w, head->logprobs, how);
	openai_stop(&w, stop);
	openai_token_ids(&w, &head->ids);
	json_close(&w);
	openai_end(&w, head->usage, &head->ids);
}

static void usage_chunk(
	struct sink *out, const struct out_head *head, const struct out_usage *usage)
{
	struct json_out w;

	openai_begin(&w, out, head, CHUNK);
	openai_end(&w, usage, NULL);
}

const struct answer_format format_chat = {
	.path = "/v1/chat/completions",
	.id_prefix = "chatcmpl-",
	.takes_messages = true,
	.max_tokens = UINT32_MAX,
	.parse = api_parse_chat,
	.whole = whole,
	.first = first,
	.delta = delta,
	.finish = finish,
	.usage = usage_chunk,
	.done = openai_done,
	.keepalive = out_sse_keepalive,
	.logprobs = out_logprobs_chat,
	.error = out_error,
	.error_event = openai_error_event,
};
