/* Questions and orders of batonctl. */
#include "router/control.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/link.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_BYTES_MAX (4u << 20)
#define ANSWER_WAIT_NS   (5 * NS_PER_S)

static void answer(
	struct router *rt, struct bytes peer, uint64_t tag, const struct sink *json)
{
	struct msg_answer m = {.tag = tag, .json = sink_bytes(json)};

	link_send(rt, peer, MSG_answer, &m);
}

static void answer_error(struct router *rt, struct bytes peer, uint64_t tag,
	enum wire_ordered code, const char *text)
{
	struct sink json;

	sink_init(&json, 4096);
	api_status_error(&json, code, text);
	answer(rt, peer, tag, &json);
	sink_release(&json);
}

static void answer_status(struct router *rt, struct bytes peer, uint64_t tag)
{
	struct sink json;

	sink_init(&json, ANSWER_BYTES_MAX);
	api_status(rt, clock_ns(), &json);
	if (json.full)
		answer_error(rt, peer, tag, ORDERED_REFUSED, "the answer is too large");
	else
		answer(rt, peer, tag, &json);
	sink_release(&json);
}

static struct router_ask *free_ask(struct router *rt)
{
	for (unsigned i = 0; i < ROUTER_ASKS_MAX; i++)
		if (rt->ask[i].tag == 0)
			return &rt->ask[i];
	return NULL;
}

static void pass_on(struct router *rt, struct bytes peer, const struct msg_ask *m)
{
	struct worker_view *w = fleet_find(rt->fleet, m->id);
	struct router_ask *a = free_ask(rt);
	struct msg_ask forward = {.what = m->what};

	if (w == NULL) {
		answer_error(rt, peer, m->tag, ORDERED_UNKNOWN,
			"no worker of this id is connected");
		return;
	}
	if (a == NULL || peer.len > sizeof(a->peer)) {
		answer_error(
			rt, peer, m->tag, ORDERED_REFUSED, "too many questions are open");
		return;
	}
	*a = (struct router_ask){.tag = ++rt->last_ask,
		.ctl_tag = m->tag,
		.asked_ns = clock_ns(),
		.n_peer = (uint32_t)peer.len};
	memcpy(a->peer, peer.at, peer.len);
	forward.tag = a->tag;
	link_send_worker(rt, w, MSG_ask, &forward);
}

void control_ask(struct router *rt, struct bytes peer, const struct msg_ask *m)
{
	if (m->has_id && m->id.len > 0)
		pass_on(rt, peer, m);
	else if (bytes_eq(m->what, BYTES_STR("status")))
		answer_status(rt, peer, m->tag);
	else
		answer_error(rt, peer, m->tag, ORDERED_MALFORMED,
			"a router answers 'status'; other questions need a worker's id");
}

void control_answer(struct router *rt, const struct msg_answer *m)
{
	for (unsigned i = 0; i < ROUTER_ASKS_MAX; i++) {
		struct router_ask *a = &rt->ask[i];
		struct msg_answer back = {.tag = a->ctl_tag, .json = m->json};

		if (m->tag == 0 || a->tag != m->tag)
			continue;
		link_send(rt, (struct bytes){(const uint8_t *)a->peer, a->n_peer},
			MSG_answer, &back);
		a->tag = 0;
	}
}

/* ---- orders ---- */

struct order {
	struct worker_view *w;
	bool force, migrate;
	char text[256]; /* of the answer */
};

typedef enum wire_ordered order_fn(struct router *rt, struct order *o);

static enum wire_ordered order_drain(struct router *rt, struct order *o)
{
	const struct msg_drain m = {.deadline_ms = 0, .migrate = o->migrate};
	struct worker_view *w = o->w;
	bool usable = w->state == WORKER_KNOWN && !w->draining;

