// layers: grammar
/* What grammars cost: making one, and the mask of one state over a vocabulary of release
 * size. Its tokens are made: words over letters with the lengths of a byte-level BPE,
 * every second one behind a space, and all bytes. */
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/grammar/guide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS  248320u
#define LONGEST 16u
#define RUNS    20u

static const struct {
	const char *name;
	enum grammar_kind kind;
	const char *text, *before; /* the state behind this text */
} cases[] = {
	{"inside of a free string", GRAMMAR_SCHEMA, "{\"type\":\"string\"}", "\""},
	{"inside of a string of at most 100", GRAMMAR_SCHEMA,
		"{\"type\":\"string\",\"maxLength\":100}", "\""},
	{"behind the brace of any object", GRAMMAR_SCHEMA, "{\"type\":\"object\"}", "{"},
	{"a digit", GRAMMAR_SCHEMA, "{\"type\":\"integer\"}", "1"},
	{"a word", GRAMMAR_REGEX, "[a-z]+( [a-z]+)*", ""},
	{"one of three", GRAMMAR_CHOICE, "[\"yes\",\"no\",\"maybe\"]", ""},
};

static struct vocab *make_vocab(void)
{
	static const char letters[] = "eeeettaaooiinnsshhrrdlucmfwypvbgk";
	struct bytes *tokens = mem_alloc(TOKENS, sizeof(*tokens));
	uint8_t *text = mem_alloc(TOKENS, LONGEST);
	struct vocab *v;

	for (uint32_t i = 0; i < TOKENS; i++) {
		uint8_t *at = text + (size_t)i * LONGEST;
		uint64_t h = hash64_u64(1, i);
		size_t len = i < 256 ? 1 : 2 + h % 5 + (h >> 8) % 6;

		for (size_t k = 0; k < len; k++)
			at[k] = (uint8_t)
				letters[hash64_u64(h, k) % (sizeof(letters) - 1)];
		if (i < 256)
			at[0] = (uint8_t)i;
		else if (i % 2 == 0)
			at[0] = ' ';
		tokens[i] = (struct bytes){at, len};
	}
	v = vocab_make(tokens, TOKENS);
	mem_free(tokens);
	return v;
}

int main(void)
{
	uint64_t start = clock_ns();
	struct vocab *v = make_vocab();
	uint32_t *bits = mem_alloc(VOCAB_WORDS(TOKENS), sizeof(*bits));

	printf("vocabulary of %u tokens: made in %.0f ms\n", TOKENS,
		(double)(clock_ns() - start) / NS_PER_MS);
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct grammar *g = NULL;
		uint64_t best = UINT64_MAX, made;
		uint32_t state, n = 0;
		struct err err;

		start = clock_ns();
		if (grammar_compile(&g, cases[i].kind, bytes_of_str(cases[i].text),
			    &err) != ST_OK) {
			fprintf(stderr, "%s\n", err.text);
			return 1;
		}
		made = clock_ns() - start;
		state = grammar_walk(g, g->start, bytes_of_str(cases[i].before));
		for (uint32_t run = 0; run < RUNS; run++) {
			start = clock_ns();
			vocab_mask(v, g, state, bits);
			best = MIN(best, clock_ns() - start);
		}
		for (uint32_t w = 0; w < VOCAB_WORDS(TOKENS); w++)
			n += (uint32_t)__builtin_popcount(bits[w]);
		printf("%-36s made in %6.2f ms, %5u states; mask in %6.3f ms, %6u "
		       "tokens allowed\n",
			cases[i].name, (double)made / NS_PER_MS, g->n_states,
			(double)best / NS_PER_MS, n);
		grammar_destroy(g);
	}
	vocab_destroy(v);
	return 0;
}
