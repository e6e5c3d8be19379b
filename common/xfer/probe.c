/* Marks in dead pages. */
#include "common/xfer/probe.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/rng.h"
#include <inttypes.h>
#include <string.h>
#include <time.h>

/* Two areas at the end of page 0: the owner's mark, then room for importers. Padding rows
 * of a step write token 0 of page 0, which never reaches the end of a page. */
#define WORDS       32u
#define AREA_BYTES  (WORDS * sizeof(uint64_t))
#define PAGE_MIN    (4 * AREA_BYTES)
/* Two importers that write at the same moment disturb each other: they try again after
 * pauses that differ. */
#define WRITE_TRIES 8
#define PAUSE_NS    (4 * NS_PER_MS)

static void fill(uint64_t words[WORDS], uint64_t seed)
{
	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = hash64_u64(seed, i + 1);
}

/* A mark follows from the layout alone, so that any importer knows it. */
static uint64_t mark_seed(const struct layout *l)
{
	return hash64_u64(layout_compat_hash(l), UINT64_C(0x6261746f6e));
}

static status check_page(const struct layout *l, struct err *err)
{
	if (l->page_bytes >= PAGE_MIN)
		return ST_OK;
	return err_set(err, ST_LIMIT,
		"a page of %" PRIu64 " bytes has no room for the marks of a link (%zu)",
		l->page_bytes, PAGE_MIN);
}

status probe_mark(const struct xfer_side *side, struct err *err)
{
	const struct layout *l = &side->layout;
	uint64_t words[WORDS];
	status st = check_page(l, err);

	fill(words, mark_seed(l));
	for (uint32_t r = 0; r < side->n_ranks && st == ST_OK; r++) {
		struct backend *b = side->backend[r];
		struct stream *s = NULL;

		st = b->ops->stream_create(b, &s, err);
		if (st != ST_OK)
			return st;
		st = b->ops->upload(s,
			(uint8_t *)side->arena[r] + l->page_bytes - 2 * AREA_BYTES, words,
			AREA_BYTES, err);
		if (st == ST_OK)
			st = b->ops->stream_sync(s, err);
		b->ops->stream_destroy(s);
	}
	return st;
}

/* *right: the area holds these words. */
static status compare(struct backend *b, struct stream *s, const void *at,
	const uint64_t want[WORDS], bool *right, struct err *err)
{
	uint64_t got[WORDS];
	status st = b->ops->download(s, got, at, AREA_BYTES, err);

	if (st == ST_OK)
		st = b->ops->stream_sync(s, err);
	*right = st == ST_OK && memcmp(got, want, AREA_BYTES) == 0;
	return st;
}

/* Device to device, as a pull copies, then to the host. */
static status read_mark(struct backend *b, struct stream *s, const uint8_t *from,
	uint8_t *scratch, uint64_t seed, struct err *err)
{
	struct copy_piece piece = {.src = from, .dst = scratch, .bytes = AREA_BYTES};
	uint64_t want[WORDS];
	bool right = false;
	status st = b->ops->zero(s, scratch, AREA_BYTES, err);

	fill(want, seed);
	if (st == ST_OK)
		st = b->ops->copy_list(s, &piece, 1, err);
	if (st == ST_OK)
		st = compare(b, s, scratch, want, &right, err);
	if (st == ST_OK && !right)
		st = err_set(err, ST_PEER,
			"%s reads other bytes from the peer's device than stand there",
			b->device);
	return st;
}

static status write_back(struct backend *b, struct stream *s, uint8_t *to,
	uint8_t *scratch, struct err *err)
{
	uint64_t want[WORDS];
	bool right = false;
	status st = ST_OK;

	for (int i = 0; i < WRITE_TRIES && !right && st == ST_OK; i++) {
		struct timespec pause = {
			.tv_nsec = i > 0 ? (long)(rng_entropy64() % PAUSE_NS) : 0};
		struct copy_piece out = {.src = scratch, .dst = to, .bytes = AREA_BYTES};
		struct copy_piece back = {.src = to, .dst = scratch, .bytes = AREA_BYTES};

		(void)nanosleep(&pause, NULL);
		fill(want, rng_entropy64());
		st = b->ops->upload(s, scratch, want, AREA_BYTES, err);
		if (st == ST_OK)
			st = b->ops->copy_list(s, &out, 1, err);
		if (st == ST_OK)
			st = b->ops->zero(s, scratch, AREA_BYTES, err);
		if (st == ST_OK)
			st = b->ops->copy_list(s, &back, 1, err);
		if (st == ST_OK)
			st = compare(b, s, scratch, want, &right, err);
	}
	if (st == ST_OK && !right)
		st = err_set(err, ST_PEER,
			"%s writes to the peer's device and reads other bytes back",
			b->device);
	return st;
}

status probe_peer(const struct xfer_side *side, uint32_t rank, const void *arena,
	const struct layout *peer, struct err *err)
{
	struct backend *b = side->backend[rank];
	uint8_t *theirs = (uint8_t *)(uintptr_t)arena + peer->page_bytes;
	/* Our own dead page, above the mark for our importers. */
	uint8_t *scratch =
		(uint8_t *)side->arena[rank] + side->layout.page_bytes - 3 * AREA_BYTES;
	struct stream *s = NULL;
	status st = check_page(peer, err);

	if (st == ST_OK)
		st = check_page(&side->layout, err);
	if (st == ST_OK)
		st = b->ops->stream_create(b, &s, err);
	if (st != ST_OK)
		return st;
	st = read_mark(b, s, theirs - 2 * AREA_BYTES, scratch, mark_seed(peer), err);
	if (st == ST_OK)
		st = write_back(b, s, theirs - AREA_BYTES, scratch, err);
	b->ops->stream_destroy(s);
	return st;
}
