/* The tables that code points and bytes go through: classes, NFC, byte alphabet, masks.
 */
#include "tok_fixture.h"

#include <stdlib.h>
#include <utf8proc.h>

/* Whether our NFC of these code points is the library's; if not, it must have left them
 * exactly as they stood. */
static bool same_nfc(const uint32_t *cp, size_t n)
{
	utf8proc_uint8_t *theirs;
	struct sink text, ours;
	bool same;

	sink_init(&text, 64);
	for (size_t i = 0; i < n; i++)
		put_cp(&text, cp[i]);
	ours = nfc(sink_bytes(&text));
	theirs = utf8proc_NFC((const utf8proc_uint8_t *)sink_cstr(&text));
	same = strcmp((const char *)theirs, sink_cstr(&ours)) == 0;
	if (!same)
		check_text(sink_bytes(&text), sink_bytes(&ours));
	free(theirs);
	sink_release(&text);
	sink_release(&ours);
	return same;
}

/* Every code point, among marks of the lowest and highest class and behind characters
 * that compose with many: so no block that is skipped as plain holds one that changes. */
static void nfc_is_the_library_s_but_for_the_inert(void **state)
{
	static const uint32_t bases[] = {'a', 0x304b, 0xac00};
	unsigned inert_seen = 0;

	(void)state;
	for (uint32_t cp = 1; cp < 0x110000; cp++) {
		const uint32_t marked[] = {'a', 0x0345, cp, 0x0334, 0x11a8};

		if (cp >= 0xd800 && cp < 0xe000)
			continue;
		inert_seen += !same_nfc(marked, COUNT(marked));
		for (size_t i = 0; i < COUNT(bases); i++) {
			const uint32_t pair[] = {bases[i], cp};

			assert_true(same_nfc(pair, 2));
		}
	}
	/* utf8proc 2.8 (Unicode 15.0) reorders 108 that `tokenizers` does not; later
	 * versions know more. */
	assert_in_range(inert_seen, 108, 221);
}

static void classes_are_those_of_unicode(void **state)
{
	static const struct {
		uint32_t cp;
		enum tok_class class;
	} cases[] = {
		{0, TOK_OTHER},
		{'a', TOK_L},
		{'Z', TOK_L},
		{'@', TOK_OTHER},
		{'[', TOK_OTHER},
		{'`', TOK_OTHER},
		{'{', TOK_OTHER},
		{'0', TOK_N},
		{'9', TOK_N},
		{':', TOK_OTHER},
		{'/', TOK_OTHER},
		{8, TOK_OTHER},
		{9, TOK_S},
		{13, TOK_S},
		{14, TOK_OTHER},
		{0x1f, TOK_OTHER},
		{0x20, TOK_S},
		{0x85, TOK_S},
		{0xa0, TOK_S},
		{0xaa, TOK_L},
		{0x1680, TOK_S},
		{0x180e, TOK_OTHER},
		{0x200a, TOK_S},
		{0x200b, TOK_OTHER},
		{0x2029, TOK_S},
		{0x202f, TOK_S},
		{0x205f, TOK_S},
		{0x3000, TOK_S},
		{0xfeff, TOK_OTHER},
		{0x0300, TOK_M},
		{0x0903, TOK_M},
		{0x20dd, TOK_M},
		{0x2160, TOK_N},
		{0x3007, TOK_N},
		{0x4e00, TOK_L},
		{0x10ffff, TOK_OTHER},
		{0x1c89, TOK_L},  /* new in 16.0 */
		{0x10d40, TOK_N}, /* new in 16.0 */
		{0xe0100, TOK_M},
		{0xe01f0, TOK_OTHER},
		{0x1f600, TOK_OTHER},
	};
	unsigned count[TOK_S + 1] = {0};

	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++)
		assert_int_equal(tok_class_of(cases[i].cp), cases[i].class);
	for (uint32_t cp = 0; cp < 0x110000; cp++)
		count[tok_class_of(cp)]++;
	/* DerivedGeneralCategory of Unicode 16.0; 25 characters are White_Space. */
	assert_int_equal(count[TOK_L], 141028);
	assert_int_equal(count[TOK_M], 2501);
	assert_int_equal(count[TOK_N], 1911);
	assert_int_equal(count[TOK_S], 25);
}

static void every_byte_has_one_character_of_the_alphabet(void **state)
{
	bool seen[256] = {false};
	unsigned n_seen = 0;

	(void)state;
	for (uint32_t cp = 0; cp < 0x110000; cp++) {
		uint8_t text[4], byte[4];
		size_t n;

		if (!tok_vocab_bytes(
			    (struct bytes){text, utf8_write(cp, text)}, byte, &n))
			continue;
		assert_int_equal(n, 1);
		assert_false(seen[byte[0]]);
		seen[byte[0]] = true;
		n_seen++;
	}
	assert_int_equal(n_seen, 256);
}

static void every_byte_has_a_token_of_its_own(void **state)
{
	const struct tokenizer *t = *state;

	for (unsigned b = 0; b < 256; b++) {
		/* GPT-2's order: printable bytes first, then the others. */
		uint32_t want = b >= 33 && b <= 126    ? b - 33
				: b >= 161 && b <= 172 ? b - 67
				: b >= 174             ? b - 68
				: b <= 32              ? b + 188
				: b == 127             ? 221
				: b == 173             ? 255
						       : b + 94;

		assert_int_equal(t->byte_id[b], want);
		assert_int_equal(tokenizer_token_bytes(t, want).len, 1);
		assert_int_equal(tokenizer_token_bytes(t, want).at[0], b);
	}
}

static void runs_of_marks_are_halved(void **state)
{
	(void)state;
	for (size_t k = 0; k < 7; k++) {
		struct sink text, want, got;
		struct err err;

		sink_init(&text, 256);
		sink_init(&want, 256);
		sink_init(&got, 256);
		sink_str(&text, "<");
		sink_str(&want, "<");
		for (size_t i = 0; i < k; i++)
			sink_str(&text, TOK_MASK_UTF8);
		for (size_t i = 0; i < k / 2; i++)
			sink_str(&want, TOK_MASK_UTF8);
		/* U+10FFFF shares three bytes with the mark. */
		sink_str(&text, "\xF4\x8F\xBF\xBF");
		sink_str(&want, "\xF4\x8F\xBF\xBF");
		CHECK_OK(tok_norm_unmask(sink_bytes(&text), &got, &err));
		check_text(sink_bytes(&want), sink_bytes(&got));
		sink_release(&text);
		sink_release(&want);
		sink_release(&got);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nfc_is_the_library_s_but_for_the_inert),
		cmocka_unit_test(classes_are_those_of_unicode),
		cmocka_unit_test(every_byte_has_one_character_of_the_alphabet),
		cmocka_unit_test(every_byte_has_a_token_of_its_own),
		cmocka_unit_test(runs_of_marks_are_halved),
	};

	return cmocka_run_group_tests(tests, load_demo, destroy_demo);
}
