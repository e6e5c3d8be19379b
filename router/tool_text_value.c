/* The value of a parameter: where it ends, and what is told of it meanwhile. */
#include "router/tool_text_impl.h"

#include <string.h>

static bool was_given(const struct tool_text *t, struct bytes name)
{
	const uint8_t *at = t->given.at;

	for (uint32_t i = 0; i < t->n_given; i++) {
		size_t n = strlen((const char *)at);

		if (n == name.len && memcmp(at, name.at, n) == 0)
			return true;
		at += n + 1;
	}
	return false;
}

void tool_text_begin_value(struct tool_text *t, struct bytes name)
{
	t->param = tools_param(t->set, t->tool, name);
	t->types = t->param != NULL ? t->param->types : TOOL_STRING;
	t->streams = t->types == TOOL_STRING;
	t->state = TOOL_IN_VALUE;
	t->lead = true;
	t->told = false;
	/* A name with a zero could not be told from two. */
	t->drops = was_given(t, name) || memchr(name.at, 0, name.len) != NULL;
	if (t->drops)
		return;
	/* What else is told with the value's first byte. */
	sink_put(&t->given, name.at, name.len);
	sink_put(&t->given, "", 1);
	sink_str(&t->made, t->n_given++ > 0 ? ", \"" : "{\"");
	tool_value_escape(&t->made, name);
	sink_str(&t->made, t->streams ? "\": \"" : "\": ");
	/* A value that is not told as it comes may never come whole. */
	if (t->streams)
		tool_text_tell(t);
}

/* What may follow a value, at `at` behind spaces. */
static enum found match_next(const struct tool_text *t, size_t at)
{
	static const char *const next[] = {"<parameter=", "</function>", "</tool_call>",
		"<tool_call>", "<function="};
	enum found f = tool_text_spaces(t, &at);

	if (f != FOUND || at == t->pending.len)
		return f;
	/* At the end a part of a tag stands for it: the length cut it. */
	for (size_t i = 0; i < COUNT(next); i++) {
		size_t here = at;

		if (tool_text_is_cut_tag(t, at, next[i]))
			return FOUND;
		f = tool_text_tag(t, &here, next[i]);
		if (f != FOUND_NOT)
			return f;
	}
	return tool_text_slip(t, &at, "</function");
}

/* </parameter>, or what a model makes of it, with a tag of the call behind it. */
static enum found match_close(const struct tool_text *t, size_t *at)
{
	enum found f = tool_text_slip(t, at, "</parameter");

	return f == FOUND ? match_next(t, *at) : f;
}

/* The end of a function whose parameter was not closed. */
static enum found match_function_end(const struct tool_text *t, size_t at)
{
	enum found f = tool_text_tag(t, &at, "</function>");

	if (f == FOUND)
		f = tool_text_spaces(t, &at);
	if (f != FOUND || at == t->pending.len)
		return f;
	return tool_text_tag(t, &at, "</tool_call>");
}

/* The end of a call of which both inner tags are missing. */
static enum found match_wrapper_end(const struct tool_text *t, size_t at)
{
	enum found f = tool_text_tag(t, &at, "</tool_call>");

	if (f == FOUND)
		f = tool_text_spaces(t, &at);
	if (f != FOUND || at == t->pending.len)
		return f;
	return tool_text_tag(t, &at, "<tool_call>");
}

/* Another parameter of this tool, though this one was not closed. */
static enum found match_parameter(const struct tool_text *t, size_t at)
{
	struct bytes name;
	enum found f = tool_text_named(t, &at, "<parameter=", &name);

	if (f != FOUND)
		return f;
	return tools_param(t->set, t->tool, name) != NULL && !was_given(t, name)
		       ? FOUND
		       : FOUND_NOT;
}

/* Where its closing tag is missing only a tag at the beginning of a line ends a value. */
static bool begins_line(const struct tool_text *t, size_t at)
{
	return at > 0 ? t->pending.at[at - 1] == '\n' : !t->told;
}

/* Whether the value ends at `at`, a '<'; *passed is then behind what closed it. */
static enum found match_end(const struct tool_text *t, size_t at, size_t *passed)
{
	static enum found (*const others[])(const struct tool_text *t, size_t at) = {
		match_parameter, match_function_end, match_wrapper_end};
	size_t here = at;
	enum found f = match_close(t, &here);

	*passed = f == FOUND ? here : at;
	if (f != FOUND_NOT || !begins_line(t, at))
		return f;
	for (size_t i = 0; i < COUNT(others); i++) {
		f = others[i](t, at);
		if (f != FOUND_NOT)
			return f;
	}
	return FOUND_NOT;
}

static void tell_piece(struct tool_text *t, size_t n)
{
	t->told |= n > 0;
	if (!t->drops && n > 0) {
		tool_value_escape(&t->made, (struct bytes){t->pending.at, n});
		tool_text_tell(t);
	}
	tool_text_drop(t, n);
}

/* The value is the first n bytes. */
static void end_value(struct tool_text *t, size_t n, size_t passed)
{
	size_t own = n > 0 && t->pending.at[n - 1] == '\n' ? n - 1 : n;
	struct bytes value = {t->pending.at, own};

	if (!t->drops && t->streams)
		tool_value_escape(&t->made, value);
	else if (!t->drops)
		tool_value_put(&t->made, value, t->types);
	if (!t->drops && t->streams)
		sink_str(&t->made, "\"");
	tool_text_tell(t);
	tool_text_drop(t, passed);
	t->scanned = 0;
	t->state = TOOL_IN_CALL;
}

/* How much of a value that the length cut is its own: not the beginning of a tag, nor the
 * newline before one. */
static size_t own_bytes(const struct tool_text *t)
{
	static const char *const tags[] = {
		"</parameter>", "<parameter=", "</function>", "</tool_call>"};
	const uint8_t *last = memrchr(t->pending.at, '<', t->pending.len);
	size_t n = t->pending.len, at = last != NULL ? (size_t)(last - t->pending.at) : n;

	for (size_t i = 0; i < COUNT(tags) && at < n; i++)
		if ((i == 0 || begins_line(t, at)) &&
			tool_text_is_cut_tag(t, at, tags[i]))
			n = at;
	return n > 0 && t->pending.at[n - 1] == '\n' ? n - 1 : n;
}

/* No more comes. What was cut is told as far as it came, if it is a string. */
static bool end_open(struct tool_text *t)
{
	if (!t->cut) {
		end_value(t, t->pending.len, t->pending.len);
		return true;
	}
	if (t->streams)
		tell_piece(t, own_bytes(t));
	else
		sink_reset(&t->made);
	return false;
}

bool tool_text_step_value(struct tool_text *t)
{
	size_t at, passed, sure;
	enum found f = FOUND_NOT;

	if (t->lead && t->pending.len == 0 && !t->final)
		return false;
	if (t->lead && t->pending.len > 0 && t->pending.at[0] == '\n')
		tool_text_drop(t, 1);
	t->lead = false;
	for (at = t->scanned; at < t->pending.len; at++) {
		if (t->pending.at[at] != '<')
			continue;
		f = match_end(t, at, &passed);
		if (f != FOUND_NOT)
			break;
	}
	if (f == FOUND) {
		end_value(t, at, passed);
		return true;
	}
	if (t->final)
		return end_open(t);
	sure = at > 0 && t->pending.at[at - 1] == '\n' ? at - 1 : at;
	t->scanned = at;
	if (t->streams)
		tell_piece(t, sure);
	return false;
}
