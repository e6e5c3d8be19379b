/* Connections to routers; questions, orders and replies. */
#include "deploy/ctl/talk.h"

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/loop/bus.h"
#include "common/loop/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_MS 2000
/* A router gives a worker 5 s for its answer (router/control.c). */
#define REPLY_MS   6000
#define HIGH_WATER 64
#define BATCH      16
#define SUFFIX     ".sock"

static const struct json_limits limits = {.depth_max = 16, .values_max = 1u << 20};

struct peer {
	struct talk *talk;
	struct bus *bus;
	char name[64];
	bool ready; /* connected */
	bool waits; /* a reply is due */
	struct talk_reply reply;
	struct sink raw; /* what reply.raw and reply.text point to */
	uint8_t *text;   /* what reply.json points to */
	struct json_doc doc;
};

struct talk {
	struct loop *loop;
	struct bus_net *net;
	struct runtime runtime;
	struct loop_timer timer;
	bool due, stopped;
	uint64_t last_tag;
	struct peer peer[TALK_ROUTERS_MAX];
	uint32_t n;
	struct sink out; /* a message being encoded */
	void *msg;       /* a message being read */
};

/* ---- waiting ---- */

static void on_due(void *ctx)
{
	struct talk *t = ctx;

	t->due = true;
	loop_stop(t->loop);
}

static void on_signal(void *ctx, unsigned count)
{
	struct talk *t = ctx;

	(void)count;
	t->stopped = true;
	loop_stop(t->loop);
}

static bool all_ready(const struct talk *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (!t->peer[i].ready)
			return false;
	return true;
}

static bool nobody_waits(const struct talk *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (t->peer[i].waits)
			return false;
	return true;
}

static bool never(const struct talk *t)
{
	(void)t;
	return false;
}

static void wait_until(struct talk *t, uint64_t ms, bool (*done)(const struct talk *t))
{
	t->due = false;
	loop_timer_start(t->loop, &t->timer, ms, 0, on_due, t);
	while (!t->due && !t->stopped && !done(t))
		loop_run(t->loop);
	loop_timer_stop(&t->timer);
}

/* ---- replies ---- */

static void forget_reply(struct peer *p)
{
	json_release(&p->doc);
	mem_give(p->text);
	p->text = NULL;
	sink_reset(&p->raw);
	p->reply = (struct talk_reply){.text = "does not answer"};
}

static void note(struct peer *p, enum wire_ordered code, struct bytes text)
{
	forget_reply(p);
	sink_put(&p->raw, text.at, text.len);
	p->reply.came = true;
	p->reply.code = code;
	p->reply.text = sink_cstr(&p->raw);
	p->waits = false;
	loop_stop(p->talk->loop);
}

/* {"error": TEXT, "code": CODE} instead of an answer. */
static void note_error(struct peer *p, const struct json *error, const struct json *code)
{
	struct sink text;
	int64_t number;

	if (!json_i64(code, &number) || number <= ORDERED_OBEYED ||
		number > ORDERED_UNKNOWN)
		number = ORDERED_REFUSED;
	sink_init(&text, 1u << 16);
	sink_put(&text, json_bytes(error).at, json_bytes(error).len);
	note(p, (enum wire_ordered)number, sink_bytes(&text));
	sink_release(&text);
}

static void on_answer(struct peer *p, const struct msg_answer *m)
{
	struct err err;

	if (!p->waits || m->tag != p->talk->last_tag)
		return; /* to a question that was given up */
	note(p, ORDERED_OBEYED, m->json);
	p->text = (uint8_t *)mem_dup(m->json.at, m->json.len);
	if (p->text == NULL || p->raw.full ||
		json_read(&p->doc, p->text, m->json.len, &limits, &err) != ST_OK) {
		note(p, ORDERED_REFUSED, BYTES_STR("its answer cannot be read"));
		return;
	}
	p->reply.json = p->doc.values;
	p->reply.raw = sink_bytes(&p->raw);
	if (json_member(p->reply.json, "error") != NULL)
		note_error(p, json_member(p->reply.json, "error"),
			json_member(p->reply.json, "code"));
}

