/* What tests that need workers share: hellos of workers that could be real. */
#ifndef TESTS_UNIT_ROUTER_FLEET_FIXTURE_H
#define TESTS_UNIT_ROUTER_FLEET_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "router/fleet.h"

#include <stdio.h>
#include <string.h>

#define MS(n)          ((uint64_t)(n)*NS_PER_MS)
#define TOKENIZER_HASH UINT64_C(0x70b1)
#define COMPAT_HASH    UINT64_C(0xc0a7)
#define MODEL_HASH     UINT64_C(0x60de1)

static const struct fleet_options fleet_defaults = {
	.silent_ns = MS(2000),
	.lost_ns = MS(4000),
	.tokenizer_hash = TOKENIZER_HASH,
	.queue_max = 16,
};

static inline struct msg_hello hello_of(
	const char *id, uint64_t incarnation, enum wire_party role)
{
	return (struct msg_hello){
		.proto_min = WIRE_PROTO_MIN,
		.proto_max = WIRE_PROTO_MAX,
		.build = BYTES_STR("test"),
		.id = bytes_of_str(id),
		.incarnation = incarnation,
		.role = role,
		.boot_id = BYTES_STR("boot"),
		.has_compat_hash = true,
		.compat_hash = COMPAT_HASH,
		.has_model_hash = true,
		.model_hash = MODEL_HASH,
		.has_tokenizer_hash = true,
		.tokenizer_hash = TOKENIZER_HASH,
		.has_pages = true,
		.pages = 100,
		.has_slots = true,
		.slots = 4,
		.has_link_path = true,
		.link_path = BYTES_STR("/run/baton/link"),
		.has_len_max = true,
		.len_max = 4096,
		.has_reconciles = true,
		.reconciles = 1,
	};
}

/* The routing id is the id itself. */
static inline status say_hello(struct fleet *f, const struct msg_hello *m, int conn,
	uint64_t now_ns, struct worker_view **out, enum wire_refusal *code,
	struct err *err)
{
	*code = REFUSED__COUNT;
	return fleet_hello(f, m->id, conn, m, now_ns, out, code, err);
}

static inline struct worker_view *join(struct fleet *f, const char *id,
	uint64_t incarnation, enum wire_party role, uint64_t now_ns)
{
	struct msg_hello m = hello_of(id, incarnation, role);
	enum wire_refusal code;
	struct worker_view *w = NULL;
	struct err err;

	if (say_hello(f, &m, (int)incarnation, now_ns, &w, &code, &err) != ST_OK)
		fail_msg("%s", err.text);
	return w;
}

#endif
