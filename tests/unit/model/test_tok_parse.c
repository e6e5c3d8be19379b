/* tokenizer.json that asks for what is not done, contradicts itself or is broken: each
 * is refused, with the place and the value. */
#include "tok_fixture.h"

#include <jansson.h>
#include <stdlib.h>

/* The demo's file with one value changed. */
struct change {
	const char *path;  /* members and indexes, with dots between */
	const char *value; /* JSON; NULL: the member is taken away */
	status want;
	const char *text;
};

#define PRE   "pre_tokenizer.pretokenizers."
#define ADDED "added_tokens.0."
#define TOKEN(id, text, special)                                                         \
	"{\"id\":" id ",\"content\":\"" text                                             \
	"\",\"single_word\":false,\"lstrip\":false,"                                     \
	"\"rstrip\":false,\"normalized\":false,\"special\":" special "}"

static const struct change changes[] = {
	{"normalizer", "null", ST_INVALID,
		"normalizer.type is missing; supported: \"NFC\""},
	{"normalizer.type", "\"NFKC\"", ST_INVALID, "normalizer.type is \"NFKC\""},
	{"pre_tokenizer", "{\"type\":\"ByteLevel\"}", ST_INVALID,
		"pre_tokenizer.type is \"ByteLevel\"; supported: \"Sequence\""},
	{"pre_tokenizer.pretokenizers", "[]", ST_INVALID,
		"pretokenizers.0.type is missing"},
	{PRE "0.type", "\"Digits\"", ST_INVALID, "is \"Digits\"; supported: \"Split\""},
	{PRE "0.behavior", "\"Removed\"", ST_INVALID, "is \"Removed\""},
	{PRE "0.invert", "true", ST_INVALID, "invert is true; supported: false"},
	{PRE "0.pattern", "{\"String\":\" \"}", ST_INVALID,
		"Regex is none of the known ones"},
	{PRE "0.pattern.Regex", "\"\\\\w+\"", ST_INVALID, "known ones: \"\\\\w+\""},
	{PRE "1.add_prefix_space", "true", ST_INVALID, "add_prefix_space is true"},
	{PRE "1.use_regex", NULL, ST_INVALID, "use_regex is missing; supported: false"},
	{PRE "2", "{\"type\":\"Digits\"}", ST_INVALID, "pretokenizers.2 is {\"type\":"},
	{"decoder.type", "\"Fuse\"", ST_INVALID, "decoder.type is \"Fuse\""},
	{"post_processor", "{\"type\":\"TemplateProcessing\"}", ST_INVALID,
		"post_processor.type is \"TemplateProcessing\""},
	{"post_processor", "null", ST_OK, NULL},
	{"post_processor", NULL, ST_OK, NULL},
	{"truncation", "{\"max_length\":7}", ST_OK, NULL},
	{"model.type", "\"Unigram\"", ST_INVALID, "model.type is \"Unigram\""},
	{"model.dropout", "0.1", ST_INVALID, "model.dropout is 0.1"},
	{"model.unk_token", "\"x\"", ST_INVALID, "model.unk_token is \"x\""},
	{"model.continuing_subword_prefix", "\"##\"", ST_INVALID,
		"subword_prefix is \"##\""},
	{"model.continuing_subword_prefix", "\"\"", ST_OK, NULL},
	{"model.end_of_word_suffix", "\"</w>\"", ST_INVALID, "end_of_word_suffix is"},
	{"model.fuse_unk", "true", ST_INVALID, "model.fuse_unk is true"},
	{"model.byte_fallback", "true", ST_INVALID, "model.byte_fallback is true"},
	{"model.byte_fallback", NULL, ST_OK, NULL},
	{"model.ignore_merges", "true", ST_OK, NULL},
	{"model.ignore_merges", "1", ST_INVALID,
		"model.ignore_merges is not true or false"},
	{"model.vocab", NULL, ST_INVALID, "model.vocab is not an object"},
	{"model.vocab", "{}", ST_INVALID, "model.vocab is not an object with tokens"},
	{"model.vocab.!", NULL, ST_INVALID, "no token for byte 0x21 alone"},
	{"model.vocab.!", "1", ST_INVALID, "gives id 1 twice"},
	{"model.vocab.!", "-1", ST_LIMIT, "the id of \"!\" is not in 0"},
	{"model.vocab.!", "1048576", ST_LIMIT, "the id of \"!\" is not in 0"},
	{"model.vocab.!", "1048575", ST_OK, NULL},
	{"model.vocab.!", "0.5", ST_LIMIT, "the id of \"!\""},
	{"model.vocab.!", "\"0\"", ST_LIMIT, "the id of \"!\""},
	{"model.vocab.", "5000", ST_LIMIT, "token 5000 has 0 bytes"},
	{"model.vocab.not alphabet", "5000", ST_OK, NULL},
	{"model.merges", NULL, ST_INVALID, "model.merges is not an array"},
	{"model.merges", "[]", ST_INVALID,
		"model.merges: its 0 entries make 0 of the 1767 longer tokens of "
		"model.vocab; missing are token 256 \"is\" and 1766 others"},
	{"model.merges", "[\"i s\"]", ST_INVALID, "missing are token 257 \" c\""},
	{"model.vocab.qqqq", "5000", ST_OK, NULL},
	{"model.merges.1767", "\"\u0120i s\"", ST_OK, NULL},
	{"model.merges", "[\"is\"]", ST_INVALID,
		"merges[0] is \"is\", which is not two parts"},
	{"model.merges", "[\"i s t\"]", ST_INVALID, "not two parts"},
	{"model.merges", "[[\"i\"]]", ST_INVALID, "not two parts"},
	{"model.merges", "[[\"i\",\"s\",\"t\"]]", ST_INVALID, "not two parts"},
	{"model.merges", "[[\"i\",7]]", ST_INVALID, "not two parts"},
	{"model.merges", "[7]", ST_INVALID, "not two parts"},
	{"model.merges", "[\"i s\",\"! q\"]", ST_INVALID,
		"merges[1] is \"! q\": a part or"},
	{"model.merges", "[\"i s\",\"qqq s\"]", ST_INVALID,
		"a part or the whole is no token"},
	{"model.merges", "[\"i  \"]", ST_INVALID, "not two parts"},
	{"model.merges", "[\"i s\",\"i s\"]", ST_INVALID, "merges[1] repeats [0]"},
	{"added_tokens", NULL, ST_OK, NULL},
	{"added_tokens", "{}", ST_INVALID, "added_tokens is not an array"},
	{"added_tokens", "[7]", ST_INVALID, "added_tokens[0].id is not a number"},
	{ADDED "id", "\"1\"", ST_INVALID, "added_tokens[0].id is not a number"},
	{ADDED "id", "-1", ST_LIMIT, "added token -1: ids go from 0"},
	{ADDED "id", "1048576", ST_LIMIT, "added token 1048576: ids go"},
	{ADDED "id", "0", ST_INVALID, "added token 0: the id is another token's"},
	{ADDED "normalized", "true", ST_INVALID,
		"added token 2023 \"<|endoftext|>\": normalized is true of a special"},
	{ADDED "normalized", NULL, ST_INVALID, "normalized is missing"},
	{ADDED "content", "\"\"", ST_INVALID, "added token 2023: content is not a text"},
	{ADDED "content", "7", ST_INVALID, "added token 2023: content is not a text"},
	{ADDED "special", NULL, ST_INVALID, "added token 2023: special is not"},
	{ADDED "single_word", "true", ST_INVALID,
		"token 2023 \"<|endoftext|>\": single_word is true"},
	{ADDED "lstrip", "true", ST_INVALID,
		"token 2023 \"<|endoftext|>\": lstrip is true"},
	{ADDED "rstrip", NULL, ST_INVALID,
		"token 2023 \"<|endoftext|>\": rstrip is missing"},
	{ADDED "content", "\"<|im_end|>\"", ST_INVALID,
		"2023 and 2025 have the same text"},
	{ADDED "content", "\"x\"", ST_INVALID, "special token 2023 has one character"},
	{ADDED "content", "\"\u00e9\"", ST_INVALID,
		"special token 2023 has one character"},
	{ADDED "content", "\"a\U0010FFFE\"", ST_INVALID,
		"added token 2023 holds U+10FFFE"},
	{"added_tokens.9", TOKEN("2025", "<|im_end|>", "true"), ST_OK, NULL},
	{"added_tokens.9", TOKEN("2025", "<|im_end|>", "false"), ST_INVALID,
		"2025 stands twice"},
	{"added_tokens.9", TOKEN("2025", "<|other|>", "true"), ST_INVALID,
		"2025 stands twice"},
	{"added_tokens.9", TOKEN("0", "!", "false"), ST_OK, NULL},
};

