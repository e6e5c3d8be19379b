/* Paths. */
#include "router/routes.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/call.h"
#include "router/entry.h"
#include "router/info.h"
#include "router/openapi.h"
#include "router/page.h"
#include "router/tok_call.h"

#include <inttypes.h>
#include <string.h>

/* ---- the table; the paths of dialects stand in their rows (format.h) ---- */

#define GET(at, does, answers, says)                                                     \
	{                                                                                \
		.path = (at), .fn = (does), .answer = (answers), .about = (says)         \
	}
/* Without a key, as probes are. */
#define OPEN(at, does, answers, says)                                                    \
	{                                                                                \
		.path = (at), .fn = (does), .answer = (answers), .about = (says),        \
		.open = true                                                             \
	}
#define POST(at, does, asks, answers, says)                                              \
	{                                                                                \
		.path = (at), .fn = (does), .method = ROUTE_POST, .body = (asks),        \
		.answer = (answers), .about = (says)                                     \
	}

static const struct route routes[] = {
	GET("/v1/models", info_models, "Models", "the served names"),
	GET(INFO_MODELS_PREFIX, info_model, "Model", "one served name"),
	POST("/tokenize", tok_call_tokenize, "TokenizeRequest", "Tokens",
		"a text to ids"),
	POST("/v1/tokenize", tok_call_tokenize, "TokenizeRequest", "Tokens",
		"a text to ids"),
	POST("/detokenize", tok_call_detokenize, "DetokenizeRequest", "Text",
		"ids to a text"),
	POST("/v1/detokenize", tok_call_detokenize, "DetokenizeRequest", "Text",
		"ids to a text"),
	POST("/v1/messages/count_tokens", tok_call_count, "CountRequest", "Count",
		"how many tokens a prompt has"),
	GET("/load", info_load, "Load", "how much is asked of the workers"),
	GET("/server_info", info_server, "ServerInfo", "what serves"),
	GET("/get_server_info", info_server, "ServerInfo", "what serves"),
	GET("/tokenizer_info", info_tokenizer, "TokenizerInfo",
		"special tokens and the chat template"),
	GET("/openapi.json", openapi_answer, "Object", "this document"),
	GET("/status", page_status, "Object",
		"workers and queue, as batonctl shows them"),
	OPEN("/metrics", info_metrics, "", "numbers for Prometheus"),
	OPEN("/", page_answer, "", "a page with the cluster and a chat"),
	OPEN("/version", info_version, "Version", "version of the router"),
	OPEN("/ping", info_ping, "Object", "nothing"),
};

const struct route *routes_all(size_t *n)
{
	*n = COUNT(routes);
	return routes;
}

static bool matches(const struct route *r, const char *path)
{
	size_t n = strlen(r->path);

	if (n > 1 && r->path[n - 1] == '/')
		return strncmp(path, r->path, n) == 0 && path[n] != 0;
	return strcmp(path, r->path) == 0;
}

static bool allowed(enum route_method method, const char *sent)
{
	if (method == ROUTE_POST)
		return strcmp(sent, "POST") == 0;
	return strcmp(sent, "GET") == 0 || strcmp(sent, "HEAD") == 0;
}

static void refuse_method(
	struct router *rt, struct http_req *req, enum route_method method)
{
	const char *allow = method == ROUTE_POST ? "POST" : "GET, HEAD";
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
	if (!allowed(ROUTE_GET, http_method(req)))
		refuse_method(rt, req, ROUTE_GET);
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
		if (allowed(ROUTE_POST, http_method(req)))
			call_begin(rt, req, format);
		else
			refuse_method(rt, req, ROUTE_POST);
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
