/* Every message both ways, and everything that decoding must refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "unit/wire/wire_random.h"

#include <math.h>

#define POOL_BYTES  6000
#define N_MUTATIONS 2000000u

struct fixture {
	uint8_t pool_bytes[POOL_BYTES];
	struct bytes pool;
	uint8_t *a, *b; /* room for any message */
	struct sink out;
	uint64_t state;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->state = 42;
	for (size_t i = 0; i < POOL_BYTES; i++)
		f->pool_bytes[i] = (uint8_t)draw(&f->state);
	f->pool = (struct bytes){f->pool_bytes, POOL_BYTES};
	f->a = calloc(1, wire_size_max());
	f->b = calloc(1, wire_size_max());
	sink_init(&f->out, WIRE_MAX_BYTES);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	sink_release(&f->out);
	free(f->a);
	free(f->b);
	free(f);
	assert_int_equal(mem_taken(), 0);
	return 0;
}

static void encode(struct fixture *f, const struct wire_msg *m, enum optional which)
{
	struct err err;

	fill_message(m, f->a, f->pool, which, &f->state);
	sink_reset(&f->out);
	assert_int_equal(wire_encode(m, f->a, &f->out, &err), ST_OK);
}

/* ---- the table itself ---- */

/* The i-th message, in the order of types; NULL: there are fewer. */
static const struct wire_msg *wire_at(size_t i)
{
	for (unsigned type = 0; type <= UINT8_MAX; type++)
		if (wire_find(type) != NULL && i-- == 0)
			return wire_find(type);
	return NULL;
}

static void every_message_is_found_by_its_type_and_its_keys_differ(void **state)
{
	const struct wire_msg *m;
	size_t n = 0;

	(void)state;
	for (; (m = wire_at(n)) != NULL; n++) {
		uint64_t keys = 0;

		assert_ptr_equal(wire_find(m->type), m);
		assert_true(m->size <= wire_size_max());
		assert_true(m->from != 0 && m->to != 0);
		for (size_t i = 0; i < m->n_fields; i++) {
			uint64_t bit = UINT64_C(1) << m->field[i].key;

			assert_false(keys & bit);
			keys |= bit;
			assert_false(
				m->field[i].required && m->field[i].offset >= m->size);
		}
	}
	assert_true(n >= 30);
	assert_null(wire_find(0));
	assert_null(wire_find(255));
}

static void codes_have_texts_and_unknown_ones_do_not_read_past_the_table(void **state)
{
	(void)state;
	assert_string_equal(wire_refusal_text(REFUSED_ID_IN_USE), "id in use");
	assert_string_equal(wire_reject_text(REJECT_DRAINING), "draining");
	assert_string_equal(wire_finish_text(FINISH_LENGTH), "length");
	assert_string_equal(wire_refusal_text(REFUSED__COUNT), "unknown code");
	assert_string_equal(wire_reject_text(255), "unknown code");
	assert_string_equal(wire_finish_text(UINT32_MAX), "unknown code");
}

/* ---- both ways ---- */

static void every_message_comes_back_as_it_was(void **state)
{
	struct fixture *f = *state;
	const struct wire_msg *m;

	for (size_t k = 0; (m = wire_at(k)) != NULL; k++)
		for (int round = 0; round < 200; round++) {
			const char *differs;
			struct err err;

			encode(f, m, (enum optional)(round % 3));
			if (wire_decode(m, sink_bytes(&f->out), f->b, &err) != ST_OK)
				fail_msg("%s: %s", m->name, err.text);
			differs = first_difference(m, f->a, f->b);
			if (differs != NULL)
				fail_msg("%s.%s differs", m->name, differs);
		}
}

