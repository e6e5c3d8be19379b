/* Calls of tools in the text of an answer: what is told is the same however the text is
 * cut, and only what is a call is one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "router/api_json.h"
#include "router/tool_text.h"

#include <string.h>

/* What was told: text plain, a call as {NAME|ARGUMENTS}, one that was cut without '}'. */
static struct sink told;

static void on_text(void *ctx, struct bytes text)
{
	(void)ctx;
	sink_put(&told, text.at, text.len);
}

static void on_begin(void *ctx, const struct tool *tool)
{
	(void)ctx;
	sink_fmt(&told, "{%s|", tool->name);
}

static void on_end(void *ctx)
{
	(void)ctx;
	sink_str(&told, "}");
}

static const struct tool_events events = {on_text, on_begin, on_text, on_end};

static const char declared[] =
	"{\"tools\":["
	"{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
	"\"object\","
	"\"$defs\":{\"N\":{\"type\":\"number\"}},\"properties\":{"
	"\"s\":{\"type\":\"string\"},\"t\":{\"type\":\"string\"},\"i\":{\"type\":"
	"\"integer\"},"
	"\"n\":{\"$ref\":\"#/$defs/"
	"N\"},\"b\":{\"type\":\"boolean\"},\"l\":{\"type\":\"array\"},"
	"\"o\":{\"type\":\"object\"},\"e\":{\"enum\":[1,\"x\",null]},"
	"\"m\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},\"u\":{}}}}},"
	"{\"type\":\"function\",\"function\":{\"name\":\"get-2.x\"}}]%s}";

static struct tool_set set;
static char body[2048];

static bool declare(const char *more, struct api_error *e)
{
	struct json_doc doc;
	const struct json *object;
	struct sink text;
	bool ok;

	sink_over(&text, body, sizeof(body));
	sink_fmt(&text, declared, more);
	object = api_json_object(&doc, (uint8_t *)body, text.len, "The body", NULL, e);
	assert_non_null(object);
	ok = tools_parse(object, &tools_chat_form, &set, e);
	json_release(&doc);
	return ok;
}

static int set_up(void **state)
{
	struct api_error e;

	(void)state;
	assert_true(declare("", &e));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	tools_release(&set);
	sink_release(&told);
	assert_int_equal(0, mem_taken());
	return 0;
}

/* step 0: pieces of random length from the seed. */
static const char *read_in_pieces(const char *text, bool cut, size_t step, uint64_t seed)
{
	size_t n = strlen(text), at = 0;
	struct tool_text t;

	sink_release(&told);
	sink_init(&told, 1u << 20);
	tool_text_init(&t, &set, &events, NULL, 1u << 20);
	while (at < n) {
		size_t take = step > 0 ? step : 1 + philox4x32(seed, at, 0).v[0] % 9;

		take = MIN(take, n - at);
		tool_text_feed(&t, (struct bytes){(const uint8_t *)text + at, take});
		at += take;
	}
	tool_text_finish(&t, cut);
	assert_false(tool_text_is_full(&t));
	tool_text_release(&t);
	return sink_cstr(&told);
}

static void tells(const char *text, bool cut, const char *expected)
{
	assert_string_equal(expected, read_in_pieces(text, cut, SIZE_MAX / 2, 0));
	assert_string_equal(expected, read_in_pieces(text, cut, 1, 0));
	for (uint64_t seed = 0; seed < 50; seed++)
		assert_string_equal(expected, read_in_pieces(text, cut, 0, seed));
}

#define OPEN(name) "<tool_call>\n<function=" name ">\n"
#define SHUT       "</function>\n</tool_call>"
#define ARG(k, v)  "<parameter=" k ">\n" v "\n</parameter>\n"

static void a_call_is_told_with_its_arguments(void **state)
{
	(void)state;
	tells(OPEN("f") ARG("s", "Oslo") ARG("i", "3") SHUT, false,
		"{f|{\"s\": \"Oslo\", \"i\": 3}}");
	tells(OPEN("get-2.x") SHUT, false, "{get-2.x|{}}");
	tells("Let me look.\n\n" OPEN("f") ARG("s", "a") SHUT "\n", false,
		"Let me look.{f|{\"s\": \"a\"}}");
	tells("\n\n" OPEN("f") ARG("s", "a") SHUT, false, "{f|{\"s\": \"a\"}}");
	tells(OPEN("f") ARG("s", "a") SHUT "\n" OPEN("f") ARG("s", "b") SHUT, false,
		"{f|{\"s\": \"a\"}}{f|{\"s\": \"b\"}}");
	tells("one\n" OPEN("f") SHUT "\nthen two", false, "one{f|{}}\nthen two");
	tells(OPEN("f") SHUT "\nthen two", false, "{f|{}}then two");
}

