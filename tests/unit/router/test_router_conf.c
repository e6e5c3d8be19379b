/* Keys that depend on each other, and the sampling defaults of a model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/loop/runtime.h"
#include "router/api_defaults.h"
#include "router/router_conf.h"
#include "tests/unit/base/conf_texts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Loads and checks; the text of the refusal, "" when there is none. */
static const char *outcome(char **extra, int n)
{
	static struct router_conf conf;
	static struct err err;
	char *argv[16] = {(char *)(uintptr_t) "baton-router",
		(char *)(uintptr_t) "--model", (char *)(uintptr_t) "m"};
	bool stop;
	status st;

	for (int i = 0; i < n; i++)
		argv[3 + i] = extra[i];
	st = conf_load(&router_conf_table, 3 + n, argv, &conf, &stop, &err);
	conf_texts_free(&router_conf_table, &conf);
	return st == ST_OK ? "" : err.text;
}

#define CHECK_REFUSED(part, ...)                                                         \
	do {                                                                             \
		char *extra[] = {__VA_ARGS__};                                           \
		const char *text = outcome(extra, COUNT(extra));                         \
		if (strstr(text, (part)) == NULL || *text == 0)                          \
			fail_msg("'%s' does not say '%s'", text, (part));                \
	} while (0)
#define A(text) ((char[]){text})

static void the_defaults_are_right_together(void **state)
{
	(void)state;
	assert_string_equal(outcome(NULL, 0), "");
}

static void keys_that_contradict_each_other_are_refused(void **state)
{
	(void)state;
	CHECK_REFUSED("silent_ms 900", A("--silent-ms"), A("900"));
	CHECK_REFUSED("lost_ms 1500", A("--lost-ms"), A("1500"));
	CHECK_REFUSED("request_memory_mb 31", A("--request-memory-mb"), A("31"));
	CHECK_REFUSED("both 8000", A("--probe-port"), A("8000"));
	CHECK_REFUSED("id 'a/b'", A("--id"), A("a/b"));
	CHECK_REFUSED("id has 0 bytes", A("--id"), A(""));
	CHECK_REFUSED("log_level 'loud'", A("--log-level"), A("loud"));
	CHECK_REFUSED("generation_config 'maybe'", A("--generation-config"), A("maybe"));
	CHECK_REFUSED("max_replays", A("--max-replays"), A("3"));
}

static void words_addresses_and_names_are_refused_by_their_key(void **state)
{
	static char deep[2 * RUNTIME_PATH_BYTES];
	static char three[] = "--served-model-name=a\nb\nc";

	(void)state;
	CHECK_REFUSED("host 'localhost'", A("--host"), A("localhost"));
	CHECK_REFUSED("host '127.0.0.256'", A("--host"), A("127.0.0.256"));
	CHECK_REFUSED("host ''", A("--host"), A(""));
	CHECK_REFUSED("runtime_dir: ", A("--runtime-dir"), A("relative"));
	CHECK_REFUSED("debug_fault: ", A("--debug-fault"), A("pause@nowhere"));
	memset(deep, 'x', sizeof(deep) - 1);
	deep[0] = '/';
	CHECK_REFUSED("uds '/xx", A("--uds"), deep);
	deep[RUNTIME_PATH_BYTES - 10] = 0;
	CHECK_REFUSED("runtime_dir: ", A("--runtime-dir"), deep);
	CHECK_REFUSED("served_model_name: an empty", A("--served-model-name="),
		A("--served-model-name=a"));
	CHECK_REFUSED("served_model_name: an empty", A("--served-model-name=a"),
		A("--served-model-name="));
	assert_string_equal(outcome((char *[]){A("--host=::1")}, 1), "");
	CHECK_REFUSED("served_model_name: 36 names", three, three, three, three, three,
		three, three, three, three, three, three, three);
}

/* ---- generation_config.json ---- */

#define N_VOCAB 100u

static char dir[64];

static int make_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/baton-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	return 0;
}

static int remove_dir(void **state)
{
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/generation_config.json", dir);
	unlink(path);
	assert_int_equal(rmdir(dir), 0);
	assert_int_equal(mem_taken(), 0);
	return 0;
}