/* Changes the value at path, which may be a new member or the next element. */
static void apply(json_t *at, const char *path, const char *value)
{
	json_t *new = value == NULL ? NULL : json_loads(value, JSON_DECODE_ANY, NULL);
	char step[64];
	size_t n = strcspn(path, ".");

	assert_true(value == NULL || new != NULL);
	assert_true(n < sizeof(step));
	memcpy(step, path, n);
	step[n] = '\0';
	if (path[n] == '.') {
		json_decref(new);
		at = json_is_array(at) ? json_array_get(at, strtoul(step, NULL, 10))
				       : json_object_get(at, step);
		assert_non_null(at);
		apply(at, path + n + 1, value);
	} else if (json_is_array(at)) {
		assert_int_equal(strtoul(step, NULL, 10), json_array_size(at));
		json_array_append_new(at, new);
	} else if (new != NULL) {
		json_object_set_new(at, step, new);
	} else {
		assert_int_equal(json_object_del(at, step), 0);
	}
}

static status parse(
	const json_t *root, const char *config, struct tokenizer **t, struct err *err)
{
	char *text = json_dumps(root, 0);
	status st;

	assert_non_null(text);
	st = tokenizer_parse(t, bytes_of_str(text), bytes_of_str(config), err);
	free(text);
	return st;
}

