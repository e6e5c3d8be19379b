/* Statistics, answers and the start log of a worker. */
#include "common/worker/report.h"

#include "common/base/clock.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/worker/worker.h"

#include <string.h>

static void count_pool(struct stats *s, const struct pool *p, enum stat_id first)
{
	/* The table has the four states of each pool in the order of enum pool_state. */
	_Static_assert(STAT_pages_exported == STAT_pages_free + POOL_EXPORTED, "order");
	_Static_assert(STAT_slots_exported == STAT_slots_free + POOL_EXPORTED, "order");
	for (unsigned i = 0; i < POOL__STATES; i++)
		s->v[first + i] = pool_count(p, (enum pool_state)i);
}

void report_stats(struct worker *w)
{
	struct engine_counters n = engine_counters(w->engine);
	struct role_load load = w->role->load(w->self);
	uint64_t hits = 0;

	count_pool(&w->stats, w->pages, STAT_pages_free);
	count_pool(&w->stats, w->slots, STAT_slots_free);
	w->stats.v[STAT_allreduces] = n.allreduces;
	w->stats.v[STAT_nan_rows] = n.nan_rows;
	w->stats.v[STAT_jobs] = (uint64_t)load.running + load.queued;
	for (unsigned i = 0; i < FAULT__COUNT; i++)
		hits += fault_hits((enum fault_phase)i);
	w->stats.v[STAT_fault_hits] = hits;
}

/* A JSON string; control characters and bytes beyond ASCII that are not UTF-8 do not
 * occur in what a worker says, so only the three that JSON must escape are handled. */
static void put_text(struct sink *out, const char *text)
{
	sink_str(out, "\"");
	for (const char *p = text; *p != 0; p++) {
		unsigned char c = (unsigned char)*p;

		if (c == '"' || c == '\\')
			sink_fmt(out, "\\%c", c);
		else if (c < 0x20)
			sink_fmt(out, "\\u%04x", c);
		else
			sink_put(out, p, 1);
	}
	sink_str(out, "\"");
}

static const char *state_name(const struct worker *w)
{
	static const char *const names[] = {"serving", "draining", "drained"};

	return names[w->service.state];
}

static void put_status(struct worker *w, struct sink *out)
{
	struct role_load load = w->role->load(w->self);

	report_stats(w);
	sink_fmt(out,
		"{\"id\":\"%s\",\"role\":\"%s\",\"incarnation\":\"%llu\",\"state\":\"%"
		"s\","
		"\"reason\":",
		w->conf->id, w->role->name, (unsigned long long)w->incarnation,
		state_name(w));
	put_text(out, w->service.reason);
	sink_str(out, ",\"gpus\":");
	put_text(out, w->conf->gpus);
	sink_fmt(out,
		",\"version\":\"%s\",\"running\":%u,\"queued\":%u,\"queued_tokens\":%llu,"
		"\"routers\":%u,\"transport\":\"%s\",\"len_max\":%u,\"stats\":{",
		BATON_VERSION, load.running, load.queued,
		(unsigned long long)load.queued_tokens, routers_live(w->routers),
		w->transport, w->len_max);
	for (unsigned i = 0; i < STAT__COUNT; i++)
		sink_fmt(out, "%s\"%s\":%llu", i > 0 ? "," : "",
			stats_name((enum stat_id)i), (unsigned long long)w->stats.v[i]);
	sink_str(out, "}}");
}

static void put_pool(struct sink *out, const char *name, const struct pool *p)
{
	sink_fmt(out,
		"\"%s\":{\"total\":%u,\"free\":%u,\"filling\":%u,\"live\":%u,"
		"\"exported\":%u},",
		name, pool_size(p), pool_count(p, POOL_FREE), pool_count(p, POOL_FILLING),
		pool_count(p, POOL_LIVE), pool_count(p, POOL_EXPORTED));
}

static void put_pools(struct worker *w, struct sink *out)
{
	struct role_load load = w->role->load(w->self);

	sink_str(out, "{");
	put_pool(out, "pages", w->pages);
	put_pool(out, "slots", w->slots);
	sink_fmt(out,
		"\"leases\":%u,\"jobs\":%u,\"pulls\":%u,\"peers\":%u,\"links\":%u,"
		"\"tombstones\":%u,\"request_bytes\":%llu}",
		lease_count(w->leases), load.running + load.queued,
		importer_pulls(w->importer), importer_peers(w->importer),
		exporter_links(w->exporter), tombs_count(w->tombs),
		(unsigned long long)mem_taken());
}

static void put_doctor(struct worker *w, struct sink *out)
{
	struct sink table;

	sink_init(&table, 1u << 20);
	engine_report(w->engine, &table);
	sink_str(out, "{\"kernels\":");
	put_text(out, sink_cstr(&table));
	sink_str(out, "}");
	sink_release(&table);
}

status report_answer(
	struct worker *w, struct bytes what, struct sink *out, struct err *err)
{
	static const struct {
		const char *what;
		void (*put)(struct worker *w, struct sink *out);
	} answers[] = {
		{"status", put_status}, {"pools", put_pools}, {"doctor", put_doctor}};

	for (size_t i = 0; i < COUNT(answers); i++)
		if (bytes_eq(what, bytes_of_str(answers[i].what))) {
			answers[i].put(w, out);
			return ST_OK;
		}
	return err_set(err, ST_INVALID, "ask '%.*s': status, pools or doctor",
		(int)what.len, what.at);
}

void report_start(const struct worker *w)
{
	uint64_t tokens = (uint64_t)pool_size(w->pages) * PAGE_TOKENS;

	log_info("KV cache size: %llu tokens", (unsigned long long)tokens);
	log_info("ready role=%s id=%s incarnation=%016llx pages=%u slots=%u "
		 "page_bytes=%llu "
		 "slot_bytes=%llu link=%s",
		w->role->name, w->conf->id, (unsigned long long)w->incarnation,
		pool_size(w->pages), pool_size(w->slots),
		(unsigned long long)w->layout->page_bytes,
		(unsigned long long)w->layout->slot_bytes, exporter_path(w->exporter));
}
