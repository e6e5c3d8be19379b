/* /v1/messages, Anthropic's: its answers and events. */
#include "common/base/json_write.h"
#include "router/format.h"

static const char *error_type(unsigned http)
{
	static const struct {
		unsigned http;
		const char *type;
	} types[] = {
		{401, "authentication_error"},
		{403, "permission_error"},
		{404, "not_found_error"},
		{413, "request_too_large"},
		{429, "rate_limit_error"},
		{503, "overloaded_error"},
		{504, "timeout_error"},
	};

	for (size_t i = 0; i < COUNT(types); i++)
		if (types[i].http == http)
			return types[i].type;
	return http < 500 ? "invalid_request_error" : "api_error";
}

static void begin(struct json_out *w, struct sink *out, const char *type)
{
	sink_fmt(out, "event: %s\ndata: ", type);
	json_out_init(w, out);
	json_open(w, '{');
	json_add_text(w, "type", type);
}

static void end(struct json_out *w)
{
	json_close(w);
	sink_str(w->sink, "\n\n");
}

static void put_usage(struct json_out *w, const struct out_usage *u)
{
	json_name(w, "usage");
	json_open(w, '{');
	json_add_u64(w, "input_tokens", u->prompt_tokens - u->cached_tokens);
	json_add_u64(w, "cache_creation_input_tokens", 0);
	json_add_u64(w, "cache_read_input_tokens", u->cached_tokens);
	json_add_u64(w, "output_tokens", u->completion_tokens);
	json_close(w);
}

/* Members of why it ended. */
static void put_stop(struct json_out *w, enum out_finish how, struct out_stop stop)
{
	static const char *const names[] = {
		[ANSWER_STOP] = "end_turn",
		[ANSWER_LENGTH] = "max_tokens",
		[ANSWER_CALLS] = "tool_use",
	};

	if (how == ANSWER_OPEN)
		json_add_null(w, "stop_reason");
	else
		json_add_text(w, "stop_reason",
			how == ANSWER_STOP && stop.text.at != NULL ? "stop_sequence"
								   : names[how]);
	if (how == ANSWER_STOP && stop.text.at != NULL)
		json_add_bytes(w, "stop_sequence", stop.text);
	else
		json_add_null(w, "stop_sequence");
}

/* The message up to and with the list of its blocks, which is open. */
static void open_message(struct json_out *w, const struct out_head *head)
{
	json_open(w, '{');
	json_add_text(w, "id", head->id);
	json_add_text(w, "type", "message");
	json_add_text(w, "role", "assistant");
	json_add_text(w, "model", head->model);
	json_name(w, "content");
	json_open(w, '[');
}

/* ---- whole ---- */

static void put_text_block(struct json_out *w, enum part_kind kind, struct bytes text)
{
	bool thinks = kind == PART_REASONING;

	json_open(w, '{');
	json_add_text(w, "type", thinks ? "thinking" : "text");
	json_add_bytes(w, thinks ? "thinking" : "text", text);
	if (thinks)
		json_add_text(w, "signature", "");
	json_close(w);
}

/* Up to where its input is due. */
static void open_use(struct json_out *w, const struct out_call *call)
{
	json_open(w, '{');
	json_add_text(w, "type", "tool_use");
	json_add_text(w, "id", call->id);
	json_add_bytes(w, "name", call->name);
	json_name(w, "input");
}

static void put_block(
	struct json_out *w, const struct out_choice *c, const struct out_block *b)
{
	if (b->kind == PART_REASONING && c->reasoning.at == NULL)
		return;
	if (b->kind != PART_CALL) {
		put_text_block(w, b->kind, b->text);
		return;
	}
	/* The input of a call that was cut is no JSON: nobody may take it for one. */
	if (!b->call->complete)
		return;
	open_use(w, b->call);
	json_put_raw(w, sink_bytes(&b->call->arguments));
	json_close(w);
}

static void whole(struct sink *out, const struct out_head *head,
	const struct out_choice *choices, size_t n, const struct out_usage *usage)
{
	const struct out_choice *c = &choices[0];
	struct out_block block;
	struct json_out w;
	uint32_t i = 0;

	(void)n;
	json_out_init(&w, out);
	open_message(&w, head);
	while (c->parts != NULL && parts_block(c->parts, &i, &block))
		put_block(&w, c, &block);
	json_close(&w);
	put_stop(&w, c->finish, c->stop);
	put_usage(&w, usage);
	json_close(&w);
}

/* ---- a stream ---- */