static void write_file(const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/generation_config.json", dir);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static struct api_defaults load(const char *text)
{
	struct api_defaults d;
	struct err err;

	api_defaults_plain(&d);
	if (text != NULL)
		write_file(text);
	if (api_defaults_load(&d, dir, N_VOCAB, &err) != ST_OK)
		fail_msg("%s", err.text);
	return d;
}

static void a_model_without_the_file_has_the_plain_defaults(void **state)
{
	struct api_defaults d = load(NULL);

	(void)state;
	assert_true(d.temperature == 1 && d.top_p == 1 && d.min_p == 0);
	assert_int_equal(d.top_k, 0);
}

static void the_file_gives_what_a_request_leaves_open(void **state)
{
	struct api_defaults d =
		load("{\"temperature\": 0.5, \"top_k\": 20, \"top_p\": null,"
		     " \"min_p\": 0.25, \"do_sample\": true}");
	struct gen_request req = {
		.has_temperature = true, .draw.temperature = 0.75, .has_min_p = true};
	struct api_error e;

	(void)state;
	assert_true(d.temperature == 0.5 && d.top_p == 1 && d.min_p == 0.25);
	assert_int_equal(d.top_k, 20);
	assert_true(api_defaults_apply(&d, &req, &e));
	assert_true(req.draw.temperature == 0.75 && req.draw.min_p == 0 &&
		    req.draw.top_p == 1);
	assert_int_equal(req.draw.top_k, 20);
}

static void every_member_of_the_file_is_applied_or_named(void **state)
{
	struct api_defaults d =
		load("{\"repetition_penalty\": 1.5, \"presence_penalty\": 0.5,"
		     " \"frequency_penalty\": -1, \"max_new_tokens\": 40,"
		     " \"min_new_tokens\": 3, \"suppress_tokens\": [7, 9, 7],"
		     " \"eos_token_id\": [1], \"pad_token_id\": 0, \"use_cache\": true,"
		     " \"transformers_version\": \"5.0\", \"num_beams\": 1,"
		     " \"no_repeat_ngram_size\": 0, \"bad_words_ids\": null,"
		     " \"time_step_limit\": [0, Infinity], \"no_repeat\\u0000\": 1,"
		     " \"length_penalty\": 0.8, \"forced_eos_token_id\": 2}");
	struct gen_request open = {0}, given = {.has_repetition = true,
					       .draw.repetition = 1,
					       .has_presence = true,
					       .has_frequency = true,
					       .has_max_tokens = true,
					       .max_tokens = 2};
	struct api_error e;

	(void)state;
	assert_string_equal(d.unheard,
		"\"time_step_limit\" [0,Infinity], \"no_repeat\\u0000\" 1, "
		"\"length_penalty\" 0.8, \"forced_eos_token_id\" 2");
	assert_true(api_defaults_apply(&d, &open, &e));
	assert_true(open.draw.repetition == 1.5 && open.draw.presence == 0.5 &&
		    open.draw.frequency == -1);
	assert_int_equal(open.max_tokens, 40);
	assert_false(open.has_max_tokens);
	assert_int_equal(open.draw.min_tokens, 3);
	assert_int_equal(open.n_bias, 2);
	assert_int_equal(open.bias[0].token, 7);
	assert_int_equal(open.bias[1].token, 9);
	assert_true(open.bias[1].add == -100);
	gen_request_release(&open);
	given.bias = mem_take(1, sizeof(*given.bias));
	given.bias[0] = (struct wire_bias){9, 5};
	given.n_bias = 1;
	assert_true(api_defaults_apply(&d, &given, &e));
	assert_true(given.draw.repetition == 1 && given.draw.presence == 0 &&
		    given.draw.frequency == 0);
	assert_int_equal(given.max_tokens, 2);
	assert_int_equal(given.draw.min_tokens, 2);
	assert_int_equal(given.n_bias, 2);
	assert_true(given.bias[0].add == 5);
	assert_int_equal(given.bias[1].token, 7);
	given.n_bias = API_BIAS_MAX;
	assert_false(api_defaults_apply(&d, &given, &e));
	assert_string_equal(e.param, "logit_bias");
	gen_request_release(&given);
}

static void a_file_that_does_not_sample_is_greedy(void **state)
{
	(void)state;
	assert_true(
		load("{\"do_sample\": false, \"temperature\": 0.6}").temperature == 0);
	assert_int_equal(load("{\"top_k\": -1}").top_k, 0);
}

static void values_that_no_request_could_have_are_refused_by_name(void **state)
{
	static const char *const rows[][2] = {
		{"{\"temperature\": 3}", "temperature 3"},
		{"{\"temperature\": \"hot\"}", "temperature \"hot\""},
		{"{\"top_p\": 0}", "top_p 0"},
		{"{\"min_p\": 2}", "min_p 2"},
		{"{\"top_k\": -2}", "top_k -2"},
		{"{\"temperature\": Infinity}", "temperature Infinity"},
		{"{\"top_k\": 1.5}", "top_k 1.5"},
		{"{\"repetition_penalty\": 0}", "repetition_penalty 0"},
		{"{\"presence_penalty\": 3}", "presence_penalty 3"},
		{"{\"frequency_penalty\": NaN}", "frequency_penalty NaN"},
		{"{\"max_new_tokens\": 0}", "max_new_tokens 0"},
		{"{\"max_new_tokens\": 1e400}", "max_new_tokens 1e400"},
		{"{\"max_new_tokens\": 2, \"min_new_tokens\": 3}", "min_new_tokens"},
		{"{\"suppress_tokens\": [100]}", "suppress_tokens 100"},
		{"{\"suppress_tokens\": 5}", "suppress_tokens 5"},
		{"{\"do_sample\": 1}", "do_sample 1"},
		{"[]", "not a JSON object"},
		{"{", "generation_config.json"},
	};
	struct api_defaults d;
	struct err err;

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		write_file(rows[i][0]);
		assert_int_not_equal(api_defaults_load(&d, dir, N_VOCAB, &err), ST_OK);
		if (strstr(err.text, rows[i][1]) == NULL)
			fail_msg("'%s' does not say '%s'", err.text, rows[i][1]);
	}
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_defaults_are_right_together),
		cmocka_unit_test(keys_that_contradict_each_other_are_refused),
		cmocka_unit_test(words_addresses_and_names_are_refused_by_their_key),
		IN_DIR(a_model_without_the_file_has_the_plain_defaults),
		IN_DIR(the_file_gives_what_a_request_leaves_open),
		IN_DIR(every_member_of_the_file_is_applied_or_named),
		IN_DIR(a_file_that_does_not_sample_is_greedy),
		IN_DIR(values_that_no_request_could_have_are_refused_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
