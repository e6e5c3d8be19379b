/* Properties of encoding: what comes back, where pieces end, what masks do, how much
 * work it is. */
#include "tok_fixture.h"

/* Numerical Recipes' 64-bit generator: enough for inputs, the same everywhere. */
static uint64_t draw(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *seed >> 33;
}

/* Any scalar value, planes with few characters as often as the first. */
static uint32_t draw_cp(uint64_t *seed)
{
	static const uint32_t tops[] = {0x80, 0x250, 0x3000, 0x10000, 0x20000, 0x110000};
	uint32_t cp = (uint32_t)(draw(seed) % tops[draw(seed) % COUNT(tops)]);

	return cp >= 0xd800 && cp < 0xe000 ? ' ' : cp;
}

static void decoding_gives_the_normalised_text_back(void **state)
{
	uint64_t seed = 1;

	for (int round = 0; round < 3000; round++) {
		struct sink text, normal, back;
		struct tok_ids ids;

		sink_init(&text, 1u << 20);
		for (uint64_t n = draw(&seed) % 40; n > 0; n--)
			put_cp(&text, draw_cp(&seed));
		normal = nfc(sink_bytes(&text));
		ids = encode(*state, sink_bytes(&text), 0);
		back = decode(*state, ids.v, ids.n, false);
		check_text(sink_bytes(&normal), sink_bytes(&back));
		tok_ids_release(&ids);
		ids = encode(*state, sink_bytes(&normal), 0);
		sink_release(&back);
		back = decode(*state, ids.v, ids.n, false);
		check_text(sink_bytes(&normal), sink_bytes(&back));
		tok_ids_release(&ids);
		sink_release(&text);
		sink_release(&normal);
		sink_release(&back);
	}
}

/* Pieces are shown with | between. Expected values follow from the expressions. */
static void pieces_end_where_the_expression_says(void **state)
{
	static const struct {
		const char *text;
		const char *qwen35;
		const char *qwen2; /* NULL: the same */
	} cases[] = {
		{"Hello world", "Hello| world", NULL},
		{"don't DON'T", "don|'t| DON|'T", NULL},
		{"'s'S'\u017f's1'll'LL'x", "'s|'S|'\u017f|'s|1|'ll|'LL|'x", NULL},
		{"'r 're'v've'l", "'r| '|re|'v|'ve|'l", NULL},
		{"''s", "''|s", NULL},
		{"'sx'tx'mx'dx", "'s|x|'t|x|'m|x|'d|x", NULL},
		{"'rex'vex'llx'\u017fx'lex", "'re|x|'ve|x|'ll|x|'\u017f|x|'lex", NULL},
		{"a'", "a|'", NULL},
		{"12 345", "1|2| |3|4|5", NULL},
		{"x\u0663\u00b2\u2167", "x|\u0663|\u00b2|\u2167", NULL},
		{"  a", " | a", NULL},
		{"  1", " | |1", NULL},
		{"   \n  b", "   \n| | b", NULL},
		{"a\r\n\r\n b", "a|\r\n\r\n| b", NULL},
		{"a\n", "a|\n", NULL},
		{"\t\tx", "\t|\tx", NULL},
		{"a   ", "a|   ", NULL},
		{"\u3000\u3000x", "\u3000|\u3000x", NULL},
		{"\xc2\x85\u00a0", "\xc2\x85\u00a0", NULL},
		{"\x1c\u200bx", "\x1c\u200b|x", NULL},
		{"\x1cx\u180ey", "\x1cx|\u180ey", NULL},
		{"();\n\nx", "();\n\n|x", NULL},
		{" ...\r\n x", " ...\r\n| x", NULL},
		{"-x --x", "-x| --|x", NULL},
		{"\nx", "\n|x", NULL},
		/* U+0302 does not compose with q: a mark inside a word. */
		{"q\u0302r", "q\u0302r", "q|\u0302r"},
		{"q\u0302\u0302", "q\u0302\u0302", "q|\u0302\u0302"},
		{"\u0302\u0302x", "\u0302\u0302x", "\u0302\u0302|x"},
		{" \u0302", " \u0302", NULL},
		{"!\u0302", "!\u0302", NULL},
		{"1\u0302", "1|\u0302", NULL},
		{"\n\u0302", "\n|\u0302", NULL},
	};

	(void)state;
	for (size_t i = 0; i < 2 * COUNT(cases); i++) {
		enum tok_split split = i % 2 == 0 ? TOK_SPLIT_QWEN35 : TOK_SPLIT_QWEN2;
		const char *want = cases[i / 2].qwen35;
		struct bytes text = bytes_of_str(cases[i / 2].text);
		struct sink got;

		if (split == TOK_SPLIT_QWEN2 && cases[i / 2].qwen2 != NULL)
			want = cases[i / 2].qwen2;
		sink_init(&got, 1024);
		while (text.len > 0) {
			size_t n = tok_split_next(split, text);

			assert_in_range(n, 1, text.len);
			sink_str(&got, got.len > 0 ? "|" : "");
			sink_put(&got, text.at, n);
			text = (struct bytes){text.at + n, text.len - n};
		}
		assert_string_equal(want, sink_cstr(&got));
		sink_release(&got);
	}
}

