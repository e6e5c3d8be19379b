/* Bounds of the sampling parameters; the wire checks only their magnitude. */
#include "common/worker/sampling.h"

status sampling_row(struct sample_row *out, const struct sampling *s, struct err *err)
{
	if (s->temperature < 0)
		return err_set(
			err, ST_INVALID, "temperature %g is negative", s->temperature);
	if (s->top_p <= 0 || s->top_p > 1)
		return err_set(err, ST_INVALID, "top_p %g is not in (0, 1]", s->top_p);
	if (s->min_p < 0 || s->min_p > 1)
		return err_set(err, ST_INVALID, "min_p %g is not in [0, 1]", s->min_p);
	*out = (struct sample_row){
		.temperature = (float)s->temperature,
		.top_p = (float)s->top_p,
		.min_p = (float)s->min_p,
		.top_k = (uint32_t)s->top_k,
		.seed = s->seed,
	};
	return ST_OK;
}
