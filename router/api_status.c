/* The status answer: one JSON object, written by hand. */
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "router/control.h"
#include "router/put_json.h"

#include <inttypes.h>

static void text(struct sink *out, const char *name, const char *value)
{
	sink_fmt(out, "\"%s\":", name);
	put_json_string(out, bytes_of_str(value));
}

void api_status_error(struct sink *out, const char *why)
{
	sink_str(out, "{");
	text(out, "error", why);
	sink_str(out, "}");
}

static const char *state_of(const struct worker_view *w)
{
	if (w->state == WORKER_LOST)
		return "lost";
	if (w->state == WORKER_SILENT)
		return "silent";
	return w->draining ? "draining" : "up";
}

static void worker(struct sink *out, const struct worker_view *w, uint64_t now_ns)
{
	sink_str(out, "{");
	text(out, "id", w->id);
	sink_fmt(out, ",\"incarnation\":\"%016" PRIx64 "\",", w->incarnation);
	text(out, "role", w->role == WIRE_PREFILL ? "prefill" : "decode");
	sink_str(out, ",");
	text(out, "state", state_of(w));
	sink_str(out, ",");
	text(out, "gpus", w->gpus);
	sink_str(out, ",");
	text(out, "transport", w->transport);
	sink_str(out, ",");
	text(out, "version", w->build);
	sink_fmt(out,
		",\"pid\":%" PRIu32 ",\"up_s\":%.3f,\"silent_ms\":%" PRIu64
		",\"len_max\":%" PRIu32 ",\"step\":%" PRIu64 ",\"oldest_ms\":%" PRIu64,
		w->pid, (double)(now_ns - w->hello_ns) / NS_PER_S,
		clock_ran_since(w->heard_ns) / NS_PER_MS, w->len_max, w->step,
		w->oldest_ms);
	sink_fmt(out,
		",\"running\":%" PRIu32 ",\"queued\":%" PRIu32
		",\"queued_tokens\":%" PRIu64 ",\"pages\":%" PRIu32
		",\"pages_free\":%" PRIu32 ",\"slots\":%" PRIu32
		",\"slots_free\":%" PRIu32,
		w->running, w->queued, w->queued_tokens, w->pages, w->pages_free,
		w->slots, w->slots_free);
	sink_fmt(out,
		",\"held_slots\":%" PRIu32 ",\"held_pages\":%" PRIu64
		",\"requests\":%" PRIu64 ",\"stats\":{",
		w->held_slots, w->held_pages, w->requests);
	for (unsigned i = 0; i < STAT__COUNT; i++)
		sink_fmt(out, "%s\"%s\":%" PRIu64, i > 0 ? "," : "", stats_name(i),
			w->stats.v[i]);
	sink_str(out, "}}");
}

static void requests(struct sink *out, const struct requests *r)
{
	sink_str(out, "\"requests\":{");
	for (unsigned i = 0; i < RQ__STATES; i++)
		sink_fmt(out, "%s\"%s\":%" PRIu32, i > 0 ? "," : "",
			request_state_name(i), r->count[i]);
	sink_fmt(out, ",\"total\":%" PRIu64 ",\"records\":%" PRIu32 "}", r->last_seq,
		r->n);
}

void api_status(const struct router *rt, uint64_t now_ns, struct sink *out)
{
	static const char *const states[] = {
		[PROBE_LOADING] = "loading",
		[PROBE_NO_WORKERS] = "no_workers",
		[PROBE_READY] = "ready",
		[PROBE_DRAINING] = "draining",
	};

	sink_str(out, "{\"router\":{");
	text(out, "id", rt->conf->id);
	sink_fmt(out, ",\"incarnation\":\"%016" PRIx64 "\",", rt->incarnation);
	text(out, "state", states[router_readiness(rt)]);
	sink_str(out, ",");
	text(out, "model", rt->name[0]);
	sink_str(out, ",");
	text(out, "version", BATON_VERSION);
	sink_fmt(out, ",\"socket_lost\":%s", rt->socket_lost ? "true" : "false");
	sink_fmt(out,
		",\"port\":%u,\"connections\":%" PRIu32 ",\"calls\":%" PRIu32
		",\"peers_gone\":%" PRIu64 ",\"memory_bytes\":%" PRIu64 ",",
		http_port(rt->http), http_connections(rt->http), rt->n_calls,
		rt->peers_gone, mem_taken());
	requests(out, &rt->requests);
	sink_str(out, "},\"workers\":[");
	for (uint32_t i = 0; i < fleet_count(rt->fleet); i++) {
		if (i > 0)
			sink_str(out, ",");
		worker(out, fleet_at(rt->fleet, i), now_ns);
	}
	sink_str(out, "]}");
}
