/* Workers that answer at once, for bench_router.c: they speak the protocol and compute
 * nothing. */
#ifndef TESTS_BENCH_ROUTER_STUB_H
#define TESTS_BENCH_ROUTER_STUB_H
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/loop/bus.h"
#include "common/model/tokenizer.h"
#include "common/wire/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGES       4000000u
#define SLOTS       60000u
#define PAGE_TOKENS 64u /* of a hand-over */

static inline void fail(const char *what)
{
	fprintf(stderr, "bench_router: %s (%s)\n", what, strerror(errno));
	exit(1);
}

struct stream {
	uint64_t router, seq, attempt;
	uint32_t n, max;
};

/* Whose prompt it is: an adopt names it by its number alone. */
struct held_lease {
	uint64_t router, seq, attempt;
};

struct stub {
	struct loop *loop;
	struct bus *bus;
	struct loop_timer beat, step;
	struct sink out;
	uint64_t role, incarnation, tokenizer, n_beats, n_steps, lease;
	void *msg;
	struct stream *stream;
	uint32_t n_streams;
	struct held_lease *held; /* [SLOTS], by lease */
	struct stub *source;     /* of a decode worker's prompts */
	const char *name;
};

/* Set by the client's side for each row. */
static volatile uint32_t *step_ms;

static void say(struct stub *s, uint8_t type, const void *msg)
{
	struct err err;

	sink_reset(&s->out);
	if (wire_encode(wire_find(type), msg, &s->out, &err) != ST_OK ||
		bus_send(s->bus, (struct bytes){0}, type, sink_bytes(&s->out)) != ST_OK)
		fail("a message was not sent");
}

static void say_freed(struct stub *s, uint64_t router, uint64_t seq, uint64_t attempt)
{
	say(s, MSG_freed,
		&(struct msg_freed){.router = router, .seq = seq, .attempt = attempt});
}

static void on_beat(void *ctx)
{
	struct stub *s = ctx;

	say(s, MSG_beat,
		&(struct msg_beat){.incarnation = s->incarnation,
			.has_step = true,
			.step = s->n_steps,
			.has_pages_free = true,
			.pages_free = PAGES,
			.has_slots_free = true,
			.slots_free = SLOTS - s->n_streams,
			.has_running = true,
			.running = s->n_streams,
			.has_number = true,
			.number = ++s->n_beats});
}

static void on_connect(void *ctx, int conn)
{
	struct stub *s = ctx;

	(void)conn;
	say(s, MSG_hello,
		&(struct msg_hello){.proto_min = WIRE_PROTO_MIN,
			.proto_max = WIRE_PROTO_MAX,
			.build = bytes_of_str("bench"),
			.id = bytes_of_str(s->name),
			.incarnation = s->incarnation,
			.role = s->role,
			.boot_id = bytes_of_str("bench"),
			.has_compat_hash = true,
			.compat_hash = 1,
			.has_model_hash = true,
			.model_hash = 1,
			.has_tokenizer_hash = true,
			.tokenizer_hash = s->tokenizer,
			.has_pages = true,
			.pages = PAGES,
			.has_slots = true,
			.slots = SLOTS,
			.has_link_path = true,
			.link_path = bytes_of_str("/nowhere"),
			.has_len_max = true,
			.len_max = 4096,
			.has_reconciles = true,
			.reconciles = 1});
	on_beat(s);
	loop_timer_start(s->loop, &s->beat, 200, 200, on_beat, s);
}

static void on_prefill(struct stub *s, const struct msg_prefill *m)
{
	static const uint32_t pages[64];
	struct wire_first first = {.token = 300};
	size_t n = wire_count(m->ids, uint32_t);

	s->n_steps++;
	s->lease++;
	s->held[s->lease % SLOTS] = (struct held_lease){m->router, m->seq, m->attempt};
	say(s, MSG_prefilled,
		&(struct msg_prefilled){.router = m->router,
			.seq = m->seq,
			.attempt = m->attempt,
			.lease = s->lease,
			.pages = {(const uint8_t *)pages,
				(n + PAGE_TOKENS - 1) / PAGE_TOKENS * sizeof(*pages)},
			.n_tokens = n,
			.first = {(const uint8_t *)&first, sizeof(first)}});
}

static void say_tokens(struct stub *s, struct wire_token *t, size_t n)
{
	if (n > 0)
		say(s, MSG_tokens,
			&(struct msg_tokens){.router = s->stream[0].router,
				.records = {(const uint8_t *)t, n * sizeof(*t)}});
}

