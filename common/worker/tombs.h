/* Requests that ended here lately. A message about one of them is late news and is
 * ignored; without the memory it would look like new work (protocol, section 2). */
#ifndef COMMON_WORKER_TOMBS_H
#define COMMON_WORKER_TOMBS_H
#include "common/wire/wire.h"
#include <stdbool.h>
#include <stdint.h>

struct tombs;
/* Start-up memory. capacity bounds the memory: at a higher rate of ends than
 * capacity / lifetime the oldest is forgotten early. */
struct tombs *tombs_create(uint32_t capacity, uint64_t lifetime_ns);
void tombs_destroy(struct tombs *t);
/* Twice the same request: the first time counts. */
void tombs_add(struct tombs *t, struct wire_request r, uint64_t now_ns);
bool tombs_has(const struct tombs *t, struct wire_request r);
/* Forgets what is older than the lifetime. */
void tombs_sweep(struct tombs *t, uint64_t now_ns);
uint32_t tombs_count(const struct tombs *t);

#endif
