/* Streaming decode: the same text for every cut, whole characters at every moment. */
#include "tok_fixture.h"

/* Tokens 33 .. 126 etc. stand for single bytes: any byte string as ids. */
static void feed_bytes(
	struct detok *d, const struct tokenizer *t, struct bytes text, struct sink *out)
{
	for (size_t i = 0; i < text.len; i++) {
		detok_feed(d, t->byte_id[text.at[i]], out);
		assert_int_equal(utf8_valid_len(sink_bytes(out)), out->len);
	}
}

/* Expected values: Unicode 16, section 3.9, tables 3-8 to 3-11, and their like. */
static void broken_bytes_become_one_replacement_per_maximal_subpart(void **state)
{
#define R "\uFFFD"
	static const struct {
		const char *bytes;
		const char *text;
	} cases[] = {
		{"abc", "abc"},
		{"\xe4\xbd\xa0", "\u4f60"},
		{"\xf0\x9f\x98\x80!", "\U0001F600!"},
		{"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82"
		 "A",
			R R R R R R R R "A"},
		{"\xed\xa0\x80\xed\xbf\xbf\xed\xaf"
		 "A",
			R R R R R R R R "A"},
		{"\xf4\x91\x92\x93\xff"
		 "A\x80\xbf"
		 "B",
			R R R R R "A" R R "B"},
		{"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
		 "A",
			R R R R "A"},
		{"\xc3", R},
		{"\xe4\xbd", R},
		{"\xf0\x9f\x98", R},
		{"\xf0\x9f\x98"
		 "a",
			R "a"},
		{"\xf0\x9f\x98\xf0\x9f\x98\x80", R "\U0001F600"},
		{"\xe4\xe4\xbd\xa0", R "\u4f60"},
		{"\xc3\xc3\xa9", R "\u00e9"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct sink out;
		struct detok d;

		sink_init(&out, 256);
		detok_init(&d, *state, false);
		feed_bytes(&d, *state, bytes_of_str(cases[i].bytes), &out);
		detok_flush(&d, &out);
		assert_string_equal(cases[i].text, sink_cstr(&out));
		/* Flushed, it begins afresh. */
		sink_reset(&out);
		feed_bytes(&d, *state, bytes_of_str("\xc3\xa9"), &out);
		assert_string_equal("\u00e9", sink_cstr(&out));
		sink_release(&out);
	}
}

static void incomplete_characters_are_held_back(void **state)
{
	static const char text[] = "\xf0\x9f\x98\x80";
	struct sink out;
	struct detok d;

	sink_init(&out, 256);
	detok_init(&d, *state, false);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(out.len, 0);
		feed_bytes(
			&d, *state, (struct bytes){(const uint8_t *)text + i, 1}, &out);
	}
	assert_string_equal(text, sink_cstr(&out));
	sink_release(&out);
}

static void special_tokens_are_dropped_when_asked(void **state)
{
	static const uint32_t ids[] = {2024, 0, 2030, 2031, 2025, 0, 999999};
	struct sink out;

	out = decode(*state, ids, COUNT(ids), true);
	assert_string_equal("!<think></think>!", sink_cstr(&out));
	sink_release(&out);
	out = decode(*state, ids, COUNT(ids), false);
	assert_string_equal("<|im_start|>!<think></think><|im_end|>!", sink_cstr(&out));
	sink_release(&out);
}

/* A copy taken in the middle goes on as the original does: a stream may be moved to
 * another owner at every token. */
static void a_copy_at_every_token_gives_the_same_text(void **state)
{
	struct tok_ids ids = encode(*state,
		BYTES_STR("Gr\u00fc\u00dfe \u4f60\u597d \U0001F468\u200d\U0001F469 "
			  "<think>ok"),
		TOK_ADDED);
	struct sink whole = decode(*state, ids.v, ids.n, false);

	for (size_t cut = 0; cut <= ids.n; cut++) {
		struct detok first, second;
		struct sink out;

		sink_init(&out, 1024);
		detok_init(&first, *state, false);
		for (size_t i = 0; i < cut; i++)
			detok_feed(&first, ids.v[i], &out);
		second = first;
		memset(&first, 0xee, sizeof(first));
		for (size_t i = cut; i < ids.n; i++)
			detok_feed(&second, ids.v[i], &out);
		detok_flush(&second, &out);
		check_text(sink_bytes(&whole), sink_bytes(&out));
		sink_release(&out);
	}
	sink_release(&whole);
	tok_ids_release(&ids);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(broken_bytes_become_one_replacement_per_maximal_subpart),
		cmocka_unit_test(incomplete_characters_are_held_back),
		cmocka_unit_test(special_tokens_are_dropped_when_asked),
		cmocka_unit_test(a_copy_at_every_token_gives_the_same_text),
	};

	return cmocka_run_group_tests(tests, load_demo, destroy_demo);
}
