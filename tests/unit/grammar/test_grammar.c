/* What grammars let through and what they refuse, that nothing they let through is a dead
 * end, and which tokens come next. */
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/grammar/guide.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t mixed(uint64_t x)
{
	return hash64_u64(1, x);
}

static struct grammar *make(enum grammar_kind kind, const char *text)
{
	struct grammar *g = NULL;
	struct err err;
	status st = grammar_compile(&g, kind, bytes_of_str(text), &err);

	if (st != ST_OK)
		fail_msg("%s: %s", text, err.text);
	return g;
}

static bool is_in(const struct grammar *g, const char *text)
{
	uint32_t state = grammar_walk(g, g->start, bytes_of_str(text));

	return state != GRAMMAR_DEAD && g->complete[state];
}

struct language {
	enum grammar_kind kind;
	const char *text;
	const char *in[8], *out[10];
};

static const struct language languages[] = {
	{GRAMMAR_REGEX, "a|bc+", {"a", "bc", "bccc"}, {"", "b", "abc", "bca", "ab"}},
	{GRAMMAR_REGEX, "^(?:x{2,3}|y?)$", {"xx", "xxx", "", "y"}, {"x", "xxxx", "yy"}},
	{GRAMMAR_REGEX, "[^a-y\\n]\\d\\.",
		{"z0.",
			"\xC3\xA9"
			"7.",
			"\xF0\x9F\x98\x80"
			"1."},
		{"a0.", "z00", "\n0.",
			"\xC3"
			"7.",
			"\xED\xA0\x80"
			"7.",
			"\xF8"
			"7."}},
	{GRAMMAR_REGEX, ".{2}",
		{"ab", "\xE2\x82\xAC"
		       "x"},
		{"a", "abc", "a\n", "\xE2\x82\xAC"}},
	{GRAMMAR_REGEX, "(?P<n>a)*?b", {"b", "aab"}, {"a", "ba"}},
	{GRAMMAR_REGEX, "\\u00e9\\x41[\\u4e00-\\u9fff]",
		{"\xC3\xA9"
		 "A\xE4\xB8\xAD"},
		{"eA\xE4\xB8\xAD", "\xC3\xA9"
				   "A\xE3\x81\x82"}},
	{GRAMMAR_CHOICE, "[\"yes\",\"yes please\",\"\\u00fc\"]",
		{"yes", "yes please", "\xC3\xBC"}, {"", "y", "yes ", "no"}},
	{GRAMMAR_SCHEMA, "{\"type\":\"integer\"}", {"0", "-17", "123456789012345"},
		{"", "01", "+1", "1.5", "1e3", "-", " 1", "1 "}},
	{GRAMMAR_SCHEMA, "{\"type\":\"number\"}", {"0", "-0.5", "1e9", "12.25E-3"},
		{".5", "1.", "1e", "00", "NaN"}},
	{GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":2}",
		{"\"\"", "\"ab\"", "\"\\\"\\n\"",
			"\"\xF0\x9F\x98\x80"
			"x\""},
		{"\"abc\"", "ab", "\"a", "\"\n\"", "\"\\q\"", "\"\x7F\xFF\""}},
	{GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"b$\"}",
		{"\"b\"", "\"aab\"", "\"\\\"b\"", "\"\\u0001b\""},
		{"\"ba\"", "b", "\"\"\"b\""}},
	{GRAMMAR_SCHEMA, "{\"enum\":[1,\"x\",null,[true,{\"a\":\"\\\"\"}]]}",
		{"1", "\"x\"", "null", "[true,{\"a\":\"\\\"\"}]"}, {"2", "x", "[true]"}},
	{GRAMMAR_SCHEMA, "{\"type\":\"string\",\"enum\":[1,\"x\"]}", {"\"x\""}, {"1"}},
	{GRAMMAR_SCHEMA,
		"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{"
		"\"type\":\"boolean\"},\"c\":{\"const\":1}},\"required\":[\"b\"]}",
		{"{\"b\":true}", "{\"a\":null,\"b\":false}", "{\"b\": true, \"c\": 1}",
			"{\"a\":null,\"b\":true,\"c\":1}"},
		{"{}", "{\"a\":null}", "{\"b\":true,}", "{,\"b\":true}",
			"{\"a\":null,\"c\":1}", "{\"c\":1,\"b\":true}",
			"{\"b\":true,\"d\":1}", "{\"b\":true \"c\":1}"}},
	{GRAMMAR_SCHEMA,
		"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":0},\"b\":{"
		"\"const\":1}}}",
		{"{}", "{\"a\":0}", "{\"b\":1}", "{\"a\":0,\"b\":1}"},
		{"{\"b\":1,\"a\":0}", "{,}", "{\"a\":0\"b\":1}"}},
	{GRAMMAR_SCHEMA,
		"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":1,"
		"\"maxItems\":3}",
		{"[null]", "[null,null]", "[null, null, null]"},
		{"[]", "[null,]", "[null,null,null,null]", "[1]", "null"}},
	{GRAMMAR_SCHEMA, "{\"type\":\"array\",\"items\":{\"const\":7}}",
		{"[]", "[7]", "[7,7, 7]"}, {"[,7]", "[7,]", "[7"}},
	{GRAMMAR_SCHEMA, "{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
	{GRAMMAR_SCHEMA, "{\"type\":\"object\"}",
		{"{}", "{\"a\":[1,{\"b\":\"x\"}]}", "{\"\": null, \"k\": {}}"},
		{"[]", "1", "{\"a\"}", "{a:1}", "{\"a\":1,}"}},
	{GRAMMAR_SCHEMA,
		"{\"$defs\":{\"p\":{\"const\":1}},\"type\":\"object\",\"properties\":{"
		"\"a\":{\"$ref\":\"#/$defs/p\"},\"b\":{\"$ref\":\"#/$defs/p\"}},"
		"\"required\":[\"a\",\"b\"]}",
		{"{\"a\":1,\"b\":1}"}, {"{\"a\":1}", "{\"a\":1,\"b\":2}"}},
	{GRAMMAR_SCHEMA, "{\"anyOf\":[{\"const\":\"a\"},{\"const\":\"ab\"}]}",
		{"\"a\"", "\"ab\""}, {"\"b\"", "\"\""}},
	{GRAMMAR_SCHEMA,
		"{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}",
		{"{}"}, {"{\"a\":1}"}},
};

