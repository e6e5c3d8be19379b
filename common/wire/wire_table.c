/* The table of messages and fields, and what is looked up in it. */
#include "common/wire/wire.h"

#include <assert.h>
#include <string.h>

#define REQUIRED true
#define OPTIONAL false

/* A decoder marks the keys it saw in 64 bits. */
#define MSG(msg, type, from, to)
#define F(msg, k, kind, member, need, mx) _Static_assert((k) < 64, #msg "." #member);
#define R(msg, k, type, member, need, mx) _Static_assert((k) < 64, #msg "." #member);
#define S_OPEN(msg)
#define SF F
#define SR R
#define END(msg)
#include "common/wire/schema.def"
#undef MSG
#undef F
#undef R
#undef S_OPEN
#undef SF
#undef SR
#undef END

/* Each array ends with an entry that is not counted: a message may have no field. */
#define MSG(msg, type, from, to) static const struct wire_field msg##_fields[] = {
#define F(msg, k, kind_, member, need, mx)                                               \
	{.name = #member,                                                                \
		.offset = offsetof(struct msg_##msg, member),                            \
		.has_offset = offsetof(struct msg_##msg, has_##member),                  \
		.max = (uint64_t)(mx),                                                   \
		.max_f64 = (double)(mx),                                                 \
		.key = (k),                                                              \
		.kind = WIRE_##kind_,                                                    \
		.required = (need)},
#define R(msg, k, type, member, need, mx)                                                \
	{.name = #member,                                                                \
		.offset = offsetof(struct msg_##msg, member),                            \
		.has_offset = offsetof(struct msg_##msg, has_##member),                  \
		.max = (mx),                                                             \
		.elem_size = sizeof(type),                                               \
		.key = (k),                                                              \
		.kind = WIRE_bin,                                                        \
		.required = (need)},
#define SF(msg, k, kind_, member, need, mx)                                              \
	{.name = #member,                                                                \
		.offset = offsetof(struct msg_##msg, draw.member),                       \
		.has_offset = WIRE_NO_HAS,                                               \
		.max = (uint64_t)(mx),                                                   \
		.max_f64 = (double)(mx),                                                 \
		.key = (k),                                                              \
		.kind = WIRE_##kind_,                                                    \
		.required = (need)},
#define SR(msg, k, type, member, need, mx)                                               \
	{.name = #member,                                                                \
		.offset = offsetof(struct msg_##msg, draw.member),                       \
		.has_offset = WIRE_NO_HAS,                                               \
		.max = (mx),                                                             \
		.elem_size = sizeof(type),                                               \
		.key = (k),                                                              \
		.kind = WIRE_bin,                                                        \
		.required = (need)},
#define S_OPEN(msg)
#define END(msg)                                                                         \
	{                                                                                \
		.name = NULL                                                             \
	}                                                                                \
	}                                                                                \
	;
#include "common/wire/schema.def"
#undef MSG
#undef F
#undef R
#undef S_OPEN
#undef SF
#undef SR
#undef END

enum {
#define MSG(msg, type, from, to) AT_##msg,
#define F(msg, k, kind, member, need, mx)
#define R(msg, k, type, member, need, mx)
#define S_OPEN(msg)
#define SF(msg, k, kind, member, need, mx)
#define SR(msg, k, type, member, need, mx)
#define END(msg)
#include "common/wire/schema.def"
#undef MSG
	N_MESSAGES
};

static const struct wire_msg messages[N_MESSAGES] = {
#define MSG(msg, type_, from_, to_)                                                      \
	[AT_##msg] = {.name = #msg,                                                      \
		.field = msg##_fields,                                                   \
		.n_fields = COUNT(msg##_fields) - 1,                                     \
		.size = sizeof(struct msg_##msg),                                        \
		.type = (type_),                                                         \
		.from = (from_),                                                         \
		.to = (to_)},
#include "common/wire/schema.def"
#undef MSG
};

/* A switch, so that two messages of one type do not compile. */
const struct wire_msg *wire_find(unsigned type)
{
	switch (type) {
#define MSG(msg, type_, from, to)                                                        \
	case (type_):                                                                    \
		return &messages[AT_##msg];
#include "common/wire/schema.def"
#undef MSG
	default:
		return NULL;
	}
}

union any_message {
#define MSG(msg, type, from, to) struct msg_##msg msg;
#include "common/wire/schema.def"
#undef MSG
#undef F
#undef R
#undef S_OPEN
#undef SF
#undef SR
#undef END
};

size_t wire_size_max(void)
{
	return sizeof(union any_message);
}

void wire_get(struct bytes bin, size_t i, void *out, size_t elem_size)
{
	assert(i < bin.len / elem_size);
	memcpy(out, bin.at + i * elem_size, elem_size);
}

uint32_t wire_u32(struct bytes bin, size_t i)
{
	uint32_t v;

	wire_get(bin, i, &v, sizeof(v));
	return v;
}

#define X(name, text) text,
static const char *const refusal_texts[] = {WIRE_REFUSAL_MAP(X)};
static const char *const reject_texts[] = {WIRE_REJECT_MAP(X)};
static const char *const finish_texts[] = {WIRE_FINISH_MAP(X)};
#undef X

const char *wire_refusal_text(unsigned code)
{
	return code < COUNT(refusal_texts) ? refusal_texts[code] : "unknown code";
}

const char *wire_reject_text(unsigned code)
{
	return code < COUNT(reject_texts) ? reject_texts[code] : "unknown code";
}

const char *wire_finish_text(unsigned code)
{
	return code < COUNT(finish_texts) ? finish_texts[code] : "unknown code";
}
