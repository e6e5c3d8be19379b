// layers: base model
/* Any bytes as tokenizer.json, a zero byte, and tokenizer_config.json: refused with a
 * sentence, or a tokenizer that gives a text back. */
#include "common/base/mem.h"
#include "common/model/detok.h"
#include "common/model/tok_impl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                 \
	do {                                                                             \
		if (!(condition))                                                        \
			abort();                                                         \
	} while (0)

static void use(const struct tokenizer *t)
{
	static const char text[] = "Is this 1 text? <|im_end|><think>\xe4\xbd\xa0\n";
	struct bytes want = {(const uint8_t *)text, sizeof(text) - 1};
	struct tok_ids ids;
	struct sink back;
	struct detok d;
	struct err err;

	tok_ids_init(&ids, 4096);
	sink_init(&back, 1u << 20);
	detok_init(&d, t, false);
	CHECK(tokenizer_encode(t, want, TOK_ADDED | TOK_MASKED, &ids, &err) == ST_OK);
	for (size_t i = 0; i < ids.n; i++) {
		CHECK(ids.v[i] < tokenizer_n_tokens(t));
		detok_feed(&d, ids.v[i], &back);
	}
	detok_flush(&d, &back);
	CHECK(bytes_eq(sink_bytes(&back), want));
	tok_ids_release(&ids);
	sink_release(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
	size_t n = zero == NULL ? size : (size_t)(zero - data);
	struct bytes json = {data, n}, config = {data, 0};
	struct tokenizer *t = NULL;
	struct err err = {0};

	if (zero != NULL)
		config = (struct bytes){zero + 1, size - n - 1};
	if (tokenizer_parse(&t, json, config, &err) == ST_OK) {
		use(t);
		tokenizer_destroy(t);
	} else {
		CHECK(t == NULL && err.text[0] != '\0');
	}
	CHECK(mem_taken() == 0);
	return 0;
}
