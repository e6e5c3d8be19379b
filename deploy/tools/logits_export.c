/* The exporting side: prefills what it is told to and offers the state. */
#include "deploy/tools/logits_handover.h"

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/xfer/xfer.h"
#include "deploy/tools/logits_order.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEASE_NS  (60 * NS_PER_S)
#define WORKER_ID "logits-p"

struct export
{
	const struct exporter_options *o;
	struct engine *e;
	struct loop *loop;
	struct loop_fd *orders;
	struct pool *pages, *slots;
	struct leases *leases;
	struct exporter *exporter;
	struct xfer_side side;
	float *logits;
	uint64_t logits_bytes;
	struct order order;
	struct offer offer;
};

/* The sign-and-exponent byte of the largest number of n becomes that of a number 2^8
 * times as large, or of the other sign when it is below 2: too much for later sums to
 * hide, too little to overflow. */
static void flip_largest(float *at, uint64_t n)
{
	uint64_t largest = 0;
	uint8_t bytes[sizeof(float)];

	for (uint64_t i = 1; i < n; i++)
		if (at[i] * at[i] > at[largest] * at[largest])
			largest = i;
	memcpy(bytes, &at[largest], sizeof(bytes));
	bytes[3] ^= (bytes[3] & 0x04) == 0 ? 0x04 : 0x80;
	memcpy(&at[largest], bytes, sizeof(bytes));
}

static status damage(struct export *x, const struct offer *offer, struct err *err)
{
	const struct layout *l = &x->side.layout;
	const char *flip = x->o->flip;
	uint8_t *arena = x->side.arena[0];
	char *end = NULL;
	unsigned long page;
	uint64_t at;

	if (flip[0] == 0)
		return ST_OK;
	if (strcmp(x->side.backend[0]->name, "cpu") != 0 || l->kv_dtype != DT_F32)
		return err_set(err, ST_INVALID, "flip: only in F32 state on the CPU");
	if (strcmp(flip, "slot") == 0) {
		at = layout_slot_offset(l, x->side.arena_pages, offer->slot);
		flip_largest((float *)(void *)(arena + at), l->rec_layer_bytes / 4);
		return ST_OK;
	}
	page = strncmp(flip, "page:", 5) == 0 ? strtoul(flip + 5, &end, 10) : 0;
	if (end == NULL || end == flip + 5 || *end != 0 || page >= offer->n_pages)
		return err_set(err, ST_INVALID,
			"flip '%s': neither slot nor page:I with I below %u", flip,
			offer->n_pages);
	/* The values of the first attention layer: they go into sums as they are. */
	at = layout_page_offset(l, offer->pages[page]) + l->kv_layer_bytes / 2;
	flip_largest((float *)(void *)(arena + at), l->kv_layer_bytes / 2 / 4);
	return ST_OK;
}

/* The state of the order's ids, offered as a lease. */
static status fulfil(struct export *x, struct err *err)
{
	struct offer *offer = &x->offer;
	uint32_t n = x->order.n, n_pages = CEIL_DIV(n, PAGE_TOKENS);
	struct place place = {offer->pages, n_pages, 0};
	struct lease terms = {
		.owner = 1, .n_tokens = n, .pages = offer->pages, .n_pages = n_pages};
	status st;

	if (n * (uint64_t)engine_config(x->e)->vocab * sizeof(float) > x->logits_bytes)
		return err_set(err, ST_LIMIT, "%u tokens: more than was announced", n);
	if (pool_take(x->pages, offer->pages, n_pages) != ST_OK ||
		pool_take(x->slots, &offer->slot, 1) != ST_OK)
		return err_set(
			err, ST_LIMIT, "no pages or slots: an earlier lease is held");
	place.slot = terms.slot = offer->slot;
	st = run_prefill(x->e, x->order.ids, n, x->o->chunk, &place, x->logits, err);
	if (st != ST_OK)
		return st;
	pool_fill_done(x->pages, offer->pages, n_pages);
	pool_fill_done(x->slots, &offer->slot, 1);
	offer->n_tokens = n;
	offer->n_pages = n_pages;
	st = damage(x, offer, err);
	if (st != ST_OK)
		return st;
	st = lease_grant(x->leases, &terms, LEASE_NS, 1, &offer->lease);
	return st == ST_OK ? ST_OK : err_set(err, st, "the lease table is full");
}

static void on_order(void *ctx, int fd, unsigned events)
{
	struct export *x = ctx;
	struct err err;
	status st;

	(void)events;
	st = order_receive(fd, &x->order, &err);
	if (st == ST_OK) {
		memset(&x->offer, 0, sizeof(x->offer));
		(void)snprintf(x->offer.path, sizeof(x->offer.path), "%s",
			exporter_path(x->exporter));
		(void)snprintf(x->offer.worker_id, sizeof(x->offer.worker_id), WORKER_ID);
		x->offer.incarnation = x->side.incarnation;
		x->offer.code = fulfil(x, &err);
		if (x->offer.code != ST_OK)
			(void)snprintf(x->offer.text, sizeof(x->offer.text), "%.*s",
				(int)sizeof(x->offer.text) - 1, err.text);
		st = offer_send(fd, &x->offer, &err);
	}
	if (st != ST_OK)
		loop_stop(x->loop);
}

static status open_export(struct export *x, struct err *err)
{
	struct stat sb;
	status st;

	if (fcntl(x->o->order_fd, F_SETFD, FD_CLOEXEC) != 0 ||
		fstat(x->o->logits_fd, &sb) != 0)
		return err_set(
			err, ST_IO, "descriptors of the hand-over: %s", strerror(errno));
	x->logits_bytes = (uint64_t)sb.st_size;
	x->logits = mmap(NULL, x->logits_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		x->o->logits_fd, 0);
	if (x->logits == MAP_FAILED)
		return err_set(err, ST_IO, "shared logits: %s", strerror(errno));
	x->side = (struct xfer_side){.loop = x->loop,
		.id = WORKER_ID,
		.incarnation = rng_entropy64(),
		.runtime_dir = x->o->runtime_dir};
	order_side(&x->side, x->e);
	st = exporter_create(&x->exporter, &x->side, x->leases, LEASE_NS, err);
	if (st == ST_OK)
		st = loop_fd_open(&x->orders, x->loop, x->o->order_fd, on_order, x, err);
	if (st == ST_OK)
		loop_fd_start(x->orders, LOOP_READABLE);
	return st;
}

status handover_export(
	struct engine *e, const struct exporter_options *o, struct err *err)
{
	struct export *x = mem_alloc(1, sizeof(*x));
	status st;

	x->o = o;
	x->e = e;
	x->logits = MAP_FAILED;
	x->loop = loop_create();
	x->pages = pool_create("page", (uint32_t)engine_pages(e));
	x->slots = pool_create("slot", (uint32_t)engine_slots(e));
	x->leases = leases_create(x->pages, x->slots, 4, ORDER_PAGES_MAX);
	st = open_export(x, err);
	if (st == ST_OK)
		loop_run(x->loop);
	loop_fd_close(x->orders, false);
	if (x->exporter != NULL)
		exporter_destroy(x->exporter);
	leases_destroy(x->leases);
	pool_destroy(x->pages);
	pool_destroy(x->slots);
	loop_destroy(x->loop);
	if (x->logits != MAP_FAILED)
		(void)munmap(x->logits, x->logits_bytes);
	mem_free(x);
	return st;
}
