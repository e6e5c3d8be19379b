/* One message as templates know it, gathered piece after piece: for dialects whose turns
 * are lists of blocks or of items. Private to router/api_*.c. */
#ifndef ROUTER_API_TURN_H
#define ROUTER_API_TURN_H
#include "router/api_json.h"

struct api_turn {
	struct sink text, reasoning, calls;
	struct json_out list; /* of calls, while there are any */
	bool has_text, has_reasoning, has_calls;
};

void api_turn_init(struct api_turn *t);
void api_turn_release(struct api_turn *t);
bool api_turn_is_empty(const struct api_turn *t);

void api_turn_text(struct api_turn *t, struct bytes text);
void api_turn_reasoning(struct api_turn *t, struct bytes text);
/* A call: its id and name, and its arguments, which `at` names: an object, or the text of
 * one. */
struct api_turn_call {
	struct bytes id, name;
	const struct json *arguments;
};
MUST_CHECK bool api_turn_call(struct api_turn *t, const struct api_turn_call *call,
	const char *at, struct api_error *e);
/* The message of this role into the list that is open; the turn is empty then. */
MUST_CHECK bool api_turn_put(
	struct api_turn *t, struct json_out *w, const char *role, struct api_error *e);
/* What came of a call, as a message of its own. value: a string, or a list of texts;
 * NULL: nothing. */
MUST_CHECK bool api_turn_result(struct json_out *w, struct bytes id,
	const struct json *value, const char *at, struct api_error *e);

/* A string, or a list of parts that are texts, behind what is in the sink. */
MUST_CHECK bool api_turn_join(
	const struct json *value, const char *at, struct sink *text, struct api_error *e);
/* A member that must be a string. */
MUST_CHECK bool api_turn_string(const struct json *object, const char *name,
	const char *at, struct bytes *out, struct api_error *e);

#endif
