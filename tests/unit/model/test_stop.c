/* Stop strings: where they match, and that the cut of the text does not matter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/model/stop.h"

#include <string.h>

#define STOPS_MAX 4

struct stop_case {
	const char *stops[STOPS_MAX];
	const char *text;
	int matched;
	const char *before; /* text given out, flush included */
};

static const struct stop_case cases[] = {
	{{"x"}, "", -1, ""},
	{{"x"}, "abc", -1, "abc"},
	{{"x"}, "abxc", 0, "ab"},
	{{"END"}, "the EEND of", 0, "the E"},
	{{"END"}, "the EN", -1, "the EN"},
	{{"abcabd"}, "abcabcabd!", 0, "abc"},
	{{"aaab"}, "aaaaaab", 0, "aaa"},
	{{"aab", "ab"}, "xaab", 0, "x"},
	{{"ab", "aab"}, "xaab", 1, "x"},
	{{"abcdef", "cd"}, "abcdef", 1, "ab"},
	{{"same", "same"}, "a same", 0, "a "},
	{{"\n\n", "User:"}, "one\ntwo\n\nUser:", 0, "one\ntwo"},
	{{"\n\nUser:", "\n\nX"}, "a\n\nUse\n\nUser: b", 0, "a\n\nUse"},
	{{"abab"}, "abaabab", 0, "aba"},
	{{"ababac", "bab"}, "ababac", 1, "a"},
	{{"\u00e9\u00e8"}, "caf\u00e9\u00e9\u00e8.", 0, "caf\u00e9"},
	{{"</s>", "<|", "stop", "."}, "a<b</s", -1, "a<b</s"},
	{{"</s>", "<|", "stop", "."}, "a sto stop.", 2, "a sto "},
};

static void make_set(const struct stop_case *c, struct stop_set *set)
{
	struct err err;

	stop_set_init(set);
	for (size_t i = 0; i < STOPS_MAX && c->stops[i] != NULL; i++)
		assert_int_equal(
			stop_set_add(set, bytes_of_str(c->stops[i]), &err), ST_OK);
}

/* After every feed what was given out begins the final answer. */
static void feed_part(struct stop *s, const struct stop_case *c, size_t from, size_t to,
	struct sink *out)
{
	struct bytes part = {(const uint8_t *)c->text + from, to - from};
	int matched = stop_feed(s, part, out);

	assert_int_equal(matched, s->matched);
	assert_true(out->len <= strlen(c->before));
	assert_int_equal(strncmp(c->before, sink_cstr(out), out->len), 0);
}

static void finish_and_check(struct stop *s, const struct stop_case *c, struct sink *out)
{
	stop_flush(s, out);
	assert_int_equal(s->matched, c->matched);
	assert_string_equal(c->before, sink_cstr(out));
	sink_reset(out);
}

static void every_cut_in_three_gives_the_same_answer(void **state)
{
	struct stop_set set;
	struct sink out;
	struct stop s;

	(void)state;
	sink_init(&out, 4096);
	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct stop_case *c = &cases[i];
		size_t n = strlen(c->text);

		make_set(c, &set);
		for (size_t a = 0; a <= n; a++) {
			for (size_t b = a; b <= n; b++) {
				stop_init(&s, &set);
				feed_part(&s, c, 0, a, &out);
				feed_part(&s, c, a, b, &out);
				feed_part(&s, c, b, n, &out);
				finish_and_check(&s, c, &out);
			}
		}
	}
	sink_release(&out);
}

static void byte_by_byte_gives_the_same_answer(void **state)
{
	struct stop_set set;
	struct sink out;
	struct stop s;

	(void)state;
	sink_init(&out, 4096);
	for (size_t i = 0; i < COUNT(cases); i++) {
		make_set(&cases[i], &set);
		stop_init(&s, &set);
		for (size_t a = 0; a < strlen(cases[i].text); a++)
			feed_part(&s, &cases[i], a, a + 1, &out);
		finish_and_check(&s, &cases[i], &out);
	}
	sink_release(&out);
}

/* The plain definition: the least end, then the greatest length, then the least index. */
static int search(
	const struct stop_set *set, const uint8_t *text, size_t n, size_t *before)
{
	int found = -1;

	for (size_t end = 1; end <= n && found < 0; end++) {
		size_t longest = 0;

		for (uint32_t s = 0; s < set->n; s++) {
			size_t len = set->len[s];

			if (len <= end && len > longest &&
				memcmp(text + end - len, set->text[s], len) == 0) {
				found = (int)s;
				longest = len;
			}
		}
		*before = end - longest;
	}
	if (found < 0)
		*before = n;
	return found;
}

static uint32_t draw(uint64_t *seed, uint32_t below)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*seed >> 33) % below;
}

/* Two letters only, so that strings overlap each other all the time. */
static void fill(uint8_t *text, size_t n, uint64_t *seed)
{
	for (size_t i = 0; i < n; i++)
		text[i] = (uint8_t)('a' + draw(seed, 2));
}

