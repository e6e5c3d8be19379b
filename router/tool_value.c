/* One value of a parameter. */
#include "common/base/json.h"
#include "common/base/json_write.h"
#include "common/base/mem.h"
#include "router/tools.h"

#include <string.h>

/* Of a value that is a list or an object. */
#define VALUE_DEPTH_MAX  64u
#define VALUE_VALUES_MAX 1000000u

void tool_value_escape(struct sink *out, struct bytes text)
{
	struct json_out w;
	struct sink quoted;

	sink_init(&quoted, SIZE_MAX / 2);
	json_out_init(&w, &quoted);
	json_put_bytes(&w, text);
	if (quoted.full)
		out->full = true;
	else
		sink_put(out, quoted.at + 1, quoted.len - 2);
	sink_release(&quoted);
}

static bool is_space(uint8_t c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static struct bytes trimmed(struct bytes b)
{
	while (b.len > 0 && is_space(b.at[0])) {
		b.at++;
		b.len--;
	}
	while (b.len > 0 && is_space(b.at[b.len - 1]))
		b.len--;
	return b;
}

static bool is_word(struct bytes b, const char *word)
{
	return b.len == strlen(word) && memcmp(b.at, word, b.len) == 0;
}

/* Models of this family see and write Python's spellings too. */
static const struct {
	const char *word, *json;
	unsigned type;
} words[] = {
	{"null", "null", TOOL_NULL},
	{"None", "null", TOOL_NULL},
	{"true", "true", TOOL_BOOLEAN},
	{"True", "true", TOOL_BOOLEAN},
	{"false", "false", TOOL_BOOLEAN},
	{"False", "false", TOOL_BOOLEAN},
};

static bool put_word(struct sink *out, struct bytes b, unsigned types)
{
	for (size_t i = 0; i < COUNT(words); i++) {
		if ((types & words[i].type) == 0 || !is_word(b, words[i].word))
			continue;
		sink_str(out, words[i].json);
		return true;
	}
	return false;
}

static bool is_integer_text(struct bytes b)
{
	size_t i = b.len > 0 && b.at[0] == '-';

	for (; i < b.len; i++)
		if (b.at[i] < '0' || b.at[i] > '9')
			return false;
	return true;
}

static bool takes(unsigned types, const struct json *v, struct bytes text)
{
	if (json_is(v, JSON_ARRAY))
		return types & TOOL_ARRAY;
	if (json_is(v, JSON_OBJECT))
		return types & TOOL_OBJECT;
	if (json_is(v, JSON_NUMBER))
		return (types & TOOL_NUMBER) ||
		       ((types & TOOL_INTEGER) && is_integer_text(text));
	return false;
}

/* What reads as JSON of a type that is taken. */
static bool put_json(struct sink *out, struct bytes b, unsigned types)
{
	static const struct json_limits limits = {
		VALUE_DEPTH_MAX, VALUE_VALUES_MAX, false};
	char *copy = mem_dup(b.at, b.len);
	struct json_doc doc;
	struct json_out w;
	struct err err;
	bool taken = false;
	status code;

	if (copy == NULL) {
		out->full = true;
		return true;
	}
	code = json_read(&doc, (uint8_t *)copy, b.len, &limits, &err);
	if (code == ST_NOMEM)
		out->full = true;
	if (code == ST_OK && takes(types, doc.values, b)) {
		json_out_init(&w, out);
		json_put(&w, doc.values);
		taken = true;
	}
	json_release(&doc);
	mem_give(copy);
	return taken;
}

void tool_value_put(struct sink *out, struct bytes text, unsigned types)
{
	struct bytes b = trimmed(text);
	unsigned read = TOOL_INTEGER | TOOL_NUMBER | TOOL_ARRAY | TOOL_OBJECT;

	if (put_word(out, b, types))
		return;
	if ((types & read) && b.len > 0 && put_json(out, b, types))
		return;
	sink_str(out, "\"");
	tool_value_escape(out, text);
	sink_str(out, "\"");
}
