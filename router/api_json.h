/* What the body parsers share: reading JSON with bounds, and typed access to members
 * that refuses by name. Private to router/api_*.c. */
#ifndef ROUTER_API_JSON_H
#define ROUTER_API_JSON_H
#include "common/base/bytes.h"
#include "router/api.h"
#include <jansson.h>

/* Values of one JSON text: a prompt of a million token ids fits, a body made of empty
 * brackets does not take a hundred times its size. */
#define API_VALUES_MAX 1200000u

/* An object, or NULL with *e. what: "The body", "messages[1]...arguments". Release with
 * json_decref. Duplicate names, NUL, invalid UTF-8, depth over API_DEPTH_MAX, text
 * behind the end are refused. */
json_t *api_json_object(
	struct bytes text, const char *what, const char *param, struct api_error *e);

/* NULL when absent; null counts as absent. */
json_t *api_json_get(const json_t *object, const char *name);

/* "NAME must be WANT, not VALUE." false always, so that callers can return it. */
bool api_json_refuse(
	struct api_error *e, const char *param, const json_t *value, const char *want);
bool api_json_no_memory(struct api_error *e);

/* Each leaves *out and *has alone when the member is absent. param is the member's own
 * name. has may be NULL. Integers may be written 5 or 5.0. */
struct api_int_range {
	int64_t min, max;
	const char *text; /* "an integer from 1 to 5" */
};
MUST_CHECK bool api_json_int(const json_t *object, const char *name,
	const struct api_int_range *range, int64_t *out, bool *has, struct api_error *e);
MUST_CHECK bool api_json_bool(const json_t *object, const char *name, bool *out,
	bool *has, struct api_error *e);
/* A copy from mem_take. */
MUST_CHECK bool api_json_text(const json_t *object, const char *name, char **out,
	size_t *len, struct api_error *e);

/* A number from min (not itself when open) to max. Workers compute in 32 bits: what is
 * min there is min here. */
struct api_range {
	double min, max;
	bool open;
	const char *text; /* "a number from 0 to 2" */
};
MUST_CHECK bool api_json_f64(const json_t *object, const char *name,
	const struct api_range *range, double *out, bool *has, struct api_error *e);
/* The integer that value stands for. */
bool api_json_as_int(const json_t *value, int64_t *out);
/* A list of ids 0 .. API_ID_MAX, at least one; *ids from mem_take. */
MUST_CHECK bool api_json_ids(const json_t *list, const char *param, uint32_t **ids,
	size_t *n, struct api_error *e);
/* Compact JSON text of value, from mem_take, with a zero behind it. */
MUST_CHECK bool api_json_dump(
	const json_t *value, char **out, size_t *len, struct api_error *e);

/* Whether every member of the object is one that we act on, has a value without
 * effect, or may be ignored (api_fields.c); names of the last sort are appended to
 * ignored. */
enum api_where { API_IN_CHAT = 1, API_IN_COMPLETION = 2 };
MUST_CHECK bool api_fields_check(json_t *object, enum api_where where, char *ignored,
	size_t ignored_bytes, struct api_error *e);

/* The members that change how tokens are drawn and what is told of them (api_draw.c);
 * after stream, and after max_tokens. */
MUST_CHECK bool api_draw_parse(const json_t *object, enum api_where where,
	struct gen_request *req, struct api_error *e);

/* Messages and their companions, as template_render takes them (api_chat.c). object is
 * used up: its messages are changed in place. */
struct api_render {
	char *text;
	size_t len;
	bool has_thinking, thinking;
};
MUST_CHECK bool api_chat_render(json_t *object, const struct api_options *options,
	bool generation_prompt, struct api_render *out, struct api_error *e);
/* One message into the form that templates expect, in place. */
MUST_CHECK bool api_message_adapt(json_t *message, size_t i,
	const struct api_options *options, struct api_error *e);

#endif
