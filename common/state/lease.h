/* Leases: state that a finished prefill offers to another worker. A lease names its
 * pages and slot, the exact number of tokens it covers, and a generation that never
 * repeats in this incarnation. Control thread only.
 *
 * 1. Unclaimed at expiry: freed. Traffic of the router that owns it renews it, unless
 * that router said that it knows nothing of it (disown). Expiry is of clock_ran_ns: an
 * owner could not be heard while this process did not run.
 * 2. A claim ends with done (freed), or with the end of the claimer's link or its giving
 *    back (unclaimed again, with a fresh expiry). Until then time alone never frees it.
 * 3. release frees an unclaimed lease; of a claimed one it is remembered and takes
 *    effect when the claim ends (revoke tells the claimer).
 * 4. For n readers there are n leases of one state, with consecutive generations: each
 *    reader claims its own, and pages and slot are free when the last one has ended. */
#ifndef COMMON_STATE_LEASE_H
#define COMMON_STATE_LEASE_H
#include "common/state/pool.h"
#include <stdbool.h>

struct lease {
	uint64_t generation; /* never 0 */
	uint64_t owner;      /* router incarnation */
	uint64_t seq;        /* request number of that router */
	uint32_t attempt;
	uint32_t n_tokens; /* covered by the state, exactly */
	uint32_t *pages;   /* n_pages = ceil(n_tokens / PAGE_TOKENS) */
	uint32_t n_pages;
	uint32_t slot;
	uint64_t expires_ns;
	uint64_t claimer; /* link id, 0: unclaimed */
	bool released;
	bool disowned;
};

struct leases;
/* Takes pages and slot from and gives them back to these pools. capacity: most leases. */
struct leases *leases_create(
	struct pool *pages, struct pool *slots, uint32_t capacity, uint32_t pages_max);
void leases_destroy(struct leases *t);
/* The sequence that filled pages and slot hands them to new leases, one for each reader
 * (pool_lease + pool_give). pages is copied. *generation is the first one's. ST_LIMIT:
 * the table has not as many places, and nothing was granted. */
MUST_CHECK status lease_grant(struct leases *t, const struct lease *terms,
	uint64_t lifetime_ns, uint32_t n_readers, uint64_t *generation);
struct lease *lease_find(struct leases *t, uint64_t generation);
/* ST_INVALID with reason (unknown generation, claimed already, token count differs). */
MUST_CHECK status lease_claim(struct leases *t, uint64_t generation, uint64_t link,
	uint32_t n_tokens, struct lease **out, struct err *err);
MUST_CHECK status lease_done(
	struct leases *t, uint64_t generation, uint64_t link, struct err *err);
/* The claimer gives the claim back without having used it (rule 2). */
MUST_CHECK status lease_unclaim(struct leases *t, uint64_t generation, uint64_t link,
	uint64_t lifetime_ns, struct err *err);
/* All claims of this link become unclaimed (rule 2). */
void lease_link_lost(struct leases *t, uint64_t link, uint64_t lifetime_ns);
/* false: no such lease (it may have ended already). */
bool lease_release(struct leases *t, uint64_t generation);
void lease_renew_owner(struct leases *t, uint64_t owner, uint64_t lifetime_ns);
/* It is not renewed any more: it ends by its reader, or with time. */
void lease_disown(struct leases *t, uint64_t generation);
/* Frees what has expired; calls on_freed for every lease that ends by any way. */
uint32_t lease_expire(struct leases *t, uint64_t now_ns);
void leases_on_freed(
	struct leases *t, void (*fn)(void *ctx, const struct lease *lease), void *ctx);
uint32_t lease_count(const struct leases *t);

#endif
