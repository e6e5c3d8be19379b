/* What the body parsers share: reading JSON with bounds, and typed access to members
 * that refuses by name. Private to router/api_*.c. */
#ifndef ROUTER_API_JSON_H
#define ROUTER_API_JSON_H
#include "common/base/json.h"
#include "common/base/json_write.h"
#include "router/api.h"

/* Values of one JSON text, names included: a prompt of a million token ids fits, a body
 * made of empty brackets does not take a hundred times its size. */
#define API_VALUES_MAX 1200000u

/* The text as an object, changed in place (text[len] is a zero byte); or NULL with *e.
 * what: "The body", "messages[1]...arguments". doc holds the values and is released by
 * the caller in either case. Duplicate names, lone surrogates, invalid UTF-8, depth over
 * API_DEPTH_MAX, text behind the end are refused. */
const struct json *api_json_object(struct json_doc *doc, uint8_t *text, size_t len,
	const char *what, const char *param, struct api_error *e);
/* The same of a whole body. */
const struct json *api_json_body(
	struct json_doc *doc, struct sink *body, struct api_error *e);

/* "NAME must be WANT, not VALUE." false always, so that callers can return it. */
bool api_json_refuse(struct api_error *e, const char *param, const struct json *value,
	const char *want);
bool api_json_no_memory(struct api_error *e);

/* Each leaves *out and *has alone when the member is absent. name is a path from the
 * object, "stream_options.include_usage", and what errors call it. has may be NULL.
 * Integers may be written 5 or 5.0. */
struct api_int_range {
	int64_t min, max;
	const char *text; /* "an integer from 1 to 5" */
};
MUST_CHECK bool api_json_int(const struct json *object, const char *name,
	const struct api_int_range *range, int64_t *out, bool *has, struct api_error *e);
MUST_CHECK bool api_json_bool(const struct json *object, const char *name, bool *out,
	bool *has, struct api_error *e);
/* A copy from mem_take, in which U+0000 is text. */
MUST_CHECK bool api_json_text(const struct json *object, const char *name, char **out,
	size_t *len, struct api_error *e);
/* The same of what is compared as a name: without U+0000. */
MUST_CHECK bool api_json_name(
	const struct json *object, const char *name, char **out, struct api_error *e);

/* A number from min (not itself when open) to max. Workers compute in 32 bits: what is
 * min there is min here. */
struct api_range {
	double min, max;
	bool open;
	const char *text; /* "a number from 0 to 2" */
};
MUST_CHECK bool api_json_f64(const struct json *object, const char *name,
	const struct api_range *range, double *out, bool *has, struct api_error *e);
/* A list of ids 0 .. API_ID_MAX, at least one; *ids from mem_take. */
MUST_CHECK bool api_json_ids(const struct json *list, const char *param, uint32_t **ids,
	size_t *n, struct api_error *e);

/* Whether every member of the object is one that we act on, has a value without
 * effect, or may be ignored (api_fields.c); names of the last sort are appended to
 * ignored. */
enum api_where {
	API_IN_CHAT = 1,
	API_IN_COMPLETION = 2,
	API_IN_MESSAGES = 4,
	API_IN_RESPONSES = 8,
};
MUST_CHECK bool api_fields_check(const struct json *object, enum api_where where,
	char *ignored, size_t ignored_bytes, struct api_error *e);

/* What all dialects read alike (api_gen.c): known members, model, numbers, top_k, seed
 * and stream; one choice. Behind it the length under its name, and strings that end it.
 */
MUST_CHECK bool api_gen_common(const struct json *object, enum api_where where,
	struct gen_request *req, struct api_error *e);
MUST_CHECK bool api_gen_length(const struct json *object, const char *name,
	const struct api_int_range *range, struct gen_request *req, struct api_error *e);
MUST_CHECK bool api_gen_stop(const struct json *object, const char *name,
	struct gen_request *req, struct api_error *e);

/* The members that change how tokens are drawn and what is told of them (api_draw.c);
 * after stream, and after max_tokens. */
MUST_CHECK bool api_draw_parse(const struct json *object, enum api_where where,
	struct gen_request *req, struct api_error *e);

/* What the answer may look like (api_grammar.c). */
MUST_CHECK bool api_grammar_parse(
	const struct json *object, struct gen_request *req, struct api_error *e);

/* Messages and their companions, as template_render takes them (api_chat.c). */
struct api_render {
	char *text;
	size_t len;
};
/* How the prompt ends: after its last message, in a new message of the assistant, or
 * inside of its last message. */
enum api_prompt_end { API_PROMPT_CLOSED, API_PROMPT_ASKS, API_PROMPT_GOES_ON };
MUST_CHECK bool api_chat_end(
	const struct json *object, enum api_prompt_end *end, struct api_error *e);
MUST_CHECK bool api_chat_render(const struct json *object,
	const struct api_options *options, enum api_prompt_end end,
	struct api_render *out, struct api_error *e);

/* Whether `name` is a list of a length that is taken, and not empty. */
MUST_CHECK bool api_message_count(
	const struct json *list, const char *name, struct api_error *e);
/* The parts of such an object, for whoever writes its messages by himself: `w` stands in
 * it. begin opens it and its list of messages; end closes it and takes the text out of
 * the sink, which is empty in either case. */
void api_render_begin(struct json_out *w, struct sink *text);
MUST_CHECK bool api_render_end(struct json_out *w, enum api_prompt_end end,
	struct api_render *out, struct api_error *e);

/* One message in the form that templates expect (api_message.c). */
struct api_message {
	const struct json *m;
	size_t i; /* its place, for errors */
	const struct api_options *options;
	const struct sink *content; /* instead of its own; NULL: its own */
};
MUST_CHECK bool api_message_put(
	struct json_out *w, const struct api_message *message, struct api_error *e);
/* The text of its content, parts joined. */
MUST_CHECK bool api_message_text(
	const struct api_message *message, struct sink *text, struct api_error *e);
/* What role templates know it by; NULL: none. */
const char *api_message_role(const struct json *m);
/* Texts of a list of parts, which `param` names, behind what is in the sink. */
MUST_CHECK bool api_parts_join(const struct json *parts, const char *param,
	struct sink *text, struct api_error *e);
/* The member "arguments": an object, or the text of one, which `at` names; NULL: empty.
 */
MUST_CHECK bool api_arguments_put(struct json_out *w, const struct json *arguments,
	const char *at, struct api_error *e);
/* Absent, or a reasoning effort that is known. */
MUST_CHECK bool api_effort_check(
	const struct json *effort, const char *param, struct api_error *e);

/* system and messages of Anthropic's form (api_blocks.c), into the list of messages.
 * *end: an answer goes on where the last message of the assistant stopped. */
MUST_CHECK bool api_blocks_put(struct json_out *w, const struct json *object,
	enum api_prompt_end *end, struct api_error *e);
/* instructions and input of OpenAI's responses (api_items.c), likewise. */
MUST_CHECK bool api_items_put(struct json_out *w, const struct json *object,
	const struct api_options *options, struct api_error *e);

#endif
