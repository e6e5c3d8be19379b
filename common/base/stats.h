/* Counters and gauges of a process as one table; workers send theirs to the router
 * in each beat (by index), which shows them in /metrics. Written by one thread. */
#ifndef COMMON_BASE_STATS_H
#define COMMON_BASE_STATS_H
#include <stdint.h>

/* name, Prometheus kind, help. Indices are wire numbers: append only. */
#define STATS_MAP(X)                                                                     \
	X(prefill_tokens, counter, "prompt tokens computed by prefill steps")            \
	X(prefill_steps, counter, "forward passes of prefill")                           \
	X(decode_tokens, counter, "tokens sampled by decode steps")                      \
	X(decode_steps, counter, "forward passes of decode")                             \
	X(decode_rows_max, gauge, "most rows in one decode forward pass")                \
	X(handover_bytes, counter, "bytes of state copied by hand-overs")                \
	X(handover_count, counter, "hand-overs completed")                               \
	X(handover_ns, counter, "nanoseconds spent copying state")                       \
	X(handover_failed, counter, "hand-overs that failed")                            \
	X(lease_expired, counter, "leases freed by expiry")                              \
	X(nan_rows, counter, "rows whose logits held NaN or infinity")                   \
	X(rejected, counter, "requests refused by this worker")                          \
	X(evicted, counter, "sequences evicted for want of pages")                       \
	X(allreduces, counter, "all-reduce calls")                                       \
	X(malformed, counter, "malformed messages refused")                              \
	X(pages_free, gauge, "KV pages free")                                            \
	X(pages_filling, gauge, "KV pages being written")                                \
	X(pages_live, gauge, "KV pages of running sequences")                            \
	X(pages_exported, gauge, "KV pages leased to another worker")                    \
	X(slots_free, gauge, "state slots free")                                         \
	X(slots_filling, gauge, "state slots being written")                             \
	X(slots_live, gauge, "state slots of running sequences")                         \
	X(slots_exported, gauge, "state slots leased to another worker")                 \
	X(jobs, gauge, "requests held by this worker")                                   \
	X(fault_hits, counter, "fault points hit (test builds)")                         \
	X(log_dropped, counter, "log lines dropped because nobody read them")

enum stat_id {
#define X(name, kind, help) STAT_##name,
	STATS_MAP(X)
#undef X
		STAT__COUNT
};

struct stats {
	uint64_t v[STAT__COUNT];
};

const char *stats_name(enum stat_id id);
const char *stats_kind(enum stat_id id);
const char *stats_help(enum stat_id id);

#endif
