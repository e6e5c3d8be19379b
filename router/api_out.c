/* Answers as JSON text: whole ones and chunks of streams. */
#include "router/api_out.h"

#include "common/base/rng.h"

#include <inttypes.h>
#include <stdio.h>

void out_id_make(char id[OUT_ID_BYTES], enum gen_kind kind)
{
	snprintf(id, OUT_ID_BYTES, "%s%016" PRIx64 "%016" PRIx64,
		kind == GEN_CHAT ? "chatcmpl-" : "cmpl-", rng_entropy64(),
		rng_entropy64());
}

static void put_text(struct sink *out, const char *text)
{
	if (text == NULL)
		sink_str(out, "null");
	else
		put_json_string(out, bytes_of_str(text));
}

static void put_usage(struct sink *out, const struct out_usage *u)
{
	sink_fmt(out,
		",\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
		",\"total_tokens\":%" PRIu64
		",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64 "}"
		",\"completion_tokens_details\":{\"reasoning_tokens\":%" PRIu64 "}}",
		u->prompt_tokens, u->completion_tokens,
		u->prompt_tokens + u->completion_tokens, u->cached_tokens,
		u->reasoning_tokens);
}

/* Up to and with the bracket that opens choices. */
static void put_head(struct sink *out, const struct out_head *head, const char *object)
{
	sink_str(out, "{\"id\":");
	put_text(out, head->id);
	sink_fmt(out, ",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":", object,
		head->created);
	put_text(out, head->model);
	sink_str(out, ",\"system_fingerprint\":");
	put_text(out, head->fingerprint);
	sink_str(out, ",\"choices\":[");
}

static void put_json(struct sink *out, struct bytes json)
{
	if (json.at != NULL)
		sink_put(out, json.at, json.len);
	else
		sink_str(out, "null");
}

static void put_finish(struct sink *out, struct bytes logprobs, enum out_finish finish)
{
	static const char *const names[] = {
		[ANSWER_OPEN] = "null",
		[ANSWER_STOP] = "\"stop\"",
		[ANSWER_LENGTH] = "\"length\"",
	};

	sink_str(out, ",\"logprobs\":");
	put_json(out, logprobs);
	sink_fmt(out, ",\"finish_reason\":%s", names[finish]);
}

static void put_stop(struct sink *out, struct out_stop stop)
{
	sink_str(out, ",\"stop_reason\":");
	if (stop.text.at != NULL)
		put_json_string(out, stop.text);
	else if (stop.token >= 0)
		sink_fmt(out, "%" PRId64, stop.token);
	else
		sink_str(out, "null");
}

/* Both names for the same text: clients disagree on which they read. */
static void put_reasoning(struct sink *out, struct bytes text)
{
	sink_str(out, "\"reasoning\":");
	put_json_string(out, text);
	sink_str(out, ",\"reasoning_content\":");
	put_json_string(out, text);
}

static void put_prompt(struct sink *out, struct bytes logprobs)
{
	if (logprobs.at == NULL)
		return;
	sink_str(out, ",\"prompt_logprobs\":");
	put_json(out, logprobs);
}

void out_chat(struct sink *out, const struct out_head *head,
	const struct out_choice *choices, size_t n, const struct out_usage *usage)
{
	put_head(out, head, "chat.completion");
	for (size_t i = 0; i < n; i++) {
		const struct out_choice *c = &choices[i];

		sink_fmt(out,
			"%s{\"index\":%" PRIu32
			",\"message\":{\"role\":\"assistant\",\"content\":",
			i > 0 ? "," : "", c->index);
		if (c->content.at != NULL)
			put_json_string(out, c->content);
		else
			sink_str(out, "null");
		if (c->reasoning.at != NULL) {
			sink_str(out, ",");
			put_reasoning(out, c->reasoning);
		}
		sink_str(out, "}");
		put_finish(out, c->logprobs, c->finish);
		put_stop(out, c->stop);
		sink_str(out, "}");
	}
	sink_str(out, "]");
	if (n > 0)
		put_prompt(out, choices[0].prompt_logprobs);
	put_usage(out, usage);
	sink_str(out, "}");
}