	if (w->ends) {
		snprintf(o->text, sizeof(o->text),
			"%s drains already, and its process ends then", w->id);
		return ORDERED_REFUSED;
	}
	if (!o->force && !w->draining && fleet_usable(rt->fleet, w->role) == usable) {
		snprintf(o->text, sizeof(o->text),
			"%s is the last %s worker that takes work, without it requests "
			"are refused: --force",
			w->id, w->role == WIRE_PREFILL ? "prefill" : "decode");
		return ORDERED_REFUSED;
	}
	if (o->migrate && (w->role != WIRE_DECODE ||
				  fleet_usable(rt->fleet, WIRE_DECODE) == usable)) {
		snprintf(o->text, sizeof(o->text),
			w->role == WIRE_DECODE
				? "no other decode worker takes work: the sequences of "
				  "%s cannot go on elsewhere"
				: "%s is no decode worker: it has no sequences that "
				  "could "
				  "go on elsewhere",
			w->id);
		return ORDERED_REFUSED;
	}
	fleet_told_to_drain(w);
	link_send_worker(rt, w, MSG_drain, &m);
	router_wake(rt);
	return ORDERED_OBEYED;
}

static enum wire_ordered order_undrain(struct router *rt, struct order *o)
{
	static const struct msg_undrain m;

	if (o->w->ends) {
		snprintf(o->text, sizeof(o->text),
			"the process of %s ends when it is drained, that cannot be "
			"undone",
			o->w->id);
		return ORDERED_REFUSED;
	}
	link_send_worker(rt, o->w, MSG_undrain, &m);
	return ORDERED_OBEYED;
}

static const struct {
	const char *verb;
	order_fn *fn;
	bool takes_words;
} orders[] = {
	{"drain", order_drain, true},
	{"undrain", order_undrain, false},
};

/* "force migrate", in any order; false: another word. */
static bool read_words(struct bytes args, struct order *o)
{
	static const struct {
		struct bytes word;
		size_t at;
	} words[] = {{{(const uint8_t *)"force", 5}, offsetof(struct order, force)},
		{{(const uint8_t *)"migrate", 7}, offsetof(struct order, migrate)}};
	size_t at = 0;

	while (at < args.len) {
		struct bytes rest = {args.at + at, args.len - at};
		const uint8_t *end = memchr(rest.at, ' ', rest.len);
		size_t i = 0;

		rest.len = end != NULL ? (size_t)(end - rest.at) : rest.len;
		while (i < COUNT(words) && !bytes_eq(rest, words[i].word))
			i++;
		if (i == COUNT(words))
			return false;
		*(bool *)((char *)o + words[i].at) = true;
		at += rest.len + 1;
	}
	return true;
}

static enum wire_ordered obey(
	struct router *rt, const struct msg_order *m, struct order *o)
{
	bool known = read_words(m->args, o);

	o->w = fleet_find(rt->fleet, m->id);
	for (size_t i = 0; i < COUNT(orders); i++) {
		enum wire_ordered code;

		if (!bytes_eq(m->verb, bytes_of_str(orders[i].verb)) || !known ||
			(m->args.len > 0 && !orders[i].takes_words))
			continue;
		if (o->w == NULL) {
			snprintf(o->text, sizeof(o->text),
				"no worker of this id is connected");
			return ORDERED_UNKNOWN;
		}
		code = orders[i].fn(rt, o);
		if (code == ORDERED_OBEYED && o->w->broken) {
			snprintf(o->text, sizeof(o->text), "%s cannot be reached",
				o->w->id);
			return ORDERED_REFUSED;
		}
		return code;
	}
	snprintf(o->text, sizeof(o->text),
		"this router knows 'drain' (with 'force', 'migrate') and 'undrain'");
	return ORDERED_MALFORMED;
}

void control_order(struct router *rt, struct bytes peer, const struct msg_order *m)
{
	struct order o = {.text = ""};
	struct msg_ordered result = {.code = obey(rt, m, &o)};

	result.text = bytes_of_str(o.text);
	log_info("order '%.*s' for '%.*s' %s%s", (int)m->verb.len,
		(const char *)m->verb.at, (int)m->id.len, (const char *)m->id.at,
		result.code == ORDERED_OBEYED ? "obeyed" : "refused: ", o.text);
	link_send(rt, peer, MSG_ordered, &result);
}

void control_turn(struct router *rt, uint64_t now_ns)
{
	for (unsigned i = 0; i < ROUTER_ASKS_MAX; i++) {
		struct router_ask *a = &rt->ask[i];

		if (a->tag == 0 || now_ns - a->asked_ns < ANSWER_WAIT_NS)
			continue;
		answer_error(rt, (struct bytes){(const uint8_t *)a->peer, a->n_peer},
			a->ctl_tag, ORDERED_REFUSED, "the worker did not answer in time");
		a->tag = 0;
	}
}
