/* The JSON reader: what it takes, what it refuses and where, and how values are found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/json.h"
#include "common/base/mem.h"

#include <stdio.h>
#include <string.h>

static const struct json_limits WIDE = {JSON_DEPTH_MAX, UINT32_MAX, false};

struct text {
	struct json_doc doc;
	char *at;
	struct err err;
	status st;
};

static struct text read_bytes(const char *at, size_t len, const struct json_limits *lim)
{
	struct text t = {.at = mem_dup(at, len)};

	assert_non_null(t.at);
	t.st = json_read(&t.doc, (uint8_t *)t.at, len, lim, &t.err);
	if (t.st != ST_OK) {
		assert_null(t.doc.values);
		assert_null(t.doc.tables);
	}
	return t;
}

static struct text read_text(const char *text)
{
	return read_bytes(text, strlen(text), &WIDE);
}

static void drop(struct text *t)
{
	json_release(&t->doc);
	mem_give(t->at);
}

static int nothing_is_left(void **state)
{
	(void)state;
	mem_budget(UINT64_C(1) << 30);
	assert_int_equal(mem_taken(), 0);
	return 0;
}

static void refused(const char *text, const char *why)
{
	struct text t = read_text(text);

	assert_int_equal(t.st, ST_INVALID);
	if (strcmp(t.err.text, why) != 0)
		fail_msg("%s\n  says %s\n  not  %s", text, t.err.text, why);
	drop(&t);
}

static void values_are_found_by_name_and_place(void **state)
{
	struct text t =
		read_text("{\"a\": [1, [2, 3], {\"b\": null}, \"x\"],\n \"\": true,"
			  "\"n\": null, \"e\": {}, \"l\": []}");
	const struct json *root = t.doc.values, *a = json_member(root, "a");
	uint32_t n = 0;

	(void)state;
	assert_int_equal(t.st, ST_OK);
	assert_int_equal(json_count(root), 5);
	assert_int_equal(root->span, 19);
	assert_int_equal(json_count(a), 4);
	assert_true(json_equals(json_item(a, 3), "x"));
	assert_null(json_item(a, 4));
	assert_true(json_is(json_item(json_item(a, 1), 1), JSON_NUMBER));
	assert_true(json_is(json_member(json_item(a, 2), "b"), JSON_NULL));
	assert_null(json_given(json_item(a, 2), "b"));
	assert_true(json_is(json_member(root, ""), JSON_TRUE));
	assert_int_equal(json_member(root, "")->line, 2);
	assert_true(json_is_bool(json_member(root, "")));
	assert_null(json_member(root, "x"));
	assert_null(json_member(a, "a"));
	assert_null(json_member(NULL, "a"));
	assert_null(json_item(root, 0));
	json_each(item, a) n++;
	assert_int_equal(n, 4);
	json_each(item, root) fail();
	json_each(item, NULL) fail();
	json_each(item, json_member(root, "l")) fail();
	json_each_member(name, json_member(root, "e")) fail();
	json_each_member(name, a) fail();
	json_each_member(name, root)
	{
		assert_true(json_member(root, json_text(name)) == name + 1);
		n++;
	}
	assert_int_equal(n, 9);
	drop(&t);
}

static void strings_are_decoded_in_place_and_may_hold_nul(void **state)
{
	struct text t = read_text("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\","
				  "\"\\ud83d\\uDE00 \x7f plain\", \"a\\u0000b\", \"\"]");
	const struct json *root = t.doc.values;

	(void)state;
	assert_int_equal(t.st, ST_OK);
	assert_string_equal(
		json_text(json_item(root, 0)), "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac");
	assert_string_equal(json_text(json_item(root, 1)), "\xf0\x9f\x98\x80 \x7f plain");
	assert_null(json_text(json_item(root, 2)));
	assert_false(json_equals(json_item(root, 2), "a"));
	assert_int_equal(json_bytes(json_item(root, 2)).len, 3);
	assert_memory_equal(json_bytes(json_item(root, 2)).at, "a\0b", 3);
	assert_string_equal(json_text(json_item(root, 3)), "");
	assert_null(json_text(root));
	assert_null(json_bytes(root).at);
	drop(&t);
}

static void refusals_name_line_and_column(void **state)
{
	(void)state;
	refused("", "JSON line 1 column 1: a value expected, not the end");
	refused(" \n  \n [1,]", "JSON line 3 column 5: a value expected, not ']'");
	refused("{\"a\":1,}", "JSON line 1 column 8: a name in quotes expected, not '}'");
	refused("{\"a\" 1}", "JSON line 1 column 6: ':' expected, not '1'");
	refused("[1 2]", "JSON line 1 column 4: ',' or ']' expected, not '2'");
	refused("[1}", "JSON line 1 column 3: ',' or ']' expected, not '}'");
	refused("{\"a\":1", "JSON line 1 column 7: ',' or '}' expected, not the end");
	refused("[01]", "JSON line 1 column 3: ',' or ']' expected, not '1'");
	refused("[1.]", "JSON line 1 column 4: a digit expected, not ']'");
	refused("[-]", "JSON line 1 column 3: a digit expected, not ']'");
	refused("1e", "JSON line 1 column 3: a digit expected, not the end");
	refused("nulll", "JSON line 1 column 5: the end expected, not 'l'");
	refused("[NaN]", "JSON line 1 column 2: a value expected, not 'N'");
	refused("\xef\xbb\xbf{}",
		"JSON line 1 column 1: a value expected, not the byte 0xef");
	refused("[\"a\nb\"]", "JSON line 1 column 4: the control character U+000A in a "
			      "string is not escaped");
	refused("[\"ab", "JSON line 1 column 5: the text ends inside a string");
	refused("[\"ab\\", "JSON line 1 column 5: no such escape");
	refused("[\"\\x\"]", "JSON line 1 column 3: no such escape");
	refused("[\"\\u12g4\"]",
		"JSON line 1 column 3: \\u needs four hexadecimal digits");
	refused("[\"a\xff\"]",
		"JSON line 1 column 4: the byte 0xff in a string is not UTF-8");
	refused("[\"\xed\xa0\x80\"]",
		"JSON line 1 column 3: the byte 0xed in a string is not UTF-8");
	refused("{\"a\":1,\n\"b\":2,\"\\u0061\":3}",
		"JSON line 2 column 7: the name \"a\" stands there twice");
}

static void a_lone_surrogate_is_refused_with_its_place(void **state)
{
	(void)state;
	refused("[\n\"x\\ud800y\"]", "JSON line 2 column 3: \\ud800 is half of a "
				     "character (a lone surrogate)");
	refused("[\"\\uDC00\\ud800\"]", "JSON line 1 column 3: \\udc00 is half of a "
					"character (a lone surrogate)");
	refused("[\"\\ud83d\\ud83d\\ude00\"]",
		"JSON line 1 column 3: \\ud83d is half of a "
		"character (a lone surrogate)");
	refused("[\"\\ud83d", "JSON line 1 column 3: \\ud83d is half of a "
			      "character (a lone surrogate)");
}

static void a_nul_outside_a_string_is_refused(void **state)
{
	struct text t = read_bytes("[1]\0", 4, &WIDE);

	(void)state;
	assert_string_equal(
		t.err.text, "JSON line 1 column 4: the end expected, not the byte 0x00");
	drop(&t);
	t = read_bytes("[\"a\0b\"]", 7, &WIDE);
	assert_string_equal(t.err.text, "JSON line 1 column 4: the control character "
					"U+0000 in a string is not escaped");
	drop(&t);
}

static void python_literals_are_numbers_that_nobody_can_read(void **state)
{
	static const struct json_limits python = {8, 100, true};
	static const char text[] = "{\"x\": [NaN, Infinity, -Infinity], \"y\": 2}";
	struct text t = read_bytes(text, sizeof(text) - 1, &python);
	const struct json *root = t.doc.values;
	double d = 5;
	int64_t i = 5;

	(void)state;
	assert_int_equal(t.st, ST_OK);
	json_each(item, json_member(root, "x"))
	{
		assert_true(json_is(item, JSON_NUMBER));
		assert_false(json_f64(item, &d));
		assert_false(json_i64(item, &i));
	}
	assert_true(d == 5 && i == 5);
	assert_true(json_i64(json_member(root, "y"), &i) && i == 2);
	drop(&t);
	t = read_bytes("[-Infinit]", 10, &python);
	assert_int_equal(t.st, ST_INVALID);
	drop(&t);
}

static void depth_and_values_are_limited_with_their_place(void **state)
{
	static const struct json_limits narrow = {2, 5, false};
	char deep[600];
	struct text t;

	(void)state;
	t = read_bytes("[[1,2],3]", 9, &narrow);
	assert_int_equal(t.st, ST_OK);
	drop(&t);
	t = read_bytes("[[1,2],3,4]", 11, &narrow);
	assert_int_equal(t.st, ST_LIMIT);
	assert_string_equal(t.err.text, "JSON line 1 column 10: more than 5 values");
	drop(&t);
	t = read_bytes("[\n[[1]]]", 8, &narrow);
	assert_int_equal(t.st, ST_LIMIT);
	assert_string_equal(t.err.text, "JSON line 2 column 2: nested deeper than 2");
	drop(&t);
	memset(deep, '[', 300);
	memset(deep + 300, ']', 300);
	t = read_bytes(deep, 600, &WIDE);
	assert_int_equal(t.st, ST_LIMIT);
	drop(&t);
	t = read_bytes(deep + 300 - JSON_DEPTH_MAX, 2 * JSON_DEPTH_MAX, &WIDE);
	assert_int_equal(t.st, ST_OK);
	assert_int_equal(t.doc.values->span, JSON_DEPTH_MAX);
	drop(&t);
}

static void the_array_of_values_has_exactly_their_number(void **state)
{
	/* 1 + 999 values of 24 bytes each; the allocator rounds. */
	uint64_t before;
	char text[2000] = "[";
	struct text t;

	(void)state;
	for (unsigned i = 0; i < 999; i++)
		memcpy(text + 1 + 2 * i, "7,", 2);
	text[1998] = ']';
	before = mem_taken();
	t = read_bytes(text, 1999, &WIDE);
	assert_int_equal(t.st, ST_OK);
	assert_in_range(mem_taken() - before, 24000 + 2000, 24000 + 2000 + 64);
	drop(&t);
}

