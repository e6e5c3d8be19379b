/* /v1/responses, OpenAI's: its answers and events. An answer is a list of items, each a
 * block of parts.h; a stream says every text twice, piece after piece and whole, and at
 * its end all items again. */
#include "common/base/json_write.h"
#include "router/format.h"
#include "router/out_openai.h"

#include <stdio.h>
#include <string.h>

/* A prefix, what stands behind that of the answer's id, a number. */
#define ITEM_ID_BYTES (OUT_ID_BYTES + 16u)
#define ID_PREFIX     "resp_"

struct item {
	enum part_kind kind; /* PART_REASONING, PART_CONTENT or PART_CALL */
	uint32_t index;
	const char *state;
	bool begins; /* nothing of it was said */
	struct bytes text;
	const char *call_id; /* of PART_CALL, with its name */
	struct bytes name;
};

static const struct {
	const char *prefix, *type, *part, *delta, *done;
} kinds[] = {
	[PART_REASONING] = {"rs_", "reasoning", "reasoning_text",
		"response.reasoning_text.delta", "response.reasoning_text.done"},
	[PART_CONTENT] = {"msg_", "message", "output_text", "response.output_text.delta",
		"response.output_text.done"},
	[PART_CALL] = {"fc_", "function_call", NULL,
		"response.function_call_arguments.delta",
		"response.function_call_arguments.done"},
};

static void item_id(char id[ITEM_ID_BYTES], const struct out_head *head,
	enum part_kind kind, uint32_t index)
{
	snprintf(id, ITEM_ID_BYTES, "%s%s%02x", kinds[kind].prefix,
		head->id + strlen(ID_PREFIX), index);
}

/* ---- objects ---- */

static void put_part(struct json_out *w, enum part_kind kind, struct bytes text)
{
	json_open(w, '{');
	json_add_text(w, "type", kinds[kind].part);
	json_add_bytes(w, "text", text);
	if (kind == PART_CONTENT) {
		json_name(w, "annotations");
		json_put_raw(w, BYTES_STR("[]"));
		json_name(w, "logprobs");
		json_put_raw(w, BYTES_STR("[]"));
	}
	json_close(w);
}

static void put_content(struct json_out *w, const struct item *it)
{
	if (it->kind == PART_CONTENT)
		json_add_text(w, "role", "assistant");
	if (it->kind == PART_REASONING) {
		json_name(w, "summary");
		json_put_raw(w, BYTES_STR("[]"));
	}
	json_name(w, "content");
	json_open(w, '[');
	if (!it->begins)
		put_part(w, it->kind, it->text);
	json_close(w);
}

static void put_item(
	struct json_out *w, const struct out_head *head, const struct item *it)
{
	char id[ITEM_ID_BYTES];

	item_id(id, head, it->kind, it->index);
	json_open(w, '{');
	json_add_text(w, "id", id);
	json_add_text(w, "type", kinds[it->kind].type);
	json_add_text(w, "status", it->state);
	if (it->kind == PART_CALL) {
		json_add_text(w, "call_id", it->call_id);
		json_add_bytes(w, "name", it->name);
		json_add_bytes(w, "arguments", it->text);
	} else {
		put_content(w, it);
	}
	json_close(w);
}

static void put_usage(struct json_out *w, const struct out_usage *u)
{
	json_name(w, "usage");
	json_open(w, '{');
	json_add_u64(w, "input_tokens", u->prompt_tokens);
	json_name(w, "input_tokens_details");
	json_open(w, '{');
	json_add_u64(w, "cached_tokens", u->cached_tokens);
	json_close(w);
	json_add_u64(w, "output_tokens", u->completion_tokens);
	json_name(w, "output_tokens_details");
	json_open(w, '{');
	json_add_u64(w, "reasoning_tokens", u->reasoning_tokens);
	json_close(w);
	json_add_u64(w, "total_tokens", u->prompt_tokens + u->completion_tokens);
	json_close(w);
}

static void put_failure(struct json_out *w, const struct api_error *e)
{
	json_name(w, "error");
	if (e == NULL) {
		json_put_null(w);
		return;
	}
	json_open(w, '{');
	json_add_text(w, "code", e->code != NULL ? e->code : e->type);
	json_add_text(w, "message", e->message);
	json_close(w);
}

/* The answer, but for its items, which stand in a list that is open at the end. failed:
 * NULL unless it did. */
