/* A router without HTTP on a real socket, and two peers that say what the test wants. */
#ifndef TESTS_UNIT_ROUTER_WIRED_RIG_H
#define TESTS_UNIT_ROUTER_WIRED_RIG_H
#include "request_rig.h"

#include "common/loop/bus.h"
#include "router/dispatch.h"
#include "router/link.h"

#include <stdlib.h>
#include <unistd.h>

#define WATCHDOG_MS 20000
#define HEARD_MAX   64u

/* A peer of the router, and what it was told. */
struct peer {
	struct bus *bus;
	struct wired *wired;
	uint8_t heard[HEARD_MAX]; /* types, oldest first */
	uint32_t n_heard;
	struct sink body; /* of the newest */
};

struct wired {
	struct router rt;
	struct router_conf conf;
	struct rig rig; /* only its notes are used */
	struct loop_timer watchdog;
	struct peer a, b;
	uint32_t n_connected;
	uint32_t wait_for; /* messages, of both peers together */
	char dir[64];
};

static inline void on_watchdog(void *ctx)
{
	(void)ctx;
	/* A failure of cmocka jumps out of the loop, which could then not be closed. */
	print_error("the test did not end within %d ms\n", WATCHDOG_MS);
	abort();
}

static inline void on_peer_message(
	void *ctx, struct bytes from, uint8_t type, struct bytes body, int conn)
{
	struct peer *p = ctx;
	struct wired *x = p->wired;

	(void)from;
	(void)conn;
	p->heard[p->n_heard++ % HEARD_MAX] = type;
	sink_reset(&p->body);
	sink_put(&p->body, body.at, body.len);
	if (x->a.n_heard + x->b.n_heard >= x->wait_for)
		loop_stop(x->rt.loop);
}

static inline void on_peer_connect(void *ctx, int conn)
{
	struct peer *p = ctx;

	(void)conn;
	if (++p->wired->n_connected == 2)
		loop_stop(p->wired->rt.loop);
}

static const struct bus_events peer_events = {
	.on_message = on_peer_message,
	.on_connect = on_peer_connect,
};

static inline void connect_peer(struct wired *x, struct peer *p, const char *id)
{
	struct bus_options o = {
		.endpoint = bus_endpoint(x->rt.bus),
		.id = bytes_of_str(id),
		.high_water = 1000,
		.batch = 10,
		.events = &peer_events,
		.ctx = p,
	};
	struct err err;

	p->wired = x;
	sink_init(&p->body, 1u << 20);
	if (bus_connect(&p->bus, x->rt.net, &o, &err) != ST_OK)
		fail_msg("%s", err.text);
}

static inline bool deliver(
	void *self, struct request *r, const struct request_token *token)
{
	struct router *rt = self;
	struct wired *x = container_of(rt, struct wired, rt);

	return rig_deliver(&x->rig, r, token);
}

static inline void end(void *self, struct request *r)
{
	struct router *rt = self;
	struct wired *x = container_of(rt, struct wired, rt);

	rig_end(&x->rig, r);
}

static const struct request_ops ops = {
	.send_prefill = link_send_prefill,
	.send_adopt = link_send_adopt,
	.send_cancel = link_send_cancel,
	.send_release = link_send_release,
	.deliver = deliver,
	.end = end,
};

static inline int setup(void **state)
{
	struct wired *x = calloc(1, sizeof(*x));
	struct router *rt = &x->rt;
	struct err err;

	x->conf = (struct router_conf){.id = "r0",
		.lost_ms = 4000,
		.worker_wait_s = 4,
		.queue_timeout_s = 60,
		.max_queued = 64,
		.stall_timeout_s = 300};
	snprintf(x->dir, sizeof(x->dir), "/tmp/baton-test-XXXXXX");
	assert_non_null(mkdtemp(x->dir));
	rt->conf = &x->conf;
	rt->incarnation = 0xABC;
	snprintf(rt->boot_id, sizeof(rt->boot_id), "boot");
	assert_int_equal(runtime_open(&rt->runtime, x->dir, &err), ST_OK);
	rt->loop = loop_create();
	rt->net = bus_net_create(rt->loop);
	rt->fleet = fleet_create(&fleet_defaults);
	requests_init(&rt->requests, 64, &ops, rt);
	rt->requests.n_vocab = 5000;
	rt->msg = mem_alloc(1, wire_size_max());
	sink_init(&rt->out, WIRE_MAX_BYTES);
	sink_init(&rt->held, WIRE_MAX_BYTES);
	assert_int_equal(link_open(rt, &err), ST_OK);
	loop_timer_start(rt->loop, &x->watchdog, WATCHDOG_MS, 0, on_watchdog, x);
	connect_peer(x, &x->a, "p0#7");
	connect_peer(x, &x->b, "d0#8");
	loop_run(rt->loop);
	*state = x;
	return 0;
}