/* Names n0 to n{count-1}, the last one again when twice is set. */
static struct text large_object(unsigned count, bool twice)
{
	static char text[2000000];
	size_t len = 0;

	for (unsigned i = 0; i < count + twice; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
			"%s\"n%u\":[%u,{\"n%u\":0}]", i == 0 ? "{" : ",\n",
			i < count ? i : count / 2, i, i);
	len += (size_t)snprintf(text + len, sizeof(text) - len, "}");
	return read_bytes(text, len, &WIDE);
}

static void large_objects_find_every_name_and_every_duplicate(void **state)
{
	static const unsigned sizes[] = {15, 16, 17, 31, 32, 33, 63, 64, 500, 40000};

	(void)state;
	for (size_t s = 0; s < COUNT(sizes); s++) {
		struct text t = large_object(sizes[s], false);
		char name[16], want[100];
		int64_t v;

		assert_int_equal(t.st, ST_OK);
		assert_int_equal(json_count(t.doc.values), sizes[s]);
		for (unsigned i = 0; i < sizes[s]; i++) {
			snprintf(name, sizeof(name), "n%u", i);
			assert_true(json_i64(
				json_item(json_member(t.doc.values, name), 0), &v));
			assert_int_equal(v, i);
		}
		assert_null(json_member(t.doc.values, "n"));
		drop(&t);
		t = large_object(sizes[s], true);
		assert_int_equal(t.st, ST_INVALID);
		snprintf(want, sizeof(want),
			"JSON line %u column 1: the name \"n%u\" stands there twice",
			sizes[s] + 1, sizes[s] / 2);
		assert_string_equal(t.err.text, want);
		drop(&t);
	}
}