static void what_is_not_drawn_by_takes_no_bytes(void **state)
{
	static const struct wire_bias bias = {7, 1.5f};
	struct fixture *f = *state;
	const struct wire_msg *m = wire_find(MSG_prefill);
	struct msg_prefill a = {.draw = {.temperature = 1, .top_p = 1}, .n = 1};
	struct msg_prefill *b = (struct msg_prefill *)f->b;
	size_t plain;
	struct err err;

	assert_int_equal(wire_encode(m, &a, &f->out, &err), ST_OK);
	plain = f->out.len;
	sink_reset(&f->out);
	a.draw.presence = -0.5;
	a.draw.min_tokens = 3;
	a.draw.bias = (struct bytes){(const uint8_t *)&bias, sizeof(bias)};
	assert_int_equal(wire_encode(m, &a, &f->out, &err), ST_OK);
	/* Keys; a double, a small integer, a bin of eight bytes. */
	assert_int_equal(f->out.len, plain + 3 + 9 + 1 + 2 + 8);
	assert_int_equal(wire_decode(m, sink_bytes(&f->out), b, &err), ST_OK);
	assert_true(b->draw.presence == -0.5 && b->draw.frequency == 0);
	assert_int_equal(b->draw.min_tokens, 3);
	assert_int_equal(wire_count(b->draw.bias, struct wire_bias), 1);
	assert_int_equal(b->draw.bans.len, 0);
}

/* The number, or the length. */
static uint64_t first_word(const uint8_t *msg, const struct wire_field *f)
{
	size_t at = f->offset;
	uint64_t u;

	if (f->kind == WIRE_str || f->kind == WIRE_bin)
		at += offsetof(struct bytes, len);
	memcpy(&u, msg + at, sizeof(u));
	return u;
}

static void absent_fields_decode_without_their_flag(void **state)
{
	struct fixture *f = *state;
	const struct wire_msg *m;

	for (size_t k = 0; (m = wire_at(k)) != NULL; k++) {
		struct err err;

		encode(f, m, OPTIONAL_NONE);
		assert_int_equal(wire_decode(m, sink_bytes(&f->out), f->b, &err), ST_OK);
		for (size_t i = 0; i < m->n_fields; i++) {
			const struct wire_field *field = &m->field[i];

			if (field->has_offset != WIRE_NO_HAS)
				assert_int_equal(get_flag(f->b, field), field->required);
			else if (!field->required)
				assert_int_equal(first_word(f->b, field), 0);
		}
	}
}

static void records_are_read_one_by_one(void **state)
{
	struct fixture *f = *state;
	struct wire_token in[3] = {{.seq = 1, .token = 7, .choice = 2, .logprob = -0.5f},
		{.seq = UINT64_MAX, .attempt = 3}, {.seq = 5, .n_tops = 9}};
	struct msg_tokens a = {.router = 9}, b;
	struct wire_token out;
	struct err err;

	a.records = (struct bytes){(const uint8_t *)in, sizeof(in)};
	assert_int_equal(wire_encode(wire_find(MSG_tokens), &a, &f->out, &err), ST_OK);
	assert_int_equal(
		wire_decode(wire_find(MSG_tokens), sink_bytes(&f->out), &b, &err), ST_OK);
	assert_int_equal(wire_count(b.records, struct wire_token), 3);
	for (size_t i = 0; i < 3; i++) {
		wire_get(b.records, i, &out, sizeof(out));
		assert_memory_equal(&out, &in[i], sizeof(out));
	}
}

static void a_full_sink_is_a_limit_and_not_a_message(void **state)
{
	struct fixture *f = *state;
	struct sink small;
	struct err err;

	encode(f, wire_find(MSG_beat), OPTIONAL_ALL);
	for (size_t max = 0; max < f->out.len; max++) {
		sink_init(&small, max);
		assert_int_equal(
			wire_encode(wire_find(MSG_beat), f->a, &small, &err), ST_LIMIT);
		sink_release(&small);
	}
	sink_init(&small, f->out.len);
	assert_int_equal(wire_encode(wire_find(MSG_beat), f->a, &small, &err), ST_OK);
	sink_release(&small);
}

/* ---- refusals ---- */

