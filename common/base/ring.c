/* One writer thread, one reader thread, a fixed number of fixed-size slots. */
#include "common/base/ring.h"

#include "common/base/mem.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The two counters stand a cache line apart from each other and from the constants:
 * each is written by one thread and would otherwise slow down the other. */
#define LINE 64

struct ring {
	uint8_t *slots;
	uint32_t mask;
	uint32_t slot_bytes;
	uint8_t gap0[LINE];
	_Atomic uint32_t head; /* written by the reader only */
	uint8_t gap1[LINE];
	_Atomic uint32_t tail; /* written by the writer only */
	uint8_t gap2[LINE];
};

struct ring *ring_create(uint32_t n_slots, uint32_t slot_bytes)
{
	struct ring *r;

	assert(n_slots > 0 && (n_slots & (n_slots - 1)) == 0 && slot_bytes > 0);
	r = mem_alloc(1, sizeof(*r));
	r->slots = mem_alloc(n_slots, slot_bytes);
	r->mask = n_slots - 1;
	r->slot_bytes = slot_bytes;
	return r;
}

void ring_destroy(struct ring *r)
{
	if (r == NULL)
		return;
	mem_free(r->slots);
	mem_free(r);
}

bool ring_push(struct ring *r, const void *slot)
{
	uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	uint32_t head = atomic_load_explicit(&r->head, memory_order_acquire);

	if (tail - head > r->mask)
		return false;
	memcpy(r->slots + (size_t)(tail & r->mask) * r->slot_bytes, slot, r->slot_bytes);
	atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
	return true;
}

bool ring_pop(struct ring *r, void *slot)
{
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);

	if (head == tail)
		return false;
	memcpy(slot, r->slots + (size_t)(head & r->mask) * r->slot_bytes, r->slot_bytes);
	atomic_store_explicit(&r->head, head + 1, memory_order_release);
	return true;
}

struct chan {
	struct ring *ring;
	int fd;
};

struct chan *chan_create(uint32_t n_slots, uint32_t slot_bytes)
{
	struct chan *c = mem_alloc(1, sizeof(*c));

	c->ring = ring_create(n_slots, slot_bytes);
	c->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	/* Start-up only, like the memory: without a descriptor nothing can run. */
	if (c->fd < 0)
		abort();
	return c;
}

void chan_destroy(struct chan *c)
{
	if (c == NULL)
		return;
	close(c->fd);
	ring_destroy(c->ring);
	mem_free(c);
}

bool chan_push(struct chan *c, const void *slot)
{
	uint64_t one = 1;
	ssize_t n;

	if (!ring_push(c->ring, slot))
		return false;
	/* EAGAIN would mean 2^64 - 2 unread wake-ups: the reader is awake then. */
	do
		n = write(c->fd, &one, sizeof(one));
	while (n < 0 && errno == EINTR);
	return true;
}

bool chan_pop(struct chan *c, void *slot)
{
	return ring_pop(c->ring, slot);
}

int chan_fd(const struct chan *c)
{
	return c->fd;
}

/* Acknowledged first, popped after: a push in between leaves the descriptor readable,
 * so at worst the reader wakes once for nothing and never sleeps over a slot. */
void chan_ack(struct chan *c)
{
	uint64_t count;
	ssize_t n;

	do
		n = read(c->fd, &count, sizeof(count));
	while (n < 0 && errno == EINTR);
}

void chan_wait(struct chan *c, int timeout_ms)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	uint32_t head = atomic_load_explicit(&c->ring->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&c->ring->tail, memory_order_acquire);

	if (head != tail)
		return; /* the reader did not pop until empty */
	if (poll(&p, 1, timeout_ms) > 0)
		chan_ack(c);
}