/* Every budget from nothing to enough: each allocation is refused once. */
static void refused_memory_is_said_and_nothing_leaks(void **state)
{
	unsigned refusals = 0, budget = 0;
	struct text t;

	(void)state;
	for (;;) {
		static char text[] =
			"{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":"
			"8,\"i\":9,\"j\":{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":"
			"6,\"g\":7,\"h\":8,\"i\":9,\"j\":{},\"k\":1,\"l\":2,\"m\":3,"
			"\"n\":4,\"o\":5,\"p\":6,\"q\":7},\"k\":1,\"l\":2,\"m\":3,\"n\":"
			"4,\"o\":5,\"p\":6,\"q\":7,\"r\":8,\"s\":9,\"t\":1,\"u\":2,"
			"\"v\":3,\"w\":4,\"x\":5,\"y\":6,\"z\":7,\"A\":1,\"B\":2,\"C\":"
			"3,\"D\":4,\"E\":5,\"F\":6,\"G\":7}";
		static char copy[sizeof(text)]; /* values point into it */

		memcpy(copy, text, sizeof(text));
		mem_budget(budget);
		t.st = json_read(
			&t.doc, (uint8_t *)copy, sizeof(text) - 1, &WIDE, &t.err);
		if (t.st == ST_OK)
			break;
		assert_int_equal(t.st, ST_NOMEM);
		assert_non_null(strstr(t.err.text, "no memory for"));
		assert_null(t.doc.values);
		assert_int_equal(mem_taken(), 0);
		refusals++;
		budget += 8;
	}
	assert_in_range(refusals, 100, 1000);
	assert_true(json_is(json_member(t.doc.values, "G"), JSON_NUMBER));
	json_release(&t.doc);
	json_release(&t.doc); /* empty */
	mem_budget(UINT64_C(1) << 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_are_found_by_name_and_place),
		cmocka_unit_test(strings_are_decoded_in_place_and_may_hold_nul),
		cmocka_unit_test(refusals_name_line_and_column),
		cmocka_unit_test(a_lone_surrogate_is_refused_with_its_place),
		cmocka_unit_test(a_nul_outside_a_string_is_refused),
		cmocka_unit_test(python_literals_are_numbers_that_nobody_can_read),
		cmocka_unit_test(depth_and_values_are_limited_with_their_place),
		cmocka_unit_test(the_array_of_values_has_exactly_their_number),
		cmocka_unit_test(large_objects_find_every_name_and_every_duplicate),
		cmocka_unit_test(refused_memory_is_said_and_nothing_leaks),
	};

	return cmocka_run_group_tests(tests, NULL, nothing_is_left);
}