static void every_truncation_and_every_extra_byte_is_refused(void **state)
{
	struct fixture *f = *state;
	const struct wire_msg *m;

	for (size_t k = 0; (m = wire_at(k)) != NULL; k++) {
		struct bytes all;
		struct err err;
		uint8_t *copy;

		encode(f, m, OPTIONAL_ALL);
		all = sink_bytes(&f->out);
		copy = malloc(all.len + 1);
		memcpy(copy, all.at, all.len);
		copy[all.len] = 0;
		for (size_t cut = 0; cut < all.len; cut++)
			assert_int_equal(
				wire_decode(m, (struct bytes){copy, cut}, f->b, &err),
				ST_INVALID);
		assert_int_equal(
			wire_decode(m, (struct bytes){copy, all.len + 1}, f->b, &err),
			ST_INVALID);
		free(copy);
	}
}

/* Bytes for `done` {1: lease, 2: ok}, a message of two required numbers, and for others
 * where the case needs another kind of field. */
struct refusal {
	const char *name;
	unsigned type;
	const char *in;
	size_t len;
	status want;
	const char *text;
};

#define IN(bytes) bytes, sizeof(bytes) - 1
static const struct refusal refusals[] = {
	{"array bomb", MSG_done, IN("\xdd\xff\xff\xff\xff"), ST_LIMIT, "elements"},
	{"map bomb", MSG_done, IN("\xdf\xff\xff\xff\xff"), ST_LIMIT, "elements"},
	{"array 16 bomb", MSG_done, IN("\xdc\xff\xff"), ST_LIMIT, "elements"},
	{"one element too many", MSG_done, IN("\xdc\x01\x01"), ST_LIMIT, "elements"},
	{"nested", MSG_done, IN("\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91"), ST_LIMIT,
		"nested"},
	{"bin lies", MSG_done, IN("\x81\x01\xc6\xff\xff\xff\xff"), ST_INVALID, "claimed"},
	{"str lies", MSG_done, IN("\x81\x01\xdb\x00\x00\x00\x01"), ST_INVALID, "claimed"},
	{"fixstr lies", MSG_done, IN("\x81\x01\xa2x"), ST_INVALID, "claimed"},
	{"twice", MSG_done, IN("\x83\x01\x05\x02\x01\x01\x06"), ST_INVALID,
		"lease appears twice"},
	{"twice the same", MSG_done, IN("\x83\x01\x05\x01\x05\x02\x01"), ST_INVALID,
		"twice"},
	{"missing", MSG_done, IN("\x81\x01\x05"), ST_INVALID, "ok is missing"},
	{"nothing there", MSG_done, IN("\x80"), ST_INVALID, "lease is missing"},
	{"empty", MSG_done, IN(""), ST_INVALID, "truncated"},
	{"trailing", MSG_done, IN("\x82\x01\x05\x02\x01\x00"), ST_INVALID,
		"after the message"},
	{"not a map", MSG_done, IN("\x92\x01\x02"), ST_INVALID, "not a map"},
	{"a number", MSG_done, IN("\x07"), ST_INVALID, "not a map"},
	{"fixext", MSG_done, IN("\x81\x01\xd4\x00\x00"), ST_INVALID, "type 0xd4"},
	{"ext 32", MSG_done, IN("\x81\x01\xc9\x00\x00\x00\x01\x00\x00"), ST_INVALID,
		"type 0xc9"},
	{"never used", MSG_done, IN("\xc1"), ST_INVALID, "type 0xc1"},
	{"negative", MSG_done, IN("\x82\x01\xff\x02\x01"), ST_INVALID,
		"lease has the wrong type"},
	{"nil", MSG_done, IN("\x82\x01\xc0\x02\x01"), ST_INVALID, "wrong type"},
	{"bool", MSG_done, IN("\x82\x01\x05\x02\xc3"), ST_INVALID,
		"ok has the wrong type"},
	{"float for u64", MSG_done,
		IN("\x82\x01\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\x02\x01"), ST_INVALID,
		"wrong type"},
	{"above max", MSG_done, IN("\x82\x01\x05\x02\x02"), ST_LIMIT,
		"ok is 2, at most 1"},
	{"string key", MSG_done, IN("\x81\xa1x\x05"), ST_INVALID, "key 0"},
	{"negative key", MSG_done, IN("\x81\xff\x05"), ST_INVALID, "key 0"},
	{"bin for str", MSG_peer_down, IN("\x82\x01\xc4\x01x\x02\x05"), ST_INVALID,
		"id has the wrong type"},
	{"str for bin", MSG_fetch, IN("\x81\x03\xa1x"), ST_INVALID,
		"pieces has the wrong type"},
	{"array for str", MSG_peer_down, IN("\x82\x01\x91\x01\x02\x05"), ST_INVALID,
		"wrong type"},
	{"str too long", MSG_peer_down,
		IN("\x82\x01\xd9\x31"
		   "0123456789012345678901234567890123456789012345678"
		   "\x02\x05"),
		ST_LIMIT, "id has 49 bytes, at most 48"},
	{"half a record", MSG_tokens, IN("\x81\x03\xc4\x17...5....0....5....0...3"),
		ST_INVALID, "not a multiple of its 24-byte records"},
};

