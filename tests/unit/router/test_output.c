/* Tokens to text, reasoning and content: the demo model's own answers, then borders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "router/output.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define DEMO_MODEL    BATON_SOURCE_DIR "/deploy/demo-model"
#define CONVERSATIONS BATON_SOURCE_DIR "/tests/golden/demo_conversations.jsonl"
#define TEXT_MAX      (1u << 20)
#define THINK_END     "\n</think>\n\n"

static struct tokenizer *demo;

static int load_demo(void **state)
{
	struct err err;

	(void)state;
	if (tokenizer_load(&demo, DEMO_MODEL, &err) != ST_OK)
		fail_msg("%s", err.text);
	return 0;
}

static int destroy_demo(void **state)
{
	(void)state;
	tokenizer_destroy(demo);
	assert_int_equal(mem_taken(), 0);
	return 0;
}

struct result {
	struct sink reasoning, content;
	int hit;
	uint32_t n_reasoning_tokens;
};

/* Takes text after every `each` tokens (0: only at the end), as a stream would. */
static struct result read_ids(enum output_mode mode, const uint32_t *ids, size_t n,
	const struct stop_set *stop, size_t each)
{
	struct result r = {.hit = -1};
	struct output o;

	sink_init(&r.reasoning, TEXT_MAX);
	sink_init(&r.content, TEXT_MAX);
	output_init(&o, demo, mode, stop, TEXT_MAX);
	for (size_t i = 0; i < n && r.hit < 0; i++) {
		r.hit = output_feed(&o, ids[i]);
		if (each == 0 || (i + 1) % each != 0)
			continue;
		sink_put(&r.reasoning, o.reasoning.at, o.reasoning.len);
		sink_put(&r.content, o.content.at, o.content.len);
		sink_reset(&o.reasoning);
		sink_reset(&o.content);
	}
	if (r.hit < 0)
		output_finish(&o);
	sink_put(&r.reasoning, o.reasoning.at, o.reasoning.len);
	sink_put(&r.content, o.content.at, o.content.len);
	r.n_reasoning_tokens = o.n_reasoning_tokens;
	assert_false(r.reasoning.full || r.content.full);
	output_release(&o);
	return r;
}

static void release(struct result *r)
{
	sink_release(&r->reasoning);
	sink_release(&r->content);
}

static struct tok_ids encode(const char *text)
{
	struct tok_ids ids;
	struct err err;

	tok_ids_init(&ids, SIZE_MAX);
	if (tokenizer_encode(demo, bytes_of_str(text), TOK_ADDED, &ids, &err) != ST_OK)
		fail_msg("%s", err.text);
	return ids;
}

static void check_text(enum output_mode mode, const char *text, const char *reasoning,
	const char *content)
{
	struct tok_ids ids = encode(text);
	struct stop_set none;

	stop_set_init(&none);
	for (size_t each = 0; each < 4; each++) {
		struct result r = read_ids(mode, ids.v, ids.n, &none, each);

		assert_string_equal(sink_cstr(&r.reasoning), reasoning);
		assert_string_equal(sink_cstr(&r.content), content);
		release(&r);
	}
	tok_ids_release(&ids);
}

/* ---- the model's own answers ---- */

static void check_row(const json_t *row)
{
	const json_t *ids = json_object_get(row, "greedy_ids");
	const char *want = json_string_value(json_object_get(row, "greedy_text"));
	bool thinks = json_is_true(json_object_get(row, "enable_thinking"));
	bool splits = thinks && strstr(want, THINK_END) != NULL;
	uint32_t v[1024];
	struct stop_set none;
	size_t n = json_array_size(ids);

	stop_set_init(&none);
	assert_in_range(n, 1, COUNT(v));
	for (size_t i = 0; i < n; i++)
		v[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
	for (size_t each = 0; each < 5; each++) {
		struct result raw = read_ids(OUTPUT_RAW, v, n, &none, each);
		struct result chat = read_ids(
			thinks ? OUTPUT_REASONING : OUTPUT_CONTENT, v, n, &none, each);

		assert_string_equal(sink_cstr(&raw.content), want);
		if (splits)
			sink_str(&chat.reasoning, THINK_END);
		sink_put(&chat.reasoning, chat.content.at, chat.content.len);
		assert_string_equal(sink_cstr(&chat.reasoning), want);
		release(&raw);
		release(&chat);
	}
}

static void the_parts_of_an_answer_put_together_are_the_answer(void **state)
{
	FILE *f = fopen(CONVERSATIONS, "re");
	static char line[1u << 20];
	unsigned n = 0, n_thinking = 0;

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		json_t *row = json_loads(line, 0, NULL);

		assert_non_null(row);
		check_row(row);
		n_thinking += json_is_true(json_object_get(row, "enable_thinking"));
		json_decref(row);
		n++;
	}
	fclose(f);
	assert_int_equal(n, 62);
	assert_true(n_thinking > 10);
}