static inline int teardown(void **state)
{
	struct wired *x = *state;
	char path[128];

	bus_close(x->a.bus);
	bus_close(x->b.bus);
	link_close(&x->rt);
	bus_net_destroy(x->rt.net);
	loop_timer_stop(&x->watchdog);
	loop_destroy(x->rt.loop);
	requests_release(&x->rt.requests);
	fleet_destroy(x->rt.fleet);
	sink_release(&x->rt.out);
	sink_release(&x->rt.held);
	sink_release(&x->a.body);
	sink_release(&x->b.body);
	mem_free(x->rt.msg);
	snprintf(path, sizeof(path), "%s/routers/r0.sock", x->dir);
	unlink(path);
	assert_int_equal(rmdir(x->rt.runtime.routers), 0);
	assert_int_equal(rmdir(x->dir), 0);
	free(x);
	assert_int_equal(mem_taken(), 0);
	return 0;
}

static inline void say_bytes(struct peer *p, uint8_t type, struct bytes body)
{
	assert_int_equal(bus_send(p->bus, (struct bytes){0}, type, body), ST_OK);
}

static inline void say(struct peer *p, uint8_t type, const void *msg)
{
	struct sink out;
	struct err err;

	sink_init(&out, WIRE_MAX_BYTES);
	assert_int_equal(wire_encode(wire_find(type), msg, &out, &err), ST_OK);
	say_bytes(p, type, sink_bytes(&out));
	sink_release(&out);
}

/* Until the peers together heard n messages more. */
static inline void listen_for(struct wired *x, uint32_t n)
{
	x->wait_for = x->a.n_heard + x->b.n_heard + n;
	loop_run(x->rt.loop);
}

static inline uint8_t newest(const struct peer *p)
{
	assert_true(p->n_heard > 0);
	return p->heard[(p->n_heard - 1) % HEARD_MAX];
}

/* The newest message, decoded into a struct msg_NAME. */
static inline void read_newest(const struct peer *p, uint8_t type, void *msg)
{
	struct err err;

	assert_int_equal(newest(p), type);
	if (wire_decode(wire_find(type), sink_bytes(&p->body), msg, &err) != ST_OK)
		fail_msg("%s", err.text);
}

static inline void check_refused(const struct peer *p, enum wire_refusal code)
{
	struct msg_refused m = {0};

	read_newest(p, MSG_refused, &m);
	assert_int_equal(m.code, code);
	assert_true(m.text.len > 0);
}

/* Both peers are workers: a prefill worker p0 and a decode worker d0. */
static inline void both_join(struct wired *x)
{
	struct msg_hello p = hello_of("p0", 7, WIRE_PREFILL);
	struct msg_hello d = hello_of("d0", 8, WIRE_DECODE);
	struct msg_beat got = {0};

	say(&x->a, MSG_hello, &p);
	listen_for(x, 2);
	say(&x->b, MSG_hello, &d);
	listen_for(x, 2);
	assert_int_equal(x->a.heard[x->a.n_heard - 2], MSG_hello);
	read_newest(&x->a, MSG_beat, &got);
	assert_int_equal(got.incarnation, 0xABC);
	assert_true(got.has_held && got.held.len == 0);
	assert_int_equal(fleet_count(x->rt.fleet), 2);
}

static inline struct request *add_request(struct wired *x)
{
	struct request *r = requests_add(&x->rt.requests);

	assert_non_null(r);
	r->ids = mem_take(3, sizeof(*r->ids));
	memcpy(r->ids, (uint32_t[]){11, 12, 13}, 3 * sizeof(*r->ids));
	r->n_ids = r->n_prompt = r->ids_cap = 3;
	r->max_tokens = 5;
	r->user = x; /* somebody looks at it: it is not reaped */
	rig_move(r, EV_PREPARED, NULL);
	return r;
}

/* In PREFILL at p0, with d0 reserved. */
static inline void start_request(struct wired *x, struct request **out)
{
	struct msg_prefill m = {0};

	*out = add_request(x);
	dispatch_turn(&x->rt, clock_ns());
	assert_int_equal((*out)->state, RQ_PREFILL);
	listen_for(x, 1);
	read_newest(&x->a, MSG_prefill, &m);
	assert_int_equal(m.router, 0xABC);
	assert_int_equal(m.seq, (*out)->seq);
	assert_int_equal(m.n_prompt, 3);
	assert_int_equal(wire_count(m.ids, uint32_t), 3);
	assert_int_equal(wire_u32(m.ids, 2), 13);
}

static inline void say_prefilled(struct wired *x, const struct request *r)
{
	const uint32_t page = 4;
	struct wire_first first = {.token = 21};
	struct msg_prefilled m = {
		.router = 0xABC,
		.seq = r->seq,
		.attempt = r->attempt,
		.lease = 77,
		.pages = {(const uint8_t *)&page, sizeof(page)},
		.slot = 2,
		.n_tokens = 3,
		.first = {(const uint8_t *)&first, sizeof(first)},
	};

	say(&x->a, MSG_prefilled, &m);
}

#define WIRED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