static void malformed_bytes_are_refused_with_the_cause(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < COUNT(refusals); i++) {
		const struct refusal *r = &refusals[i];
		const struct wire_msg *m = wire_find(r->type);
		/* Exactly as long as the case, so that a sanitizer sees reads behind it.
		 */
		uint8_t *copy = malloc(r->len + (r->len == 0));
		struct err err = {0};
		status st;

		memcpy(copy, r->in, r->len);
		memset(f->b, 0xaa, m->size);
		st = wire_decode(m, (struct bytes){copy, r->len}, f->b, &err);
		free(copy);
		if (st != r->want || strstr(err.text, r->text) == NULL)
			fail_msg("%s: %s '%s'", r->name, status_name(st), err.text);
		assert_non_null(strstr(err.text, m->name));
		for (size_t k = 0; k < m->size; k++)
			assert_int_equal(f->b[k], 0);
	}
}

/* An f64 in big-endian msgpack form in place of the first f64 of a prefill. */
static void put_f64(uint8_t *at, double d)
{
	uint64_t u;

	memcpy(&u, &d, sizeof(u));
	for (int i = 0; i < 8; i++)
		at[i] = (uint8_t)(u >> 8 * (7 - i));
}

static void numbers_that_are_not_finite_or_too_large_are_refused(void **state)
{
	struct fixture *f = *state;
	const struct wire_msg *m = wire_find(MSG_prefill);
	struct msg_prefill a = {.draw.temperature = 0.0625, .n = 1};
	static const double bad[] = {NAN, INFINITY, -INFINITY, 100.0000001, -101, 1e300};
	struct err err;
	uint8_t *at = NULL;

	assert_int_equal(wire_encode(m, &a, &f->out, &err), ST_OK);
	for (size_t i = 0; i + 9 < f->out.len && at == NULL; i++)
		if (memcmp(f->out.at + i, "\x28\xcb\x3f\xb0", 4) ==
			0) /* key 40: 0.0625 */
			at = f->out.at + i + 2;
	assert_non_null(at);
	put_f64(at, 100);
	assert_int_equal(wire_decode(m, sink_bytes(&f->out), f->b, &err), ST_OK);
	for (size_t i = 0; i < COUNT(bad); i++) {
		put_f64(at, bad[i]);
		assert_int_not_equal(
			wire_decode(m, sink_bytes(&f->out), f->b, &err), ST_OK);
		assert_non_null(strstr(err.text, "temperature is"));
	}
}

static void unknown_keys_of_any_kind_are_ignored(void **state)
{
	struct fixture *f = *state;
	struct msg_done out;
	struct err err;
	/* 60: {1: [nil, "x"]}, 2^32: 1.0 (f32), then the known ones. */
	static const uint8_t in[] = {0x84, 0x3c, 0x81, 0x01, 0x92, 0xc0, 0xa1, 'x', 0xce,
		0xff, 0xff, 0xff, 0xff, 0xca, 0x3f, 0x80, 0, 0, 0x02, 0x01, 0x01, 0x2a};

	(void)f;
	assert_int_equal(wire_decode(wire_find(MSG_done), (struct bytes){in, sizeof(in)},
				 &out, &err),
		ST_OK);
	assert_int_equal(out.lease, 42);
	assert_int_equal(out.ok, 1);
	assert_true(out.has_lease && out.has_ok);
}