static void text_without_a_call_is_told_as_it_is(void **state)
{
	static const char *const texts[] = {"", " ", "a", "\n\na  b\n\n", "a < b <<tool",
		"<tool_call>", "<tool_call>\n<function=nobody>\n" SHUT,
		"The markup is <tool_call> and <function=f> in a line.",
		"text <function=f>\n" ARG("s", "x") "</function>",
		"```xml\n" OPEN("f") ARG("s", "x") SHUT "\n```\nThat is how.",
		"<tool_call>{\"name\": \"f\"}</tool_call>",
		"<tool_call>\n<function=str_replace </parameter>\n",
		"<tool_call>\n<function=f\n>", "<think>x</think>\n"};

	(void)state;
	for (size_t i = 0; i < COUNT(texts); i++)
		for (int cut = 0; cut < 2; cut++)
			tells(texts[i], cut != 0, texts[i]);
	tells("```\nx\n```\n" OPEN("f") SHUT, false, "```\nx\n```{f|{}}");
	tells("use `x`\n" OPEN("f") SHUT, false, "use `x`{f|{}}");
}

/* Exactly one newline goes at each end; all else is the value. */
static void values_are_never_rewritten(void **state)
{
	(void)state;
	tells(OPEN("f") ARG("s", "\n  if (a < b && c)\n\treturn \"&lt;\\\";\n\n") SHUT,
		false,
		"{f|{\"s\": \"\\n  if (a < b && c)\\n\\treturn "
		"\\\"&lt;\\\\\\\";\\n\\n\"}}");
	tells(OPEN("f") ARG("s", "") ARG("t", " ") SHUT, false,
		"{f|{\"s\": \"\", \"t\": \" \"}}");
	tells(OPEN("f") "<parameter=s>x</parameter>" SHUT, false, "{f|{\"s\": \"x\"}}");
	tells(OPEN("f") "<parameter=s></parameter></function></tool_call>", false,
		"{f|{\"s\": \"\"}}");
	tells(OPEN("f") ARG("s", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80") SHUT, false,
		"{f|{\"s\": \"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"}}");
	tells(OPEN("f") ARG("s", "a</parameter> b\n</parameter>\nc") SHUT, false,
		"{f|{\"s\": \"a</parameter> b\\n</parameter>\\nc\"}}");
	tells(OPEN("f") ARG("s", "</function>\n<tool_call>\n<parameter=zz>\n") SHUT,
		false, "{f|{\"s\": \"</function>\\n<tool_call>\\n<parameter=zz>\\n\"}}");
	tells(OPEN("f") ARG("s", "say </tool_call> twice\n</tool_call>\nthen") SHUT,
		false, "{f|{\"s\": \"say </tool_call> twice\\n</tool_call>\\nthen\"}}");
}

static void types_follow_the_schema(void **state)
{
	static const struct {
		const char *name, *text, *json;
	} rows[] = {
		{"s", "123", "\"123\""},
		{"s", "null", "\"null\""},
		{"s", "true", "\"true\""},
		{"s", "[1]", "\"[1]\""},
		{"u", "7", "\"7\""},
		{"zz", "7", "\"7\""},
		{"i", "7", "7"},
		{"i", " -12 ", "-12"},
		{"i", "5.0", "\"5.0\""},
		{"i", "2026-01-15", "\"2026-01-15\""},
		{"i", "007", "\"007\""},
		{"i", "9007199254740993123", "9007199254740993123"},
		{"i", "", "\"\""},
		{"n", "1.50", "1.50"},
		{"n", "1e400", "1e400"},
		{"n", "NaN", "\"NaN\""},
		{"b", "true", "true"},
		{"b", "True", "true"},
		{"b", "False", "false"},
		{"b", "yes", "\"yes\""},
		{"b", "1", "\"1\""},
		{"l", "[1, {\"a\": 2.0}]", "[1,{\"a\":2.0}]"},
		{"l", "{}", "\"{}\""},
		{"l", "[1,", "\"[1,\""},
		{"o", "{\"k\": [null]}", "{\"k\":[null]}"},
		{"o", "{'k': 1}", "\"{'k': 1}\""},
		{"e", "1", "1"},
		{"e", "x", "\"x\""},
		{"e", "null", "null"},
		{"m", "null", "null"},
		{"m", "None", "null"},
		{"m", "nil", "\"nil\""},
		{"m", "5", "\"5\""},
	};
	char text[256], expected[128];

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		snprintf(text, sizeof(text),
			OPEN("f") "<parameter=%s>\n%s\n</parameter>\n" SHUT, rows[i].name,
			rows[i].text);
		snprintf(expected, sizeof(expected), "{f|{\"%s\": %s}}", rows[i].name,
			rows[i].json);
		tells(text, false, expected);
	}
}

