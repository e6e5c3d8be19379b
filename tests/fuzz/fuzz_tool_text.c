// layers: router
/* Text of a model that may call tools. However it is cut, the same is told; text and
 * calls never lose their order; the arguments of a call that ended are a JSON object; and
 * text in which nothing begins a call is told as it is. First byte: how it is cut, and
 * whether the length ended it. */
#include "common/base/json.h"
#include "router/api_json.h"
#include "router/tool_text.h"

#include <stdlib.h>
#include <string.h>

static const char declared[] =
	"{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"
	"\"properties\":{\"s\":{\"type\":\"string\"},\"i\":{\"type\":\"integer\"},"
	"\"o\":{\"type\":[\"object\",\"array\",\"null\"]},\"b\":{\"type\":\"boolean\"}}}}"
	"},"
	"{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]}";

struct told {
	struct sink all, arguments;
	bool in_call;
};

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void on_text(void *ctx, struct bytes text)
{
	struct told *t = ctx;

	check(!t->in_call && text.len > 0);
	sink_put(&t->all, text.at, text.len);
}

static void on_begin(void *ctx, const struct tool *tool)
{
	struct told *t = ctx;

	check(!t->in_call);
	t->in_call = true;
	sink_reset(&t->arguments);
	sink_fmt(&t->all, "\x01%s\x02", tool->name);
}

static void on_arguments(void *ctx, struct bytes json)
{
	struct told *t = ctx;

	check(t->in_call && json.len > 0);
	sink_put(&t->all, json.at, json.len);
	sink_put(&t->arguments, json.at, json.len);
}

static void on_end(void *ctx)
{
	static const struct json_limits limits = {JSON_DEPTH_MAX, 1u << 20, false};
	struct told *t = ctx;
	struct json_doc doc;
	struct err err;

	check(t->in_call);
	t->in_call = false;
	(void)sink_cstr(&t->arguments);
	check(json_read(&doc, t->arguments.at, t->arguments.len, &limits, &err) == ST_OK);
	check(json_is(doc.values, JSON_OBJECT));
	json_release(&doc);
	sink_str(&t->all, "\x03");
}

static const struct tool_events events = {on_text, on_begin, on_arguments, on_end};

static struct told read_text(
	const struct tool_set *set, const uint8_t *at, size_t n, size_t step, bool cut)
{
	struct told told = {0};
	struct tool_text t;

	sink_init(&told.all, 1u << 24);
	sink_init(&told.arguments, 1u << 24);
	tool_text_init(&t, set, &events, &told, 1u << 24);
	for (size_t i = 0; i < n; i += step)
		tool_text_feed(&t, (struct bytes){at + i, MIN(step, n - i)});
	tool_text_finish(&t, cut);
	check(!tool_text_is_full(&t) && (cut || !told.in_call));
	tool_text_release(&t);
	return told;
}

/* Only ASCII: what is told must be valid UTF-8, and cuts may fall anywhere. */
static size_t clean(uint8_t *out, const uint8_t *data, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < size; i++)
		if (data[i] >= 4 && data[i] < 0x80)
			out[n++] = data[i];
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t text[1u << 16];
	static char body[sizeof(declared)];
	struct told whole, cut_up;
	struct json_doc doc;
	struct tool_set set;
	struct api_error e;
	size_t n;

	if (size < 1 || size > sizeof(text))
		return 0;
	memcpy(body, declared, sizeof(body));
	check(tools_parse(
		api_json_object(&doc, (uint8_t *)body, sizeof(body) - 1, "", NULL, &e),
		&tools_chat_form, &set, &e));
	json_release(&doc);
	n = clean(text, data + 1, size - 1);
	whole = read_text(&set, text, n, MAX(n, 1u), data[0] & 1);
	cut_up = read_text(&set, text, n, 1 + (data[0] >> 1) % 16, data[0] & 1);
	check(whole.all.len == cut_up.all.len);
	check(n == 0 || whole.all.len == 0 ||
		memcmp(whole.all.at, cut_up.all.at, whole.all.len) == 0);
	if (n > 0 && memmem(text, n, "<function=", 10) == NULL &&
		memmem(text, n, "\"name\"", 6) == NULL)
		check(whole.all.len == n && memcmp(whole.all.at, text, n) == 0);
	sink_release(&whole.all);
	sink_release(&whole.arguments);
	sink_release(&cut_up.all);
	sink_release(&cut_up.arguments);
	tools_release(&set);
	return 0;
}
