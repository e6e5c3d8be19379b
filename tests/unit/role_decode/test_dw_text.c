/* What ends an answer by its content, with the tokenizer of the demo model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "decode-worker/dw_text.h"

#define EOS 2025u /* <|im_end|> of the demo model */

static struct tokenizer *tokenizer;

static int load(void **state)
{
	struct err err;

	(void)state;
	return tokenizer_load(&tokenizer, BATON_SOURCE_DIR "/deploy/demo-model", &err) ==
			       ST_OK
		       ? 0
		       : -1;
}

static int unload(void **state)
{
	(void)state;
	tokenizer_destroy(tokenizer);
	return 0;
}

/* Feeds the ids of text; the number of tokens until the end, 0 when there was none. */
static size_t feed(struct dw_text *x, const char *text, enum wire_finish *why)
{
	struct tok_ids ids;
	struct err err;
	size_t at = 0;

	tok_ids_init(&ids, 1000);
	assert_int_equal(
		tokenizer_encode(tokenizer, bytes_of_str(text), TOK_ADDED, &ids, &err),
		ST_OK);
	for (size_t i = 0; i < ids.n && at == 0; i++)
		if (dw_text_feed(x, ids.v[i], why))
			at = i + 1;
	tok_ids_release(&ids);
	return at;
}

static struct msg_adopt message(
	const uint32_t *ids, size_t n, const char *strings, size_t len)
{
	return (struct msg_adopt){.stop_ids = {(const uint8_t *)ids, n * sizeof(*ids)},
		.has_stop_strings = len > 0,
		.stop_strings = {(const uint8_t *)strings, len}};
}

static void stop_ids_end_it(void **state)
{
	const uint32_t ids[] = {40, EOS};
	struct msg_adopt m = message(ids, 2, NULL, 0);
	struct dw_text x;
	enum wire_finish why;
	struct err err;

	(void)state;
	assert_int_equal(dw_text_init(&x, tokenizer, &m, &err), ST_OK);
	assert_false(dw_text_feed(&x, 41, &why));
	assert_true(dw_text_feed(&x, 40, &why));
	assert_int_equal(why, FINISH_STOP_TOKEN);
	assert_true(dw_text_feed(&x, EOS, &why));
	m.has_ignore_eos = true;
	m.ignore_eos = 1;
	assert_int_equal(dw_text_init(&x, tokenizer, &m, &err), ST_OK);
	assert_false(dw_text_feed(&x, EOS, &why)); /* the model's own end */
	assert_true(dw_text_feed(&x, 40, &why));   /* the request's */
}

static void a_stop_string_across_tokens(void **state)
{
	struct msg_adopt m = message(NULL, 0, "\x06\0copper\x03\0n s", 13);
	struct dw_text x;
	enum wire_finish why;
	struct err err;
	uint64_t before = mem_taken();

	(void)state;
	assert_int_equal(dw_text_init(&x, tokenizer, &m, &err), ST_OK);
	assert_int_equal(feed(&x, "nothing here", &why), 0);
	dw_text_release(&x);
	assert_int_equal(dw_text_init(&x, tokenizer, &m, &err), ST_OK);
	assert_true(feed(&x, "sun spark and more", &why) > 0);
	assert_int_equal(why, FINISH_STOP_STRING);
	dw_text_release(&x);
	assert_int_equal(mem_taken(), before);
}

static void special_tokens_give_no_text(void **state)
{
	struct msg_adopt m = message(NULL, 0, "\x06\0im_end", 8);
	struct dw_text x;
	enum wire_finish why;
	struct err err;

	(void)state;
	assert_int_equal(dw_text_init(&x, tokenizer, &m, &err), ST_OK);
	assert_int_equal(feed(&x, "a<|im_end|>b", &why), 0);
	dw_text_release(&x);
}

static void broken_lists_are_refused(void **state)
{
	static const struct {
		const char *bytes;
		size_t n;
	} bad[] = {{"\x05", 1}, {"\x05\0abcd", 6}, {"\x01\0a\x02", 4}, {"\0\0", 2}};
	uint64_t before = mem_taken();

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct msg_adopt m = message(NULL, 0, bad[i].bytes, bad[i].n);
		struct dw_text x;
		struct err err;

		assert_int_not_equal(dw_text_init(&x, tokenizer, &m, &err), ST_OK);
		assert_int_equal(mem_taken(), before);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stop_ids_end_it),
		cmocka_unit_test(a_stop_string_across_tokens),
		cmocka_unit_test(special_tokens_give_no_text),
		cmocka_unit_test(broken_lists_are_refused),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