static void a_message_above_the_frame_limit_is_refused_unread(void **state)
{
	struct err err;

	(void)state;
	/* The address is never followed. */
	assert_int_equal(
		wire_guard((struct bytes){(const uint8_t *)"", WIRE_MAX_BYTES + 1}, &err),
		ST_LIMIT);
}

/* ---- mutations ---- */

/* Flip, overwrite, cut or lengthen a valid message: nothing crashes, and what decodes
 * encodes again. Seeded: a failure repeats. */
static size_t mutate(uint8_t *at, size_t len, size_t cap, uint64_t *state)
{
	static const uint8_t headers[] = {
		0xdd, 0xdf, 0xc6, 0xdb, 0xcf, 0xcb, 0xc1, 0xd4, 0x80, 0x9f, 0xff, 0x7f};
	unsigned n = 1 + (unsigned)(draw(state) % 3);

	while (n-- > 0) {
		size_t i = draw(state) % len;

		switch (draw(state) % 5) {
		case 0:
			at[i] ^= (uint8_t)(1u << draw(state) % 8);
			break;
		case 1:
			at[i] = (uint8_t)draw(state);
			break;
		case 2:
			at[i] = headers[draw(state) % COUNT(headers)];
			break;
		case 3:
			len = MAX(i, 1);
			break;
		default:
			if (len < cap)
				at[len++] = (uint8_t)draw(state);
			break;
		}
	}
	return len;
}

static void mutated_messages_do_no_harm(void **state)
{
	struct fixture *f = *state;
	struct sink again;
	uint8_t seed[64][512], work[520];
	size_t seed_len[64];
	const struct wire_msg *of[64];
	uint32_t n_decoded = 0;
	struct err err;
	size_t n_messages = 0;

	while (wire_at(n_messages) != NULL)
		n_messages++;
	sink_init(&again, WIRE_MAX_BYTES);
	f->pool.len = 24; /* short fields: most mutations hit a header */
	for (size_t i = 0; i < 64; i++) {
		do {
			of[i] = wire_at(draw(&f->state) % n_messages);
			encode(f, of[i], (enum optional)(i % 3));
		} while (f->out.len > sizeof(seed[i]));
		memcpy(seed[i], f->out.at, f->out.len);
		seed_len[i] = f->out.len;
	}
	for (uint32_t i = 0; i < N_MUTATIONS; i++) {
		size_t k = draw(&f->state) % 64;
		size_t len;

		memcpy(work, seed[k], seed_len[k]);
		len = mutate(work, seed_len[k], sizeof(work), &f->state);
		if (wire_decode(of[k], (struct bytes){work, len}, f->b, &err) != ST_OK)
			continue;
		n_decoded++;
		sink_reset(&again);
		assert_int_equal(wire_encode(of[k], f->b, &again, &err), ST_OK);
	}
	sink_release(&again);
	/* Both outcomes must have been common, or the mutations test nothing. */
	assert_in_range(n_decoded, N_MUTATIONS / 100, N_MUTATIONS / 100 * 90);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_message_is_found_by_its_type_and_its_keys_differ),
		T(codes_have_texts_and_unknown_ones_do_not_read_past_the_table),
		T(every_message_comes_back_as_it_was),
		T(absent_fields_decode_without_their_flag),
		T(what_is_not_drawn_by_takes_no_bytes),
		T(records_are_read_one_by_one),
		T(a_full_sink_is_a_limit_and_not_a_message),
		T(every_truncation_and_every_extra_byte_is_refused),
		T(malformed_bytes_are_refused_with_the_cause),
		T(numbers_that_are_not_finite_or_too_large_are_refused),
		T(unknown_keys_of_any_kind_are_ignored),
		T(a_message_above_the_frame_limit_is_refused_unread),
		T(mutated_messages_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