/* One token for each stream; those that are complete leave. */
static void on_step(void *ctx)
{
	static struct wire_token t[SLOTS];
	struct stub *s = ctx;

	s->n_steps++;
	for (uint32_t i = 0; i < s->n_streams; i++) {
		struct stream *a = &s->stream[i];

		a->n++;
		t[i] = (struct wire_token){.seq = a->seq,
			.attempt = (uint32_t)a->attempt,
			.token = 300 + a->n % 200};
	}
	say_tokens(s, t, s->n_streams);
	for (uint32_t i = 0; i < s->n_streams;) {
		struct stream *a = &s->stream[i];

		if (a->n < a->max) {
			i++;
			continue;
		}
		say(s, MSG_finished,
			&(struct msg_finished){.router = a->router,
				.seq = a->seq,
				.attempt = a->attempt,
				.reason = FINISH_LENGTH,
				.n_generated = a->n});
		say_freed(s, a->router, a->seq, a->attempt);
		*a = s->stream[--s->n_streams];
	}
	loop_timer_start(s->loop, &s->step, *step_ms, 0, on_step, s);
}

static void on_adopt(struct stub *s, const struct msg_adopt *m)
{
	const struct held_lease *held = &s->source->held[m->lease % SLOTS];

	if (s->n_streams == SLOTS)
		fail("too many streams");
	s->stream[s->n_streams++] = (struct stream){m->router, m->seq, m->attempt,
		(uint32_t)wire_count(m->generated, uint32_t), (uint32_t)m->max_tokens};
	say(s, MSG_adopted,
		&(struct msg_adopted){.router = m->router,
			.seq = m->seq,
			.attempt = m->attempt,
			.transport = bytes_of_str("none")});
	/* The state is here now: its source has nothing left of it. */
	say_freed(s->source, held->router, held->seq, held->attempt);
}

static void on_cancel(struct stub *s, const struct msg_cancel *m)
{
	for (uint32_t i = 0; i < s->n_streams; i++)
		if (s->stream[i].seq == m->seq)
			s->stream[i] = s->stream[--s->n_streams];
	say_freed(s, m->router, m->seq, m->attempt);
}

static void on_message(
	void *ctx, struct bytes peer, uint8_t type, struct bytes body, int conn)
{
	struct stub *s = ctx;
	const struct msg_release *release = s->msg;
	struct err err;

	(void)peer;
	(void)conn;
	memset(s->msg, 0, wire_size_max());
	if (wire_decode(wire_find(type), body, s->msg, &err) != ST_OK)
		fail("a message that cannot be read");
	if (type == MSG_prefill)
		on_prefill(s, s->msg);
	else if (type == MSG_adopt)
		on_adopt(s, s->msg);
	else if (type == MSG_cancel)
		on_cancel(s, s->msg);
	else if (type == MSG_release)
		say_freed(s, release->router, release->seq, release->attempt);
	else if (type == MSG_refused)
		fail("the router refused a worker");
}

static void begin_stub(struct stub *s, struct bus_net *net, const char *dir)
{
	static const struct bus_events events = {
		.on_message = on_message, .on_connect = on_connect};
	char endpoint[128], id[32];
	struct err err;

	sink_init(&s->out, WIRE_MAX_BYTES);
	s->msg = mem_alloc(1, wire_size_max());
	s->stream = mem_alloc(SLOTS, sizeof(*s->stream));
	s->held = mem_alloc(SLOTS, sizeof(*s->held));
	snprintf(endpoint, sizeof(endpoint), "ipc://%s/routers/r0.sock", dir);
	snprintf(id, sizeof(id), "%s#%016llx", s->name,
		(unsigned long long)s->incarnation);
	if (bus_connect(&s->bus, net,
		    &(struct bus_options){.endpoint = endpoint,
			    .id = bytes_of_str(id),
			    .high_water = 1u << 20,
			    .batch = 256,
			    .events = &events,
			    .ctx = s},
		    &err) != ST_OK)
		fail(err.text);
}

static void run_workers(const char *dir, const char *model)
{
	static struct stub prefill = {
		.role = WIRE_PREFILL, .incarnation = 11, .name = "p0"};
	static struct stub decode = {
		.role = WIRE_DECODE, .incarnation = 12, .name = "d0"};
	struct tokenizer *t;
	struct bus_net *net;
	struct err err;

	if (tokenizer_load(&t, model, &err) != ST_OK)
		fail(err.text);
	prefill.tokenizer = decode.tokenizer = tokenizer_hash(t);
	prefill.loop = decode.loop = loop_create();
	decode.source = &prefill;
	net = bus_net_create(prefill.loop);
	begin_stub(&prefill, net, dir);
	begin_stub(&decode, net, dir);
	loop_timer_start(decode.loop, &decode.step, 1, 0, on_step, &decode);
	loop_run(prefill.loop);
}
#endif
