/* OpenAI's objects, as far as chat and completions agree. */
#include "router/out_openai.h"

static void put_text(struct json_out *w, const char *name, const char *text)
{
	if (text == NULL)
		json_add_null(w, name);
	else
		json_add_text(w, name, text);
}

static void put_json(struct json_out *w, const char *name, struct bytes json)
{
	json_name(w, name);
	if (json.at != NULL)
		json_put_raw(w, json);
	else
		json_put_null(w);
}

void openai_open(struct json_out *w, const struct out_head *head, const char *object)
{
	json_open(w, '{');
	put_text(w, "id", head->id);
	json_add_text(w, "object", object);
	json_add_u64(w, "created", head->created);
	put_text(w, "model", head->model);
	put_text(w, "system_fingerprint", head->fingerprint);
	json_name(w, "choices");
	json_open(w, '[');
}

void openai_begin(struct json_out *w, struct sink *out, const struct out_head *head,
	const char *object)
{
	sink_str(out, "data: ");
	json_out_init(w, out);
	openai_open(w, head, object);
}

void openai_end(
	struct json_out *w, const struct out_usage *usage, const struct out_ids *prompt)
{
	json_close(w);
	if (prompt != NULL)
		openai_prompt_ids(w, prompt);
	if (usage != NULL)
		openai_usage(w, usage);
	json_close(w);
	sink_str(w->sink, "\n\n");
}

void openai_usage(struct json_out *w, const struct out_usage *u)
{
	json_name(w, "usage");
	json_open(w, '{');
	json_add_u64(w, "prompt_tokens", u->prompt_tokens);
	json_add_u64(w, "completion_tokens", u->completion_tokens);
	json_add_u64(w, "total_tokens", u->prompt_tokens + u->completion_tokens);
	json_name(w, "prompt_tokens_details");
	json_open(w, '{');
	json_add_u64(w, "cached_tokens", u->cached_tokens);
	json_close(w);
	json_name(w, "completion_tokens_details");
	json_open(w, '{');
	json_add_u64(w, "reasoning_tokens", u->reasoning_tokens);
	json_close(w);
	json_close(w);
}

void openai_finish(struct json_out *w, struct bytes logprobs, enum out_finish finish)
{
	static const char *const names[] = {
		[ANSWER_OPEN] = NULL,
		[ANSWER_STOP] = "stop",
		[ANSWER_LENGTH] = "length",
		[ANSWER_CALLS] = "tool_calls",
	};

	put_json(w, "logprobs", logprobs);
	put_text(w, "finish_reason", names[finish]);
}

void openai_stop(struct json_out *w, struct out_stop stop)
{
	if (stop.text.at != NULL)
		json_add_bytes(w, "stop_reason", stop.text);
	else if (stop.token >= 0)
		json_add_i64(w, "stop_reason", stop.token);
	else
		json_add_null(w, "stop_reason");
}

void openai_prompt_logprobs(struct json_out *w, struct bytes json)
{
	if (json.at != NULL)
		put_json(w, "prompt_logprobs", json);
}

static void put_ids(struct json_out *w, const char *name, const uint32_t *ids, size_t n)
{
	json_name(w, name);
	json_open(w, '[');
	for (size_t i = 0; i < n; i++)
		json_put_u64(w, ids[i]);
	json_close(w);
}

void openai_token_ids(struct json_out *w, const struct out_ids *ids)
{
	if (ids->given)
		put_ids(w, "token_ids", ids->token, ids->n_token);
}

void openai_prompt_ids(struct json_out *w, const struct out_ids *ids)
{
	if (ids->prompt != NULL)
		put_ids(w, "prompt_token_ids", ids->prompt, ids->n_prompt);
}

void out_error(struct sink *out, const struct api_error *e)
{
	struct json_out w;

	json_out_init(&w, out);
	json_open(&w, '{');
	json_name(&w, "error");
	json_open(&w, '{');
	json_add_text(&w, "message", e->message);
	json_add_text(&w, "type", e->type);
	put_text(&w, "param", e->param[0] != '\0' ? e->param : NULL);
	put_text(&w, "code", e->code);
	json_close(&w);
	json_close(&w);
}

void openai_done(struct sink *out, const struct out_head *head)
{
	(void)head;
	sink_str(out, "data: [DONE]\n\n");
}

void openai_error_event(
	struct sink *out, const struct out_head *head, const struct api_error *e)
{
	sink_str(out, "data: ");
	out_error(out, e);
	sink_str(out, "\n\n");
	openai_done(out, head);
}
