/* Statistics, answers and the start log of a worker. */
#include "common/worker/report.h"

#include "common/base/clock.h"
#include "common/base/fault.h"
#include "common/base/json_write.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/worker/worker.h"

#include <inttypes.h>
#include <stdio.h>
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
	struct job_load load = jobs_load(w->jobs);
	uint64_t hits = 0;

	count_pool(&w->stats, w->pages, STAT_pages_free);
	count_pool(&w->stats, w->slots, STAT_slots_free);
	w->stats.v[STAT_allreduces] = n.allreduces;
	w->stats.v[STAT_nan_rows] = n.nan_rows;
	w->stats.v[STAT_jobs] = (uint64_t)load.running + load.queued;
	for (unsigned i = 0; i < FAULT__COUNT; i++)
		hits += fault_hits((enum fault_phase)i);
	w->stats.v[STAT_fault_hits] = hits;
	w->stats.v[STAT_log_dropped] = log_dropped();
}

static const char *state_name(const struct worker *w)
{
	static const char *const names[] = {"serving", "draining", "drained"};

	return names[w->service.state];
}

static void put_status(struct worker *w, struct json_out *out)
{
	struct job_load load = jobs_load(w->jobs);
	char incarnation[24];

	report_stats(w);
	/* 64 bits as text: readers of JSON may hold numbers as doubles. */
	snprintf(incarnation, sizeof(incarnation), "%016" PRIx64, w->incarnation);
	json_add_text(out, "id", w->conf->id);
	json_add_text(out, "role", w->role->name);
	json_add_text(out, "incarnation", incarnation);
	json_add_text(out, "state", state_name(w));
	json_add_text(out, "reason", w->service.reason);
	json_add_text(out, "gpus", w->conf->gpus);
	json_add_text(out, "version", BATON_VERSION);
	json_add_u64(out, "running", load.running);
	json_add_u64(out, "queued", load.queued);
	json_add_u64(out, "queued_tokens", load.queued_tokens);
	json_add_u64(out, "routers", routers_live(w->routers));
	json_add_text(out, "transport", w->transport);
	json_add_u64(out, "len_max", w->len_max);
	json_name(out, "stats");
	json_open(out, '{');
	for (unsigned i = 0; i < STAT__COUNT; i++)
		json_add_u64(out, stats_name((enum stat_id)i), w->stats.v[i]);
	json_close(out);
}

static void put_pool(struct json_out *out, const char *name, const struct pool *p)
{
	json_name(out, name);
	json_open(out, '{');
	json_add_u64(out, "total", pool_size(p));
	json_add_u64(out, "free", pool_count(p, POOL_FREE));
	json_add_u64(out, "filling", pool_count(p, POOL_FILLING));
	json_add_u64(out, "live", pool_count(p, POOL_LIVE));
	json_add_u64(out, "exported", pool_count(p, POOL_EXPORTED));
	json_close(out);
}

static void put_pools(struct worker *w, struct json_out *out)
{
	struct job_load load = jobs_load(w->jobs);

	put_pool(out, "pages", w->pages);
	put_pool(out, "slots", w->slots);
	json_add_u64(out, "leases", lease_count(w->leases));
	json_add_u64(out, "jobs", (uint64_t)load.running + load.queued);
	json_add_u64(out, "pulls", importer_pulls(w->importer));
	json_add_u64(out, "peers", importer_peers(w->importer));
	json_add_u64(out, "links", exporter_links(w->exporter));
	json_add_u64(out, "tombstones", tombs_count(w->tombs));
	json_add_u64(out, "request_bytes", mem_taken());
}

static void put_doctor(struct worker *w, struct json_out *out)
{
	struct sink table;

	sink_init(&table, 1u << 20);
	engine_report(w->engine, &table);
	json_name(out, "kernels");
	json_put_pieces(out, sink_bytes(&table));
	sink_release(&table);
}

status report_answer(
	struct worker *w, struct bytes what, struct sink *out, struct err *err)
{
	static const struct {
		const char *what;
		void (*put)(struct worker *w, struct json_out *out);
	} answers[] = {
		{"status", put_status}, {"pools", put_pools}, {"doctor", put_doctor}};
	struct json_out json;

	for (size_t i = 0; i < COUNT(answers); i++)
		if (bytes_eq(what, bytes_of_str(answers[i].what))) {
			json_out_init(&json, out);
			json_open(&json, '{');
			answers[i].put(w, &json);
			json_close(&json);
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
