/* From a struct msg_* to bytes. The bounds of the table hold for what we write as they
 * do for what we read; here a value outside is our own mistake. */
#include "common/wire/wire.h"

#include <assert.h>
#include <math.h>
#include <msgpack.h>
#include <string.h>

static int put_bytes(void *ctx, const char *at, size_t len)
{
	struct sink *out = ctx;

	sink_put(out, at, len);
	return out->full ? -1 : 0;
}

static bool is_present(const struct wire_field *f, const uint8_t *msg)
{
	const uint8_t *member = msg + f->offset;
	struct bytes b;
	uint64_t u;
	bool has;

	if (f->required)
		return true;
	if (f->has_offset != WIRE_NO_HAS) {
		memcpy(&has, msg + f->has_offset, sizeof(has));
		return has;
	}
	if (f->kind == WIRE_str || f->kind == WIRE_bin) {
		memcpy(&b, member, sizeof(b));
		return b.len > 0;
	}
	/* Also of a double: its bits are zero when it is. */
	memcpy(&u, member, sizeof(u));
	return u != 0;
}

static int pack_str(msgpack_packer *pk, struct bytes b)
{
	int rc = msgpack_pack_str(pk, b.len);

	return rc == 0 && b.len > 0 ? msgpack_pack_str_body(pk, b.at, b.len) : rc;
}

static int pack_bin(msgpack_packer *pk, struct bytes b)
{
	int rc = msgpack_pack_bin(pk, b.len);

	return rc == 0 && b.len > 0 ? msgpack_pack_bin_body(pk, b.at, b.len) : rc;
}

static int pack_field(msgpack_packer *pk, const struct wire_field *f, const uint8_t *msg)
{
	const uint8_t *member = msg + f->offset;
	uint64_t unit = f->elem_size > 0 ? f->elem_size : 1;
	struct bytes b;
	uint64_t u;
	double d;

	if (msgpack_pack_uint8(pk, f->key) != 0)
		return -1;
	switch ((enum wire_kind)f->kind) {
	case WIRE_u64:
		memcpy(&u, member, sizeof(u));
		assert(u <= f->max);
		return msgpack_pack_uint64(pk, u);
	case WIRE_f64:
		memcpy(&d, member, sizeof(d));
		assert(isfinite(d) && fabs(d) <= f->max_f64);
		return msgpack_pack_double(pk, d);
	case WIRE_str:
	case WIRE_bin:
		memcpy(&b, member, sizeof(b));
		assert(b.len % unit == 0 && b.len / unit <= f->max);
		return f->kind == WIRE_str ? pack_str(pk, b) : pack_bin(pk, b);
	default:
		assert(false && "a kind of the table");
		return -1;
	}
}

status wire_encode(
	const struct wire_msg *m, const void *msg, struct sink *out, struct err *err)
{
	size_t start = out->len;
	size_t n_present = 0;
	msgpack_packer pk;
	int rc;

	for (size_t i = 0; i < m->n_fields; i++)
		n_present += is_present(&m->field[i], msg);
	msgpack_packer_init(&pk, out, put_bytes);
	rc = msgpack_pack_map(&pk, n_present);
	for (size_t i = 0; i < m->n_fields && rc == 0; i++)
		if (is_present(&m->field[i], msg))
			rc = pack_field(&pk, &m->field[i], msg);
	if (rc != 0)
		return err_set(err, ST_LIMIT, "%s does not fit %zu bytes", m->name,
			out->max - start);
	if (out->len - start > WIRE_MAX_BYTES)
		return err_set(err, ST_LIMIT, "%s takes %zu bytes, at most %zu", m->name,
			out->len - start, WIRE_MAX_BYTES);
	return ST_OK;
}
