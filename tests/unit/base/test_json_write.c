/* The JSON writer, and numbers and messages of values that were read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/json.h"
#include "common/base/json_write.h"
#include "common/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct json_limits WIDE = {JSON_DEPTH_MAX, UINT32_MAX, true};

static int nothing_is_left(void **state)
{
	(void)state;
	mem_budget(UINT64_C(1) << 30);
	assert_int_equal(mem_taken(), 0);
	return 0;
}

/* A document over its own copy of the text, which stands in a static buffer. */
static struct json_doc doc_of(const char *text)
{
	static uint8_t copy[4096];
	struct json_doc doc;
	struct err err;

	assert_in_range(strlen(text), 1, sizeof(copy) - 1);
	memcpy(copy, text, strlen(text) + 1);
	assert_int_equal(json_read(&doc, copy, strlen(text), &WIDE, &err), ST_OK);
	return doc;
}

static void whole_numbers_are_exact_however_they_are_spelled(void **state)
{
	static const struct {
		const char *text;
		int64_t want;
	} whole[] = {
		{"5", 5},
		{"5.0", 5},
		{"5e0", 5},
		{"50e-1", 5},
		{"0.05e2", 5},
		{"0.0", 0},
		{"-0", 0},
		{"0e999999999999999999999", 0},
		{"1200", 1200},
		{"12.50e1", 125},
		{"-7.000000000000000000000000000000", -7},
		{"9223372036854775807", INT64_MAX},
		{"-9223372036854775808", INT64_MIN},
		{"922337203685477580.7e1", INT64_MAX},
		{"9007199254740993", 9007199254740993},
		{"1e18", 1000000000000000000},
	};
	static const char *const not_whole[] = {"5.5", "1e-1", "9223372036854775808",
		"-9223372036854775809", "1e19", "18446744073709551616", "1e400",
		"1e-999999999999999999999", "1e99999999999999999999999", "NaN",
		"-Infinity", "\"5\"", "true", "[5]", "1000000000000000019884624838656"};
	int64_t v;

	(void)state;
	for (size_t i = 0; i < COUNT(whole); i++) {
		struct json_doc doc = doc_of(whole[i].text);

		if (!json_i64(doc.values, &v) || v != whole[i].want)
			fail_msg("%s is not %lld", whole[i].text,
				(long long)whole[i].want);
		json_release(&doc);
	}
	for (size_t i = 0; i < COUNT(not_whole); i++) {
		struct json_doc doc = doc_of(not_whole[i]);

		if (json_i64(doc.values, &v))
			fail_msg("%s became %lld", not_whole[i], (long long)v);
		json_release(&doc);
	}
	assert_false(json_i64(NULL, &v));
}

static void doubles_are_the_nearest_and_finite(void **state)
{
	double v = 7;
	struct json_doc doc = doc_of("[0.1, -1.5E+3, 9007199254740993, 5e-324, 1e-400, "
				     "1e400, -1e400, NaN, Infinity, \"1\", 12]");

	(void)state;
	assert_true(json_f64(json_item(doc.values, 0), &v) && v == 0.1);
	assert_true(json_f64(json_item(doc.values, 1), &v) && v == -1500);
	assert_true(json_f64(json_item(doc.values, 2), &v) && v == 9007199254740992);
	assert_true(json_f64(json_item(doc.values, 3), &v) && v == 5e-324);
	assert_true(json_f64(json_item(doc.values, 4), &v) && v == 0);
	v = 7;
	for (uint32_t i = 5; i < 10; i++)
		assert_false(json_f64(json_item(doc.values, i), &v));
	assert_true(v == 7);
	assert_true(json_f64(json_item(doc.values, 10), &v) && v == 12);
	assert_false(json_f64(NULL, &v));
	json_release(&doc);
}

static void what_passes_through_keeps_every_digit_and_order(void **state)
{
	struct json_doc doc = doc_of(
		" {\"b\" : [ 1.50, 18446744073709551615, -0.0e+07 , 1e400, NaN], \"a\":"
		"{ \"\\u0000\\u001f\\u007f\\u2028\\u2029\\u2030\\n\\r\\t\\b\\\"\\\\\\/\" "
		": {} } , \"\" : [ [ ] , null,true,false ] } ");
	struct json_out w;
	struct sink out;

	(void)state;
	sink_init(&out, 4096);
	json_out_init(&w, &out);
	json_put(&w, doc.values);
	assert_string_equal(sink_cstr(&out),
		"{\"b\":[1.50,18446744073709551615,-0.0e+07,1e400,NaN],\"a\":{"
		"\"\\u0000\\u001f\\u007f\\u2028\\u2029\xe2\x80\xb0\\n\\r\\t\\u0008\\\""
		"\\\\/\":{}},\"\":[[],null,true,false]}");
	sink_release(&out);
	json_release(&doc);
}

