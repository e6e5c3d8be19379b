/* Random messages of any type, filled from the table, and their comparison. */
#ifndef TESTS_UNIT_WIRE_WIRE_RANDOM_H
#define TESTS_UNIT_WIRE_WIRE_RANDOM_H
#include "common/wire/wire.h"

#include <stdlib.h>
#include <string.h>

/* xorshift64*: seeded, so that every failure can be repeated. */
static inline uint64_t draw(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(2685821657736338717);
}

enum optional { OPTIONAL_NONE, OPTIONAL_ALL, OPTIONAL_SOME };

static inline void set_flag(uint8_t *msg, const struct wire_field *f)
{
	bool has = true;

	if (f->has_offset != WIRE_NO_HAS)
		memcpy(msg + f->has_offset, &has, sizeof(has));
}

static inline bool get_flag(const uint8_t *msg, const struct wire_field *f)
{
	bool has = true; /* without a flag zero is absent: compared as any value */

	if (f->has_offset != WIRE_NO_HAS)
		memcpy(&has, msg + f->has_offset, sizeof(has));
	return has;
}

/* Values spread over all sizes, the largest and 0 among them. */
static inline uint64_t draw_up_to(uint64_t *state, uint64_t max)
{
	uint64_t v = draw(state) >> (draw(state) % 64);

	switch (draw(state) % 8) {
	case 0:
		return max;
	case 1:
		return 0;
	default:
		return max == UINT64_MAX ? v : v % (max + 1);
	}
}

/* Bytes of str, bin and records point into pool, which holds pool_len random bytes. */
static inline void fill_field(
	const struct wire_field *f, uint8_t *msg, struct bytes pool, uint64_t *state)
{
	uint64_t unit = f->elem_size > 0 ? f->elem_size : 1;
	uint64_t u, n;
	struct bytes b;
	double d;

	switch ((enum wire_kind)f->kind) {
	case WIRE_u64:
		u = draw_up_to(state, f->max);
		memcpy(msg + f->offset, &u, sizeof(u));
		break;
	case WIRE_f64:
		d = ((double)(draw(state) >> 11) * 0x1p-52 - 1) * f->max_f64;
		memcpy(msg + f->offset, &d, sizeof(d));
		break;
	case WIRE_str:
	case WIRE_bin:
		n = MIN(f->max, pool.len / unit);
		n = draw(state) % 4 == 0 ? 0 : draw(state) % (n + 1);
		b = (struct bytes){pool.at, (size_t)(n * unit)};
		b.at += draw(state) % (pool.len - b.len + 1);
		memcpy(msg + f->offset, &b, sizeof(b));
		break;
	}
	set_flag(msg, f);
}

static inline void fill_message(const struct wire_msg *m, uint8_t *msg, struct bytes pool,
	enum optional which, uint64_t *state)
{
	memset(msg, 0, m->size);
	for (size_t i = 0; i < m->n_fields; i++)
		if (m->field[i].required || which == OPTIONAL_ALL ||
			(which == OPTIONAL_SOME && draw(state) % 2 == 0))
			fill_field(&m->field[i], msg, pool, state);
}

static inline bool fields_equal(
	const struct wire_field *f, const uint8_t *a, const uint8_t *b)
{
	struct bytes x, y;

	if (get_flag(a, f) != get_flag(b, f))
		return false;
	if (!get_flag(a, f))
		return true;
	if (f->kind == WIRE_u64 || f->kind == WIRE_f64)
		return memcmp(a + f->offset, b + f->offset, 8) == 0;
	memcpy(&x, a + f->offset, sizeof(x));
	memcpy(&y, b + f->offset, sizeof(y));
	return bytes_eq(x, y);
}

/* NULL: equal; else the name of the first field that differs. */
static inline const char *first_difference(
	const struct wire_msg *m, const uint8_t *a, const uint8_t *b)
{
	for (size_t i = 0; i < m->n_fields; i++)
		if (!fields_equal(&m->field[i], a, b))
			return m->field[i].name;
	return NULL;
}

#endif
