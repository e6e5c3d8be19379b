/* The router's numbers. */
#include "router/metrics.h"

#include "common/base/clock.h"

#include <math.h>
#include <string.h>

/* vLLM's bounds, and some between them: bounds may be added, never taken away. */
static const double bounds_first[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,
	.75, 1, 2, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560};
static const double bounds_step[] = {.001, .0025, .005, .0075, .01, .025, .05, .075, .1,
	.15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
static const double bounds_whole[] = {.05, .1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20,
	30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double bounds_tokens[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000,
	5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
static const double bounds_choices[] = {1, 2, 5, 10, 20};
static const double bounds_rows[] = {
	1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
static const double bounds_stage[] = {.0001, .0005, .001, .0025, .005, .01, .025, .05, .1,
	.25, .5, 1, 2.5, 5, 10, 30, 60, 120, 600};

static const struct {
	const double *bounds;
	uint32_t n;
} hists[HIST__COUNT] = {
#define X(id, name, label, set, help) [HIST_##id] = {bounds_##set, COUNT(bounds_##set)},
	METRIC_HISTOGRAM_MAP(X)
#undef X
};

const double *metrics_bounds(enum metric_histogram id, uint32_t *n)
{
	*n = hists[id].n;
	return hists[id].bounds;
}

void metrics_observe(struct metrics *m, enum metric_histogram id, double value)
{
	uint32_t i = 0;

	if (!isfinite(value))
		return;
	while (i < hists[id].n && value > hists[id].bounds[i])
		i++;
	m->hist[id].bucket[i]++;
	m->hist[id].count++;
	m->hist[id].sum += value;
}

void metrics_status(struct metrics *m, unsigned http_code)
{
	if (http_code < 600)
		m->status[http_code / 100][http_code % 100]++;
}

/* As a label, cut to what one holds. */
static void keep_label(char to[33], struct bytes from)
{
	size_t n = MIN(from.len, 32u);

	if (n > 0)
		memcpy(to, from.at, n);
	to[n] = 0;
}

void metrics_handover(struct metrics *m, struct bytes transport, struct bytes copy,
	uint64_t bytes, uint64_t ns)
{
	struct metric_transport seen = {.handovers = 0};

	keep_label(seen.name, transport);
	keep_label(seen.copy, copy);
	for (uint32_t i = 0; i < METRIC_TRANSPORTS_MAX; i++) {
		struct metric_transport *t = &m->transport[i];

		if (t->handovers == 0)
			*t = seen;
		if (strcmp(t->name, seen.name) != 0 || strcmp(t->copy, seen.copy) != 0)
			continue;
		t->handovers++;
		t->bytes += bytes;
		t->ns += ns;
		return;
	}
}
