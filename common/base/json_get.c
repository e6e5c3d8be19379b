/* Reading the values of a JSON document. */
#include "common/base/json_impl.h"

#include <math.h>
#include <string.h>

bool json_is(const struct json *v, enum json_kind kind)
{
	return v != NULL && v->kind == (uint32_t)kind;
}

bool json_is_bool(const struct json *v)
{
	return json_is(v, JSON_TRUE) || json_is(v, JSON_FALSE);
}

bool json_equals(const struct json *v, const char *text)
{
	return json_is(v, JSON_STRING) && bytes_eq(json_bytes(v), bytes_of_str(text));
}

struct bytes json_bytes(const struct json *v)
{
	return json_is(v, JSON_STRING) ? (struct bytes){v->at, v->len}
				       : (struct bytes){NULL, 0};
}

const char *json_text(const struct json *v)
{
	if (!json_is(v, JSON_STRING) || strlen((const char *)v->at) != v->len)
		return NULL;
	return (const char *)v->at;
}

uint32_t json_count(const struct json *v)
{
	return json_is(v, JSON_ARRAY) || json_is(v, JSON_OBJECT) ? v->n : 0;
}

const struct json *json_member(const struct json *v, const char *name)
{
	const struct json *found;

	if (!json_is(v, JSON_OBJECT))
		return NULL;
	found = json_table_find(v, bytes_of_str(name));
	return found != NULL ? found + 1 : NULL;
}

const struct json *json_given(const struct json *v, const char *name)
{
	const struct json *found = json_member(v, name);

	return json_is(found, JSON_NULL) ? NULL : found;
}

const struct json *json_item(const struct json *v, uint32_t i)
{
	const struct json *item;

	if (!json_is(v, JSON_ARRAY) || i >= v->n)
		return NULL;
	item = v + 1;
	if (v->span == v->n + 1)
		return item + i;
	while (i-- > 0)
		item += item->span;
	return item;
}

const struct json *json_first(const struct json *v, enum json_kind kind)
{
	return json_is(v, kind) ? v + 1 : json_end(v);
}

const struct json *json_end(const struct json *v)
{
	return v != NULL ? v + v->span : NULL;
}

/* A number's text as digits times a power of ten. */
struct decimal {
	const uint8_t *digits, *end; /* a point may stand between */
	int64_t exponent;            /* of the last digit */
	bool negative;
};

/* Enough to outweigh every digit of the longest text. */
#define EXPONENT_MAX INT64_C(1000000000000)

static bool take_apart(const struct json *v, struct decimal *d)
{
	const uint8_t *p = v->at, *end = v->at + v->len, *point = NULL;
	bool minus = false;

	*d = (struct decimal){.negative = *p == '-'};
	p += d->negative;
	if (*p < '0' || *p > '9')
		return false; /* NaN, Infinity */
	d->digits = p;
	for (; p < end && *p != 'e' && *p != 'E'; p++)
		if (*p == '.')
			point = p;
	d->end = p;
	if (p < end) {
		p++;
		minus = *p == '-';
		for (p += *p == '-' || *p == '+'; p < end; p++)
			d->exponent =
				MIN(d->exponent * 10 + (int64_t)(*p - '0'), EXPONENT_MAX);
	}
	if (minus)
		d->exponent = -d->exponent;
	if (point != NULL)
		d->exponent -= d->end - point - 1;
	while (d->end > d->digits && (d->end[-1] == '0' || d->end[-1] == '.')) {
		d->exponent += d->end[-1] == '0';
		d->end--;
	}
	return true;
}

bool json_i64(const struct json *v, int64_t *out)
{
	uint64_t value = 0, max;
	struct decimal d;

	if (!json_is(v, JSON_NUMBER) || !take_apart(v, &d))
		return false;
	max = (uint64_t)INT64_MAX + d.negative;
	for (const uint8_t *p = d.digits; p < d.end; p++)
		if (*p != '.' && (__builtin_mul_overflow(value, 10, &value) ||
					 __builtin_add_overflow(
						 value, (uint64_t)(*p - '0'), &value)))
			return false;
	if (value != 0 && d.exponent < 0)
		return false;
	for (; value != 0 && d.exponent > 0; d.exponent--)
		if (__builtin_mul_overflow(value, 10, &value))
			return false;
	if (value > max)
		return false;
	*out = (int64_t)(d.negative ? 0 - value : value);
	return true;
}

/* What follows a number in the text never continues it, so its end is found again. No
 * program of this tree sets a locale. */
bool json_f64(const struct json *v, double *out)
{
	double value;

	if (!json_is(v, JSON_NUMBER))
		return false;
	value = strtod((const char *)v->at, NULL);
	if (!isfinite(value))
		return false;
	*out = value;
	return true;
}

struct shown {
	char *buf;
	size_t len, max;
};

static bool show_piece(void *to, const void *at, size_t len)
{
	struct shown *s = to;
	size_t n = MIN(len, s->max - s->len);

	memcpy(s->buf + s->len, at, n);
	s->len += n;
	return n == len;
}

const char *json_show(const struct json *v, char *buf, size_t size)
{
	struct shown s = {buf, 0, size - 1};

	if (!json_emit(show_piece, &s, v)) {
		s.len = size - 1 - 3;
		while (s.len > 0 && ((uint8_t)buf[s.len] & 0xc0) == 0x80)
			s.len--;
		memcpy(buf + s.len, "...", 3);
		s.len += 3;
	}
	buf[s.len] = 0;
	return buf;
}
