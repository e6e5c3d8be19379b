/* The header of a safetensors file: a restricted JSON text, parsed in place in one
 * pass. Names become zero-terminated where they stand. */
#include "common/model/safetensors_impl.h"

#include "common/base/mem.h"

#include <stdlib.h>
#include <string.h>

struct scan {
	const char *start;
	char *at;
	char *end;
	bool metadata_seen;
};

static status syntax(const struct scan *s, struct err *err, const char *expected)
{
	if (s->at == s->end)
		return err_set(
			err, ST_INVALID, "header ends where %s is expected", expected);
	return err_set(err, ST_INVALID, "header byte %td: %s expected", s->at - s->start,
		expected);
}

static void skip_space(struct scan *s)
{
	while (s->at < s->end &&
		(*s->at == ' ' || *s->at == '\n' || *s->at == '\t' || *s->at == '\r'))
		s->at++;
}

/* Consumes c, after white space, when it is next. */
static bool next_is(struct scan *s, char c)
{
	skip_space(s);
	if (s->at == s->end || *s->at != c)
		return false;
	s->at++;
	return true;
}

/* A string without escapes, of printable ASCII; terminated over its closing quote. */
static status take_string(struct scan *s, const char *what, char **out, struct err *err)
{
	char *from;

	if (!next_is(s, '"'))
		return syntax(s, err, what);
	from = s->at;
	while (s->at < s->end && *s->at != '"') {
		if (*s->at < 0x20 || *s->at > 0x7e || *s->at == '\\')
			return err_set(err, ST_INVALID,
				"header byte %td: %s contains byte 0x%02x, only "
				"printable "
				"ASCII without escapes is read",
				s->at - s->start, what, (unsigned char)*s->at);
		if (s->at - from == ST_NAME_MAX)
			return err_set(err, ST_LIMIT,
				"header byte %td: %s is longer than %u bytes",
				from - s->start, what, ST_NAME_MAX);
		s->at++;
	}
	if (s->at == s->end)
		return syntax(s, err, "a closing quote");
	*s->at++ = 0;
	*out = from;
	return ST_OK;
}

static status take_u64(struct scan *s, const char *what, uint64_t *out, struct err *err)
{
	const char *from;

	skip_space(s);
	from = s->at;
	if (s->at < s->end && *s->at == '-')
		return err_set(err, ST_INVALID, "%s is negative", what);
	*out = 0;
	while (s->at < s->end && *s->at >= '0' && *s->at <= '9') {
		uint64_t digit = (uint64_t)(*s->at - '0');

		if (__builtin_mul_overflow(*out, UINT64_C(10), out) ||
			__builtin_add_overflow(*out, digit, out))
			return err_set(err, ST_INVALID, "%s does not fit 64 bits", what);
		s->at++;
	}
	if (s->at == from)
		return syntax(s, err, what);
	if (s->at < s->end && (*s->at == '.' || *s->at == 'e' || *s->at == 'E'))
		return err_set(err, ST_INVALID, "%s is not an integer", what);
	return ST_OK;
}

/* A metadata string: any text, nothing of it is kept. */
static status skip_string(struct scan *s, struct err *err)
{
	if (!next_is(s, '"'))
		return syntax(s, err, "a string of __metadata__");
	while (s->at < s->end && *s->at != '"') {
		if (*s->at == '\\' && s->end - s->at >= 2)
			s->at++;
		s->at++;
	}
	if (s->at == s->end)
		return syntax(s, err, "a closing quote");
	s->at++;
	return ST_OK;
}

static status skip_metadata(struct scan *s, struct err *err)
{
	status st;

	if (!next_is(s, '{'))
		return syntax(s, err, "the object of __metadata__");
	if (next_is(s, '}'))
		return ST_OK;
	do {
		st = skip_string(s, err);
		if (st != ST_OK)
			return st;
		if (!next_is(s, ':'))
			return syntax(s, err, "':'");
		st = skip_string(s, err);
		if (st != ST_OK)
			return st;
	} while (next_is(s, ','));
	if (!next_is(s, '}'))
		return syntax(s, err, "',' or '}'");
	return ST_OK;
}

static status take_dtype(struct scan *s, struct st_tensor *t, struct err *err)
{
	char *text;
	status st;

	st = take_string(s, "dtype", &text, err);
	if (st != ST_OK)
		return st;
	for (int i = 0; i < STD__COUNT; i++) {
		if (strcmp(text, st_dtype_name((enum st_dtype)i)) == 0) {
			t->dtype = (enum st_dtype)i;
			return ST_OK;
		}
	}
	return err_set(err, ST_INVALID, "unknown dtype \"%s\"", text);
}

