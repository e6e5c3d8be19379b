/* What kernels_select found out about each variant; private to kernels/. */
#ifndef KERNELS_REPORT_H
#define KERNELS_REPORT_H
#include "kernels/registry.h"

#define RAN_KERNELS_MAX 24u
#define RAN_ROWS_MAX    48u

/* Which kernels of a variant were run with how many rows. */
struct ran {
	uint32_t n;
	struct {
		char kernel[40];
		uint32_t n, rows[RAN_ROWS_MAX]; /* ascending */
	} at[RAN_KERNELS_MAX];
};

/* names: of variant.inner. */
void ran_add(struct ran *r, const char *names, uint32_t rows);
void ran_merge(struct ran *r, const struct ran *more);
/* Is every kernel of `part` one of r's? */
bool ran_has(const struct ran *r, const struct ran *part);

/* Of one variant on one or several cases. */
struct finding {
	bool right;
	float worst;         /* largest error, as a part of its tolerance */
	uint64_t ns;         /* all timed cases together */
	double score;        /* sum of log time over them */
	uint64_t refused_ns; /* when */
	char text[400];      /* why it was refused */
	struct ran ran;
};

struct report_row {
	const struct variant *variant;
	enum weight_format format;
	bool any_format; /* the op has no weight format */
	bool chosen, oracle;
	struct finding found;
};

struct report {
	struct report_row *rows;
	uint32_t n, max;
};

#endif
