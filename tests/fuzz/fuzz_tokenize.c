// layers: base model
/* One byte of flags and any bytes of text through the demo model's tokenizer: broken
 * UTF-8 is refused, and what is in NFC and has no masks comes back as it was. */
#include "common/base/mem.h"
#include "common/base/utf8.h"
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

static const struct tokenizer *demo(void)
{
	static struct tokenizer *t;
	struct err err;

	if (t == NULL)
		CHECK(tokenizer_load(&t, BATON_SOURCE_DIR "/deploy/demo-model", &err) ==
			ST_OK);
	return t;
}

/* Each id alone and copied on the way: a stream never holds half a character. */
static void decode(const struct tok_ids *ids, struct sink *out)
{
	struct detok d;

	detok_init(&d, demo(), false);
	for (size_t i = 0; i < ids->n; i++) {
		struct detok moved = d;

		detok_feed(&moved, ids->v[i], out);
		CHECK(utf8_valid_len(sink_bytes(out)) == out->len);
		d = moved;
	}
	detok_flush(&d, out);
}

static void check_text(struct bytes text, unsigned flags, const struct tok_ids *ids)
{
	bool marks = memmem(text.at, text.len, TOK_MASK_UTF8, 4) != NULL;
	struct sink normal, back;
	struct err err;

	sink_init(&normal, SIZE_MAX / 2);
	sink_init(&back, SIZE_MAX / 2);
	CHECK(tok_norm_nfc(text, &normal, &err) == ST_OK);
	decode(ids, &back);
	if (flags == 0)
		CHECK(bytes_eq(sink_bytes(&back), sink_bytes(&normal)));
	else if (bytes_eq(text, sink_bytes(&normal)) && !((flags & TOK_MASKED) && marks))
		CHECK(bytes_eq(sink_bytes(&back), text));
	sink_release(&normal);
	sink_release(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes text;
	struct tok_ids ids;
	unsigned flags;
	struct err err;
	status st;

	if (size < 1)
		return 0;
	text = (struct bytes){data + 1, size - 1};
	flags = data[0] & (TOK_ADDED | TOK_MASKED);
	tok_ids_init(&ids, SIZE_MAX);
	st = tokenizer_encode(demo(), text, flags, &ids, &err);
	if (utf8_valid_len(text) < text.len) {
		CHECK(st == ST_INVALID && ids.n == 0);
	} else {
		CHECK(st == ST_OK);
		check_text(text, flags, &ids);
	}
	tok_ids_release(&ids);
	CHECK(mem_taken() == 0);
	return 0;
}