static int read_demo(void **state)
{
	*state = json_load_file(DEMO_MODEL "/tokenizer.json", 0, NULL);
	assert_non_null(*state);
	return 0;
}

static int release_demo(void **state)
{
	json_decref(*state);
	return 0;
}

static void each_change_is_accepted_or_refused_by_name(void **state)
{
	for (size_t i = 0; i < COUNT(changes); i++) {
		const struct change *c = &changes[i];
		json_t *root = json_deep_copy(*state);
		struct tokenizer *t = NULL;
		struct err err = {0};
		status st;

		apply(root, c->path, c->value);
		st = parse(root, "", &t, &err);
		if (st != c->want || (st != ST_OK && strstr(err.text, c->text) == NULL))
			fail_msg("%s = %s: %s, \"%s\"", c->path,
				c->value != NULL ? c->value : "(none)", status_name(st),
				err.text);
		assert_true((t != NULL) == (st == ST_OK));
		assert_true(st == ST_OK ||
			    strncmp(err.text, "tokenizer.json: ", 16) == 0 ||
			    strstr(err.text, "same text") != NULL);
		tokenizer_destroy(t);
		json_decref(root);
	}
}

static void tokenizer_config_adds_tokens_or_is_refused(void **state)
{
#define OFF "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
#define TABLE(id, text, special)                                                         \
	"{\"added_tokens_decoder\":{\"" id "\":{\"content\":\"" text "\"," OFF           \
	",\"special\":" special "}}}"
	static const struct {
		const char *config;
		status want;
		const char *text;
		uint32_t n_tokens;
	} cases[] = {
		{"{}", ST_OK, NULL, 2032},
		{"{\"added_tokens_decoder\":{}}", ST_OK, NULL, 2032},
		{TABLE("2025", "<|im_end|>", "true"), ST_OK, NULL, 2032},
		{TABLE("2040", "<|audio|>", "true"), ST_OK, NULL, 2041},
		{TABLE("2025", "<|im_end|>", "false"), ST_INVALID, "2025 stands twice",
			0},
		{TABLE("7", "<|im_end|>", "true"), ST_INVALID, "another token's", 0},
		{TABLE("x", "<|a|>", "true"), ST_INVALID, "\"x\" is no id", 0},
		{TABLE("-1", "<|a|>", "true"), ST_INVALID, "\"-1\" is no id", 0},
		{TABLE("", "<|a|>", "true"), ST_INVALID, "\"\" is no id", 0},
		{TABLE("9999999999", "<|a|>", "true"), ST_INVALID, "is no id", 0},
		{TABLE("1048576", "<|a|>", "true"), ST_LIMIT, "ids go from 0", 0},
		{"{\"added_tokens_decoder\":[]}", ST_INVALID, "is not an object", 0},
		{"{\"added_tokens_decoder\":{\"9\":7}}", ST_INVALID, "content is not", 0},
		{"{\"a\":1,\"a\":2}", ST_INVALID, "tokenizer_config.json: JSON line", 0},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct tokenizer *t = NULL;
		struct err err = {0};
		status st = parse(*state, cases[i].config, &t, &err);

		if (st != cases[i].want ||
			(st != ST_OK && strstr(err.text, cases[i].text) == NULL))
			fail_msg("%s: %s, \"%s\"", cases[i].config, status_name(st),
				err.text);
		if (st == ST_OK)
			assert_int_equal(tokenizer_n_tokens(t), cases[i].n_tokens);
		tokenizer_destroy(t);
	}
}