static void added_tokens_are_found_only_when_asked_for(void **state)
{
	static const struct {
		const char *text;
		unsigned flags;
		const char *ids;
	} cases[] = {
		{"<|im_end|>", TOK_ADDED, "2025"},
		{"<|im_end|><|im_end|>", TOK_ADDED, "2025 2025"},
		{"<<|im_end|>>", TOK_ADDED, "27 2025 29"},
		{"<think></think>", TOK_ADDED, "2030 2031"},
		{"", TOK_ADDED, ""},
		{"", 0, ""},
		{"!", TOK_ADDED | TOK_MASKED, "0"},
		/* A masked special token is text, an unmasked one beside it is not. */
		{"<|im_end|>!", TOK_ADDED | TOK_MASKED, "2025 0"},
		{"!" TOK_MASK_UTF8 "!", TOK_MASKED, "0 0"},
	};
	struct tok_ids ids, masked;

	for (size_t i = 0; i < COUNT(cases); i++) {
		ids = encode(*state, bytes_of_str(cases[i].text), cases[i].flags);
		check_ids(cases[i].ids, &ids);
		tok_ids_release(&ids);
	}
	ids = encode(*state, BYTES_STR("a<|im_end|>b"), 0);
	masked = encode(*state, BYTES_STR("a<" TOK_MASK_UTF8 "|im_end|>b"),
		TOK_ADDED | TOK_MASKED);
	assert_true(ids.n > 3);
	assert_int_equal(ids.n, masked.n);
	assert_memory_equal(ids.v, masked.v, ids.n * sizeof(*ids.v));
	tok_ids_release(&ids);
	tok_ids_release(&masked);
}

static void broken_utf8_is_refused_with_its_offset(void **state)
{
	static const struct {
		const char *text;
		const char *offset;
	} cases[] = {
		{"\x80", "byte 0"},
		{"abc\xff", "byte 3"},
		{"a\xc3", "byte 1"},
		{"\xc0\x80", "byte 0"},
		{"\xe4\xbd\xa0\xed\xa0\x80", "byte 3"},
		{"\xf4\x90\x80\x80", "byte 0"},
		{"<|im_end|>\xfe", "byte 10"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct tok_ids ids;
		struct err err;

		tok_ids_init(&ids, 100);
		assert_int_equal(tokenizer_encode(*state, bytes_of_str(cases[i].text),
					 TOK_ADDED, &ids, &err),
			ST_INVALID);
		assert_non_null(strstr(err.text, cases[i].offset));
		assert_int_equal(ids.n, 0);
		tok_ids_release(&ids);
	}
}

static void the_maximum_holds_and_failure_takes_nothing_back(void **state)
{
	struct tok_ids ids;
	struct err err;

	tok_ids_init(&ids, 3);
	CHECK_OK(tokenizer_encode(*state, BYTES_STR("1"), 0, &ids, &err));
	assert_int_equal(
		tokenizer_encode(*state, BYTES_STR("123"), TOK_ADDED, &ids, &err),
		ST_LIMIT);
	assert_non_null(strstr(err.text, "3 tokens"));
	assert_int_equal(ids.n, 1);
	CHECK_OK(tokenizer_encode(*state, BYTES_STR("23"), 0, &ids, &err));
	check_ids("16 17 18", &ids);
	assert_int_equal(
		tokenizer_encode(*state, BYTES_STR("<think>"), TOK_ADDED, &ids, &err),
		ST_LIMIT);
	assert_int_equal(ids.n, 3);
	tok_ids_release(&ids);
}

static void want_of_memory_is_reported_and_leaves_nothing(void **state)
{
	struct sink text;
	unsigned refused = 0, done = 0;

	sink_init(&text, 1u << 16);
	for (int i = 0; i < 500; i++)
		sink_str(&text, "abcdefghijk\u0301\u0316\u0334");
	for (uint64_t budget = 0; budget < (1u << 20); budget += 2999) {
		uint64_t before = mem_taken();
		struct tok_ids ids;
		struct err err;
		status st;

		tok_ids_init(&ids, SIZE_MAX);
		mem_budget(before + budget);
		st = tokenizer_encode(*state, sink_bytes(&text), TOK_ADDED, &ids, &err);
		mem_budget(UINT64_C(1) << 30);
		if (st != ST_OK) {
			assert_int_equal(st, ST_NOMEM);
			assert_int_equal(ids.n, 0);
			refused++;
		} else {
			done++;
		}
		tok_ids_release(&ids);
		assert_int_equal(mem_taken(), before);
	}
	assert_true(refused > 10 && done > 10);
	sink_release(&text);
}

/* Heap entries count the work of a piece: at most three a byte, whatever stands in it. */
static void work_of_a_long_piece_is_linear_but_for_the_heap(void **state)
{
	const size_t n = 1000000;
	uint8_t *text = mem_take(n, 1);
	uint64_t seed = 3;

	for (int kind = 0; kind < 3; kind++) {
		struct tok_work work = {0};
		struct tok_ids ids;
		struct err err;

		for (size_t i = 0; i < n; i++)
			text[i] = (uint8_t)(kind == 0   ? 'a'
					    : kind == 1 ? ' '
							: 'a' + draw(&seed) % 26);
		tok_ids_init(&ids, n);
		CHECK_OK(tok_bpe_encode(
			*state, &work, (struct bytes){text, n}, &ids, &err));
		assert_true(ids.n > 0);
		assert_true(work.n_pushed <= 3 * n);
		tok_work_release(&work);
		tok_ids_release(&ids);
	}
	mem_give(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decoding_gives_the_normalised_text_back),
		cmocka_unit_test(pieces_end_where_the_expression_says),
		cmocka_unit_test(added_tokens_are_found_only_when_asked_for),
		cmocka_unit_test(broken_utf8_is_refused_with_its_offset),
		cmocka_unit_test(the_maximum_holds_and_failure_takes_nothing_back),
		cmocka_unit_test(want_of_memory_is_reported_and_leaves_nothing),
		cmocka_unit_test(work_of_a_long_piece_is_linear_but_for_the_heap),
	};

	return cmocka_run_group_tests(tests, load_demo, destroy_demo);
}
