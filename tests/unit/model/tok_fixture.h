/* What the tokenizer tests share: the demo model's tokenizer, encoding, decoding. */
#ifndef TESTS_UNIT_MODEL_TOK_FIXTURE_H
#define TESTS_UNIT_MODEL_TOK_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/model/detok.h"
#include "common/model/tok_impl.h"
#include "common/model/tokenizer.h"

#include <string.h>

#define DEMO_MODEL BATON_SOURCE_DIR "/deploy/demo-model"

#define CHECK_OK(call)                                                                   \
	do {                                                                             \
		status check_ok = (call);                                                \
		if (check_ok != ST_OK)                                                   \
			fail_msg("%s: %s", status_name(check_ok), err.text);             \
	} while (0)

static inline int load_demo(void **state)
{
	struct tokenizer *t;
	struct err err;

	CHECK_OK(tokenizer_load(&t, DEMO_MODEL, &err));
	*state = t;
	return 0;
}

static inline int destroy_demo(void **state)
{
	tokenizer_destroy(*state);
	assert_int_equal(mem_taken(), 0);
	return 0;
}

static inline struct tok_ids encode(
	const struct tokenizer *t, struct bytes text, unsigned flags)
{
	struct tok_ids ids;
	struct err err;

	tok_ids_init(&ids, SIZE_MAX);
	CHECK_OK(tokenizer_encode(t, text, flags, &ids, &err));
	return ids;
}

/* The text of ids, to be released. */
static inline struct sink decode(
	const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special)
{
	struct sink out;
	struct detok d;

	sink_init(&out, SIZE_MAX / 2);
	detok_init(&d, t, skip_special);
	for (size_t i = 0; i < n; i++)
		detok_feed(&d, ids[i], &out);
	detok_flush(&d, &out);
	return out;
}

static inline void put_cp(struct sink *s, uint32_t cp)
{
	uint8_t buf[4];

	sink_put(s, buf, utf8_write(cp, buf));
}

static inline struct sink nfc(struct bytes text)
{
	struct sink out;
	struct err err;

	sink_init(&out, SIZE_MAX / 2);
	CHECK_OK(tok_norm_nfc(text, &out, &err));
	return out;
}

static inline void check_text(struct bytes want, struct bytes got)
{
	if (!bytes_eq(want, got))
		fail_msg("want \"%.*s\", got \"%.*s\"", (int)want.len,
			(const char *)want.at, (int)got.len, (const char *)got.at);
}

/* ids: as text, "12 7 9". */
static inline void check_ids(const char *want, const struct tok_ids *got)
{
	struct sink text;

	sink_init(&text, 1u << 20);
	for (size_t i = 0; i < got->n; i++)
		sink_fmt(&text, i > 0 ? " %u" : "%u", got->v[i]);
	assert_string_equal(want, sink_cstr(&text));
	sink_release(&text);
}

#endif
