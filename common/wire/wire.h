/* Messages: structs from schema.def, and encode / decode / guard driven by one table.
 * A message is a type byte (the bus and the link carry it in front) and a msgpack map
 * with small integer keys. Decoding refuses too many bytes or elements before msgpack-c
 * sees them, truncation, trailing bytes, ext types, wrong types, values out of bounds,
 * non-finite numbers, duplicate keys and missing fields; it ignores unknown keys (a
 * newer peer's optional field). */
#ifndef COMMON_WIRE_WIRE_H
#define COMMON_WIRE_WIRE_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define WIRE_PROTO_MIN    2u
#define WIRE_PROTO_MAX    2u
#define WIRE_MAX_BYTES    ((size_t)16 << 20)
#define WIRE_MAX_ELEMENTS 256u

/* Who speaks; masks. hello.role holds one of them. */
enum wire_party {
	WIRE_ROUTER = 1,
	WIRE_PREFILL = 2,
	WIRE_DECODE = 4,
	WIRE_CTL = 8,
	WIRE_IMPORTER = 16,
	WIRE_EXPORTER = 32,
};
#define WIRE_ROLE_MAX 8u

/* Numbers on the wire: append only. */
#define WIRE_REFUSAL_MAP(X)                                                              \
	X(PROTOCOL, "protocol range")                                                    \
	X(COMPAT, "compat hash")                                                         \
	X(TOKENIZER, "tokenizer hash")                                                   \
	X(ID_IN_USE, "id in use")                                                        \
	X(LOST, "declared lost, say hello again")                                        \
	X(MALFORMED, "malformed")
enum wire_refusal {
#define X(name, text) REFUSED_##name,
	WIRE_REFUSAL_MAP(X)
#undef X
		REFUSED__COUNT
};

#define WIRE_REJECT_MAP(X)                                                               \
	X(FULL, "no pages, slots or queue places")                                       \
	X(DRAINING, "draining")                                                          \
	X(TOO_LONG, "longer than this worker's sequences may be")                        \
	X(SOURCE, "the state could not be pulled")                                       \
	X(INVALID, "a field is out of range")                                            \
	X(DUPLICATE, "this request and attempt is known already")                        \
	X(LEASE, "the lease is not given out")                                           \
	X(UNSUPPORTED, "this worker cannot do what was asked for")
enum wire_reject {
#define X(name, text) REJECT_##name,
	WIRE_REJECT_MAP(X)
#undef X
		REJECT__COUNT
};

#define WIRE_FINISH_MAP(X)                                                               \
	X(STOP_TOKEN, "stop token")                                                      \
	X(STOP_STRING, "stop string")                                                    \
	X(LENGTH, "length")                                                              \
	X(CANCELLED, "cancelled")                                                        \
	X(NAN, "NaN or infinite logits")                                                 \
	X(ERROR, "error")                                                                \
	X(DRAINED, "cut by the end of a drain")
enum wire_finish {
#define X(name, text) FINISH_##name,
	WIRE_FINISH_MAP(X)
#undef X
		FINISH__COUNT
};

/* What a router makes of an order; obeyed: the worker was told. */
enum wire_ordered {
	ORDERED_OBEYED,
	ORDERED_REFUSED,
	ORDERED_MALFORMED, /* no such verb, or a word that it does not know */
	ORDERED_UNKNOWN,   /* no worker of that id is connected */
};

/* Record elements: little-endian, no padding. */
struct wire_token {
	uint64_t seq;
	uint32_t attempt;
	uint32_t token;
	uint16_t choice;
	uint16_t n_tops; /* entries of tokens.tops that belong to it */
	float logprob;
};
struct wire_first {
	uint32_t token;
	uint32_t n_tops; /* entries of prefilled.tops that belong to it */
	float logprob;
	uint32_t choice;
};
struct wire_bias {
	uint32_t token;
	float add;
};
struct wire_logprob {
	uint32_t token;
	float logprob;
};
struct wire_held {
	uint64_t seq;
	uint32_t attempt;
	uint32_t wanted; /* 0: the sender let go of it, and waits for the word that it
			    ended */
};
_Static_assert(sizeof(struct wire_held) == 16, "records are dense");
_Static_assert(sizeof(struct wire_token) == 24, "records are dense");
_Static_assert(sizeof(struct wire_first) == 16, "records are dense");
_Static_assert(sizeof(struct wire_bias) == 8, "records are dense");
_Static_assert(sizeof(struct wire_logprob) == 8, "records are dense");

