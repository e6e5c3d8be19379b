/* What a worker says of itself: beats' statistics, answers to `ask`, the start log. */
#ifndef COMMON_WORKER_REPORT_H
#define COMMON_WORKER_REPORT_H
#include "common/base/bytes.h"
#include "common/base/err.h"

struct worker;
/* Brings gauges and the engine's counters in w->stats up to date. */
void report_stats(struct worker *w);
/* what: status, pools, doctor; ST_INVALID for anything else. JSON. */
MUST_CHECK status report_answer(
	struct worker *w, struct bytes what, struct sink *out, struct err *err);
void report_start(const struct worker *w);

#endif