static void on_message(
	void *ctx, struct bytes from, uint8_t type, struct bytes body, int conn)
{
	struct peer *p = ctx;
	struct talk *t = p->talk;
	const struct wire_msg *wm = wire_find(type);
	struct err err;

	(void)from;
	(void)conn;
	if (wm == NULL || !(wm->to & WIRE_CTL) ||
		wire_decode(wm, body, t->msg, &err) != ST_OK) {
		note(p, ORDERED_REFUSED, BYTES_STR("its reply cannot be read"));
	} else if (type == MSG_answer) {
		on_answer(p, t->msg);
	} else if (type == MSG_ordered) {
		const struct msg_ordered *m = t->msg;

		note(p,
			m->code <= ORDERED_UNKNOWN ? (enum wire_ordered)m->code
						   : ORDERED_REFUSED,
			m->text);
	} else if (type == MSG_refused) {
		const struct msg_refused *m = t->msg;

		note(p, ORDERED_REFUSED, m->text);
	}
}

static void on_connect(void *ctx, int conn)
{
	struct peer *p = ctx;

	(void)conn;
	p->ready = true;
	loop_stop(p->talk->loop);
}

/* It may come back: the bus goes on trying. */
static void on_disconnect(void *ctx, int conn)
{
	struct peer *p = ctx;

	(void)conn;
	p->ready = p->waits = false;
	loop_stop(p->talk->loop);
}

static const struct bus_events events = {
	.on_message = on_message,
	.on_connect = on_connect,
	.on_disconnect = on_disconnect,
};

/* ---- opening ---- */

static status add(struct talk *t, const char *name, struct err *err)
{
	struct peer *p = &t->peer[t->n];
	char path[RUNTIME_PATH_BYTES];
	char endpoint[RUNTIME_PATH_BYTES + 8];
	char id[48];
	int n = snprintf(id, sizeof(id), "ctl#%d#%016llx", (int)getpid(),
		(unsigned long long)rng_entropy64());
	bool answers;
	status st = runtime_path(&t->runtime, path, err, "routers/%s" SUFFIX, name);

	if (st == ST_OK && strlen(name) >= sizeof(p->name))
		st = err_set(err, ST_INVALID, "router name '%s' is too long", name);
	if (st == ST_OK)
		st = runtime_answers(path, RUNTIME_STREAM, &answers, err);
	if (st != ST_OK || !answers)
		return st;
	if (t->n == TALK_ROUTERS_MAX)
		return err_set(err, ST_LIMIT, "there are more than %u routers",
			TALK_ROUTERS_MAX);
	*p = (struct peer){.talk = t, .reply = {.text = "does not answer"}};
	snprintf(p->name, sizeof(p->name), "%s", name);
	snprintf(endpoint, sizeof(endpoint), "ipc://%s", path);
	sink_init(&p->raw, WIRE_MAX_BYTES);
	t->n++;
	return bus_connect(&p->bus, t->net,
		&(struct bus_options){.endpoint = endpoint,
			.id = {(const uint8_t *)id, (size_t)n},
			.high_water = HIGH_WATER,
			.batch = BATCH,
			.events = &events,
			.ctx = p},
		err);
}

static int is_socket(const struct dirent *e)
{
	size_t n = strlen(e->d_name);

	return n > strlen(SUFFIX) && strcmp(e->d_name + n - strlen(SUFFIX), SUFFIX) == 0;
}

static status add_all(struct talk *t, struct err *err)
{
	struct dirent **found;
	int n = scandir(t->runtime.routers, &found, is_socket, alphasort);
	status st = ST_OK;

	if (n < 0)
		return err_set(err, ST_PEER, "no router is up: %s: %s",
			t->runtime.routers, strerror(errno));
	for (int i = 0; i < n; i++) {
		found[i]->d_name[strlen(found[i]->d_name) - strlen(SUFFIX)] = 0;
		if (st == ST_OK)
			st = add(t, found[i]->d_name, err);
		free(found[i]);
	}
	free(found);
	return st;
}

