/* From bytes to a struct msg_*. */
#include "common/wire/wire.h"

#include <assert.h>
#include <math.h>
#include <msgpack.h>
#include <string.h>

static const struct wire_field *field_of(const struct wire_msg *m, uint64_t key)
{
	for (size_t i = 0; i < m->n_fields; i++)
		if (m->field[i].key == key)
			return &m->field[i];
	return NULL;
}

static status wrong_type(const struct wire_field *f, struct err *err)
{
	return err_set(err, ST_INVALID, "%s has the wrong type", f->name);
}

static status take_u64(const struct wire_field *f, const msgpack_object *v,
	uint8_t *member, struct err *err)
{
	uint64_t u = v->via.u64;

	if (v->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
		return wrong_type(f, err);
	if (u > f->max)
		return err_set(err, ST_LIMIT, "%s is %llu, at most %llu", f->name,
			(unsigned long long)u, (unsigned long long)f->max);
	memcpy(member, &u, sizeof(u));
	return ST_OK;
}

static status take_f64(const struct wire_field *f, const msgpack_object *v,
	uint8_t *member, struct err *err)
{
	double d;

	if (v->type != MSGPACK_OBJECT_FLOAT64)
		return wrong_type(f, err);
	d = v->via.f64;
	if (!isfinite(d))
		return err_set(err, ST_INVALID, "%s is not finite", f->name);
	if (fabs(d) > f->max_f64)
		return err_set(err, ST_LIMIT, "%s is %g, at most %g in size", f->name, d,
			f->max_f64);
	memcpy(member, &d, sizeof(d));
	return ST_OK;
}

static status take_bytes(
	const struct wire_field *f, struct bytes b, uint8_t *member, struct err *err)
{
	uint64_t unit = f->elem_size > 0 ? f->elem_size : 1;

	if (b.len % unit != 0)
		return err_set(err, ST_INVALID,
			"%s has %zu bytes, not a multiple of its %u-byte records",
			f->name, b.len, f->elem_size);
	if (b.len / unit > f->max)
		return err_set(err, ST_LIMIT, "%s has %llu %s, at most %llu", f->name,
			(unsigned long long)(b.len / unit),
			f->elem_size > 0 ? "records" : "bytes",
			(unsigned long long)f->max);
	memcpy(member, &b, sizeof(b));
	return ST_OK;
}

static status take_field(const struct wire_field *f, const msgpack_object *v,
	uint8_t *msg, struct err *err)
{
	uint8_t *member = msg + f->offset;
	bool has = true;
	status st;

	switch ((enum wire_kind)f->kind) {
	case WIRE_u64:
		st = take_u64(f, v, member, err);
		break;
	case WIRE_f64:
		st = take_f64(f, v, member, err);
		break;
	case WIRE_str:
		if (v->type != MSGPACK_OBJECT_STR)
			return wrong_type(f, err);
		st = take_bytes(f,
			(struct bytes){(const uint8_t *)v->via.str.ptr, v->via.str.size},
			member, err);
		break;
	case WIRE_bin:
		if (v->type != MSGPACK_OBJECT_BIN)
			return wrong_type(f, err);
		st = take_bytes(f,
			(struct bytes){(const uint8_t *)v->via.bin.ptr, v->via.bin.size},
			member, err);
		break;
	default:
		return wrong_type(f, err);
	}
	if (st == ST_OK && f->has_offset != WIRE_NO_HAS)
		memcpy(msg + f->has_offset, &has, sizeof(has));
	return st;
}

static status take_map(const struct wire_msg *m, const msgpack_object_map *map,
	uint8_t *msg, struct err *err)
{
	uint64_t seen = 0;

	for (uint32_t i = 0; i < map->size; i++) {
		const msgpack_object_kv *kv = &map->ptr[i];
		const struct wire_field *f;
		status st;

		if (kv->key.type != MSGPACK_OBJECT_POSITIVE_INTEGER)
			return err_set(
				err, ST_INVALID, "key %u is not a whole number", i);
		f = field_of(m, kv->key.via.u64);
		if (f == NULL)
			continue; /* a newer peer's optional field */
		if (seen >> f->key & 1)
			return err_set(err, ST_INVALID, "%s appears twice", f->name);
		seen |= UINT64_C(1) << f->key;
		st = take_field(f, &kv->val, msg, err);
		if (st != ST_OK)
			return st;
	}
	for (size_t i = 0; i < m->n_fields; i++)
		if (m->field[i].required && !(seen >> m->field[i].key & 1))
			return err_set(
				err, ST_INVALID, "%s is missing", m->field[i].name);
	return ST_OK;
}

status wire_decode(const struct wire_msg *m, struct bytes in, void *msg, struct err *err)
{
	msgpack_unpacked u;
	msgpack_unpack_return rc;
	size_t at = 0;
	status st;

	memset(msg, 0, m->size);
	st = wire_guard(in, err);
	if (st != ST_OK)
		return err_wrap(err, "%s", m->name);
	msgpack_unpacked_init(&u);
	rc = msgpack_unpack_next(&u, (const char *)in.at, in.len, &at);
	if (rc == MSGPACK_UNPACK_NOMEM_ERROR)
		st = err_set(
			err, ST_NOMEM, "no memory for a message of %zu bytes", in.len);
	else if (rc != MSGPACK_UNPACK_SUCCESS || at != in.len)
		st = err_set(err, ST_INVALID, "not one msgpack value");
	else if (u.data.type != MSGPACK_OBJECT_MAP)
		st = err_set(err, ST_INVALID, "not a map");
	else
		st = take_map(m, &u.data.via.map, msg, err);
	msgpack_unpacked_destroy(&u);
	if (st == ST_OK)
		return ST_OK;
	memset(msg, 0, m->size);
	return err_wrap(err, "%s", m->name);
}