static void a_text_is_let_through_when_it_is_of_the_language(void **state)
{
	uint64_t taken = mem_taken();

	(void)state;
	for (size_t i = 0; i < COUNT(languages); i++) {
		const struct language *l = &languages[i];
		struct grammar *g = make(l->kind, l->text);

		for (size_t k = 0; k < COUNT(l->in) && l->in[k] != NULL; k++)
			if (!is_in(g, l->in[k]))
				fail_msg("%s: %s is kept out", l->text, l->in[k]);
		for (size_t k = 0; k < COUNT(l->out) && l->out[k] != NULL; k++)
			if (is_in(g, l->out[k]))
				fail_msg("%s: %s is let through", l->text, l->out[k]);
		grammar_destroy(g);
	}
	assert_int_equal(mem_taken(), taken);
}

/* Backwards from where a text may end every state is reached. */
static void no_state_is_a_dead_end(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(languages); i++) {
		struct grammar *g = make(languages[i].kind, languages[i].text);
		bool *ends = calloc(g->n_states, sizeof(*ends)), changed = true;

		while (changed) {
			changed = false;
			for (uint32_t s = g->n_states - 1; s > 0; s--) {
				bool now = g->complete[s];

				for (uint32_t c = 0; c < g->n_classes; c++)
					now |= ends[g->next[s * g->n_classes + c]];
				changed |= now != ends[s];
				ends[s] = now;
			}
		}
		assert_false(ends[GRAMMAR_DEAD] || g->complete[GRAMMAR_DEAD]);
		for (uint32_t s = 1; s < g->n_states; s++)
			assert_true(ends[s]);
		free(ends);
		grammar_destroy(g);
	}
}

