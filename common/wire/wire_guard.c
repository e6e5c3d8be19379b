/* Walks the headers of a msgpack value without building anything, because msgpack-c
 * believes what a header claims: five bytes make it ask for 96 GiB. */
#include "common/wire/wire.h"

/* Maps and arrays inside each other. Messages need one; a newer peer's optional field
 * may need some more. */
#define DEPTH_MAX 8

enum shape { SHAPE_SCALAR, SHAPE_BYTES, SHAPE_ARRAY, SHAPE_MAP, SHAPE_BAD };

/* What a header byte announces: `width` bytes of a big-endian count follow, or, when
 * width is 0, the count is n itself. SHAPE_BYTES counts the bytes that follow. */
struct header {
	enum shape shape;
	uint8_t width;
	uint64_t n;
};

static struct header sized_header(uint8_t b)
{
	switch (b) {
	case 0xc0: /* nil, false, true */
	case 0xc2:
	case 0xc3:
		return (struct header){SHAPE_SCALAR, 0, 0};
	case 0xc4: /* bin 8, 16, 32 and str 8, 16, 32 */
	case 0xd9:
		return (struct header){SHAPE_BYTES, 1, 0};
	case 0xc5:
	case 0xda:
		return (struct header){SHAPE_BYTES, 2, 0};
	case 0xc6:
	case 0xdb:
		return (struct header){SHAPE_BYTES, 4, 0};
	case 0xcc: /* uint and int of 1, 2, 4, 8 bytes, float of 4 and 8 */
	case 0xd0:
		return (struct header){SHAPE_BYTES, 0, 1};
	case 0xcd:
	case 0xd1:
		return (struct header){SHAPE_BYTES, 0, 2};
	case 0xca:
	case 0xce:
	case 0xd2:
		return (struct header){SHAPE_BYTES, 0, 4};
	case 0xcb:
	case 0xcf:
	case 0xd3:
		return (struct header){SHAPE_BYTES, 0, 8};
	case 0xdc:
		return (struct header){SHAPE_ARRAY, 2, 0};
	case 0xdd:
		return (struct header){SHAPE_ARRAY, 4, 0};
	case 0xde:
		return (struct header){SHAPE_MAP, 2, 0};
	case 0xdf:
		return (struct header){SHAPE_MAP, 4, 0};
	default: /* ext types and 0xc1 */
		return (struct header){SHAPE_BAD, 0, 0};
	}
}

static struct header header_of(uint8_t b)
{
	if (b <= 0x7f || b >= 0xe0)
		return (struct header){SHAPE_SCALAR, 0, 0};
	if (b <= 0x8f)
		return (struct header){SHAPE_MAP, 0, b & 0x0fu};
	if (b <= 0x9f)
		return (struct header){SHAPE_ARRAY, 0, b & 0x0fu};
	if (b <= 0xbf)
		return (struct header){SHAPE_BYTES, 0, b & 0x1fu};
	return sized_header(b);
}

struct walk {
	struct bytes in;
	size_t at;
	uint64_t elements;
	unsigned depth;
	uint64_t left[DEPTH_MAX + 1]; /* values still to come at each depth */
};

static status read_header(struct walk *w, struct header *h, struct err *err)
{
	uint64_t n = 0;

	if (w->at == w->in.len)
		return err_set(err, ST_INVALID, "truncated at byte %zu", w->at);
	*h = header_of(w->in.at[w->at]);
	if (h->shape == SHAPE_BAD)
		return err_set(err, ST_INVALID, "type 0x%02x at byte %zu",
			w->in.at[w->at], w->at);
	w->at++;
	if (h->width == 0)
		return ST_OK;
	if (w->in.len - w->at < h->width)
		return err_set(err, ST_INVALID, "truncated at byte %zu", w->in.len);
	for (unsigned i = 0; i < h->width; i++)
		n = n << 8 | w->in.at[w->at++];
	h->n = n;
	return ST_OK;
}

static status enter(struct walk *w, const struct header *h, struct err *err)
{
	if (h->n > WIRE_MAX_ELEMENTS - w->elements)
		return err_set(err, ST_LIMIT,
			"%llu elements at byte %zu, at most %u in all",
			(unsigned long long)h->n, w->at, WIRE_MAX_ELEMENTS);
	if (w->depth == DEPTH_MAX)
		return err_set(err, ST_LIMIT, "nested deeper than %d at byte %zu",
			DEPTH_MAX, w->at);
	w->elements += h->n;
	w->left[++w->depth] = h->shape == SHAPE_MAP ? 2 * h->n : h->n;
	return ST_OK;
}

static status walk_value(struct walk *w, struct err *err)
{
	struct header h = {SHAPE_BAD, 0, 0};
	status st = read_header(w, &h, err);

	if (st != ST_OK)
		return st;
	w->left[w->depth]--;
	if (h.shape == SHAPE_ARRAY || h.shape == SHAPE_MAP)
		return enter(w, &h, err);
	if (h.shape == SHAPE_BYTES) {
		if (h.n > w->in.len - w->at)
			return err_set(err, ST_INVALID,
				"%llu bytes claimed at byte %zu, %zu are left",
				(unsigned long long)h.n, w->at, w->in.len - w->at);
		w->at += (size_t)h.n;
	}
	return ST_OK;
}

status wire_guard(struct bytes in, struct err *err)
{
	struct walk w = {.in = in, .left = {1}};

	if (in.len > WIRE_MAX_BYTES)
		return err_set(err, ST_LIMIT, "message of %zu bytes, at most %zu", in.len,
			WIRE_MAX_BYTES);
	for (;;) {
		status st;

		while (w.depth > 0 && w.left[w.depth] == 0)
			w.depth--;
		if (w.left[w.depth] == 0)
			break;
		st = walk_value(&w, err);
		if (st != ST_OK)
			return st;
	}
	if (w.at != in.len)
		return err_set(
			err, ST_INVALID, "%zu bytes after the message", in.len - w.at);
	return ST_OK;
}