static void first(struct sink *out, const struct out_head *head, uint32_t index)
{
	struct json_out w;

	(void)index;
	begin(&w, out, "message_start");
	json_name(&w, "message");
	open_message(&w, head);
	json_close(&w);
	put_stop(&w, ANSWER_OPEN, OUT_STOP_NONE);
	put_usage(&w, head->usage);
	json_close(&w);
	end(&w);
}

static void close_block(struct sink *out, struct out_stream *s)
{
	struct json_out w;

	if (!s->open)
		return;
	s->open = false;
	begin(&w, out, "content_block_stop");
	json_add_u64(&w, "index", s->n_blocks - 1);
	end(&w);
}

static void open_block(
	struct sink *out, struct out_stream *s, const struct out_part *part)
{
	struct json_out w;

	close_block(out, s);
	s->open = true;
	s->kind = part->kind;
	begin(&w, out, "content_block_start");
	json_add_u64(&w, "index", s->n_blocks++);
	json_name(&w, "content_block");
	if (part->kind == PART_CALL) {
		open_use(&w, part->call);
		json_open(&w, '{');
		json_close(&w);
		json_close(&w);
	} else {
		put_text_block(&w, part->kind, BYTES_STR(""));
	}
	end(&w);
}

static void delta(struct sink *out, const struct out_head *head, uint32_t index,
	const struct out_part *part)
{
	static const struct {
		const char *type, *member;
	} deltas[] = {
		[PART_REASONING] = {"thinking_delta", "thinking"},
		[PART_CONTENT] = {"text_delta", "text"},
		[PART_ARGUMENTS] = {"input_json_delta", "partial_json"},
	};
	bool text = part->kind == PART_REASONING || part->kind == PART_CONTENT;
	struct out_stream *s = head->stream;
	struct json_out w;

	(void)index;
	if (part->kind == PART_CALL || (text && !(s->open && s->kind == part->kind)))
		open_block(out, s, part);
	if (part->kind == PART_CALL_END)
		close_block(out, s);
	if (part->kind == PART_CALL || part->kind == PART_CALL_END)
		return;
	begin(&w, out, "content_block_delta");
	json_add_u64(&w, "index", s->n_blocks - 1);
	json_name(&w, "delta");
	json_open(&w, '{');
	json_add_text(&w, "type", deltas[part->kind].type);
	json_add_bytes(&w, deltas[part->kind].member, part->text);
	json_close(&w);
	end(&w);
}

static void finish(struct sink *out, const struct out_head *head, uint32_t index,
	enum out_finish how, struct out_stop stop)
{
	struct json_out w;

	(void)index;
	close_block(out, head->stream);
	begin(&w, out, "message_delta");
	json_name(&w, "delta");
	json_open(&w, '{');
	put_stop(&w, how, stop);
	json_close(&w);
	put_usage(&w, head->usage);
	end(&w);
}

static void done(struct sink *out, const struct out_head *head)
{
	struct json_out w;

	(void)head;
	begin(&w, out, "message_stop");
	end(&w);
}

static void ping(struct sink *out)
{
	struct json_out w;

	begin(&w, out, "ping");
	end(&w);
}

/* ---- errors ---- */

/* Beside Anthropic's members, where the fault is and which. */
static void put_error(struct json_out *w, const struct api_error *e)
{
	json_name(w, "error");
	json_open(w, '{');
	json_add_text(w, "type", error_type(e->http));
	json_add_text(w, "message", e->message);
	if (e->param[0] != '\0')
		json_add_text(w, "param", e->param);
	if (e->code != NULL)
		json_add_text(w, "code", e->code);
	json_close(w);
}

static void error(struct sink *out, const struct api_error *e)
{
	struct json_out w;

	json_out_init(&w, out);
	json_open(&w, '{');
	json_add_text(&w, "type", "error");
	put_error(&w, e);
	json_close(&w);
}

static void error_event(
	struct sink *out, const struct out_head *head, const struct api_error *e)
{
	struct json_out w;

	(void)head;
	begin(&w, out, "error");
	put_error(&w, e);
	end(&w);
}

const struct answer_format format_messages = {
	.path = "/v1/messages",
	.id_prefix = "msg_",
	.takes_messages = true,
	.max_tokens = UINT32_MAX,
	.parse = api_parse_messages,
	.whole = whole,
	.first = first,
	.delta = delta,
	.finish = finish,
	.done = done,
	.keepalive = ping,
	.error = error,
	.error_event = error_event,
};
