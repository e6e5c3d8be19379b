/* Handlers of the messages that both roles treat alike; the others go to the role. */
#include "common/worker/dispatch.h"

#include "common/base/log.h"
#include "common/worker/report.h"
#include "common/worker/worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ANSWER_BYTES_MAX 4194304

/* Every router hears it: the one that asked may have been replaced meanwhile. */
static void on_peer_gone(void *ctx, const char *worker_id, uint64_t incarnation)
{
	struct worker *w = ctx;
	struct msg_peer_gone m = {
		.id = bytes_of_str(worker_id), .incarnation = incarnation};

	log_info("peer %s#%016" PRIx64 " is unmapped", worker_id, incarnation);
	routers_broadcast(w->routers, MSG_peer_gone, &m);
}

static status on_peer_down(
	struct worker *w, uint64_t router, const void *msg, struct err *err)
{
	const struct msg_peer_down *m = msg;
	char id[64];

	(void)router;
	if (m->id.len == 0 || memchr(m->id.at, 0, m->id.len) != NULL)
		return err_set(err, ST_INVALID, "peer_down without a usable id");
	snprintf(id, sizeof(id), "%.*s", (int)m->id.len, (const char *)m->id.at);
	if (w->role->peer_down != NULL)
		w->role->peer_down(w->self, m->id, m->incarnation);
	importer_peer_down(w->importer, id, m->incarnation, on_peer_gone, w);
	return ST_OK;
}

static status on_drain(
	struct worker *w, uint64_t router, const void *msg, struct err *err)
{
	const struct msg_drain *m = msg;

	(void)router;
	(void)err;
	service_drain(w, m->deadline_ms, m->migrate != 0, "ordered");
	return ST_OK;
}

static status on_undrain(
	struct worker *w, uint64_t router, const void *msg, struct err *err)
{
	(void)router;
	(void)msg;
	(void)err;
	service_undrain(w);
	return ST_OK;
}

static status on_ask(struct worker *w, uint64_t router, const void *msg, struct err *err)
{
	const struct msg_ask *m = msg;
	struct msg_answer a = {.tag = m->tag};
	struct sink json;
	status st;

	sink_init(&json, ANSWER_BYTES_MAX);
	st = report_answer(w, m->what, &json, err);
	if (st == ST_OK && json.full)
		st = err_set(err, ST_LIMIT, "no memory for an answer");
	a.json = sink_bytes(&json);
	if (st == ST_OK)
		routers_send(w->routers, router, MSG_answer, &a);
	sink_release(&json);
	return st;
}

/* A request names the router that numbered it; nobody may speak for another. Every
 * message of a role begins with that member (schema.def, REQUEST). */
static status check_owner(uint64_t router, const void *msg, struct err *err)
{
	uint64_t owner;

	memcpy(&owner, msg, sizeof(owner));
	if (owner != router)
		return err_set(err, ST_INVALID,
			"request of router %016llx, sent by %016llx",
			(unsigned long long)owner, (unsigned long long)router);
	return ST_OK;
}

static status on_cancel(
	struct worker *w, uint64_t router, const void *msg, struct err *err)
{
	const struct msg_cancel *m = msg;
	status st = check_owner(router, msg, err);

	if (st == ST_OK)
		jobs_cancel(w->jobs, wire_request_of(m));
	return st;
}

static const struct {
	uint8_t type;
	status (*fn)(struct worker *w, uint64_t router, const void *msg, struct err *err);
} handlers[] = {
	{MSG_peer_down, on_peer_down},
	{MSG_drain, on_drain},
	{MSG_undrain, on_undrain},
	{MSG_ask, on_ask},
	{MSG_cancel, on_cancel},
};

static status to_role(struct worker *w, uint64_t router, const struct wire_msg *type,
	const void *msg, struct err *err)
{
	_Static_assert(offsetof(struct msg_prefill, router) == 0, "REQUEST comes first");
	_Static_assert(offsetof(struct msg_adopt, router) == 0, "REQUEST comes first");
	_Static_assert(offsetof(struct msg_cancel, router) == 0, "REQUEST comes first");
	_Static_assert(offsetof(struct msg_release, router) == 0, "REQUEST comes first");
	for (size_t i = 0; i < w->role->n_handlers; i++) {
		status st;

		if (w->role->handlers[i].type != type->type)
			continue;
		st = check_owner(router, msg, err);
		return st == ST_OK ? w->role->handlers[i].fn(w->self, msg, err) : st;
	}
	return err_set(err, ST_INVALID, "nothing is done here with it");
}

void dispatch_message(
	struct worker *w, uint64_t router, const struct wire_msg *type, const void *msg)
{
	struct err err;
	status st = ST_AGAIN;

	for (size_t i = 0; i < COUNT(handlers) && st == ST_AGAIN; i++)
		if (handlers[i].type == type->type)
			st = handlers[i].fn(w, router, msg, &err);
	if (st == ST_AGAIN)
		st = to_role(w, router, type, msg, &err);
	if (st == ST_OK)
		return;
	w->stats.v[STAT_malformed]++;
	log_warn("%s of router %016llx refused: %s", type->name,
		(unsigned long long)router, err.text);
}