static void open_response(struct json_out *w, const struct out_head *head,
	const char *state, const struct api_error *failed)
{
	json_open(w, '{');
	json_add_text(w, "id", head->id);
	json_add_text(w, "object", "response");
	json_add_u64(w, "created_at", head->created);
	json_add_text(w, "model", head->model);
	json_add_text(w, "status", state);
	put_failure(w, failed);
	json_name(w, "incomplete_details");
	json_put_raw(w, strcmp(state, "incomplete") == 0
				? BYTES_STR("{\"reason\":\"max_output_tokens\"}")
				: BYTES_STR("null"));
	json_add_bool(w, "background", false);
	json_add_null(w, "previous_response_id");
	json_add_bool(w, "store", false);
	json_add_text(w, "truncation", "disabled");
	json_put_members(w, head->mirror);
	json_name(w, "output");
	json_open(w, '[');
}

static void close_response(struct json_out *w, const struct out_usage *usage)
{
	json_close(w);
	if (usage != NULL)
		put_usage(w, usage);
	else
		json_add_null(w, "usage");
	json_close(w);
}

static const char *status_of(enum out_finish how)
{
	return how == ANSWER_LENGTH ? "incomplete" : "completed";
}

static void whole(struct sink *out, const struct out_head *head,
	const struct out_choice *choices, size_t n, const struct out_usage *usage)
{
	const struct out_choice *c = &choices[0];
	struct item it = {.index = 0};
	struct out_block b;
	struct json_out w;
	uint32_t i = 0;

	(void)n;
	json_out_init(&w, out);
	open_response(&w, head, status_of(c->finish), NULL);
	while (c->parts != NULL && parts_block(c->parts, &i, &b)) {
		bool last = i == c->parts->n;

		it.kind = b.kind;
		it.text = b.text;
		it.state = last ? status_of(c->finish) : "completed";
		if (b.kind == PART_CALL) {
			it.call_id = b.call->id;
			it.name = b.call->name;
			it.text = sink_bytes(&b.call->arguments);
			it.state = b.call->complete ? "completed" : "incomplete";
		}
		put_item(&w, head, &it);
		it.index++;
	}
	close_response(&w, usage);
}

/* ---- a stream ---- */

static void begin(struct json_out *w, struct sink *out, const struct out_head *head,
	const char *type)
{
	sink_fmt(out, "event: %s\ndata: ", type);
	json_out_init(w, out);
	json_open(w, '{');
	json_add_text(w, "type", type);
	json_add_u64(w, "sequence_number", head->stream->n_events++);
}

static void end(struct json_out *w)
{
	json_close(w);
	sink_str(w->sink, "\n\n");
}

/* An event of the open item: up to what is its own. */
static void begin_of_item(struct json_out *w, struct sink *out,
	const struct out_head *head, const char *type)
{
	const struct out_stream *s = head->stream;
	char id[ITEM_ID_BYTES];

	item_id(id, head, s->kind, s->n_blocks - 1);
	begin(w, out, head, type);
	json_add_text(w, "item_id", id);
	json_add_u64(w, "output_index", s->n_blocks - 1);
	if (s->kind != PART_CALL)
		json_add_u64(w, "content_index", 0);
}

static struct bytes text_so_far(const struct out_stream *s)
{
	return s->text.len > 0 ? sink_bytes(&s->text) : BYTES_STR("");
}

static struct item open_item(const struct out_stream *s, const char *state, bool begins)
{
	return (struct item){.kind = s->kind,
		.index = s->n_blocks - 1,
		.state = state,
		.begins = begins,
		.text = text_so_far(s),
		.call_id = s->call_id,
		.name = s->call_name};
}

static void tell_item(struct sink *out, const struct out_head *head, const char *type,
	const struct item *it)
{
	struct json_out w;

	begin(&w, out, head, type);
	json_add_u64(&w, "output_index", it->index);
	json_name(&w, "item");
	put_item(&w, head, it);
	end(&w);
}

static void tell_part(struct sink *out, const struct out_head *head, const char *type)
{
	struct json_out w;

	begin_of_item(&w, out, head, type);
	json_name(&w, "part");
	put_part(&w, head->stream->kind, text_so_far(head->stream));
	end(&w);
}

