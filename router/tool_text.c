/* The text around calls and the tags of a call; values stand in tool_text_value.c,
 * the older form in tool_text_json.c. A step
 * looks at what is pending, and takes from its front what no later text can change. */
#include "router/tool_text_impl.h"

#include <string.h>

/* Spaces that may stand between two tags. */
#define SLACK_BYTES    1024u
/* What models slip in before the '>' of a closing tag. */
#define SLIP_BYTES_MAX 24u
/* Closing tags of other forms, between a function's end and the wrapper's. */
#define STRAYS_MAX     4u

void tool_text_init(struct tool_text *t, const struct tool_set *set,
	const struct tool_events *on, void *ctx, size_t text_max)
{
	*t = (struct tool_text){.set = set, .on = on, .ctx = ctx, .since_call = true};
	sink_init(&t->pending, text_max);
	sink_init(&t->made, text_max);
	sink_init(&t->given, text_max);
}

void tool_text_release(struct tool_text *t)
{
	sink_release(&t->pending);
	sink_release(&t->made);
	sink_release(&t->given);
}

bool tool_text_is_full(const struct tool_text *t)
{
	return t->pending.full || t->made.full || t->given.full;
}

/* ---- matching ---- */

static bool is_space(uint8_t c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

struct bytes tool_text_rest(const struct tool_text *t, size_t from)
{
	return (struct bytes){t->pending.at + from, t->pending.len - from};
}

enum found tool_text_tag(const struct tool_text *t, size_t *at, const char *tag)
{
	struct bytes b = tool_text_rest(t, *at);
	size_t n = strlen(tag);

	if (memcmp(b.at, tag, MIN(n, b.len)) != 0)
		return FOUND_NOT;
	if (b.len < n)
		return t->final ? FOUND_NOT : FOUND_MAYBE;
	*at += n;
	return FOUND;
}

bool tool_text_is_cut_tag(const struct tool_text *t, size_t at, const char *tag)
{
	struct bytes b = tool_text_rest(t, at);

	return t->final && b.len > 0 && b.len < strlen(tag) &&
	       memcmp(b.at, tag, b.len) == 0;
}

enum found tool_text_slip(const struct tool_text *t, size_t *at, const char *tag)
{
	enum found f = tool_text_tag(t, at, tag);
	size_t begin = *at;

	if (f != FOUND)
		return f;
	for (; *at < t->pending.len; ++*at) {
		uint8_t c = t->pending.at[*at];

		if (c == '>') {
			++*at;
			return FOUND;
		}
		if (c == '<' || c == '\n' || *at - begin >= SLIP_BYTES_MAX)
			return FOUND_NOT;
	}
	return t->final ? FOUND_NOT : FOUND_MAYBE;
}

enum found tool_text_spaces(const struct tool_text *t, size_t *at)
{
	size_t begin = *at;

	while (*at < t->pending.len && is_space(t->pending.at[*at]))
		if (++*at - begin > SLACK_BYTES)
			return FOUND_NOT;
	return *at < t->pending.len || t->final ? FOUND : FOUND_MAYBE;
}

/* The name up to '>', which is passed. */
static enum found read_name(const struct tool_text *t, size_t *at, struct bytes *name)
{
	size_t begin = *at;

	for (size_t i = begin; i < t->pending.len; i++) {
		uint8_t c = t->pending.at[i];

		if (c == '>') {
			*name = (struct bytes){t->pending.at + begin, i - begin};
			*at = i + 1;
			return i > begin ? FOUND : FOUND_NOT;
		}
		if (c == '<' || c == '\n' || i - begin >= TOOL_KEY_BYTES_MAX)
			return FOUND_NOT;
	}
	return t->final ? FOUND_NOT : FOUND_MAYBE;
}

enum found tool_text_named(
	const struct tool_text *t, size_t *at, const char *tag, struct bytes *name)
{
	enum found f = tool_text_tag(t, at, tag);

	return f == FOUND ? read_name(t, at, name) : f;
}

/* What may follow the name of a function, behind spaces. */
static enum found match_inside(const struct tool_text *t, size_t at)
{
	static const char *const tags[] = {
		"<parameter=", "</", "<tool_call>", "<function="};
	enum found f = tool_text_spaces(t, &at);

	if (f == FOUND && at == t->pending.len)
		return t->cut ? FOUND : FOUND_NOT;
	for (size_t i = 0; f == FOUND && i < COUNT(tags); i++) {
		size_t here = at;

		if (t->cut && tool_text_is_cut_tag(t, at, tags[i]))
			return FOUND;
		f = tool_text_tag(t, &here, tags[i]);
		if (f != FOUND_NOT)
			return f;
		f = FOUND;
	}
	return f == FOUND ? FOUND_NOT : f;
}

/* <function=NAME> of a declared tool. */
static enum found match_function(
	const struct tool_text *t, size_t *at, const struct tool **tool)
{
	struct bytes name;
	enum found f = tool_text_named(t, at, "<function=", &name);

	if (f != FOUND)
		return f;
	*tool = tools_find(t->set, name);
	return *tool != NULL ? match_inside(t, *at) : FOUND_NOT;
}

/* What begins a call. Where the wrapper is missing the call must be all that there is. A
 * call of the older form has no *tool yet. */
static enum found match_call(
	const struct tool_text *t, size_t *at, const struct tool **tool)
{
	enum found f = tool_text_tag(t, at, "<tool_call>");

	*tool = NULL;
	if (f == FOUND) {
		f = tool_text_spaces(t, at);
		if (f == FOUND && *at < t->pending.len && t->pending.at[*at] == '{')
			return tool_text_json_head(t, at);
	} else if (f == FOUND_NOT && !t->any_text) {
		f = FOUND;
	}
	return f == FOUND ? match_function(t, at, tool) : f;
}

/* ---- text ---- */

static void drop(struct tool_text *t, size_t n)
{
	sink_consume(&t->pending, n);
	t->scanned = t->scanned > n ? t->scanned - n : 0;
}

void tool_text_drop(struct tool_text *t, size_t n)
{
	drop(t, n);
}

/* The first n bytes are text. Spaces alone, before all else, are not. */
static void tell_text(struct tool_text *t, size_t n)
{
	struct bytes b = {t->pending.at, n};

	if (t->n_calls > 0 && !t->any_text)
		while (b.len > 0 && is_space(b.at[0])) {
			b.at++;
			b.len--;
		}
	tool_code_follow(&t->code, b);
	if (b.len > 0) {
		t->any_text |= t->n_calls > 0;
		t->since_call = true;
		for (size_t i = 0; i < b.len && !t->any_text; i++)
			t->any_text = !is_space(b.at[i]);
		t->on->text(t->ctx, b);
	}
	drop(t, n);
}

static void begin_call(struct tool_text *t, const struct tool *tool)
{
	t->mute = t->set->one_call && t->n_calls > 0;
	t->n_calls++;
	t->tool = tool;
	t->n_given = 0;
	t->code = (struct tool_code){0};
	sink_reset(&t->given);
	t->state = TOOL_IN_CALL;
	if (!t->mute)
		t->on->begin(t->ctx, tool);
}

/* As much text as is sure behind a first byte that begins no call. */
void tool_text_no_call(struct tool_text *t, size_t at)
{
	size_t i = at + 1;

	while (i < t->pending.len && t->pending.at[i] != '<' &&
		!is_space(t->pending.at[i]))
		i++;
	t->state = TOOL_IN_TEXT;
	tell_text(t, i);
}

/* Spaces wait: in front of a call they are nothing. */
static bool step_text(struct tool_text *t)
{
	size_t i = t->scanned, spaces;
	const struct tool *tool = NULL;

	while (i < t->pending.len && is_space(t->pending.at[i]))
		i++;
	spaces = i;
	t->scanned = i;
	if (i == t->pending.len) {
		if (t->final && i > 0 && t->since_call)
			tell_text(t, i);
		return false;
	}
	if (t->pending.at[i] == '<' &&
		!tool_code_shows(t->code, (struct bytes){t->pending.at, i})) {
		switch (match_call(t, &i, &tool)) {
		case FOUND:
			if (tool == NULL) {
				tool_text_json_begin(t, spaces, i);
				return true;
			}
			drop(t, i);
			begin_call(t, tool);
			return true;
		case FOUND_MAYBE:
			return false;
		case FOUND_NOT:
			break;
		}
	}
	tool_text_no_call(t, spaces);
	return true;
}

/* ---- a call ---- */

void tool_text_tell(struct tool_text *t)
{
	if (t->made.len > 0 && !t->mute)
		t->on->arguments(t->ctx, sink_bytes(&t->made));
	sink_reset(&t->made);
}

static void close_call(struct tool_text *t, size_t passed)
{
	tool_text_tell(t);
	if (!t->mute)
		t->on->end(t->ctx);
	t->since_call = false;
	drop(t, passed);
	t->scanned = 0;
}

static void end_call(struct tool_text *t, size_t passed)
{
	sink_str(&t->made, t->n_given > 0 ? "}" : "{}");
	close_call(t, passed);
	t->state = TOOL_AFTER_CALL;
}

void tool_text_whole_call(struct tool_text *t, const struct tool *tool, size_t passed)
{
	begin_call(t, tool);
	close_call(t, passed);
	t->state = TOOL_IN_TEXT;
}

/* Between the tags of a call. What is no tag is not part of it. */
static bool step_call(struct tool_text *t)
{
	static const char *const ends[] = {"</tool_call>", "<tool_call>", "<function="};
	size_t at = 0;
	struct bytes name;
	enum found f;

	while (at < t->pending.len && t->pending.at[at] != '<')
		at++;
	drop(t, at);
	if (t->pending.len == 0) {
		if (t->final && !t->cut)
			end_call(t, 0);
		return false;
	}
	at = 0;
	f = tool_text_named(t, &at, "<parameter=", &name);
	if (f == FOUND) {
		tool_text_begin_value(t, name);
		drop(t, at);
		t->scanned = 0;
		return true;
	}
	if (f == FOUND_NOT) {
		at = 0;
		f = tool_text_slip(t, &at, "</function");
		if (f == FOUND)
			end_call(t, at);
	}
	for (size_t i = 0; f == FOUND_NOT && i < COUNT(ends); i++) {
		at = 0;
		f = tool_text_tag(t, &at, ends[i]);
		if (f == FOUND)
			end_call(t, 0);
	}
	if (f == FOUND_NOT)
		drop(t, 1);
	return f != FOUND_MAYBE;
}

/* The end of the wrapper, or another function in it, behind closing tags that do not
 * belong there; *at is moved behind it. */
static enum found match_after(
	const struct tool_text *t, size_t *at, const struct tool **tool)
{
	enum found f = tool_text_spaces(t, at);

	*tool = NULL;
	for (uint32_t i = 0; f == FOUND && i <= STRAYS_MAX; i++) {
		size_t here = *at;

		if (tool_text_is_cut_tag(t, *at, "</tool_call>")) {
			*at = t->pending.len;
			return FOUND;
		}
		f = tool_text_tag(t, at, "</tool_call>");
		if (f == FOUND_NOT)
			f = match_function(t, at, tool);
		if (f != FOUND_NOT)
			return f;
		*at = here;
		f = tool_text_slip(t, at, "</");
		if (f == FOUND)
			f = tool_text_spaces(t, at);
	}
	return f == FOUND ? FOUND_NOT : f;
}

static bool step_after(struct tool_text *t)
{
	const struct tool *tool;
	size_t at = 0;
	enum found f = match_after(t, &at, &tool);

	if (f == FOUND_MAYBE)
		return false;
	t->state = TOOL_IN_TEXT;
	if (f == FOUND)
		drop(t, at);
	if (f == FOUND && tool != NULL)
		begin_call(t, tool);
	return true;
}

static void run(struct tool_text *t)
{
	bool goes_on = true;

	while (goes_on && !tool_text_is_full(t)) {
		switch (t->state) {
		case TOOL_IN_TEXT:
			goes_on = step_text(t);
			break;
		case TOOL_IN_JSON:
			goes_on = tool_text_step_json(t);
			break;
		case TOOL_IN_CALL:
			goes_on = step_call(t);
			break;
		case TOOL_IN_VALUE:
			goes_on = tool_text_step_value(t);
			break;
		case TOOL_AFTER_CALL:
			goes_on = step_after(t);
			break;
		}
	}
}

void tool_text_feed(struct tool_text *t, struct bytes text)
{
	sink_put(&t->pending, text.at, text.len);
	run(t);
}

void tool_text_finish(struct tool_text *t, bool cut)
{
	t->final = true;
	t->cut = cut;
	run(t);
}
