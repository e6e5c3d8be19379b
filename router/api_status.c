/* The status answer: one JSON object. */
#include "common/base/clock.h"
#include "common/base/json_write.h"
#include "common/base/mem.h"
#include "router/control.h"

#include <inttypes.h>
#include <stdio.h>

void api_status_error(struct sink *out, enum wire_ordered code, const char *why)
{
	struct json_out w;

	json_out_init(&w, out);
	json_open(&w, '{');
	json_add_text(&w, "error", why);
	json_add_u64(&w, "code", code);
	json_close(&w);
}

/* A number that clients compare as a whole: 16 digits do not fit a double. */
static void add_hex(struct json_out *w, const char *name, uint64_t v)
{
	char text[20];

	snprintf(text, sizeof(text), "%016" PRIx64, v);
	json_add_text(w, name, text);
}

/* Milliseconds are enough of a second. */
static void add_seconds(struct json_out *w, const char *name, uint64_t ns)
{
	json_add_f64(w, name, (double)(ns / NS_PER_MS) / 1000);
}

static void worker(struct json_out *w, const struct worker_view *v, uint64_t now_ns)
{
	json_open(w, '{');
	json_add_text(w, "id", v->id);
	add_hex(w, "incarnation", v->incarnation);
	json_add_text(w, "role", v->role == WIRE_PREFILL ? "prefill" : "decode");
	json_add_text(w, "state", fleet_shown_name(fleet_shown(v)));
	json_add_text(w, "gpus", v->gpus);
	json_add_text(w, "transport", v->transport);
	json_add_text(w, "version", v->build);
	json_add_u64(w, "pid", v->pid);
	add_seconds(w, "up_s", now_ns - v->hello_ns);
	json_add_u64(w, "silent_ms", clock_ran_since(v->heard_ns) / NS_PER_MS);
	json_add_u64(w, "len_max", v->len_max);
	json_add_u64(w, "step", v->step);
	json_add_u64(w, "oldest_ms", v->oldest_ms);
	json_add_u64(w, "running", v->running);
	json_add_u64(w, "queued", v->queued);
	json_add_u64(w, "queued_tokens", v->queued_tokens);
	json_add_u64(w, "pages", v->pages);
	json_add_u64(w, "pages_free", v->pages_free);
	json_add_u64(w, "slots", v->slots);
	json_add_u64(w, "slots_free", v->slots_free);
	json_add_u64(w, "held_slots", v->held_slots);
	json_add_u64(w, "held_pages", v->held_pages);
	json_add_u64(w, "requests", v->requests);
	json_name(w, "stats");
	json_open(w, '{');
	for (unsigned i = 0; i < STAT__COUNT; i++)
		json_add_u64(w, stats_name(i), v->stats.v[i]);
	json_close(w);
	json_close(w);
}

static void requests(struct json_out *w, const struct requests *r)
{
	json_name(w, "requests");
	json_open(w, '{');
	for (unsigned i = 0; i < RQ__STATES; i++)
		json_add_u64(w, request_state_name(i), r->count[i]);
	json_add_u64(w, "total", r->last_seq);
	json_add_u64(w, "records", r->n);
	json_close(w);
}

static void router(struct json_out *w, const struct router *rt)
{
	static const char *const states[] = {
		[PROBE_LOADING] = "loading",
		[PROBE_NO_WORKERS] = "no_workers",
		[PROBE_READY] = "ready",
		[PROBE_DRAINING] = "draining",
	};

	json_name(w, "router");
	json_open(w, '{');
	json_add_text(w, "id", rt->conf->id);
	add_hex(w, "incarnation", rt->incarnation);
	json_add_text(w, "state", states[router_readiness(rt)]);
	json_add_text(w, "model", rt->name[0]);
	json_add_text(w, "version", BATON_VERSION);
	json_add_bool(w, "socket_lost", rt->socket_lost);
	json_add_u64(w, "port", http_port(rt->http));
	json_add_u64(w, "connections", http_connections(rt->http));
	json_add_u64(w, "calls", rt->calls.n);
	json_add_u64(w, "peers_gone", rt->peers_gone);
	json_add_u64(w, "memory_bytes", mem_taken());
	requests(w, &rt->requests);
	json_close(w);
}

static void pairs(struct json_out *w, const struct pairs *s)
{
	uint64_t now_ns = clock_ran_ns();

	json_name(w, "pairs_failed");
	json_open(w, '[');
	for (uint32_t i = 0; i < s->n; i++) {
		const struct pair *x = &s->pair[i];

		json_open(w, '{');
		json_add_text(w, "prefill", x->p_id);
		json_add_text(w, "decode", x->d_id);
		json_add_u64(w, "failures", x->failures);
		json_add_u64(w, "pause_ms",
			(x->until_ns - MIN(now_ns, x->until_ns)) / NS_PER_MS);
		json_add_text(w, "reason", x->text);
		json_close(w);
	}
	json_close(w);
}

void api_status(const struct router *rt, uint64_t now_ns, struct sink *out)
{
	struct json_out w;

	json_out_init(&w, out);
	json_open(&w, '{');
	router(&w, rt);
	json_name(&w, "workers");
	json_open(&w, '[');
	for (uint32_t i = 0; i < fleet_count(rt->fleet); i++)
		worker(&w, fleet_at(rt->fleet, i), now_ns);
	json_close(&w);
	pairs(&w, &rt->pairs);
	json_close(&w);
}
