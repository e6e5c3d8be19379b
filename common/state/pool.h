/* Accounts of pages or slots: who holds each one. The bytes belong to the engine; this
 * runs on the control thread only. Index 0 is dead (padding rows point there) and is
 * never handed out.
 *
 * Page rules (cited as "page rule N"):
 * 1. An object counts its holders: sequences and leases. FREE means none.
 * 2. take gives FILLING (held by one sequence, contents not final); fill_done makes it
 *    LIVE; an object with a lease is EXPORTED, whoever else holds it.
 * 3. An object that is taken has one holder: nothing of its former life is left.
 * 4. A sequence gives its objects back only after the engine step that may touch them
 *    has finished. A lease's objects stay until done, release or expiry of the lease.
 * 5. FREE + FILLING + LIVE + EXPORTED = total; pool_check walks it (each loop turn in
 *    debug builds). */
#ifndef COMMON_STATE_POOL_H
#define COMMON_STATE_POOL_H
#include "common/base/err.h"
#include <stdint.h>

enum pool_state { POOL_FREE, POOL_FILLING, POOL_LIVE, POOL_EXPORTED, POOL__STATES };

struct pool;
/* n: objects including the dead one. name: "page" or "slot", for messages. */
struct pool *pool_create(const char *name, uint32_t n);
void pool_destroy(struct pool *p);
/* n objects or none; ST_LIMIT is normal: try again after a give. */
MUST_CHECK status pool_take(struct pool *p, uint32_t *ids, uint32_t n);
void pool_fill_done(struct pool *p, const uint32_t *ids, uint32_t n);
/* One further sequence shares them (full pages of n > 1). */
void pool_share(struct pool *p, const uint32_t *ids, uint32_t n);
/* A sequence lets go. */
void pool_give(struct pool *p, const uint32_t *ids, uint32_t n);
void pool_lease(struct pool *p, const uint32_t *ids, uint32_t n);
void pool_unlease(struct pool *p, const uint32_t *ids, uint32_t n);
enum pool_state pool_state(const struct pool *p, uint32_t id);
uint32_t pool_count(
	const struct pool *p, enum pool_state state); /* the dead one excluded */
uint32_t pool_size(const struct pool *p);             /* the dead one excluded */
void pool_check(const struct pool *p);

#endif
