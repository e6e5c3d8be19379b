// layers: grammar
/* Schemas, expressions and lists of texts: each is refused, or it lets a text through
 * that can be completed from wherever the bytes behind it lead. First byte: the kind. */
#include "common/base/mem.h"
#include "common/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

static void check(bool ok)
{
	if (!ok)
		abort();
}

/* A step along the first way that is open, another one each time. */
static uint32_t step(const struct grammar *g, uint32_t state, uint32_t turn)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t to = grammar_step(g, state, (uint8_t)(i * 7 + turn * 31));

		if (to != GRAMMAR_DEAD)
			return to;
	}
	return GRAMMAR_DEAD;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t taken = mem_taken();
	struct grammar *g = NULL;
	struct err err;
	uint32_t state;

	if (size == 0)
		return 0;
	if (grammar_compile(&g, (enum grammar_kind)(GRAMMAR_SCHEMA + data[0] % 3),
		    (struct bytes){data + 1, size - 1}, &err) != ST_OK) {
		check(g == NULL && memchr(err.text, 0, sizeof(err.text)) != NULL);
		check(mem_taken() == taken);
		return 0;
	}
	state = g->start;
	for (uint32_t turn = 0; turn < 300; turn++) {
		uint32_t to = step(g, state, turn);

		check(to != GRAMMAR_DEAD || g->complete[state]);
		if (to == GRAMMAR_DEAD)
			break;
		state = to;
	}
	grammar_destroy(g);
	check(mem_taken() == taken);
	return 0;
}