static void a_closing_tag_that_is_missing_is_made_up_for(void **state)
{
	static const char *const texts[] = {
		OPEN("f") "<parameter=s>\na\n<parameter=i>\n3\n</parameter>\n" SHUT,
		OPEN("f") ARG("s", "a") "<parameter=i>\n3\n" SHUT,
		OPEN("f") ARG("s", "a") ARG("i", "3") "</tool_call>",
		OPEN("f") ARG("s", "a") ARG("i", "3") "</function>",
		OPEN("f") ARG("s", "a") ARG("i", "3"),
		OPEN("f") ARG("s", "a") "<parameter=i>\n3\n</tool_call>",
		OPEN("f") ARG("s", "a") "<parameter=i>\n3",
		OPEN("f") "<parameter=s>\na\n</parameter/>\n<parameter=i>\n3\n</"
			  "parameter1>\n" SHUT,
		OPEN("f") "<parameter=s>\na\n</parameter_function>\n" ARG("i", "3") SHUT,
		"<function=f>\n" ARG("s", "a") ARG("i", "3") "</function>",
		"<tool_call><function=f>" ARG("s", "a") ARG("i", "3") SHUT,
	};

	(void)state;
	for (size_t i = 0; i < COUNT(texts); i++)
		tells(texts[i], false, "{f|{\"s\": \"a\", \"i\": 3}}");
	tells(OPEN("f") ARG("s", "a") "\n" OPEN("f") ARG("s", "b") SHUT, false,
		"{f|{\"s\": \"a\"}}{f|{\"s\": \"b\"}}");
	tells(OPEN("f") ARG("s", "a") "</function>\n<function=f>\n" ARG("s", "b") SHUT,
		false, "{f|{\"s\": \"a\"}}{f|{\"s\": \"b\"}}");
}

static void what_the_length_cut_is_not_finished(void **state)
{
	(void)state;
	tells(OPEN("f"), true, "{f|");
	tells(OPEN("f") "<parameter=s>\nab", true, "{f|{\"s\": \"ab");
	tells(OPEN("f") "<parameter=s>\nab\n</para", true, "{f|{\"s\": \"ab");
	tells(OPEN("f") ARG("s", "a") "<parameter=i>\n31", true, "{f|{\"s\": \"a\"");
	tells(OPEN("f") ARG("s", "a") "</func", true, "{f|{\"s\": \"a\"");
	tells(OPEN("f") ARG("s", "a") SHUT, true, "{f|{\"s\": \"a\"}}");
	tells("<tool_call>\n<function=", true, "<tool_call>\n<function=");
}

static void a_name_counts_once(void **state)
{
	(void)state;
	tells(OPEN("f") ARG("s", "a") ARG("s", "b") ARG("i", "1") SHUT, false,
		"{f|{\"s\": \"a\", \"i\": 1}}");
}

static void one_call_is_enough_where_the_client_says_so(void **state)
{
	struct api_error e;

	(void)state;
	tools_release(&set);
	assert_true(declare(",\"parallel_tool_calls\":false", &e));
	tells(OPEN("f") ARG("s", "a") SHUT "\n" OPEN("f") ARG("s", "b") SHUT, false,
		"{f|{\"s\": \"a\"}}");
}

/* A long string comes as it is written, not at its end. */
static void a_long_string_comes_in_pieces(void **state)
{
	struct tool_text t;
	size_t before;
	uint32_t grown = 0;

	(void)state;
	sink_init(&told, 1u << 20);
	tool_text_init(&t, &set, &events, NULL, 1u << 20);
	tool_text_feed(&t, BYTES_STR(OPEN("f") "<parameter=s>\n"));
	for (int i = 0; i < 2000; i++) {
		before = told.len;
		tool_text_feed(&t, BYTES_STR("word "));
		grown += told.len == before + 5;
	}
	assert_int_equal(2000, grown);
	tool_text_release(&t);
}

static void what_does_not_fit_is_marked(void **state)
{
	struct tool_text t;

	(void)state;
	sink_init(&told, 1u << 20);
	tool_text_init(&t, &set, &events, NULL, 64);
	tool_text_feed(&t, BYTES_STR(OPEN("f") "<parameter=l>\n"));
	for (int i = 0; i < 20; i++)
		tool_text_feed(&t, BYTES_STR("[[[["));
	assert_true(tool_text_is_full(&t));
	tool_text_release(&t);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(a_call_is_told_with_its_arguments),
		WITH(text_without_a_call_is_told_as_it_is),
		WITH(values_are_never_rewritten),
		WITH(types_follow_the_schema),
		WITH(a_closing_tag_that_is_missing_is_made_up_for),
		WITH(what_the_length_cut_is_not_finished),
		WITH(a_name_counts_once),
		WITH(one_call_is_enough_where_the_client_says_so),
		WITH(a_long_string_comes_in_pieces),
		WITH(what_does_not_fit_is_marked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
