/* A ring of fixed-size slots for one writer thread and one reader thread, and a
 * channel: the same with an eventfd that wakes the reader's loop. A full ring is
 * back-pressure for the writer, never a wait. */
#ifndef COMMON_BASE_RING_H
#define COMMON_BASE_RING_H
#include "common/base/attr.h"
#include <stdbool.h>
#include <stdint.h>

struct ring;
/* n_slots: a power of two. Start-up memory. */
struct ring *ring_create(uint32_t n_slots, uint32_t slot_bytes);
void ring_destroy(struct ring *r);
bool ring_push(struct ring *r, const void *slot);
bool ring_pop(struct ring *r, void *slot);

struct chan;
struct chan *chan_create(uint32_t n_slots, uint32_t slot_bytes);
void chan_destroy(struct chan *c);
MUST_CHECK bool chan_push(
	struct chan *c, const void *slot); /* writer; wakes the reader */
bool chan_pop(struct chan *c, void *slot); /* reader */
int chan_fd(const struct chan *c);         /* readable after a push; level-triggered */
void chan_ack(struct chan *c);             /* reader: before popping until empty */
/* Reader thread without a loop: sleep until a push or timeout_ms (-1: no limit). */
void chan_wait(struct chan *c, int timeout_ms);

#endif