static const struct {
	enum grammar_kind kind;
	const char *text, *word;
} refused[] = {
	{GRAMMAR_REGEX, "(a", "')' is missing"},
	{GRAMMAR_REGEX, "a)", "without '('"},
	{GRAMMAR_REGEX, "[a", "']' is missing"},
	{GRAMMAR_REGEX, "[b-a]", "before it begins"},
	{GRAMMAR_REGEX, "a**", "repeat of a repeat"},
	{GRAMMAR_REGEX, "*a", "nothing to repeat"},
	{GRAMMAR_REGEX, "a{3,2}", "is empty"},
	{GRAMMAR_REGEX, "a{99999}", "a count above"},
	{GRAMMAR_REGEX, "(?=a)b", "groups that begin with"},
	{GRAMMAR_REGEX, "(?i)a", "groups that begin with"},
	{GRAMMAR_REGEX, "a^b", "ends of the whole"},
	{GRAMMAR_REGEX, "\\bword", "\\b is not supported"},
	{GRAMMAR_REGEX, "(a)\\1", "references"},
	{GRAMMAR_REGEX, "\\p{L}", "\\p is not supported"},
	{GRAMMAR_REGEX, "\\ud800", "no character"},
	{GRAMMAR_REGEX, "a\xFF", "not UTF-8"},
	{GRAMMAR_REGEX, "\\", "behind a backslash"},
	{GRAMMAR_CHOICE, "[]", "no list"},
	{GRAMMAR_CHOICE, "[1]", "no list"},
	{GRAMMAR_CHOICE, "{", "line 1"},
	{GRAMMAR_SCHEMA, "3", "no schema"},
	{GRAMMAR_SCHEMA, "false", "no schema"},
	{GRAMMAR_SCHEMA, "{\"not\":{}}", "keyword \"not\""},
	{GRAMMAR_SCHEMA, "{\"type\":\"text\"}", "type is not one of"},
	{GRAMMAR_SCHEMA, "{\"type\":[]}", "neither a name"},
	{GRAMMAR_SCHEMA, "{\"properties\":{\"a\":{\"minimum\":1}}}",
		"at properties.a: the keyword \"minimum\""},
	{GRAMMAR_SCHEMA, "{\"type\":\"object\",\"required\":[\"x\"]}",
		"does not describe"},
	{GRAMMAR_SCHEMA, "{\"$ref\":\"#/$defs/none\"}", "is not found"},
	{GRAMMAR_SCHEMA, "{\"$ref\":\"http://x/y\"}", "is not found"},
	{GRAMMAR_SCHEMA, "{\"items\":{\"$ref\":\"#\"}}", "recursive"},
	{GRAMMAR_SCHEMA,
		"{\"$defs\":{\"a\":{\"items\":{\"$ref\":\"#/$defs/b\"}},\"b\":{\"items\":"
		"{\"$ref\":\"#/$defs/a\"}}},\"$ref\":\"#/$defs/a\"}",
		"recursive"},
	{GRAMMAR_SCHEMA, "{\"$ref\":\"#/$defs/a\",\"type\":\"null\"}", "beside $ref"},
	{GRAMMAR_SCHEMA, "{\"anyOf\":[{}],\"type\":\"null\"}", "beside anyOf"},
	{GRAMMAR_SCHEMA, "{\"enum\":[1],\"minLength\":1}", "beside enum"},
	{GRAMMAR_SCHEMA, "{\"enum\":[]}", "no value"},
	{GRAMMAR_SCHEMA, "{\"type\":\"null\",\"const\":1}", "no value"},
	{GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"a\",\"minLength\":1}",
		"pattern beside"},
	{GRAMMAR_SCHEMA, "{\"pattern\":\"(\"}", "pattern: at byte"},
	{GRAMMAR_SCHEMA, "{\"minItems\":4,\"maxItems\":2}", "minItems is above"},
	{GRAMMAR_SCHEMA, "{\"minItems\":-1}", "minItems is not"},
};

static void what_is_not_understood_is_refused_by_name(void **state)
{
	uint64_t taken = mem_taken();

	(void)state;
	for (size_t i = 0; i < COUNT(refused); i++) {
		struct grammar *g = NULL;
		struct err err;
		status st = grammar_compile(
			&g, refused[i].kind, bytes_of_str(refused[i].text), &err);

		assert_int_equal(st, ST_INVALID);
		assert_null(g);
		if (strstr(err.text, refused[i].word) == NULL)
			fail_msg("%s: %s", refused[i].text, err.text);
	}
	assert_int_equal(mem_taken(), taken);
}

/* A text of n pieces between two ends. */
static char *repeated(const char *before, const char *piece, size_t n, const char *behind)
{
	size_t len = strlen(piece), at = strlen(before);
	char *text = malloc(at + n * len + strlen(behind) + 1);

	memcpy(text, before, at);
	for (size_t i = 0; i < n; i++, at += len)
		memcpy(text + at, piece, len);
	memcpy(text + at, behind, strlen(behind) + 1);
	return text;
}