static void random_texts_agree_with_a_plain_search(void **state)
{
	uint64_t seed = 5;
	unsigned found = 0;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		struct stop_set set;
		uint8_t text[96];
		struct stop s;
		struct sink out;
		struct err err;
		size_t n = draw(&seed, sizeof(text)), before, at = 0;
		int want;

		stop_set_init(&set);
		for (uint32_t k = 1 + draw(&seed, 4); k > 0; k--) {
			fill(text, sizeof(text), &seed);
			assert_int_equal(
				stop_set_add(&set,
					(struct bytes){text, 4 + draw(&seed, 12)}, &err),
				ST_OK);
		}
		fill(text, sizeof(text), &seed);
		want = search(&set, text, n, &before);
		found += want >= 0;
		sink_init(&out, 256);
		stop_init(&s, &set);
		while (at < n) {
			size_t part = 1 + draw(&seed, 9);

			part = MIN(part, n - at);
			stop_feed(&s, (struct bytes){text + at, part}, &out);
			at += part;
		}
		stop_flush(&s, &out);
		assert_int_equal(s.matched, want);
		assert_int_equal(out.len, before);
		assert_memory_equal(sink_cstr(&out), text, before);
		sink_release(&out);
	}
	assert_in_range(found, 5000, 19999);
}

static void nothing_is_held_that_cannot_begin_a_match(void **state)
{
	struct stop_set set;
	struct sink out;
	struct stop s;

	(void)state;
	make_set(&(struct stop_case){.stops = {"</s>", "STOP"}}, &set);
	sink_init(&out, 256);
	stop_init(&s, &set);
	stop_feed(&s, BYTES_STR("hello <"), &out);
	assert_string_equal("hello ", sink_cstr(&out));
	stop_feed(&s, BYTES_STR("/"), &out);
	stop_feed(&s, (struct bytes){NULL, 0}, &out);
	assert_string_equal("hello ", sink_cstr(&out));
	stop_feed(&s, BYTES_STR("p>"), &out);
	assert_string_equal("hello </p>", sink_cstr(&out));
	sink_release(&out);
}

static void text_behind_a_match_is_dropped(void **state)
{
	struct stop_set set;
	struct sink out;
	struct stop s;

	(void)state;
	make_set(&(struct stop_case){.stops = {"b"}}, &set);
	sink_init(&out, 256);
	stop_init(&s, &set);
	assert_int_equal(stop_feed(&s, BYTES_STR("abc"), &out), 0);
	assert_int_equal(stop_feed(&s, BYTES_STR("def"), &out), 0);
	stop_flush(&s, &out);
	assert_string_equal("a", sink_cstr(&out));
	sink_release(&out);
}

static void longest_strings_fit_and_longer_are_refused(void **state)
{
	uint8_t text[STOP_BYTES_MAX + 1];
	struct stop_set set;
	struct sink out;
	struct stop s;
	struct err err;

	(void)state;
	memset(text, 'a', sizeof(text));
	stop_set_init(&set);
	assert_int_equal(stop_set_add(&set, (struct bytes){text, 0}, &err), ST_INVALID);
	assert_int_equal(
		stop_set_add(&set, (struct bytes){text, sizeof(text)}, &err), ST_LIMIT);
	assert_non_null(strstr(err.text, "257 bytes"));
	for (uint32_t i = 0; i < STOP_STRINGS_MAX; i++)
		assert_int_equal(
			stop_set_add(&set, (struct bytes){text, STOP_BYTES_MAX}, &err),
			ST_OK);
	assert_int_equal(stop_set_add(&set, BYTES_STR("b"), &err), ST_LIMIT);
	assert_int_equal(set.n, STOP_STRINGS_MAX);
	sink_init(&out, 4096);
	stop_init(&s, &set);
	for (size_t i = 0; i < STOP_BYTES_MAX - 1; i++)
		assert_int_equal(stop_feed(&s, BYTES_STR("a"), &out), -1);
	assert_int_equal(out.len, 0);
	assert_int_equal(stop_feed(&s, BYTES_STR("ba"), &out), -1);
	assert_int_equal(out.len, STOP_BYTES_MAX);
	assert_int_equal(
		stop_feed(&s, (struct bytes){text, STOP_BYTES_MAX - 1}, &out), 0);
	assert_int_equal(out.len, STOP_BYTES_MAX);
	sink_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_cut_in_three_gives_the_same_answer),
		cmocka_unit_test(byte_by_byte_gives_the_same_answer),
		cmocka_unit_test(random_texts_agree_with_a_plain_search),
		cmocka_unit_test(nothing_is_held_that_cannot_begin_a_match),
		cmocka_unit_test(text_behind_a_match_is_dropped),
		cmocka_unit_test(longest_strings_fit_and_longer_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
