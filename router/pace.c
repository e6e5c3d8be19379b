/* The rate of pace.h. */
#include "router/pace.h"

#include "common/base/attr.h"
#include "common/base/clock.h"

#include <math.h>

/* What was so many seconds of waiting ago has half its weight. */
#define HALF_S 10.0

void pace_note(struct pace *p, uint32_t n_waiting, uint64_t n_left, uint64_t now_ns)
{
	double s = p->n_waiting > 0 ? (double)(now_ns - MIN(p->at_ns, now_ns)) / NS_PER_S
				    : 0;
	double keep = exp2(-s / HALF_S);

	p->waited_s = p->waited_s * keep + s;
	p->left = p->left * keep + (double)(n_left - p->n_left);
	p->n_waiting = n_waiting;
	p->n_left = n_left;
	p->at_ns = now_ns;
}

double pace_wait_s(const struct pace *p, uint32_t n)
{
	return n * p->waited_s / MAX(p->left, 1.0);
}