/* ---- where thinking ends ---- */

static void the_prompt_says_how_the_answer_begins(void **state)
{
	(void)state;
	assert_int_equal(output_mode_of(BYTES_STR("<|im_start|>assistant\n<think>\n")),
		OUTPUT_REASONING);
	assert_int_equal(
		output_mode_of(BYTES_STR("<think>\n\n</think>\n\n")), OUTPUT_CONTENT);
	assert_int_equal(output_mode_of(BYTES_STR("<think>")), OUTPUT_CONTENT);
	assert_int_equal(output_mode_of(BYTES_STR("\n")), OUTPUT_CONTENT);
	assert_int_equal(output_mode_of((struct bytes){NULL, 0}), OUTPUT_CONTENT);
}

static void one_newline_before_and_all_after_the_border_are_trimmed(void **state)
{
	(void)state;
	check_text(OUTPUT_REASONING, "a b\n</think>\n\nc d", "a b", "c d");
	check_text(OUTPUT_REASONING, "a b</think>c d", "a b", "c d");
	check_text(
		OUTPUT_REASONING, "a b\n\n</think>\n\n\n\nc\n\nd\n", "a b\n", "c\n\nd\n");
	check_text(OUTPUT_REASONING, "a\nb\n</think>\n\n c", "a\nb", " c");
	check_text(OUTPUT_REASONING, "</think>c", "", "c");
	check_text(OUTPUT_REASONING, "\n</think>\n\nc", "", "c");
}

static void without_a_border_everything_is_reasoning(void **state)
{
	(void)state;
	check_text(OUTPUT_REASONING, "a b c", "a b c", "");
	check_text(OUTPUT_REASONING, "a b c\n", "a b c\n", "");
	check_text(OUTPUT_REASONING, "a\n\n", "a\n\n", "");
	check_text(OUTPUT_REASONING, "a</think>", "a", "");
}

static void tags_that_do_not_belong_are_absorbed(void **state)
{
	(void)state;
	check_text(OUTPUT_REASONING, "<think>\na</think>b", "a", "b");
	check_text(OUTPUT_REASONING, "a</think>b</think>c", "a", "bc");
	check_text(OUTPUT_CONTENT, "a</think>\nb", "", "ab");
	/* Only the first token can be the model's own opening tag. */
	check_text(OUTPUT_REASONING, "a<think>b</think>c", "a<think>b", "c");
	check_text(OUTPUT_CONTENT, "<think>a", "", "<think>a");
}

/* The text of a tag, written with other tokens, is text. */
static void prose_about_tags_is_prose(void **state)
{
	struct stop_set none;
	struct tok_ids ids;
	struct result r;
	struct err err;

	(void)state;
	stop_set_init(&none);
	tok_ids_init(&ids, SIZE_MAX);
	assert_int_equal(
		tokenizer_encode(demo, BYTES_STR("a </think> b"), 0, &ids, &err), ST_OK);
	r = read_ids(OUTPUT_REASONING, ids.v, ids.n, &none, 1);
	assert_string_equal(sink_cstr(&r.reasoning), "a </think> b");
	assert_string_equal(sink_cstr(&r.content), "");
	release(&r);
	tok_ids_release(&ids);
}

static void completions_keep_everything(void **state)
{
	(void)state;
	check_text(OUTPUT_RAW, "<think>\na\n</think>\n\nb\n", "",
		"<think>\na\n</think>\n\nb\n");
}

static void reasoning_tokens_are_counted_with_the_tag(void **state)
{
	struct tok_ids ids = encode("a b\n</think>\n\nc d");
	struct tok_ids before = encode("a b\n</think>");
	struct stop_set none;
	struct result r;

	(void)state;
	stop_set_init(&none);
	r = read_ids(OUTPUT_REASONING, ids.v, ids.n, &none, 0);
	assert_int_equal(r.n_reasoning_tokens, before.n);
	release(&r);
	r = read_ids(OUTPUT_CONTENT, ids.v, ids.n, &none, 0);
	assert_int_equal(r.n_reasoning_tokens, 0);
	release(&r);
	tok_ids_release(&ids);
	tok_ids_release(&before);
}

/* ---- stop strings ---- */