static void what_costs_too_much_is_refused(void **state)
{
	/* Each level twice the one below it: 2^20 numbers in the end. */
	static const char doubled[] =
		"{\"$defs\":{\"d0\":{\"type\":\"integer\"}%s},\"$ref\":\"#/$defs/d20\"}";
	char levels[4096], bomb[5000];
	size_t at = 0;
	char *texts[] = {
		repeated("", "(", 40, "a"),
		repeated("", "(a{200}){200}", 9, ""),
		repeated("(((){60000}){60000}){60000}", "", 0, ""),
		repeated(".*a.{16}", "", 0, ""),
		repeated("", "[^a]", 40000, ""),
		repeated("", "{\"items\":", 100, "{}"),
		repeated("{\"enum\":[\"", "x", GRAMMAR_TEXT_MAX, "\"]}"),
		repeated("{\"enum\":[", "[],", 30000, "1]}"),
	};
	uint64_t taken = mem_taken();

	(void)state;
	for (int i = 1; i <= 20; i++)
		at += (size_t)snprintf(levels + at, sizeof(levels) - at,
			",\"d%d\":{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":"
			"\"#/$defs/d%d\"},\"b\":{\"$ref\":\"#/$defs/d%d\"}}}",
			i, i - 1, i - 1);
	snprintf(bomb, sizeof(bomb), doubled, levels);
	for (size_t i = 0; i <= COUNT(texts); i++) {
		const char *text = i < COUNT(texts) ? texts[i] : bomb;
		enum grammar_kind kind = text[0] == '{' ? GRAMMAR_SCHEMA : GRAMMAR_REGEX;
		struct grammar *g = NULL;
		struct err err;

		assert_int_not_equal(
			grammar_compile(&g, kind, bytes_of_str(text), &err), ST_OK);
		assert_int_equal(mem_taken(), taken);
	}
	for (size_t i = 0; i < COUNT(texts); i++)
		free(texts[i]);
}

/* ---- tokens ---- */

#define N_TOKENS 3000u
#define END      2999u
#define CLOSE    2998u
#define NEWLINES 2997u

/* All bytes, and pieces of JSON; the last two are no text. */
static struct vocab *make_vocab(struct bytes *tokens)
{
	static const char letters[] = "{}[]\",: 0123abtrue\\n\xC3\xA9\xE2\x82\xAC";
	static uint8_t text[N_TOKENS][8];

	for (uint32_t i = 0; i < NEWLINES; i++) {
		size_t len = i < 256 ? 1 : 1 + mixed(i) % 6;

		for (size_t k = 0; k < len; k++)
			text[i][k] = i < 256 ? (uint8_t)i
					     : (uint8_t)letters[mixed(i * 8 + k) %
								(sizeof(letters) - 1)];
		tokens[i] = (struct bytes){text[i], len};
	}
	memcpy(text[NEWLINES], "\n\n", 2);
	tokens[NEWLINES] = (struct bytes){text[NEWLINES], 2};
	tokens[CLOSE] = tokens[END] = (struct bytes){NULL, 0};
	return vocab_make(tokens, N_TOKENS);
}

static bool bit(const uint32_t *bits, uint32_t id)
{
	return (bits[id / 32] >> id % 32 & 1) != 0;
}

static void a_mask_has_the_tokens_that_lead_somewhere(void **state)
{
	static struct bytes tokens[N_TOKENS];
	static uint32_t bits[VOCAB_WORDS(N_TOKENS)];
	struct vocab *v = make_vocab(tokens);

	(void)state;
	assert_true(vocab_is_whole(v));
	for (size_t i = 0; i < COUNT(languages); i++) {
		struct grammar *g = make(languages[i].kind, languages[i].text);

		for (uint32_t s = 0; s < g->n_states; s += 1 + g->n_states / 50) {
			vocab_mask(v, g, s, bits);
			for (uint32_t id = 0; id < N_TOKENS; id++) {
				bool leads =
					s != GRAMMAR_DEAD && tokens[id].len > 0 &&
					grammar_walk(g, s, tokens[id]) != GRAMMAR_DEAD;

				assert_int_equal(bit(bits, id), leads);
			}
		}
		grammar_destroy(g);
	}
	vocab_destroy(v);
}

static void a_vocabulary_that_lacks_a_byte_is_not_whole(void **state)
{
	static struct bytes tokens[N_TOKENS];
	struct vocab *v;

	(void)state;
	vocab_destroy(make_vocab(tokens));
	tokens['x'].len = 0;
	v = vocab_make(tokens, 256);
	assert_false(vocab_is_whole(v));
	vocab_destroy(v);
}

