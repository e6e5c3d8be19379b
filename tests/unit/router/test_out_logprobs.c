/* Logprobs in the shapes of the two APIs: tokens that are part of a character, the ones
 * that need escapes, and what was written already. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "router/out_logprobs.h"

#include <math.h>
#include <string.h>

#define DEMO_MODEL BATON_SOURCE_DIR "/deploy/demo-model"

/* Ids of the demo model's tokenizer. */
enum { QUOTE = 1, LETTER = 64, COPYRIGHT_END = 102, C3 = 127, NEWLINE = 198, THE = 300 };

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

static void add(struct logprob_list *l, uint32_t token, float logprob,
	const struct wire_logprob *tops, size_t n)
{
	assert_true(logprobs_add(l, (struct wire_logprob){token, logprob}, false,
		(struct bytes){(const uint8_t *)tops, n * sizeof(*tops)}));
}

/* The text between single quotes has them for double ones. */
static void check(struct sink *out, const char *want)
{
	char text[1024];
	size_t n = strlen(want);

	assert_true(n < sizeof(text));
	for (size_t i = 0; i <= n; i++)
		text[i] = want[i] == '\'' ? '"' : want[i];
	assert_string_equal(sink_cstr(out), text);
	sink_reset(out);
}

static void chat_shows_tokens_and_their_bytes(void **state)
{
	static const struct wire_logprob tops[] = {{LETTER, -0.5f}, {C3, -2}};
	struct logprob_list l = {0};
	struct sink out;

	(void)state;
	sink_init(&out, 4096);
	add(&l, LETTER, -0.5f, tops, 2);
	add(&l, C3, -INFINITY, NULL, 0);
	out_logprobs_chat(&out, demo, &l);
	check(&out,
		"{'content':[{'token':'a','logprob':-0.5,'bytes':[97],'top_logprobs':["
		"{'token':'a','logprob':-0.5,'bytes':[97]},"
		"{'token':'\xef\xbf\xbd','logprob':-2,'bytes':[195]}]},"
		"{'token':'\xef\xbf\xbd','logprob':-9999,'bytes':[195],"
		"'top_logprobs':[]}],'refusal':null}");
	/* Only what is new. */
	add(&l, NEWLINE, -1, NULL, 0);
	out_logprobs_chat(&out, demo, &l);
	check(&out, "{'content':[{'token':'\\n','logprob':-1,'bytes':[10],"
		    "'top_logprobs':[]}],'refusal':null}");
	assert_int_equal(l.written, l.n);
	logprobs_release(&l);
	sink_release(&out);
}

static void completions_have_four_lists_and_count_characters(void **state)
{
	static const struct wire_logprob tops[] = {{THE, -0.25f}, {QUOTE, -3}};
	struct logprob_list l = {0};
	struct sink out;

	(void)state;
	sink_init(&out, 4096);
	assert_true(logprobs_add(
		&l, (struct wire_logprob){THE, 0}, true, (struct bytes){NULL, 0}));
	add(&l, C3, -1, tops, 2);
	add(&l, COPYRIGHT_END, -2, NULL, 0);
	add(&l, THE, -0.25f, tops, 2);
	out_logprobs_completion(&out, demo, &l);
	/* The two bytes of one character count once. */
	check(&out, "{'tokens':[' the','bytes:\\\\xc3','bytes:\\\\xa9',' the'],"
		    "'text_offset':[0,4,5,5],'token_logprobs':[null,-1,-2,-0.25],"
		    "'top_logprobs':[null,{' the':-0.25,'\\'':-3,'bytes:\\\\xc3':-1},"
		    "{'bytes:\\\\xa9':-2},{' the':-0.25,'\\'':-3}]}");
	add(&l, LETTER, -4, NULL, 0);
	out_logprobs_completion(&out, demo, &l);
	check(&out, "{'tokens':['a'],'text_offset':[9],'token_logprobs':[-4],"
		    "'top_logprobs':[{'a':-4}]}");
	logprobs_release(&l);
	sink_release(&out);
}

static void prompts_are_listed_by_id_with_ranks(void **state)
{
	static const struct wire_logprob tops[] = {{THE, -0.25f}, {QUOTE, -3}};
	struct logprob_list l = {0}, copy = {0};
	struct sink out;

	(void)state;
	sink_init(&out, 4096);
	assert_true(logprobs_add(
		&l, (struct wire_logprob){THE, 0}, true, (struct bytes){NULL, 0}));
	add(&l, LETTER, -7, tops, 2);
	add(&l, QUOTE, -3, tops, 2);
	out_logprobs_prompt(&out, demo, &l, 2);
	check(&out, "[null,{'64':{'logprob':-7,'rank':null,'decoded_token':'a'},"
		    "'300':{'logprob':-0.25,'rank':1,'decoded_token':' the'},"
		    "'1':{'logprob':-3,'rank':2,'decoded_token':'\\''}},"
		    "{'1':{'logprob':-3,'rank':2,'decoded_token':'\\''},"
		    "'300':{'logprob':-0.25,'rank':1,'decoded_token':' the'}}]");
	assert_true(logprobs_append(&copy, &l, 1));
	assert_int_equal(copy.n, 3);
	assert_int_equal(copy.n_top, 2);
	assert_true(copy.entry[0].none && !copy.entry[1].none);
	logprobs_clear(&l);
	out_logprobs_prompt(&out, demo, &l, 2);
	check(&out, "[]");
	logprobs_release(&l);
	logprobs_release(&copy);
	sink_release(&out);
}

static void a_list_without_memory_stays_as_it_was(void **state)
{
	struct logprob_list l = {0};

	(void)state;
	add(&l, LETTER, -1, NULL, 0);
	mem_budget(mem_taken());
	for (uint32_t i = l.n; i < l.cap; i++)
		add(&l, LETTER, -1, NULL, 0);
	assert_false(logprobs_add(
		&l, (struct wire_logprob){LETTER, -1}, false, (struct bytes){NULL, 0}));
	assert_int_equal(l.n, l.cap);
	mem_budget(UINT64_C(1) << 30);
	add(&l, QUOTE, -1, NULL, 0);
	assert_int_equal(l.entry[l.n - 1].token, QUOTE);
	logprobs_release(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chat_shows_tokens_and_their_bytes),
		cmocka_unit_test(completions_have_four_lists_and_count_characters),
		cmocka_unit_test(prompts_are_listed_by_id_with_ranks),
		cmocka_unit_test(a_list_without_memory_stays_as_it_was),
	};

	return cmocka_run_group_tests(tests, load_demo, destroy_demo);
}
