/* Questions and orders of batonctl. */
#include "router/control.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/link.h"

#include <string.h>

#define ANSWER_BYTES_MAX (4u << 20)
#define ANSWER_WAIT_NS   (5 * NS_PER_S)

static void answer(
	struct router *rt, struct bytes peer, uint64_t tag, const struct sink *json)
{
	struct msg_answer m = {.tag = tag, .json = sink_bytes(json)};

	link_send(rt, peer, MSG_answer, &m);
}

static void answer_error(
	struct router *rt, struct bytes peer, uint64_t tag, const char *text)
{
	struct sink json;

	sink_init(&json, 4096);
	api_status_error(&json, text);
	answer(rt, peer, tag, &json);
	sink_release(&json);
}

static void answer_status(struct router *rt, struct bytes peer, uint64_t tag)
{
	struct sink json;

	sink_init(&json, ANSWER_BYTES_MAX);
	api_status(rt, clock_ns(), &json);
	if (json.full)
		answer_error(rt, peer, tag, "the answer is too large");
	else
		answer(rt, peer, tag, &json);
	sink_release(&json);
}

static struct worker_view *find_worker(struct router *rt, struct bytes id)
{
	for (uint32_t i = 0; i < fleet_count(rt->fleet); i++)
		if (bytes_eq(id, bytes_of_str(fleet_at(rt->fleet, i)->id)))
			return fleet_at(rt->fleet, i);
	return NULL;
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
	struct worker_view *w = find_worker(rt, m->id);
	struct router_ask *a = free_ask(rt);
	struct msg_ask forward = {.what = m->what};

	if (w == NULL) {
		answer_error(rt, peer, m->tag, "no worker of this id is known");
		return;
	}
	if (a == NULL || peer.len > sizeof(a->peer)) {
		answer_error(rt, peer, m->tag, "too many questions are open");
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
		answer_error(rt, peer, m->tag,
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

void control_order(struct router *rt, struct bytes peer, const struct msg_order *m)
{
	static const char text[] = "orders are not supported by this version: stop a "
				   "process with SIGTERM to drain it";
	struct msg_ordered answer_no = {.code = 1, .text = BYTES_STR(text)};

	log_info("order '%.*s' refused", (int)m->verb.len, (const char *)m->verb.at);
	link_send(rt, peer, MSG_ordered, &answer_no);
}

void control_turn(struct router *rt, uint64_t now_ns)
{
	for (unsigned i = 0; i < ROUTER_ASKS_MAX; i++) {
		struct router_ask *a = &rt->ask[i];

		if (a->tag == 0 || now_ns - a->asked_ns < ANSWER_WAIT_NS)
			continue;
		answer_error(rt, (struct bytes){(const uint8_t *)a->peer, a->n_peer},
			a->ctl_tag, "the worker did not answer in time");
		a->tag = 0;
	}
}