static void tell_done(struct sink *out, const struct out_head *head)
{
	const struct out_stream *s = head->stream;
	bool call = s->kind == PART_CALL;
	struct json_out w;

	begin_of_item(&w, out, head, kinds[s->kind].done);
	if (call)
		json_add_bytes(&w, "name", s->call_name);
	json_add_bytes(&w, call ? "arguments" : "text", text_so_far(s));
	if (s->kind == PART_CONTENT) {
		json_name(&w, "logprobs");
		json_put_raw(&w, BYTES_STR("[]"));
	}
	end(&w);
	if (!call)
		tell_part(out, head, "response.content_part.done");
}

static void keep_item(
	struct out_stream *s, const struct out_head *head, const struct item *it)
{
	struct json_out w;

	if (s->items.len > 0)
		sink_str(&s->items, ",");
	json_out_init(&w, &s->items);
	put_item(&w, head, it);
}

static void close_item(struct sink *out, const struct out_head *head, const char *state)
{
	struct out_stream *s = head->stream;
	struct item it;

	if (!s->open)
		return;
	it = open_item(s, state, false);
	tell_done(out, head);
	tell_item(out, head, "response.output_item.done", &it);
	keep_item(s, head, &it);
	out->full |= s->text.full || s->items.full;
	sink_reset(&s->text);
	s->open = false;
}

static void begin_item(
	struct sink *out, const struct out_head *head, const struct out_part *part)
{
	struct out_stream *s = head->stream;
	struct item it;

	close_item(out, head, "completed");
	s->open = true;
	s->kind = part->kind;
	s->n_blocks++;
	if (part->call != NULL) {
		memcpy(s->call_id, part->call->id, sizeof(s->call_id));
		s->call_name = part->call->name;
	}
	it = open_item(s, "in_progress", true);
	tell_item(out, head, "response.output_item.added", &it);
	if (s->kind != PART_CALL)
		tell_part(out, head, "response.content_part.added");
}

static void delta(struct sink *out, const struct out_head *head, uint32_t index,
	const struct out_part *part)
{
	bool text = part->kind == PART_REASONING || part->kind == PART_CONTENT;
	struct out_stream *s = head->stream;
	struct json_out w;

	(void)index;
	if (part->kind == PART_CALL || (text && !(s->open && s->kind == part->kind)))
		begin_item(out, head, part);
	if (part->kind == PART_CALL_END)
		close_item(out, head, "completed");
	if (part->kind == PART_CALL || part->kind == PART_CALL_END)
		return;
	begin_of_item(&w, out, head, kinds[s->kind].delta);
	json_add_bytes(&w, "delta", part->text);
	if (part->kind == PART_CONTENT) {
		json_name(&w, "logprobs");
		json_put_raw(&w, BYTES_STR("[]"));
	}
	end(&w);
	sink_put(&s->text, part->text.at, part->text.len);
	out->full |= s->text.full;
}

static void tell_response(struct sink *out, const struct out_head *head, const char *type,
	const char *state, const struct api_error *failed)
{
	const struct out_stream *s = head->stream;
	bool ends = strcmp(state, "in_progress") != 0;
	struct json_out w;

	begin(&w, out, head, type);
	json_name(&w, "response");
	open_response(&w, head, state, failed);
	if (s->items.len > 0)
		json_put_raw(&w, sink_bytes(&s->items));
	close_response(&w, ends ? head->usage : NULL);
	end(&w);
}

static void first(struct sink *out, const struct out_head *head, uint32_t index)
{
	(void)index;
	tell_response(out, head, "response.created", "in_progress", NULL);
	tell_response(out, head, "response.in_progress", "in_progress", NULL);
}

static void finish(struct sink *out, const struct out_head *head, uint32_t index,
	enum out_finish how, struct out_stop stop)
{
	const char *state = status_of(how);

	(void)index;
	(void)stop;
	/* A call that is still open has no end. */
	close_item(out, head, head->stream->kind == PART_CALL ? "incomplete" : state);
	tell_response(out, head,
		how == ANSWER_LENGTH ? "response.incomplete" : "response.completed",
		state, NULL);
}

static void error_event(
	struct sink *out, const struct out_head *head, const struct api_error *e)
{
	tell_response(out, head, "response.failed", "failed", e);
}

const struct answer_format format_responses = {
	.path = "/v1/responses",
	.id_prefix = ID_PREFIX,
	.takes_messages = true,
	.max_tokens = UINT32_MAX,
	.parse = api_parse_responses,
	.whole = whole,
	.first = first,
	.delta = delta,
	.finish = finish,
	.keepalive = out_sse_keepalive,
	.error = out_error,
	.error_event = error_event,
};
