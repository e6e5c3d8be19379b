/* The set of routers: which sockets there are, sending, beats. */
#include "common/worker/routers.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/worker/report.h"
#include "common/worker/router_link.h"
#include "common/worker/worker.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define RESCAN_MS 1000
/* A file is there a moment before its socket listens. */
#define LISTEN_MS 20
#define SUFFIX    ".sock"

static bool is_socket_name(const char *name)
{
	size_t n = strlen(name);

	return n > strlen(SUFFIX) && strcmp(name + n - strlen(SUFFIX), SUFFIX) == 0;
}

static struct router_link *find_name(struct routers *s, const char *name)
{
	for (uint32_t i = 0; i < ROUTERS_MAX; i++)
		if (s->link[i].bus != NULL && strcmp(s->link[i].name, name) == 0)
			return &s->link[i];
	return NULL;
}

/* Files of routers that were killed stay. Nobody listens there, so they get no place. */
static bool is_served(const char *path)
{
	bool answers;
	struct err err;

	if (runtime_answers(path, RUNTIME_STREAM, &answers, &err) == ST_OK)
		return answers;
	log_warn("%s", err.text);
	return false;
}

/* A file of the directory; the place of its router, or NULL: it has none. */
static struct router_link *look_at(struct routers *s, const char *name)
{
	struct router_link *l = find_name(s, name);
	char path[RUNTIME_PATH_BYTES];
	char endpoint[RUNTIME_PATH_BYTES + 8];
	struct err err;
	status st;

	if (l != NULL && l->state != LINK_DOWN)
		return l;
	st = runtime_path(&s->w->runtime, path, &err, "routers/%s", name);
	if (st == ST_OK) {
		if (!is_served(path)) {
			s->refused = true;
			return NULL;
		}
		if (l != NULL)
			return l;
		snprintf(endpoint, sizeof(endpoint), "ipc://%s", path);
		st = router_link_open(s, name, endpoint, &err);
	}
	if (st != ST_OK)
		log_warn("%s", err.text);
	return find_name(s, name);
}

/* A router whose socket file is gone or dead will not come back by this connection; one
 * that still speaks is kept until it ends. */
static void look_through(void *ctx)
{
	struct routers *s = ctx;
	bool seen[ROUTERS_MAX] = {false};
	DIR *d = opendir(s->w->runtime.routers);
	struct dirent *e;

	if (d == NULL) {
		log_warn("cannot read %s", s->w->runtime.routers);
		return;
	}
	while ((e = readdir(d)) != NULL) {
		struct router_link *l;

		if (!is_socket_name(e->d_name))
			continue;
		l = look_at(s, e->d_name);
		if (l != NULL)
			seen[l - s->link] = true;
	}
	closedir(d);
	for (uint32_t i = 0; i < ROUTERS_MAX; i++)
		if (!seen[i] && s->link[i].state != LINK_LIVE)
			router_link_close(&s->link[i]);
}

static void rescan(void *ctx)
{
	struct routers *s = ctx;

	s->refused = false;
	look_through(s);
	if (s->refused)
		loop_timer_start(s->w->loop, &s->again, LISTEN_MS, 0, look_through, s);
}

static void beat(void *ctx)
{
	struct routers *s = ctx;
	struct worker *w = s->w;
	struct engine_counters n = engine_counters(w->engine);
	struct job_load load = jobs_load(w->jobs);

	report_stats(w);
	struct msg_beat m = {.incarnation = w->incarnation,
		.has_step = true,
		.step = n.steps + n.passes,
		.has_oldest_ms = true,
		.oldest_ms = engine_stuck_ns(w->engine) / NS_PER_MS,
		.has_pages_free = true,
		.pages_free = pool_count(w->pages, POOL_FREE),
		.has_slots_free = true,
		.slots_free = pool_count(w->slots, POOL_FREE),
		.has_running = true,
		.running = load.running,
		.has_queued_tokens = true,
		.queued_tokens = load.queued_tokens,
		.has_routers = true,
		.routers = routers_live(s),
		.has_stats = true,
		.stats = {(const uint8_t *)w->stats.v, sizeof(w->stats.v)},
		.has_draining = true,
		.draining = !service_accepts(w),
		.has_drained = true,
		.drained = w->service.state == DRAINED,
		.has_ends = true,
		.ends = w->service.exits,
		.has_queued = true,
		.queued = load.queued,
		.has_transport = w->transport[0] != 0,
		.transport = bytes_of_str(w->transport),
		.has_number = true,
		.number = ++s->beats};

	routers_broadcast(s, MSG_beat, &m);
}

status routers_create(
	struct routers **out, struct worker *w, struct bus_net *net, struct err *err)
{
	struct routers *s = mem_alloc(1, sizeof(*s));
	status st;

	s->w = w;
	s->net = net;
	s->msg = mem_alloc(1, wire_size_max());
	for (uint32_t i = 0; i < ROUTERS_MAX; i++)
		s->link[i].set = s;
	sink_init(&s->out, WIRE_MAX_BYTES);
	*out = s;
	st = loop_dir_open(
		&s->dir, w->loop, w->runtime.routers, RESCAN_MS, rescan, s, err);
	if (st != ST_OK)
		return st;
	loop_timer_start(w->loop, &s->beat, w->conf->beat_ms, w->conf->beat_ms, beat, s);
	rescan(s);
	return ST_OK;
}

void routers_destroy(struct routers *s)
{
	if (s == NULL)
		return;
	if (s->dir != NULL)
		loop_dir_close(s->dir);
	loop_timer_stop(&s->again);
	loop_timer_stop(&s->beat);
	for (uint32_t i = 0; i < ROUTERS_MAX; i++)
		router_link_close(&s->link[i]);
	sink_release(&s->out);
	mem_free(s->msg);
	mem_free(s);
}

bool routers_send(struct routers *s, uint64_t incarnation, uint8_t type, const void *msg)
{
	for (uint32_t i = 0; i < ROUTERS_MAX; i++) {
		struct router_link *l = &s->link[i];

		if (l->state == LINK_LIVE && l->incarnation == incarnation)
			return router_link_send(l, type, msg);
	}
	return false;
}

void routers_broadcast(struct routers *s, uint8_t type, const void *msg)
{
	for (uint32_t i = 0; i < ROUTERS_MAX; i++)
		if (s->link[i].state == LINK_LIVE)
			router_link_send(&s->link[i], type, msg);
}

uint32_t routers_live(const struct routers *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < ROUTERS_MAX; i++)
		n += s->link[i].state == LINK_LIVE;
	return n;
}

bool routers_owes(const struct routers *s, uint64_t incarnation)
{
	for (uint32_t i = 0; i < ROUTERS_MAX; i++)
		if (s->link[i].state == LINK_LIVE &&
			s->link[i].incarnation == incarnation)
			return router_link_owes(&s->link[i]);
	return false;
}

bool routers_owe(const struct routers *s)
{
	for (uint32_t i = 0; i < ROUTERS_MAX; i++)
		if (router_link_owes(&s->link[i]))
			return true;
	return false;
}

void routers_drain(struct routers *s)
{
	s->drain_beat = s->beats + 1;
	beat(s);
}

void routers_beat(struct routers *s)
{
	beat(s);
}

void routers_turn(struct routers *s, uint64_t now_ns)
{
	for (uint32_t i = 0; i < ROUTERS_MAX; i++)
		router_link_turn(&s->link[i], now_ns);
}
