/* One allocation cut into parts: the same code first measures (base NULL), then
 * places. */
#ifndef COMMON_ENGINE_CARVE_H
#define COMMON_ENGINE_CARVE_H
#include "common/base/attr.h"
#include <stddef.h>
#include <stdint.h>

/* What allocators give and what vector loads like; backend.h promises it of a base. */
#define CARVE_ALIGN 256u

struct carve {
	uint8_t *base; /* NULL: only measure */
	uint64_t used;
};

static inline void *carve_take(struct carve *c, uint64_t bytes)
{
	void *at = c->base == NULL ? NULL : c->base + c->used;

	c->used += CEIL_DIV(bytes, CARVE_ALIGN) * CARVE_ALIGN;
	return at;
}

#endif