static void check_stop(const char *text, const char *stop, const char *reasoning,
	const char *content, int hit)
{
	struct tok_ids ids = encode(text);
	struct stop_set set;
	struct err err;

	stop_set_init(&set);
	assert_int_equal(stop_set_add(&set, bytes_of_str(stop), &err), ST_OK);
	for (size_t each = 0; each < 4; each++) {
		struct result r = read_ids(OUTPUT_REASONING, ids.v, ids.n, &set, each);

		assert_string_equal(sink_cstr(&r.reasoning), reasoning);
		assert_string_equal(sink_cstr(&r.content), content);
		assert_int_equal(r.hit, hit);
		release(&r);
	}
	tok_ids_release(&ids);
}

static void a_stop_string_cuts_wherever_it_stands(void **state)
{
	(void)state;
	check_stop("one two\n</think>\n\nthree four", "ee f", "one two", "thr", 0);
	check_stop("one two\n</think>\n\nthree four", "e t", "on", "", 0);
	check_stop(
		"one two\n</think>\n\nthree four", "two\n</think>\n\nth", "one ", "", 0);
	check_stop("one two\n</think>\n\nthree four", "</think>", "one two\n", "", 0);
	check_stop(
		"one two\n</think>\n\nthree four", "five", "one two", "three four", -1);
	/* Held back as a beginning, and text after all. */
	check_stop("one\n</think>\n\nthree fo", "four", "one", "three fo", -1);
	check_stop("one\n</think>\n\nx", "\n</think>\n\ny", "one", "x", -1);
}

/* A tag right behind a cut character: the replacement stands before the tag. */
static void a_cut_character_stays_on_its_side_of_the_border(void **state)
{
	struct stop_set none;
	struct result r;
	uint32_t ids[3];
	int64_t close = tokenizer_find(demo, "</think>");
	uint32_t lead = 0;

	(void)state;
	stop_set_init(&none);
	assert_true(close >= 0);
	while (lead < tokenizer_n_tokens(demo)) {
		struct bytes b = tokenizer_token_bytes(demo, lead);

		if (b.len == 1 && b.at[0] == 0xC3)
			break;
		lead++;
	}
	assert_true(lead < tokenizer_n_tokens(demo));
	ids[0] = lead;
	ids[1] = (uint32_t)close;
	ids[2] = lead;
	r = read_ids(OUTPUT_REASONING, ids, 3, &none, 1);
	assert_string_equal(sink_cstr(&r.reasoning), "\xEF\xBF\xBD");
	assert_string_equal(sink_cstr(&r.content), "\xEF\xBF\xBD");
	release(&r);
}

static void more_tags_than_can_wait_are_no_trouble(void **state)
{
	struct stop_set set;
	struct sink text, want;
	struct tok_ids ids;
	struct result r;
	struct err err;

	(void)state;
	sink_init(&text, TEXT_MAX);
	sink_init(&want, TEXT_MAX);
	for (int i = 0; i < 300; i++)
		sink_str(&text, "</think>");
	/* A stop string that all of it may begin: as much as possible is held. */
	stop_set_init(&set);
	for (int i = 0; i < 30; i++)
		sink_str(&want, "</think>");
	sink_str(&want, "x");
	assert_int_equal(stop_set_add(&set, sink_bytes(&want), &err), ST_OK);
	ids = encode(sink_cstr(&text));
	assert_int_equal(ids.n, 300);
	r = read_ids(OUTPUT_REASONING, ids.v, ids.n, &set, 1);
	assert_int_equal(r.hit, -1);
	assert_string_equal(sink_cstr(&r.content), "");
	release(&r);
	tok_ids_release(&ids);
	sink_release(&text);
	sink_release(&want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_parts_of_an_answer_put_together_are_the_answer),
		cmocka_unit_test(the_prompt_says_how_the_answer_begins),
		cmocka_unit_test(one_newline_before_and_all_after_the_border_are_trimmed),
		cmocka_unit_test(without_a_border_everything_is_reasoning),
		cmocka_unit_test(tags_that_do_not_belong_are_absorbed),
		cmocka_unit_test(prose_about_tags_is_prose),
		cmocka_unit_test(completions_keep_everything),
		cmocka_unit_test(reasoning_tokens_are_counted_with_the_tag),
		cmocka_unit_test(a_stop_string_cuts_wherever_it_stands),
		cmocka_unit_test(a_cut_character_stays_on_its_side_of_the_border),
		cmocka_unit_test(more_tags_than_can_wait_are_no_trouble),
	};

	return cmocka_run_group_tests(tests, load_demo, destroy_demo);
}
