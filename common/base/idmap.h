/* Fixed-capacity map from a non-zero u64 to a u32 (open addressing). */
#ifndef COMMON_BASE_IDMAP_H
#define COMMON_BASE_IDMAP_H
#include "common/base/attr.h"
#include <stdbool.h>
#include <stdint.h>

struct idmap;
struct idmap *idmap_create(uint32_t capacity);
void idmap_destroy(struct idmap *m);
/* false: full, or the key is there already. */
MUST_CHECK bool idmap_put(struct idmap *m, uint64_t key, uint32_t value);
bool idmap_get(const struct idmap *m, uint64_t key, uint32_t *value);
bool idmap_del(struct idmap *m, uint64_t key);

#endif
