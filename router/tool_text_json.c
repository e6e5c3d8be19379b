/* A call in the form that models of this family were trained on before:
 *
 *     <tool_call>
 *     {"name": NAME, "arguments": {...}}
 *     </tool_call>
 *
 * It is one when it is whole, and text else; so nothing of it is told before its end. Its
 * arguments may be a string that holds an object. */
#include "common/base/json.h"
#include "common/base/json_write.h"
#include "common/base/mem.h"
#include "router/tool_text_impl.h"

#define CALL_DEPTH_MAX  64u
#define CALL_VALUES_MAX 1000000u

static const struct json_limits limits = {CALL_DEPTH_MAX, CALL_VALUES_MAX, false};

enum found tool_text_json_head(const struct tool_text *t, size_t *at)
{
	size_t begin = *at, here;
	enum found f = tool_text_tag(t, at, "{");

	if (f == FOUND)
		f = tool_text_spaces(t, at);
	if (f != FOUND)
		return f;
	here = *at;
	f = tool_text_tag(t, at, "\"name\"");
	if (f == FOUND_NOT)
		f = tool_text_tag(t, &here, "\"arguments\"");
	if (f == FOUND)
		*at = begin;
	return f;
}

void tool_text_json_begin(struct tool_text *t, size_t call, size_t at)
{
	t->state = TOOL_IN_JSON;
	t->call_at = call;
	t->json_at = t->scanned = at;
	t->depth = 0;
	t->in_string = t->escaped = false;
}

/* Moves t->scanned behind the object, or to the end of what came. */
static enum found scan(struct tool_text *t)
{
	for (; t->scanned < t->pending.len; t->scanned++) {
		uint8_t c = t->pending.at[t->scanned];

		if (t->in_string) {
			t->in_string = c != '"' || t->escaped;
			t->escaped = c == '\\' && !t->escaped;
		} else if (c == '"') {
			t->in_string = true;
		} else if (c == '{' || c == '[') {
			if (++t->depth > CALL_DEPTH_MAX)
				return FOUND_NOT;
		} else if ((c == '}' || c == ']') && --t->depth == 0) {
			t->scanned++;
			return FOUND;
		}
	}
	return t->final ? FOUND_NOT : FOUND_MAYBE;
}

/* Behind the object; at the end of an answer the wrapper's end may be missing. */
static enum found match_end(const struct tool_text *t, size_t *at)
{
	enum found f = tool_text_spaces(t, at);

	if (f == FOUND &&
		(*at == t->pending.len || tool_text_is_cut_tag(t, *at, "</tool_call>"))) {
		*at = t->pending.len;
		return FOUND;
	}
	return f == FOUND ? tool_text_tag(t, at, "</tool_call>") : f;
}

static bool read_object(
	struct tool_text *t, struct bytes text, struct json_doc *doc, char **copy)
{
	struct err err;
	status code = ST_NOMEM;

	*doc = (struct json_doc){0};
	*copy = mem_dup(text.at, text.len);
	if (*copy != NULL)
		code = json_read(doc, (uint8_t *)*copy, text.len, &limits, &err);
	t->made.full |= code == ST_NOMEM;
	return code == ST_OK && json_is(doc->values, JSON_OBJECT);
}

/* Writes the arguments into t->made. */
static bool put_arguments(struct tool_text *t, const struct json *arguments)
{
	struct json_doc doc = {0};
	struct json_out w;
	char *copy = NULL;
	bool ok = true;

	if (json_is(arguments, JSON_STRING)) {
		ok = read_object(t, json_bytes(arguments), &doc, &copy);
		arguments = doc.values;
	}
	if (ok && json_is(arguments, JSON_OBJECT)) {
		json_out_init(&w, &t->made);
		json_put(&w, arguments);
	} else {
		ok = false;
	}
	json_release(&doc);
	mem_give(copy);
	return ok;
}

static const struct tool *read_call(struct tool_text *t)
{
	struct bytes text = tool_text_rest(t, t->json_at);
	const struct tool *tool = NULL;
	struct json_doc doc;
	char *copy;

	text.len = t->scanned - t->json_at;
	if (read_object(t, text, &doc, &copy)) {
		const struct json *name = json_member(doc.values, "name");

		if (json_is(name, JSON_STRING))
			tool = tools_find(t->set, json_bytes(name));
		if (tool != NULL &&
			!put_arguments(t, json_member(doc.values, "arguments")))
			tool = NULL;
	}
	json_release(&doc);
	mem_give(copy);
	return tool;
}

bool tool_text_step_json(struct tool_text *t)
{
	enum found f = t->depth > 0 || t->scanned == t->json_at ? scan(t) : FOUND;
	const struct tool *tool = NULL;
	size_t at = t->scanned;

	if (f == FOUND)
		f = match_end(t, &at);
	if (f == FOUND)
		tool = read_call(t);
	if (f == FOUND_MAYBE)
		return false;
	t->scanned = 0;
	if (tool == NULL)
		tool_text_no_call(t, t->call_at);
	else
		tool_text_whole_call(t, tool, at);
	return true;
}