static bool any_ready(const struct talk *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (t->peer[i].ready)
			return true;
	return false;
}

static status connect_routers(struct talk *t, const char *only, struct err *err)
{
	status st = only != NULL ? add(t, only, err) : add_all(t, err);

	if (st != ST_OK)
		return st;
	if (t->n > 0)
		wait_until(t, CONNECT_MS, all_ready);
	if (any_ready(t))
		return ST_OK;
	if (only != NULL)
		return err_set(err, ST_PEER, "router %s does not answer in %s", only,
			t->runtime.routers);
	return err_set(err, ST_PEER, "no router answers in %s", t->runtime.routers);
}

status talk_open(
	struct talk **out, const char *runtime_dir, const char *only, struct err *err)
{
	struct talk *t = mem_alloc(1, sizeof(*t));
	status st = runtime_name(&t->runtime, runtime_dir, err);

	if (st == ST_OK && only != NULL && (*only == 0 || strchr(only, '/') != NULL))
		st = err_set(err, ST_INVALID, "'%s' is no name of a router", only);
	if (st != ST_OK) {
		mem_free(t);
		return st;
	}
	t->loop = loop_create();
	t->msg = mem_alloc(1, wire_size_max());
	t->net = bus_net_create(t->loop);
	sink_init(&t->out, WIRE_MAX_BYTES);
	st = loop_on_signals(t->loop, on_signal, t, err);
	if (st == ST_OK)
		st = connect_routers(t, only, err);
	if (st == ST_OK)
		*out = t;
	else
		talk_close(t);
	return st;
}

void talk_close(struct talk *t)
{
	if (t == NULL)
		return;
	for (uint32_t i = 0; i < t->n; i++) {
		forget_reply(&t->peer[i]);
		sink_release(&t->peer[i].raw);
		bus_close(t->peer[i].bus);
	}
	bus_net_destroy(t->net);
	loop_destroy(t->loop);
	sink_release(&t->out);
	mem_free(t->msg);
	mem_free(t);
}

/* ---- speaking ---- */

static void speak(struct peer *p, uint8_t type, const void *msg)
{
	struct sink *out = &p->talk->out;
	struct err err;

	forget_reply(p);
	sink_reset(out);
	p->waits = p->ready && wire_encode(wire_find(type), msg, out, &err) == ST_OK &&
		   bus_send(p->bus, (struct bytes){0}, type, sink_bytes(out)) == ST_OK;
}

static void tell(struct talk *t, uint32_t which, uint8_t type, const void *msg)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (which == TALK_ALL || which == i)
			speak(&t->peer[i], type, msg);
	wait_until(t, REPLY_MS, nobody_waits);
	for (uint32_t i = 0; i < t->n; i++)
		t->peer[i].waits = false;
}

void talk_ask(struct talk *t, uint32_t which, const char *what, const char *id)
{
	struct msg_ask m = {
		.what = bytes_of_str(what), .tag = ++t->last_tag, .has_id = id != NULL};

	if (id != NULL)
		m.id = bytes_of_str(id);
	tell(t, which, MSG_ask, &m);
}

void talk_order(struct talk *t, uint32_t which, const char *verb, const char *id,
	const char *args)
{
	struct msg_order m = {.id = bytes_of_str(id),
		.verb = bytes_of_str(verb),
		.args = bytes_of_str(args)};

	tell(t, which, MSG_order, &m);
}

void talk_pause(struct talk *t, uint64_t ms)
{
	wait_until(t, ms, never);
}

uint32_t talk_count(const struct talk *t)
{
	return t->n;
}

const char *talk_name(const struct talk *t, uint32_t i)
{
	return t->peer[i].name;
}

const struct talk_reply *talk_reply(const struct talk *t, uint32_t i)
{
	return &t->peer[i].reply;
}

bool talk_stopped(const struct talk *t)
{
	return t->stopped;
}
