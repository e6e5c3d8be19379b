/* The tools that a request declares, as far as the reader of an answer needs them: names,
 * and which JSON types each parameter takes. */
#ifndef ROUTER_TOOLS_H
#define ROUTER_TOOLS_H
#include "common/base/bytes.h"
#include "router/api.h"

#define TOOLS_MAX       512u
#define TOOL_NAME_BYTES 65u

/* JSON types, as bits. */
enum tool_type {
	TOOL_STRING = 1,
	TOOL_INTEGER = 2,
	TOOL_NUMBER = 4,
	TOOL_BOOLEAN = 8,
	TOOL_NULL = 16,
	TOOL_ARRAY = 32,
	TOOL_OBJECT = 64,
};

struct tool_param {
	const char *name; /* len bytes */
	uint32_t len;
	unsigned types; /* of tool_type; never 0 */
};

struct tool {
	char name[TOOL_NAME_BYTES]; /* [A-Za-z0-9_.-]{1,64}, unlike all others */
	uint32_t first, n;          /* of tool_set.params */
};

struct tool_set {
	struct tool *tools;
	struct tool_param *params;
	char *names; /* what the parameters' names point into */
	uint32_t n, n_params;
	bool one_call; /* parallel_tool_calls is false */
};

/* How a dialect writes a tool. */
struct tools_form {
	const char *inside; /* the member that holds name, description and schema; NULL:
			       they stand in the tool */
	const char *schema; /* the member with the parameters' schema */
	bool typed;         /* has "type": "function"; else none, null or "custom" */
};

/* tools.c: a list of tools, absent or checked. Into *set if calls of them are to be read
 * out of the answer; else it is empty. Released by tools_release in either case. */
struct json;
struct json_out;
MUST_CHECK bool tools_declare(const struct json *list, const struct tools_form *form,
	bool offered, struct tool_set *set, struct api_error *e);
/* The list as templates know it, which is the form of chat. */
void tools_put(
	struct json_out *w, const struct json *list, const struct tools_form *form);
/* tools in that form, tool_choice and parallel_tool_calls as chat has them. *set is empty
 * when the answer is not to hold calls: no tools, or tool_choice "none". */
extern const struct tools_form tools_chat_form;
MUST_CHECK bool tools_parse(const struct json *object, const struct tools_form *form,
	struct tool_set *set, struct api_error *e);
/* Whether the prompt is to name them. */
bool tools_are_offered(const struct json *object);
void tools_release(struct tool_set *set);
bool tool_is_name_byte(uint8_t c);
/* Of these bytes, or NULL. */
const struct tool *tools_find(const struct tool_set *set, struct bytes name);
const struct tool_param *tools_param(
	const struct tool_set *set, const struct tool *tool, struct bytes name);

/* tool_value.c: what the model wrote for a parameter, as JSON: of the first type that it
 * fits, every digit kept; else a string. A string is never rewritten. */
void tool_value_put(struct sink *out, struct bytes text, unsigned types);
/* The inside of a JSON string. */
void tool_value_escape(struct sink *out, struct bytes text);

#endif
