/* Paths. */
#include "router/routes.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "router/api_out.h"
#include "router/call.h"
#include "router/dispatch.h"
#include "router/entry.h"
#include "router/page.h"
#include "router/tok_call.h"

#include <inttypes.h>
#include <string.h>

#define METRICS_BYTES_MAX (8u << 20)
#define MODELS_PREFIX     "/v1/models/"

/* ---- small answers ---- */

static struct out_model model_at(const struct router *rt, const char *name)
{
	return (struct out_model){
		.id = name, .created = rt->begun_unix_s, .len_max = router_len_max(rt)};
}

static void models(struct router *rt, struct http_req *req)
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

static void one_model(struct router *rt, struct http_req *req)
{
	const char *asked = http_path(req) + strlen(MODELS_PREFIX);
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

static void version(struct router *rt, struct http_req *req)
{
	(void)rt;
	http_respond(req, 200, "application/json",
		BYTES_STR("{\"version\":\"" BATON_VERSION "\"}"));
}

static void ping(struct router *rt, struct http_req *req)
{
	(void)rt;
	http_respond(req, 200, "application/json", BYTES_STR("{}"));
}

static void metrics(struct router *rt, struct http_req *req)
{
	struct metrics_scene scene = {
		.metrics = &rt->metrics,
		.fleet = rt->fleet,
		.requests = &rt->requests,
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

/* ---- the table; the paths of dialects stand in their rows (format.h) ---- */

enum method { M_GET, M_POST };

static const struct route {
	const char *path; /* "/" at the end of more: all that begins so */
	enum method method;
	void (*fn)(struct router *rt, struct http_req *req);
	bool open; /* without a key, as probes are */
} routes[] = {
	{"/v1/models", M_GET, models, false},
	{MODELS_PREFIX, M_GET, one_model, false},
	{"/tokenize", M_POST, tok_call_tokenize, false},
	{"/v1/tokenize", M_POST, tok_call_tokenize, false},
	{"/detokenize", M_POST, tok_call_detokenize, false},
	{"/v1/detokenize", M_POST, tok_call_detokenize, false},
	{"/metrics", M_GET, metrics, true},
	{"/", M_GET, page_answer, true},
	{"/status", M_GET, page_status, false},
	{"/version", M_GET, version, true},
	{"/ping", M_GET, ping, true},
};

static bool matches(const struct route *r, const char *path)
{
	size_t n = strlen(r->path);

	if (n > 1 && r->path[n - 1] == '/')
		return strncmp(path, r->path, n) == 0 && path[n] != 0;
	return strcmp(path, r->path) == 0;
}

static bool allowed(enum method method, const char *sent)
{
	if (method == M_POST)
		return strcmp(sent, "POST") == 0;
	return strcmp(sent, "GET") == 0 || strcmp(sent, "HEAD") == 0;
}

static void refuse_method(struct router *rt, struct http_req *req, enum method method)
{
	const char *allow = method == M_POST ? "POST" : "GET, HEAD";
	struct api_error e;

	api_error_set(&e, 405, "method_not_allowed", NULL, "%.100s is served by %s only.",
		http_path(req), allow);
	http_header_add(req, "Allow", allow);
	reply_error(rt, req, &e, false);
}

/* Probes are answered with the same words as on their own port. */
static bool answer_probe(struct router *rt, struct http_req *req)
{
	struct bytes body;
	unsigned code;

	if (!probe_answer(http_path(req), router_readiness(rt), true, &code, &body))
		return false;
	if (!allowed(M_GET, http_method(req)))
		refuse_method(rt, req, M_GET);
	else
		http_respond(req, code, "application/json", body);
	return true;
}

static const struct route *route_of(const char *path)
{
	for (size_t i = 0; i < COUNT(routes); i++)
		if (matches(&routes[i], path))
			return &routes[i];
	return NULL;
}

static bool may_enter(void *ctx, struct http_req *req, struct http_fault *f)
{
	const struct route *route = route_of(http_path(req));
	struct bytes body;
	unsigned code;

	return entry_check(ctx, req,
		(route != NULL && route->open) ||
			probe_answer(http_path(req), PROBE_READY, true, &code, &body),
		f);
}

static void on_request(void *ctx, struct http_req *req)
{
	const struct answer_format *format = format_of(http_path(req));
	const struct route *route = route_of(http_path(req));
	struct router *rt = ctx;
	struct api_error e;

	if (entry_preflight(rt, req) || answer_probe(rt, req))
		return;
	if (format != NULL) {
		if (allowed(M_POST, http_method(req)))
			call_begin(rt, req, format);
		else
			refuse_method(rt, req, M_POST);
		return;
	}
	if (route != NULL) {
		if (allowed(route->method, http_method(req)))
			route->fn(rt, req);
		else
			refuse_method(rt, req, route->method);
		return;
	}
	api_error_set(
		&e, 404, "not_found", NULL, "%.200s is not served here.", http_path(req));
	reply_error(rt, req, &e, false);
}

static void on_gone(void *ctx, struct http_req *req)
{
	struct served *s = http_user(req);

	(void)ctx;
	if (s != NULL)
		s->gone(s);
}

static void on_half_closed(void *ctx, struct http_req *req)
{
	struct served *s = http_user(req);

	(void)ctx;
	if (s != NULL && s->half_closed != NULL)
		s->half_closed(s);
}

/* Generation calls log their own outcome. Answers to questions that monitors ask all
 * the time are not worth a line. */
static void on_end(void *ctx, struct http_req *req)
{
	struct router *rt = ctx;
	struct served *s = http_user(req);
	enum http_loss loss = http_lost(req);
	bool left = loss == HTTP_CLIENT_GONE || loss == HTTP_NOT_READING;
	unsigned code = left ? 499 : http_status(req);
	char path[LOG_WORD_BYTES];
	double total_ms = (double)(clock_ns() - http_begun_ns(req)) / NS_PER_MS;

	if (s != NULL) {
		s->end(s);
		return;
	}
	metrics_status(&rt->metrics, code);
	if (strcmp(http_method(req), "POST") == 0)
		log_info("outcome req=%s path=%s status=%u total_ms=%.1f error=%s",
			http_id(req), log_word(path, http_path(req)), code, total_ms,
			http_loss_name(loss));
	else
		log_debug("outcome req=%s path=%s status=%u total_ms=%.1f error=%s",
			http_id(req), log_word(path, http_path(req)), code, total_ms,
			http_loss_name(loss));
}

static void cut(void *error, struct http_req *req)
{
	struct served *s = http_user(req);

	if (s != NULL)
		s->cut(s, error);
}

void routes_cut_all(struct router *rt, const struct api_error *e)
{
	struct api_error copy = *e;

	http_each(rt->http, cut, &copy);
}

static void on_refused(
	void *ctx, struct http_req *req, unsigned http_code, const char *code)
{
	char path[LOG_WORD_BYTES];
	struct router *rt = ctx;

	if (req != NULL)
		log_info("refused req=%s path=%s status=%u error=%s", http_id(req),
			http_path(req) != NULL ? log_word(path, http_path(req)) : "-",
			http_code, code);

	rt->metrics.counter[COUNTER_refused]++;
	metrics_status(&rt->metrics, http_code);
}

struct http_handler routes_handler(struct router *rt)
{
	return (struct http_handler){
		.ctx = rt,
		.may_enter = may_enter,
		.on_request = on_request,
		.on_gone = on_gone,
		.on_end = on_end,
		.on_refused = on_refused,
		.put_error = format_error,
		.on_half_closed = on_half_closed,
	};
}