/* Draws of a die until the end: no mask is empty, whatever was drawn is taken, and what
 * is not allowed is not; the text is of the language when the end comes. */
static void draw_one(const struct vocab *v, const struct bytes *tokens,
	const struct language *l, uint64_t seed)
{
	static const uint32_t ends[] = { END };
	static uint32_t bits[VOCAB_WORDS(N_TOKENS)];
	struct guide_terms terms = {
		l->kind, bytes_of_str(l->text), GUIDE_AT_ONCE, ends, 1, v};
	struct grammar *g = make(l->kind, l->text);
	struct guide *guide = NULL;
	uint32_t drawn = 0, s = g->start;
	struct err err;

	assert_int_equal(guide_make(&guide, &terms, &err), ST_OK);
	for (uint32_t step = 0; step < 200 && drawn != END; step++) {
		uint32_t allowed[N_TOKENS], n = 0;

		guide_mask(guide, bits);
		for (uint32_t id = 0; id < N_TOKENS; id++)
			if (bit(bits, id))
				allowed[n++] = id;
		assert_true(n > 0);
		assert_int_equal(bit(bits, END), g->complete[s]);
		drawn = allowed[mixed(seed + step) % n];
		assert_true(guide_take(guide, drawn));
		if (drawn != END)
			s = grammar_walk(g, s, tokens[drawn]);
		assert_int_not_equal(s, GRAMMAR_DEAD);
	}
	assert_true(drawn != END || g->complete[s]);
	guide_destroy(guide);
	grammar_destroy(g);
}

static void whatever_is_drawn_there_is_a_next_token_until_the_end(void **state)
{
	static struct bytes tokens[N_TOKENS];
	struct vocab *v = make_vocab(tokens);

	(void)state;
	for (size_t i = 0; i < COUNT(languages); i++)
		for (uint64_t k = 0; k < 5; k++)
			draw_one(v, tokens, &languages[i], 1000 * i + 7777 * k);
	vocab_destroy(v);
}

static void a_grammar_begins_behind_the_reasoning(void **state)
{
	static struct bytes tokens[N_TOKENS];
	static const uint32_t ends[] = { END };
	static uint32_t bits[VOCAB_WORDS(N_TOKENS)];
	struct vocab *v = make_vocab(tokens);
	struct guide_terms terms = {GRAMMAR_REGEX, BYTES_STR("ab"), CLOSE, ends, 1, v};
	struct guide *g = NULL;
	struct err err;

	(void)state;
	assert_int_equal(guide_make(&g, &terms, &err), ST_OK);
	guide_mask(g, bits);
	assert_true(bit(bits, 'x') && bit(bits, CLOSE) && !bit(bits, END));
	assert_false(guide_take(g, END));
	assert_true(guide_take(g, 'x') && guide_take(g, CLOSE));
	guide_mask(g, bits);
	assert_true(bit(bits, NEWLINES) && bit(bits, '\n') && bit(bits, 'a'));
	assert_true(!bit(bits, 'x') && !bit(bits, CLOSE) && !bit(bits, END));
	assert_true(guide_take(g, NEWLINES));
	guide_mask(g, bits);
	assert_true(!bit(bits, NEWLINES) && bit(bits, 'a') && !bit(bits, 'b'));
	assert_false(guide_take(g, NEWLINES) || guide_take(g, 'b'));
	assert_true(guide_take(g, 'a') && guide_take(g, 'b'));
	guide_mask(g, bits);
	for (uint32_t id = 0; id < N_TOKENS; id++)
		assert_int_equal(bit(bits, id), id == END);
	assert_true(guide_take(g, END));
	assert_false(guide_take(g, END));
	guide_destroy(g);
	vocab_destroy(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_text_is_let_through_when_it_is_of_the_language),
		cmocka_unit_test(no_state_is_a_dead_end),
		cmocka_unit_test(what_is_not_understood_is_refused_by_name),
		cmocka_unit_test(what_costs_too_much_is_refused),
		cmocka_unit_test(a_mask_has_the_tokens_that_lead_somewhere),
		cmocka_unit_test(a_vocabulary_that_lacks_a_byte_is_not_whole),
		cmocka_unit_test(whatever_is_drawn_there_is_a_next_token_until_the_end),
		cmocka_unit_test(a_grammar_begins_behind_the_reasoning),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