static void merges_of_both_forms_are_the_same_tokenizer(void **state)
{
	json_t *root = json_deep_copy(*state);
	json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
	struct tokenizer *lists, *strings;
	struct err err;

	for (size_t i = 0; i < json_array_size(merges); i++) {
		const json_t *pair = json_array_get(merges, i);

		json_array_set_new(merges, i,
			json_sprintf("%s %s", json_string_value(json_array_get(pair, 0)),
				json_string_value(json_array_get(pair, 1))));
	}
	CHECK_OK(parse(*state, "", &lists, &err));
	CHECK_OK(parse(root, "", &strings, &err));
	assert_int_equal(tokenizer_hash(lists), tokenizer_hash(strings));
	tokenizer_destroy(lists);
	tokenizer_destroy(strings);
	json_decref(root);
}

/* Every fact that changes ids or texts changes the hash. */
static void hash_depends_on_what_decides_ids(void **state)
{
	static const struct change facts[] = {
		{"model.ignore_merges", "true", ST_OK, NULL},
		{"model.vocab.!", "2040", ST_OK, NULL},
		{"model.merges.1767", "\"\u0120i s\"", ST_OK, NULL},
		{"model.merges.1767", "\"Th e\"", ST_OK, NULL},
		{ADDED "content", "\"<|endoftext|>>\"", ST_OK, NULL},
		{ADDED "special", "false", ST_OK, NULL},
	};
	uint64_t seen[COUNT(facts) + 1];
	struct tokenizer *t;
	struct err err;

	for (size_t i = 0; i < COUNT(seen); i++) {
		json_t *root = json_deep_copy(*state);

		if (i > 0)
			apply(root, facts[i - 1].path, facts[i - 1].value);
		CHECK_OK(parse(root, "", &t, &err));
		seen[i] = tokenizer_hash(t);
		for (size_t k = 0; k < i; k++)
			assert_true(seen[k] != seen[i]);
		tokenizer_destroy(t);
		json_decref(root);
	}
}

/* Without merges only whole pieces can be more than bytes. */
static void ignore_merges_takes_whole_pieces(void **state)
{
	json_t *root = json_deep_copy(*state);
	struct tokenizer *t;
	struct tok_ids ids;
	struct err err;

	apply(root, "model.merges", "[]");
	apply(root, "model.ignore_merges", "true");
	CHECK_OK(parse(root, "", &t, &err));
	ids = encode(t, BYTES_STR("is"), 0);
	check_ids("256", &ids); /* the first token behind the bytes: merge 0 is "i s" */
	tok_ids_release(&ids);
	tokenizer_destroy(t);
	json_decref(root);
}

