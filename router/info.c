/* Answers about the router, the model and the cluster. */
#include "router/info.h"

#include "common/base/json_write.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "router/api_out.h"
#include "router/dispatch.h"
#include "router/reply.h"

#include <string.h>

#define METRICS_BYTES_MAX (8u << 20)

static struct out_model model_at(const struct router *rt, const char *name)
{
	return (struct out_model){
		.id = name, .created = rt->begun_unix_s, .len_max = router_len_max(rt)};
}

void info_models(struct router *rt, struct http_req *req)
{
	struct out_model all[ROUTER_NAMES_MAX];
	struct sink out;

	for (uint32_t i = 0; i < rt->n_names; i++)
		all[i] = model_at(rt, rt->name[i]);
	sink_init(&out, 1u << 20);
	out_models(&out, all, rt->n_names);
	reply_json(req, 200, &out);
	sink_release(&out);
}

void info_model(struct router *rt, struct http_req *req)
{
	const char *asked = http_path(req) + strlen(INFO_MODELS_PREFIX);
	const char *name = router_model_name(rt, asked);
	struct out_model model;
	struct api_error e;
	struct sink out;

	if (name == NULL) {
		api_error_set(&e, 404, "model_not_found", "model",
			"The model `%.200s` does not exist.", asked);
		reply_error(rt, req, &e, false);
		return;
	}
	model = model_at(rt, name);
	sink_init(&out, 1u << 16);
	out_model(&out, &model);
	reply_json(req, 200, &out);
	sink_release(&out);
}

void info_version(struct router *rt, struct http_req *req)
{
	(void)rt;
	http_respond(req, 200, "application/json",
		BYTES_STR("{\"version\":\"" BATON_VERSION "\"}"));
}

void info_ping(struct router *rt, struct http_req *req)
{
	(void)rt;
	http_respond(req, 200, "application/json", BYTES_STR("{}"));
}

void info_metrics(struct router *rt, struct http_req *req)
{
	struct metrics_scene scene = {
		.metrics = &rt->metrics,
		.fleet = rt->fleet,
		.requests = &rt->requests,
		.pairs = &rt->pairs,
		.model = rt->name[0],
		.router = rt->conf->id,
		.connections = http_connections(rt->http),
		.open_requests = http_requests(rt->http) - 1,
		.memory_bytes = mem_taken(),
		.draining = rt->draining,
		.socket_lost = rt->socket_lost,
	};
	struct api_error e;
	struct sink out;

	if (rt->template != NULL) {
		scene.template_children = template_alive(rt->template);
		scene.template_restarts = template_restarts(rt->template);
	}
	rt->metrics.counter[COUNTER_replays] = rt->requests.replays;
	rt->metrics.counter[COUNTER_breaches] = rt->requests.breaches;
	rt->metrics.counter[COUNTER_log_dropped] = log_dropped();
	sink_init(&out, METRICS_BYTES_MAX);
	metrics_text(&scene, &out);
	if (out.full) {
		api_error_set(&e, 500, "overloaded", NULL, "No memory for the metrics.");
		reply_error(rt, req, &e, false);
	} else {
		http_respond(req, 200, "text/plain; version=0.0.4; charset=utf-8",
			sink_bytes(&out));
	}
	sink_release(&out);
}

/* ---- load ---- */

/* Used part of the pages of workers of a role, 0 to 1. */
static double pages_used(struct router *rt, uint8_t role)
{
	uint64_t pages = 0, free = 0;

	for (uint32_t i = 0; i < fleet_count(rt->fleet); i++) {
		const struct worker_view *w = fleet_at(rt->fleet, i);

		if (w->role != role)
			continue;
		pages += w->pages;
		free += MIN(w->pages_free, w->pages);
	}
	return pages > 0 ? (double)(pages - free) / (double)pages : 0;
}

void info_load(struct router *rt, struct http_req *req)
{
	uint32_t waiting = requests_waiting(&rt->requests);
	uint32_t live = requests_live(&rt->requests);
	struct json_out w;
	struct sink out;

	sink_init(&out, 4096);
	json_out_init(&w, &out);
	json_open(&w, '{');
	json_add_u64(&w, "server_load", live);
	json_add_u64(&w, "running", live - waiting);
	json_add_u64(&w, "waiting", waiting);
	json_add_f64(&w, "wait_s", dispatch_wait_s(rt, waiting + 1));
	json_add_f64(&w, "kv_cache_usage", pages_used(rt, WIRE_DECODE));
	json_close(&w);
	reply_json(req, 200, &out);
	sink_release(&out);
}

/* ---- what serves ---- */

/* A list with one pool in it, and in that what the pool measured of its engine (nothing):
 * SGLang's benchmark takes the first of each without asking. */
static void add_workers(
	struct json_out *w, struct router *rt, const char *name, uint8_t role)
{
	uint64_t n = 0, pages = 0, slots = 0;

	for (uint32_t i = 0; i < fleet_count(rt->fleet); i++) {
		const struct worker_view *v = fleet_at(rt->fleet, i);

		if (v->role != role)
			continue;
		n++;
		pages += v->pages;
		slots += v->slots;
	}
	json_name(w, name);
	json_open(w, '[');
	json_open(w, '{');
	json_add_u64(w, "workers", n);
	json_add_u64(w, "pages", pages);
	json_add_u64(w, "slots", slots);
	json_name(w, "internal_states");
	json_open(w, '[');
	json_open(w, '{');
	json_close(w);
	json_close(w);
	json_close(w);
	json_close(w);
}

void info_server(struct router *rt, struct http_req *req)
{
	const struct router_conf *conf = rt->conf;
	struct json_out w;
	struct sink out;

	sink_init(&out, 1u << 16);
	json_out_init(&w, &out);
	json_open(&w, '{');
	json_add_text(&w, "version", BATON_VERSION);
	json_add_text(&w, "router", conf->id);
	json_add_text(&w, "model_path", rt->name[0]);
	json_add_text(&w, "served_model_name", rt->name[0]);
	json_name(&w, "served_model_names");
	json_open(&w, '[');
	for (uint32_t i = 0; i < rt->n_names; i++)
		json_put_text(&w, rt->name[i]);
	json_close(&w);
	json_add_u64(&w, "max_model_len", router_len_max(rt));
	json_add_u64(&w, "vocab_size", tokenizer_n_tokens(rt->tokenizer));
	json_add_u64(&w, "started", rt->begun_unix_s);
	json_add_bool(&w, "ready", router_readiness(rt) == PROBE_READY);
	json_add_u64(&w, "max_queued", conf->max_queued);
	json_add_u64(&w, "max_replays", conf->max_replays);
	json_add_f64(&w, "queue_timeout_s", conf->queue_timeout_s);
	add_workers(&w, rt, "prefill", WIRE_PREFILL);
	add_workers(&w, rt, "decode", WIRE_DECODE);
	json_close(&w);
	reply_json(req, 200, &out);
	sink_release(&out);
}

void info_tokenizer(struct router *rt, struct http_req *req)
{
	http_respond(req, 200, "application/json", bytes_of_str(rt->tokenizer_info));
}