static status take_shape(struct scan *s, struct st_tensor *t, struct err *err)
{
	status st;

	t->n_dims = 0;
	if (!next_is(s, '['))
		return syntax(s, err, "the array of shape");
	if (next_is(s, ']'))
		return ST_OK;
	do {
		if (t->n_dims == ST_DIMS_MAX)
			return err_set(err, ST_LIMIT, "shape of more than %u dimensions",
				ST_DIMS_MAX);
		st = take_u64(s, "a dimension of shape", &t->dim[t->n_dims], err);
		if (st != ST_OK)
			return st;
		t->n_dims++;
	} while (next_is(s, ','));
	if (!next_is(s, ']'))
		return syntax(s, err, "',' or ']'");
	return ST_OK;
}

static status take_offsets(struct scan *s, struct st_tensor *t, struct err *err)
{
	uint64_t end;
	status st;

	if (!next_is(s, '['))
		return syntax(s, err, "the array of data_offsets");
	st = take_u64(s, "data_offsets[0]", &t->begin, err);
	if (st != ST_OK)
		return st;
	if (!next_is(s, ','))
		return syntax(s, err, "','");
	st = take_u64(s, "data_offsets[1]", &end, err);
	if (st != ST_OK)
		return st;
	if (!next_is(s, ']'))
		return syntax(s, err, "']'");
	if (t->begin > end)
		return err_set(err, ST_INVALID, "data_offsets %llu..%llu are reversed",
			(unsigned long long)t->begin, (unsigned long long)end);
	t->bytes = end - t->begin;
	return ST_OK;
}

/* The range lies in the data and is exactly what dtype and shape need. */
static status check_range(const struct st_tensor *t, uint64_t data_bytes, struct err *err)
{
	static const uint8_t dtype_bits[STD__COUNT] = {
#define X(name, bits) [STD_##name] = bits,
		ST_DTYPE_MAP(X)
#undef X
	};
	uint64_t bits = dtype_bits[t->dtype];

	if (t->begin > data_bytes || t->bytes > data_bytes - t->begin)
		return err_set(err, ST_INVALID,
			"data_offsets %llu..%llu in %llu bytes of data",
			(unsigned long long)t->begin,
			(unsigned long long)(t->begin + t->bytes),
			(unsigned long long)data_bytes);
	for (uint32_t i = 0; i < t->n_dims; i++) {
		if (__builtin_mul_overflow(bits, t->dim[i], &bits))
			return err_set(
				err, ST_INVALID, "the product of the shape overflows");
	}
	if (bits % 8 != 0)
		return err_set(err, ST_INVALID, "%llu bits of %s do not end on a byte",
			(unsigned long long)bits, st_dtype_name(t->dtype));
	if (bits / 8 != t->bytes)
		return err_set(err, ST_INVALID,
			"dtype %s and shape need %llu bytes, data_offsets hold %llu",
			st_dtype_name(t->dtype), (unsigned long long)(bits / 8),
			(unsigned long long)t->bytes);
	return ST_OK;
}

enum field { FIELD_DTYPE, FIELD_SHAPE, FIELD_OFFSETS, FIELD__COUNT };
static const char *const field_names[FIELD__COUNT] = {"dtype", "shape", "data_offsets"};

static status take_field(
	struct scan *s, struct st_tensor *t, uint32_t *seen, struct err *err)
{
	static status (*const take[FIELD__COUNT])(struct scan *, struct st_tensor *,
		struct err *) = {take_dtype, take_shape, take_offsets};
	uint32_t f = 0;
	char *key;
	status st;

	st = take_string(s, "a field name", &key, err);
	if (st != ST_OK)
		return st;
	while (f < FIELD__COUNT && strcmp(key, field_names[f]) != 0)
		f++;
	if (f == FIELD__COUNT)
		return err_set(err, ST_INVALID, "unknown field \"%s\"", key);
	if (*seen & 1u << f)
		return err_set(err, ST_INVALID, "%s is given twice", key);
	*seen |= 1u << f;
	if (!next_is(s, ':'))
		return syntax(s, err, "':'");
	return take[f](s, t, err);
}

static status take_tensor(
	struct scan *s, struct st_tensor *t, uint64_t data_bytes, struct err *err)
{
	uint32_t seen = 0;
	status st;

