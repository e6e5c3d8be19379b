// labels: threads
/* The demo model's tokenizer against ids and texts that the reference gave. */
#include "tok_fixture.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>

#define CONVERSATIONS   BATON_SOURCE_DIR "/tests/golden/demo_conversations.jsonl"
#define N_CONVERSATIONS 62
#define FILE_MAX        (1u << 24)

/* One line of the file at a time; NULL at the end. */
static json_t *next_line(struct bytes *rest)
{
	const uint8_t *end;
	json_t *line;
	size_t n;

	if (rest->len == 0)
		return NULL;
	end = memchr(rest->at, '\n', rest->len);
	n = end == NULL ? rest->len : (size_t)(end - rest->at);
	line = json_loadb((const char *)rest->at, n, 0, NULL);
	assert_non_null(line);
	n += end != NULL;
	*rest = (struct bytes){rest->at + n, rest->len - n};
	return line;
}

static struct bytes text_of(const json_t *line, const char *key)
{
	const char *text = json_string_value(json_object_get(line, key));

	assert_non_null(text);
	return bytes_of_str(text);
}

static uint32_t id_at(const json_t *line, const char *key, size_t i)
{
	return (uint32_t)json_integer_value(
		json_array_get(json_object_get(line, key), i));
}

static void check_prompt(const struct tokenizer *t, const json_t *line)
{
	struct tok_ids ids = encode(t, text_of(line, "prompt"), TOK_ADDED);
	struct sink back = decode(t, ids.v, ids.n, false);

	assert_int_equal(ids.n, json_array_size(json_object_get(line, "prompt_ids")));
	for (size_t i = 0; i < ids.n; i++)
		assert_int_equal(ids.v[i], id_at(line, "prompt_ids", i));
	check_text(text_of(line, "prompt"), sink_bytes(&back));
	sink_release(&back);
	tok_ids_release(&ids);
}

/* greedy_ids end with a stop token, which is special; greedy_text omits it. */
static void check_answer(const struct tokenizer *t, const json_t *line)
{
	size_t n = json_array_size(json_object_get(line, "greedy_ids"));
	uint32_t *ids = calloc(n, sizeof(*ids));
	struct sink text;

	for (size_t i = 0; i < n; i++)
		ids[i] = id_at(line, "greedy_ids", i);
	text = decode(t, ids, n, true);
	check_text(text_of(line, "greedy_text"), sink_bytes(&text));
	sink_release(&text);
	free(ids);
}

static unsigned check_all(const struct tokenizer *t)
{
	FILE *f = fopen(CONVERSATIONS, "re");
	uint8_t *text = malloc(FILE_MAX);
	struct bytes rest = {text, fread(text, 1, FILE_MAX, f)};
	json_t *line;
	unsigned n = 0;

	fclose(f);
	while ((line = next_line(&rest)) != NULL) {
		check_prompt(t, line);
		check_answer(t, line);
		json_decref(line);
		n++;
	}
	free(text);
	return n;
}

static void conversations_have_the_ids_of_the_reference(void **state)
{
	assert_int_equal(check_all(*state), N_CONVERSATIONS);
}

static void *check_all_in_thread(void *t)
{
	return check_all(t) == N_CONVERSATIONS ? t : NULL;
}

static void four_threads_share_one_tokenizer(void **state)
{
	pthread_t threads[4];
	void *done;

	for (size_t i = 0; i < COUNT(threads); i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, check_all_in_thread, *state),
			0);
	for (size_t i = 0; i < COUNT(threads); i++) {
		assert_int_equal(pthread_join(threads[i], &done), 0);
		assert_ptr_equal(done, *state);
	}
}

static void stop_ids_are_the_union_of_the_files(void **state)
{
	size_t n;
	/* generation_config.json: 2025 and 2023; config.json text_config: 2023;
	 * tokenizer_config.json: <|im_end|> = 2025. */
	const uint32_t *eos = tokenizer_eos(*state, &n);

	assert_int_equal(n, 2);
	assert_int_equal(eos[0], 2023);
	assert_int_equal(eos[1], 2025);
}

static void tokens_answer_questions(void **state)
{
	const struct tokenizer *t = *state;
	const struct tok_added *added;
	size_t n;

	assert_int_equal(tokenizer_n_tokens(t), 2032);
	assert_int_equal(tokenizer_find(t, "<|im_start|>"), 2024);
	assert_int_equal(tokenizer_find(t, "</think>"), 2031);
	assert_int_equal(tokenizer_find(t, "</think"), -1);
	assert_int_equal(tokenizer_find(t, "</think> "), -1);
	assert_int_equal(tokenizer_find(t, ""), -1);
	assert_int_equal(tokenizer_find(t, "is"), -1);
	assert_true(tokenizer_is_special(t, 2025));
	assert_false(tokenizer_is_special(t, 2031));
	assert_false(tokenizer_is_special(t, 0));
	assert_false(tokenizer_is_special(t, 2032));
	assert_false(tokenizer_is_special(t, UINT32_MAX));
	check_text(BYTES_STR("<think>"), tokenizer_token_bytes(t, 2030));
	check_text(BYTES_STR("!"), tokenizer_token_bytes(t, 0));
	assert_int_equal(tokenizer_token_bytes(t, 2032).len, 0);
	assert_int_equal(tokenizer_token_bytes(t, UINT32_MAX).len, 0);
	added = tokenizer_added(t, &n);
	assert_int_equal(n, 9);
	for (size_t i = 0; i < n; i++) {
		assert_true(
			bytes_eq(added[i].text, tokenizer_token_bytes(t, added[i].id)));
		assert_int_equal(added[i].special, added[i].id <= 2025);
	}
}

static void equal_files_give_equal_hashes(void **state)
{
	struct tokenizer *other;
	struct err err;

	CHECK_OK(tokenizer_load(&other, DEMO_MODEL, &err));
	assert_int_equal(tokenizer_hash(*state), tokenizer_hash(other));
	tokenizer_destroy(other);
}

static void folder_without_tokenizer_is_an_io_error_with_its_path(void **state)
{
	struct tokenizer *other = NULL;
	struct err err;

	(void)state;
	assert_int_equal(tokenizer_load(&other, BATON_SOURCE_DIR "/tests", &err), ST_IO);
	assert_non_null(strstr(err.text, BATON_SOURCE_DIR "/tests/tokenizer.json"));
	assert_null(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(conversations_have_the_ids_of_the_reference),
		cmocka_unit_test(four_threads_share_one_tokenizer),
		cmocka_unit_test(stop_ids_are_the_union_of_the_files),
		cmocka_unit_test(tokens_answer_questions),
		cmocka_unit_test(equal_files_give_equal_hashes),
		cmocka_unit_test(folder_without_tokenizer_is_an_io_error_with_its_path),
	};

	return cmocka_run_group_tests(tests, load_demo, destroy_demo);
}