static void longest_added_token_wins_and_leftmost_first(void **state)
{
	static const struct {
		const char *text;
		const char *ids;
	} cases[] = {
		{"<a>", "3000"},
		{"<a>b", "3001"},
		{"<a>bc", "3002"},
		{"<a>bx", "3001 87"},
		{"<<a>", "27 3000"},
		{"<a><a>bc", "3000 3002"},
		{"a>bc<", "3003 27"},
		{"<a>b<", "3001 27"},
	};
	static const char *const tokens[] = {TOKEN("3001", "<a>b", "false"),
		TOKEN("3000", "<a>", "true"), TOKEN("3002", "<a>bc", "false"),
		TOKEN("3003", "a>bc", "false")};
	json_t *root = json_deep_copy(*state);
	struct tokenizer *t;
	struct err err;

	apply(root, "added_tokens.9", tokens[0]);
	apply(root, "added_tokens.10", tokens[1]);
	apply(root, "added_tokens.11", tokens[2]);
	apply(root, "added_tokens.12", tokens[3]);
	CHECK_OK(parse(root, "", &t, &err));
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct tok_ids ids = encode(t, bytes_of_str(cases[i].text), TOK_ADDED);

		check_ids(cases[i].ids, &ids);
		tok_ids_release(&ids);
	}
	assert_int_equal(tokenizer_n_tokens(t), 3004);
	assert_int_equal(tokenizer_token_bytes(t, 2999).len, 0);
	tokenizer_destroy(t);
	json_decref(root);
}

/* The reference takes the others out of the raw text first, whatever comes earlier, and
 * these out of the NFC of what is left. */
static void normalized_tokens_are_found_after_nfc_and_after_the_others(void **state)
{
#define NORMALIZED(id, text)                                                             \
	"{\"id\":" id ",\"content\":\"" text                                             \
	"\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"                    \
	"\"normalized\":true,\"special\":false}"
	static const struct {
		const char *text;
		const char *ids;
	} cases[] = {
		{"<a>", "3000"},
		{"<a>b", "64 3001"}, /* the raw token first: a|>b would overlap it */
		{"[K]", "3002"}, {"[\u212a]", "3002"}, /* KELVIN SIGN is K in NFC */
		{"x<a>", "87 3000"},
		{"<a\u0338>",
			"27 64 136 116 29"}, /* no token when a mark stands between */
	};
	json_t *root = json_deep_copy(*state);
	struct tokenizer *t;
	struct err err;

	apply(root, "added_tokens.9", NORMALIZED("3000", "<a>"));
	apply(root, "added_tokens.10", TOKEN("3001", ">b", "false"));
	apply(root, "added_tokens.11", NORMALIZED("3002", "[K]"));
	CHECK_OK(parse(root, "", &t, &err));
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct tok_ids ids = encode(t, bytes_of_str(cases[i].text), TOK_ADDED);
		struct tok_ids masked =
			encode(t, bytes_of_str(cases[i].text), TOK_ADDED | TOK_MASKED);

		if (i != 1) /* "<a" is pieces of the vocabulary */
			check_ids(cases[i].ids, &ids);
		assert_int_equal(ids.n, masked.n);
		assert_memory_equal(ids.v, masked.v, ids.n * sizeof(*ids.v));
		tok_ids_release(&ids);
		tok_ids_release(&masked);
	}
	assert_int_equal(tokenizer_find(t, "<a>"), 3000);
	assert_int_equal(tokenizer_find(t, ">b"), 3001);
	tokenizer_destroy(t);
	json_decref(root);
}

/* As in the reference, whatever id the entry gives. */
static void an_added_token_of_the_vocabulary_keeps_its_id_there(void **state)
{
	json_t *root = json_deep_copy(*state);
	struct tokenizer *t;
	struct tok_ids ids;
	struct err err;

	apply(root, "added_tokens.9", TOKEN("3000", "is", "false"));
	CHECK_OK(parse(root, "", &t, &err));
	assert_int_equal(tokenizer_find(t, "is"), 256);
	assert_int_equal(tokenizer_n_tokens(t), 2032);
	ids = encode(t, BYTES_STR("this"), TOK_ADDED);
	check_ids("1191 256", &ids);
	tok_ids_release(&ids);
	tokenizer_destroy(t);
	json_decref(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_change_is_accepted_or_refused_by_name),
		cmocka_unit_test(tokenizer_config_adds_tokens_or_is_refused),
		cmocka_unit_test(merges_of_both_forms_are_the_same_tokenizer),
		cmocka_unit_test(hash_depends_on_what_decides_ids),
		cmocka_unit_test(ignore_merges_takes_whole_pieces),
		cmocka_unit_test(longest_added_token_wins_and_leftmost_first),
		cmocka_unit_test(
			normalized_tokens_are_found_after_nfc_and_after_the_others),
		cmocka_unit_test(an_added_token_of_the_vocabulary_keeps_its_id_there),
	};

	return cmocka_run_group_tests(tests, read_demo, release_demo);
}