	if (!next_is(s, '{'))
		return syntax(s, err, "'{'");
	do {
		st = take_field(s, t, &seen, err);
		if (st != ST_OK)
			return st;
	} while (next_is(s, ','));
	if (!next_is(s, '}'))
		return syntax(s, err, "',' or '}'");
	for (uint32_t f = 0; f < FIELD__COUNT; f++) {
		if (!(seen & 1u << f))
			return err_set(err, ST_INVALID, "%s is missing", field_names[f]);
	}
	return check_range(t, data_bytes, err);
}

static status append(struct st_index *ix, const struct st_tensor *t, struct err *err)
{
	if (ix->n_tensors == ST_TENSORS_MAX)
		return err_set(err, ST_LIMIT, "more than %u tensors", ST_TENSORS_MAX);
	if (ix->n_tensors == ix->cap_tensors) {
		uint32_t cap = ix->cap_tensors * 2;
		struct st_tensor *grown = mem_alloc(cap, sizeof(*grown));

		memcpy(grown, ix->tensors, ix->n_tensors * sizeof(*grown));
		mem_free(ix->tensors);
		ix->tensors = grown;
		ix->cap_tensors = cap;
	}
	ix->tensors[ix->n_tensors++] = *t;
	return ST_OK;
}

/* Empty tensors come before the one that begins where they stand. */
static int by_position(const void *pa, const void *pb)
{
	const struct st_tensor *a = pa, *b = pb;

	if (a->begin != b->begin)
		return a->begin < b->begin ? -1 : 1;
	return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

/* The format knows no holes: the tensors fill the data from its start to its end. */
static status check_cover(
	struct st_tensor *tensors, uint32_t n, uint64_t data_bytes, struct err *err)
{
	uint64_t at = 0;
	bool sorted = true;

	for (uint32_t i = 1; i < n && sorted; i++)
		sorted = by_position(&tensors[i - 1], &tensors[i]) <= 0;
	if (!sorted)
		qsort(tensors, n, sizeof(*tensors), by_position);
	for (uint32_t i = 0; i < n; i++) {
		const struct st_tensor *t = &tensors[i];

		if (t->begin < at && strcmp(t->name, tensors[i - 1].name) == 0)
			return err_set(
				err, ST_INVALID, "tensor %s: is named twice", t->name);
		if (t->begin < at)
			return err_set(err, ST_INVALID,
				"tensor %s: overlaps tensor %s at byte %llu of the data",
				t->name, tensors[i - 1].name,
				(unsigned long long)t->begin);
		if (t->begin > at)
			return err_set(err, ST_INVALID,
				"tensor %s: the %llu bytes before it belong to no tensor",
				t->name, (unsigned long long)(t->begin - at));
		at = t->begin + t->bytes;
	}
	if (at != data_bytes)
		return err_set(err, ST_INVALID, "%llu bytes after the last tensor",
			(unsigned long long)(data_bytes - at));
	return ST_OK;
}

static status take_entry(struct scan *s, struct st_index *ix, uint32_t file,
	uint64_t data_bytes, struct err *err)
{
	struct st_tensor t = {.file = file};
	char *name;
	status st;

	st = take_string(s, "a tensor name", &name, err);
	if (st != ST_OK)
		return st;
	if (!next_is(s, ':'))
		return syntax(s, err, "':'");
	if (strcmp(name, "__metadata__") == 0) {
		if (s->metadata_seen)
			return err_set(err, ST_INVALID, "__metadata__ is given twice");
		s->metadata_seen = true;
		return skip_metadata(s, err);
	}
	st = take_tensor(s, &t, data_bytes, err);
	if (st != ST_OK)
		return err_wrap(err, "tensor %s", name);
	t.name = name;
	return append(ix, &t, err);
}

status st_parse_header(struct st_index *ix, uint32_t file, char *text,
	uint64_t text_bytes, uint64_t data_bytes, struct err *err)
{
	struct scan s = {.start = text, .at = text, .end = text + text_bytes};
	uint32_t first = ix->n_tensors;
	status st;

	if (!next_is(&s, '{'))
		return syntax(&s, err, "'{'");
	if (!next_is(&s, '}')) {
		do {
			st = take_entry(&s, ix, file, data_bytes, err);
			if (st != ST_OK)
				return st;
		} while (next_is(&s, ','));
		if (!next_is(&s, '}'))
			return syntax(&s, err, "',' or '}'");
	}
	skip_space(&s);
	if (s.at != s.end)
		return syntax(&s, err, "nothing more");
	st = check_cover(ix->tensors + first, ix->n_tensors - first, data_bytes, err);
	if (st != ST_OK)
		return st;
	for (uint32_t i = first; i < ix->n_tensors; i++)
		ix->tensors[i].begin += 8 + text_bytes;
	return ST_OK;
}
