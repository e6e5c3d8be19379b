/* From JSON to rows. */
#include "deploy/ctl/view.h"

#include <stdio.h>
#include <string.h>

const char *view_text(const struct json *v, const char *name)
{
	const char *text = json_text(json_member(v, name));

	return text != NULL ? text : "?";
}

uint64_t view_u64(const struct json *v, const char *name)
{
	int64_t number;

	return json_i64(json_member(v, name), &number) && number > 0 ? (uint64_t)number
								     : 0;
}

const struct json *view_worker_of(const struct json *answer, const char *id)
{
	json_each(w, json_member(answer, "workers"))
	{
		if (json_equals(json_member(w, "id"), id))
			return w;
	}
	return NULL;
}

#define COPY(to, v, name) snprintf((to), sizeof(to), "%s", view_text((v), (name)))

static void read_router(struct view_router *r, const struct json *answer)
{
	const struct json *v = json_member(answer, "router");

	COPY(r->id, v, "id");
	COPY(r->state, v, "state");
	COPY(r->model, v, "model");
	COPY(r->version, v, "version");
	r->port = view_u64(v, "port");
	r->connections = view_u64(v, "connections");
	r->calls = view_u64(v, "calls");
	r->answers = true;
}

static void read_worker(struct view_worker *w, const struct json *v)
{
	const struct json *stats = json_member(v, "stats");

	COPY(w->id, v, "id");
	COPY(w->incarnation, v, "incarnation");
	COPY(w->role, v, "role");
	COPY(w->state, v, "state");
	COPY(w->transport, v, "transport");
	COPY(w->gpus, v, "gpus");
	COPY(w->version, v, "version");
	w->running = view_u64(v, "running");
	w->queued = view_u64(v, "queued");
	w->pages = view_u64(v, "pages");
	w->pages_free = view_u64(v, "pages_free");
	w->slots = view_u64(v, "slots");
	w->slots_free = view_u64(v, "slots_free");
	w->tokens = view_u64(stats, "prefill_tokens") + view_u64(stats, "decode_tokens");
	if (!json_f64(json_member(v, "up_s"), &w->up_s))
		w->up_s = 0;
}

static struct view_worker *find(struct view *v, const struct json *w)
{
	for (uint32_t i = 0; i < v->n_workers; i++)
		if (strcmp(v->worker[i].id, view_text(w, "id")) == 0 &&
			strcmp(v->worker[i].incarnation, view_text(w, "incarnation")) ==
				0)
			return &v->worker[i];
	return NULL;
}

static void add_state(struct view_worker *w, const char *state)
{
	size_t n = strlen(w->state);

	if (strstr(w->state, state) == NULL)
		snprintf(w->state + n, sizeof(w->state) - n, "/%s", state);
}

void view_read(struct view *v, const struct talk *t)
{
	memset(v, 0, sizeof(*v));
	v->n_routers = talk_count(t);
	for (uint32_t i = 0; i < v->n_routers; i++) {
		const struct json *answer = talk_reply(t, i)->json;

		snprintf(v->router[i].id, sizeof(v->router[i].id), "%s", talk_name(t, i));
		if (answer == NULL)
			continue;
		read_router(&v->router[i], answer);
		json_each(w, json_member(answer, "workers"))
		{
			struct view_worker *row = find(v, w);

			if (row != NULL)
				add_state(row, view_text(w, "state"));
			else if (v->n_workers < VIEW_WORKERS_MAX)
				read_worker(&v->worker[v->n_workers++], w);
		}
	}
}