static void commas_and_nesting_come_by_themselves(void **state)
{
	struct json_doc doc = doc_of("{\"x\":[1.0]}");
	struct json_out w;
	struct sink out;

	(void)state;
	sink_init(&out, 4096);
	json_out_init(&w, &out);
	json_open(&w, '{');
	json_add_text(&w, "t", "a\"b");
	json_add_bytes(&w, "y", BYTES_STR("a\0b"));
	json_add_u64(&w, "u", UINT64_MAX);
	json_add_i64(&w, "i", INT64_MIN);
	json_add_f64(&w, "f", 0.1);
	json_add_bool(&w, "o", true);
	json_add_null(&w, "n");
	json_name(&w, "l");
	json_open(&w, '[');
	json_put(&w, doc.values);
	json_open(&w, '[');
	json_close(&w);
	json_open(&w, '{');
	json_close(&w);
	json_put_raw(&w, BYTES_STR("[7]"));
	json_put_null(&w);
	json_put_pieces(&w, BYTES_STR("a\xe2\x82\xff"));
	json_close(&w);
	json_name(&w, "e\n");
	json_put_bool(&w, false);
	json_name_bytes(&w, BYTES_STR("z\0"));
	json_put_u64(&w, 0);
	json_close(&w);
	assert_string_equal(sink_cstr(&out),
		"{\"t\":\"a\\\"b\",\"y\":\"a\\u0000b\",\"u\":18446744073709551615,"
		"\"i\":-9223372036854775808,\"f\":0.1,\"o\":true,\"n\":null,"
		"\"l\":[{\"x\":[1.0]},[],{},[7],null,"
		"\"a\xef\xbf\xbd\xef\xbf\xbd\"],\"e\\n\":false,\"z\\u0000\":0}");
	sink_release(&out);
	json_release(&doc);
}

static void doubles_are_written_short_and_read_back(void **state)
{
	static const struct {
		double v;
		const char *want;
	} cases[] = {{0.1, "0.1"}, {1e20, "1e+20"}, {-2.5, "-2.5"}, {3, "3"},
		{1.0 / 3, "0.3333333333333333"}, {0.1 + 0.2, "0.30000000000000004"},
		{5e-324, "4.94065645841247e-324"}, {1.7976931348623157e308, NULL},
		{(double)NAN, "null"}, {(double)INFINITY, "null"}};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct json_out w;
		struct sink out;

		sink_init(&out, 100);
		json_out_init(&w, &out);
		json_put_f64(&w, cases[i].v);
		if (isfinite(cases[i].v))
			assert_true(strtod(sink_cstr(&out), NULL) == cases[i].v);
		if (cases[i].want != NULL)
			assert_string_equal(sink_cstr(&out), cases[i].want);
		sink_release(&out);
	}
}

static void what_does_not_fit_shows_as_full(void **state)
{
	struct json_doc doc = doc_of("[\"long enough to need more than one piece\", 1]");
	struct json_out w;
	struct sink out;

	(void)state;
	for (size_t max = 0; max < 44; max++) {
		sink_init(&out, max);
		json_out_init(&w, &out);
		json_put(&w, doc.values);
		assert_true(out.full);
		sink_release(&out);
	}
	mem_budget(mem_taken());
	sink_init(&out, 1000);
	json_out_init(&w, &out);
	json_put_pieces(&w, BYTES_STR("abc"));
	assert_true(out.full);
	sink_release(&out);
	json_release(&doc);
	mem_budget(UINT64_C(1) << 30);
}

static void a_message_shows_a_value_cut_at_a_whole_character(void **state)
{
	struct json_doc doc =
		doc_of("{\"a\": [1, \"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\"]}");
	char shown[40], *all = "{\"a\":[1,\"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\"]}";

	(void)state;
	assert_string_equal(json_show(doc.values, shown, sizeof(shown)), all);
	assert_string_equal(json_show(doc.values, shown, strlen(all) + 1), all);
	assert_string_equal(json_show(doc.values, shown, strlen(all)),
		"{\"a\":[1,\"\xc3\xa9\xc3\xa9\xc3\xa9...");
	assert_string_equal(json_show(doc.values, shown, 15), "{\"a\":[1,\"\xc3\xa9...");
	assert_string_equal(json_show(doc.values, shown, 14), "{\"a\":[1,\"...");
	assert_string_equal(json_show(doc.values, shown, 9), "{\"a\":...");
	json_release(&doc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_numbers_are_exact_however_they_are_spelled),
		cmocka_unit_test(doubles_are_the_nearest_and_finite),
		cmocka_unit_test(what_passes_through_keeps_every_digit_and_order),
		cmocka_unit_test(commas_and_nesting_come_by_themselves),
		cmocka_unit_test(doubles_are_written_short_and_read_back),
		cmocka_unit_test(what_does_not_fit_shows_as_full),
		cmocka_unit_test(a_message_shows_a_value_cut_at_a_whole_character),
	};

	return cmocka_run_group_tests(tests, NULL, nothing_is_left);
}