#define WIRE_T_u64 uint64_t
#define WIRE_T_f64 double
#define WIRE_T_str struct bytes
#define WIRE_T_bin struct bytes
/* str, bin and records point into the message buffer: copy what outlives it. */

enum msg_type {
#define MSG(msg, type, from, to) MSG_##msg = (type),
#define F(msg, key, kind, member, need, max)
#define R(msg, key, type, member, need, max)
#define S_OPEN(msg)
#define SF(msg, key, kind, member, need, max)
#define SR(msg, key, type, member, need, max)
#define END(msg)
#include "common/wire/schema.def"
#undef MSG
#undef F
#undef R
#undef S_OPEN
#undef SF
#undef SR
#undef END
};

/* How tokens are drawn. Zero of all but temperature, top_p and seed: not asked for. */
#define S_OPEN(msg)
#define SF(msg, key, kind, member, need, max) WIRE_T_##kind member;
#define SR(msg, key, type, member, need, max) struct bytes member;
struct wire_sampling {
	SAMPLING(none)
};
#undef S_OPEN
#undef SF
#undef SR

#define MSG(msg, type, from, to) struct msg_##msg {
#define F(msg, key, kind, member, need, max)                                             \
	WIRE_T_##kind member;                                                            \
	bool has_##member;
#define R(msg, key, type, member, need, max)                                             \
	struct bytes member;                                                             \
	bool has_##member;
#define S_OPEN(msg) struct wire_sampling draw;
#define SF(msg, key, kind, member, need, max)
#define SR(msg, key, type, member, need, max)
#define END(msg)                                                                         \
	uint8_t unused_last;                                                             \
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
#undef SAMPLING

enum wire_kind { WIRE_u64, WIRE_f64, WIRE_str, WIRE_bin };

/* A member without a flag: present when it is required or not zero. */
#define WIRE_NO_HAS SIZE_MAX

struct wire_field {
	const char *name;
	size_t offset, has_offset; /* WIRE_NO_HAS: no flag */
	uint64_t max;              /* value, bytes, or elements of a record array */
	double max_f64;
	uint32_t elem_size; /* records: bytes of one; 0: not a record array */
	uint8_t key;
	uint8_t kind;
	bool required;
};

struct wire_msg {
	const char *name;
	const struct wire_field *field;
	size_t n_fields;
	size_t size; /* of struct msg_<name> */
	uint8_t type;
	uint8_t from, to; /* masks of enum wire_party */
};

/* Largest struct msg_*, for a buffer that holds any decoded message. */
size_t wire_size_max(void);
const struct wire_msg *wire_find(unsigned type); /* NULL: no such message */

MUST_CHECK status wire_guard(struct bytes in, struct err *err);
/* Body only (without the type byte). Optional members are written when their has_ flag
 * is set, or where they have none, when they are not zero; required ones always. Bounds
 * are asserted: what we write is right. */
MUST_CHECK status wire_encode(
	const struct wire_msg *m, const void *msg, struct sink *out, struct err *err);
/* msg is a struct msg_<name> of m->size bytes, zeroed first. */
MUST_CHECK status wire_decode(
	const struct wire_msg *m, struct bytes in, void *msg, struct err *err);

/* Records: number of elements, and copy of one (the bytes may be unaligned). */
#define wire_count(bin, type) ((bin).len / sizeof(type))
void wire_get(struct bytes bin, size_t i, void *out, size_t elem_size);
uint32_t wire_u32(struct bytes bin, size_t i);

/* The request triple that most messages carry. */
struct wire_request {
	uint64_t router, seq;
	uint32_t attempt;
};
#define wire_request_of(msg)                                                             \
	((struct wire_request){(msg)->router, (msg)->seq, (uint32_t)(msg)->attempt})

const char *wire_refusal_text(unsigned code);
const char *wire_reject_text(unsigned code);
const char *wire_finish_text(unsigned code);

#endif