void out_completion(struct sink *out, const struct out_head *head,
	const struct out_choice *choices, size_t n, const struct out_usage *usage)
{
	put_head(out, head, "text_completion");
	for (size_t i = 0; i < n; i++) {
		const struct out_choice *c = &choices[i];

		sink_fmt(out, "%s{\"index\":%" PRIu32 ",\"text\":", i > 0 ? "," : "",
			c->index);
		put_json_string(out, c->content);
		put_finish(out, c->logprobs, c->finish);
		put_stop(out, c->stop);
		put_prompt(out, c->prompt_logprobs);
		sink_str(out, "}");
	}
	sink_str(out, "]");
	put_usage(out, usage);
	sink_str(out, "}");
}

static void open_chunk(struct sink *out, const struct out_head *head, enum gen_kind kind)
{
	sink_str(out, "data: ");
	put_head(out, head,
		kind == GEN_CHAT ? "chat.completion.chunk" : "text_completion");
}

static void close_chunk(struct sink *out, const struct out_usage *usage)
{
	sink_str(out, "]");
	if (usage != NULL)
		put_usage(out, usage);
	sink_str(out, "}\n\n");
}

static void open_delta(struct sink *out, const struct out_head *head, uint32_t index)
{
	open_chunk(out, head, GEN_CHAT);
	sink_fmt(out, "{\"index\":%" PRIu32 ",\"delta\":{", index);
}

static void close_delta(struct sink *out, const struct out_head *head)
{
	sink_str(out, "}");
	put_finish(out, head->logprobs, ANSWER_OPEN);
	sink_str(out, "}");
	close_chunk(out, head->usage);
}

void out_chat_role(struct sink *out, const struct out_head *head, uint32_t index)
{
	open_delta(out, head, index);
	sink_str(out, "\"role\":\"assistant\",\"content\":\"\"");
	close_delta(out, head);
}

void out_chat_delta(struct sink *out, const struct out_head *head, uint32_t index,
	bool reasoning, struct bytes text)
{
	open_delta(out, head, index);
	if (reasoning) {
		put_reasoning(out, text);
	} else {
		sink_str(out, "\"content\":");
		put_json_string(out, text);
	}
	close_delta(out, head);
}

void out_chat_finish(struct sink *out, const struct out_head *head, uint32_t index,
	enum out_finish finish, struct out_stop stop)
{
	open_delta(out, head, index);
	sink_str(out, "}");
	put_finish(out, head->logprobs, finish);
	put_stop(out, stop);
	sink_str(out, "}");
	close_chunk(out, head->usage);
}

void out_chat_usage(
	struct sink *out, const struct out_head *head, const struct out_usage *usage)
{
	open_chunk(out, head, GEN_CHAT);
	close_chunk(out, usage);
}

void out_completion_delta(
	struct sink *out, const struct out_head *head, uint32_t index, struct bytes text)
{
	open_chunk(out, head, GEN_COMPLETION);
	sink_fmt(out, "{\"index\":%" PRIu32 ",\"text\":", index);
	put_json_string(out, text);
	put_finish(out, head->logprobs, ANSWER_OPEN);
	sink_str(out, "}");
	close_chunk(out, head->usage);
}

void out_completion_finish(struct sink *out, const struct out_head *head, uint32_t index,
	enum out_finish finish, struct out_stop stop)
{
	open_chunk(out, head, GEN_COMPLETION);
	sink_fmt(out, "{\"index\":%" PRIu32 ",\"text\":\"\"", index);
	put_finish(out, head->logprobs, finish);
	put_stop(out, stop);
	sink_str(out, "}");
	close_chunk(out, head->usage);
}

void out_completion_usage(
	struct sink *out, const struct out_head *head, const struct out_usage *usage)
{
	open_chunk(out, head, GEN_COMPLETION);
	close_chunk(out, usage);
}
