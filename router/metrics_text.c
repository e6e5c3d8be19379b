/* Text format 0.0.4: HELP and TYPE once per family, escaped labels, no NaN. */
#include "common/base/clock.h"
#include "router/metrics.h"

#include <inttypes.h>
#include <string.h>

static void head(struct sink *out, const char *name, const char *kind, const char *help)
{
	sink_fmt(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

/* The value of a label. */
static void label(struct sink *out, const char *text)
{
	for (; *text != 0; text++) {
		if (*text == '\\' || *text == '"')
			sink_fmt(out, "\\%c", *text);
		else if (*text == '\n')
			sink_str(out, "\\n");
		else
			sink_put(out, text, 1);
	}
}

/* model_name and engine, as dashboards for vLLM select them. */
static void put_vllm_labels(struct sink *out, const struct metrics_scene *s)
{
	sink_str(out, "model_name=\"");
	label(out, s->model);
	sink_str(out, "\",engine=\"0\"");
}

static bool is_vllm(const char *name)
{
	return strncmp(name, "vllm:", 5) == 0;
}

static void put_name(struct sink *out, const struct metrics_scene *s, const char *name)
{
	sink_str(out, name);
	if (!is_vllm(name))
		return;
	sink_str(out, "{");
	put_vllm_labels(out, s);
	sink_str(out, "}");
}

static void gauge(struct sink *out, const struct metrics_scene *s, const char *name,
	const char *help, double value)
{
	head(out, name, "gauge", help);
	put_name(out, s, name);
	sink_fmt(out, " %.17g\n", value);
}

/* ---- own counters ---- */

static void put_counters(struct sink *out, const struct metrics_scene *s)
{
#define X(id, name, help)                                                                \
	head(out, name, "counter", help);                                                \
	put_name(out, s, name);                                                          \
	sink_fmt(out, " %" PRIu64 "\n", s->metrics->counter[COUNTER_##id]);
	METRIC_COUNTER_MAP(X)
#undef X
}

static void put_outcomes(struct sink *out, const struct metrics_scene *s)
{
	static const char *const reasons[] = {
		[REQUEST_STOP] = "stop",
		[REQUEST_LENGTH] = "length",
		[REQUEST_FAILED] = "error",
		[REQUEST_CANCELLED] = "abort",
	};
	static const char name[] = "vllm:request_success_total";

	head(out, name, "counter", "generations by how they ended");
	for (unsigned i = REQUEST_STOP; i < COUNT(reasons); i++) {
		sink_fmt(out, "%s{", name);
		put_vllm_labels(out, s);
		sink_fmt(out, ",finished_reason=\"%s\"} %" PRIu64 "\n", reasons[i],
			s->metrics->finish[i]);
	}
	head(out, "baton_http_answers_total", "counter", "answers by HTTP status");
	for (unsigned i = 0; i < 600; i++) {
		uint64_t n = s->metrics->status[i / 100][i % 100];

		if (n > 0)
			sink_fmt(out,
				"baton_http_answers_total{status=\"%u\"} %" PRIu64 "\n",
				i, n);
	}
}

static void put_refusals(struct sink *out, const struct metrics_scene *s)
{
	static const char *const limits[] = {
#define X(name) #name,
		METRIC_LIMIT_MAP(X)
#undef X
	};

	head(out, "baton_turned_away_total", "counter",
		"requests turned away, by the limit that did it");
	for (unsigned i = 0; i < LIMIT__COUNT; i++)
		sink_fmt(out, "baton_turned_away_total{limit=\"%s\"} %" PRIu64 "\n",
			limits[i], s->metrics->limit[i]);
	head(out, "baton_worker_rejects_total", "counter",
		"rejections by workers, by reason");
	for (unsigned i = 0; i < REJECT__COUNT; i++)
		sink_fmt(out, "baton_worker_rejects_total{reason=\"%s\"} %" PRIu64 "\n",
			wire_reject_text(i), s->metrics->reject[i]);
}

static void put_handovers(struct sink *out, const struct metrics_scene *s)
{
	static const struct {
		const char *name, *kind, *help;
	} families[] = {
		{"baton_handovers_total", "counter", "hand-overs adopted"},
		{"baton_handover_bytes_total", "counter", "bytes of state handed over"},
		{"baton_handover_seconds_total", "counter", "time spent copying state"},
		{"baton_handover_gigabytes_per_second", "gauge",
			"mean speed of the copies, 1e9 bytes per second"},
	};

	for (unsigned f = 0; f < COUNT(families); f++) {
		head(out, families[f].name, families[f].kind, families[f].help);
		for (unsigned i = 0; i < METRIC_TRANSPORTS_MAX; i++) {
			const struct metric_transport *t = &s->metrics->transport[i];
			double seconds = (double)t->ns / NS_PER_S;
			double value[] = {(double)t->handovers, (double)t->bytes, seconds,
				seconds > 0 ? (double)t->bytes / 1e9 / seconds : 0};

			if (t->handovers == 0)
				continue;
			sink_fmt(out, "%s{transport=\"", families[f].name);
			label(out, t->name);
			sink_str(out, "\",copy=\"");
			label(out, t->copy);
			sink_fmt(out, "\"} %.17g\n", value[f]);
		}
	}
}

/* ---- histograms ---- */

static void put_le(struct sink *out, const struct metrics_scene *s, const char *name,
	const char *own_label, const char *le)
{
	sink_fmt(out, "%s_bucket{", name);
	if (is_vllm(name)) {
		put_vllm_labels(out, s);
		sink_str(out, ",");
	}
	if (own_label != NULL)
		sink_fmt(out, "%s,", own_label);
	sink_fmt(out, "le=\"%s\"}", le);
}

static void put_total(struct sink *out, const struct metrics_scene *s, const char *name,
	const char *suffix, const char *own_label)
{
	sink_fmt(out, "%s%s", name, suffix);
	if (!is_vllm(name) && own_label == NULL)
		return;
	sink_str(out, "{");
	if (is_vllm(name))
		put_vllm_labels(out, s);
	if (own_label != NULL)
		sink_fmt(out, "%s%s", is_vllm(name) ? "," : "", own_label);
	sink_str(out, "}");
}

static void put_histogram(struct sink *out, const struct metrics_scene *s,
	enum metric_histogram id, const char *name, const char *own_label)
{
	uint32_t n;
	const double *bounds = metrics_bounds(id, &n);
	uint64_t below = 0;
	struct sink le;

	sink_init(&le, 64);
	for (uint32_t i = 0; i < n; i++) {
		below += s->metrics->hist[id].bucket[i];
		sink_reset(&le);
		sink_fmt(&le, "%.12g", bounds[i]);
		put_le(out, s, name, own_label, sink_cstr(&le));
		sink_fmt(out, " %" PRIu64 "\n", below);
	}
	sink_release(&le);
	put_le(out, s, name, own_label, "+Inf");
	sink_fmt(out, " %" PRIu64 "\n", s->metrics->hist[id].count);
	put_total(out, s, name, "_sum", own_label);
	sink_fmt(out, " %.17g\n", s->metrics->hist[id].sum);
	put_total(out, s, name, "_count", own_label);
	sink_fmt(out, " %" PRIu64 "\n", s->metrics->hist[id].count);
}

static void put_histograms(struct sink *out, const struct metrics_scene *s)
{
	static const struct {
		const char *name, *own_label, *help;
	} all[] = {
#define X(id, name, label, set, help) {name, label, help},
		METRIC_HISTOGRAM_MAP(X)
#undef X
	};

	for (unsigned i = 0; i < HIST__COUNT; i++) {
		if (i == 0 || strcmp(all[i].name, all[i - 1].name) != 0)
			head(out, all[i].name, "histogram", all[i].help);
		put_histogram(
			out, s, (enum metric_histogram)i, all[i].name, all[i].own_label);
	}
}

/* ---- workers ---- */

static void put_worker(struct sink *out, const char *name, const struct worker_view *w)
{
	sink_fmt(out, "%s{worker=\"", name);
	label(out, w->id);
	sink_fmt(out, "\",role=\"%s\"", w->role == WIRE_PREFILL ? "prefill" : "decode");
}

static void put_worker_states(struct sink *out, const struct metrics_scene *s)
{
	head(out, "baton_worker_state", "gauge", "1 for the state that a worker is in");
	for (uint32_t i = 0; i < fleet_count(s->fleet); i++)
		for (unsigned k = 0; k < SHOWN__COUNT; k++) {
			const struct worker_view *w = fleet_at(s->fleet, i);

			put_worker(out, "baton_worker_state", w);
			sink_fmt(out, ",state=\"%s\"} %d\n", fleet_shown_name(k),
				k == fleet_shown(w));
		}
}

/* One family per statistic of the beats: baton_worker_<name>. */
static void put_worker_stats(struct sink *out, const struct metrics_scene *s)
{
	for (unsigned id = 0; id < STAT__COUNT; id++) {
		const char *kind = stats_kind(id);
		const char *end = strcmp(kind, "counter") == 0 ? "_total" : "";
		struct sink name;

		sink_init(&name, 128);
		sink_fmt(&name, "baton_worker_%s%s", stats_name(id), end);
		head(out, sink_cstr(&name), kind, stats_help(id));
		for (uint32_t i = 0; i < fleet_count(s->fleet); i++) {
			put_worker(out, sink_cstr(&name), fleet_at(s->fleet, i));
			sink_fmt(out, "} %" PRIu64 "\n",
				fleet_at(s->fleet, i)->stats.v[id]);
		}
		sink_release(&name);
	}
}

struct sums {
	uint64_t pages, pages_free, running;
	uint64_t rows_max;
};

static struct sums add_up(const struct metrics_scene *s)
{
	struct sums t = {0};

	for (uint32_t i = 0; i < fleet_count(s->fleet); i++) {
		const struct worker_view *w = fleet_at(s->fleet, i);

		if (w->role == WIRE_DECODE) {
			t.pages += w->pages;
			t.pages_free += MIN(w->pages_free, w->pages);
		}
		t.rows_max = MAX(t.rows_max, w->stats.v[STAT_decode_rows_max]);
	}
	return t;
}

/* Requests wait for room at workers, and for nothing else. */
static void put_waiting(struct sink *out, const struct metrics_scene *s)
{
	static const char name[] = "vllm:num_requests_waiting_by_reason";

	head(out, name, "gauge", "generations that wait for workers, by why");
	for (unsigned i = 0; i < 2; i++) {
		sink_fmt(out, "%s{", name);
		put_vllm_labels(out, s);
		sink_fmt(out, ",reason=\"%s\"} %" PRIu32 "\n",
			i == 0 ? "capacity" : "deferred",
			i == 0 ? requests_waiting(s->requests) : 0);
	}
}

static void put_cache_config(
	struct sink *out, const struct metrics_scene *s, const struct sums *t)
{
	static const char name[] = "vllm:cache_config_info";

	head(out, name, "gauge", "KV pages of decode workers and their tokens");
	sink_fmt(out, "%s{", name);
	put_vllm_labels(out, s);
	sink_fmt(out, ",block_size=\"%u\",num_gpu_blocks=\"%" PRIu64 "\"} 1\n",
		TOKENS_PER_PAGE, t->pages);
}

static void put_gauges(struct sink *out, const struct metrics_scene *s)
{
	const struct requests *r = s->requests;
	struct sums t = add_up(s);
	uint32_t running = requests_live(r) - requests_waiting(r);

	gauge(out, s, "vllm:num_requests_running", "generations at the workers", running);
	gauge(out, s, "vllm:num_requests_waiting", "generations that wait for workers",
		requests_waiting(r));
	put_waiting(out, s);
	put_cache_config(out, s, &t);
	gauge(out, s, "vllm:kv_cache_usage_perc",
		"used part of the KV pages of decode workers, 0 to 1",
		t.pages > 0 ? (double)(t.pages - t.pages_free) / (double)t.pages : 0);
	gauge(out, s, "baton_decode_rows_max", "most rows in one decode forward pass",
		(double)t.rows_max);
	gauge(out, s, "baton_draining", "1 while the router ends", s->draining);
	gauge(out, s, "baton_socket_lost",
		"1 while workers cannot join, because the socket's file was removed",
		s->socket_lost);
	gauge(out, s, "baton_http_connections", "open connections", s->connections);
	gauge(out, s, "baton_http_requests",
		"other requests that are worked on, or whose answer is not yet written",
		s->open_requests);
	gauge(out, s, "baton_template_children", "template processes up",
		s->template_children);
	gauge(out, s, "baton_request_memory_bytes", "memory of requests in use",
		(double)s->memory_bytes);
	head(out, "baton_template_restarts_total", "counter",
		"template processes replaced");
	sink_fmt(
		out, "baton_template_restarts_total %" PRIu64 "\n", s->template_restarts);
	head(out, "baton_requests", "gauge",
		"generations by state; done: not returned yet");
	for (unsigned i = 0; i < RQ__STATES; i++)
		sink_fmt(out, "baton_requests{state=\"%s\"} %" PRIu32 "\n",
			request_state_name(i), r->count[i]);
}

static void put_pairs(struct sink *out, const struct pairs *s)
{
	head(out, "baton_pair_failures", "gauge",
		"hand-overs in a row that failed between two workers; none: they work");
	for (uint32_t i = 0; i < s->n; i++) {
		sink_str(out, "baton_pair_failures{prefill=\"");
		label(out, s->pair[i].p_id);
		sink_str(out, "\",decode=\"");
		label(out, s->pair[i].d_id);
		sink_fmt(out, "\"} %" PRIu32 "\n", s->pair[i].failures);
	}
}

void metrics_text(const struct metrics_scene *s, struct sink *out)
{
	head(out, "baton_build_info", "gauge", "version of the router");
	sink_str(out, "baton_build_info{version=\"" BATON_VERSION "\",router=\"");
	label(out, s->router);
	sink_str(out, "\"} 1\n");
	put_gauges(out, s);
	put_counters(out, s);
	put_outcomes(out, s);
	put_refusals(out, s);
	put_handovers(out, s);
	put_pairs(out, s->pairs);
	put_worker_states(out, s);
	put_worker_stats(out, s);
	put_histograms(out, s);
}
