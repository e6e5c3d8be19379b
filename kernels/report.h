/* What kernels_select found out about each variant; private to kernels/registry.c. */
#ifndef KERNELS_REPORT_H
#define KERNELS_REPORT_H
#include "kernels/registry.h"

struct report_row {
	const struct variant *variant;
	enum weight_format format;
	bool any_format; /* the op has no weight format */
	bool right, chosen, oracle;
	float worst;    /* largest error, as a part of its tolerance */
	uint64_t ns;    /* all cases together */
	char text[256]; /* why it was refused, or on which cases it ran */
};

struct report {
	struct report_row *rows;
	uint32_t n, max;
};

#endif
