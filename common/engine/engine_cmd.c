/* The control thread's side: commands to rank 0 and results from it. */
#include "common/engine/engine_impl.h"

#include "common/base/clock.h"

#include <assert.h>
#include <sched.h>
#include <string.h>
#include <time.h>

static bool pages_valid(const struct engine *e, const uint32_t *pages, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (pages[i] == 0 || pages[i] >= e->plan.n_pages)
			return false;
	return true;
}

/* Ids come from requests; all the rest of a chunk is the caller's own doing. */
static bool ids_valid(const struct engine *e, const uint32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (ids[i] >= e->config.vocab)
			return false;
	return true;
}

static void check_chunks(
	const struct engine *e, const struct eng_chunk *chunks, uint32_t n)
{
	uint64_t rows = 0, out = 0;

	assert(n > 0 && n <= e->o.seqs_max);
	for (uint32_t i = 0; i < n; i++) {
		const struct eng_chunk *c = &chunks[i];
		uint64_t end = (uint64_t)c->pos + c->n_tokens;

		rows += c->n_tokens;
		out += c->n_score + (c->sample ? MAX(c->n_choices, 1u) : 0);
		assert(c->n_score <= c->n_tokens && c->score_top <= SAMPLE_TOP_MAX);
		assert(!e->o.logits || (c->n_score == 0 && c->n_choices <= 1));
		assert(c->n_tokens > 0 && end <= e->plan.len_max);
		assert((uint64_t)c->n_pages * PAGE_TOKENS >= end);
		assert(c->n_pages <= e->pass_bounds.pages_stride);
		assert(pages_valid(e, c->pages, c->n_pages));
		assert(c->slot > 0 && c->slot < e->plan.n_slots);
	}
	assert(rows <= e->o.rows_max && out <= engine_out_max(e));
}

bool engine_prefill_room(const struct engine *e)
{
	return e->control.passes_queued < PASSES_QUEUED;
}

static uint32_t free_pass(const struct engine *e)
{
	uint32_t i = 0;

	while (e->control.pass_used[i])
		i++;
	assert(i < PASS_BUFFERS);
	return i;
}

bool engine_takes_guides(const struct engine *e)
{
	return e->step_bounds.mask_words > 0;
}

uint32_t engine_out_max(const struct engine *e)
{
	return e->pass_bounds.out_max;
}

/* Every id of a chunk that the device will index with. */
static bool chunk_valid(const struct engine *e, const struct eng_chunk *c)
{
	return ids_valid(e, c->ids, c->n_tokens) && ids_valid(e, c->score, c->n_score) &&
	       ids_valid(e, c->past.ids, c->past.n_ids);
}

static void release_pasts(struct pass_buffer *p)
{
	for (uint32_t i = 0; i < p->n_past; i++)
		past_release(p->past[i]);
	p->n_past = 0;
}

static status make_pasts(struct engine *e, struct pass_buffer *p,
	const struct eng_chunk *chunks, uint32_t n)
{
	status st = ST_OK;

	for (uint32_t i = 0; st == ST_OK && i < n; i++) {
		p->past[i] = NULL;
		if (chunks[i].sample)
			st = past_make(&p->past[i], &chunks[i].how, &chunks[i].past,
				e->config.vocab);
		p->n_past = i + 1;
	}
	if (st != ST_OK)
		release_pasts(p);
	return st;
}

status engine_prefill(
	struct engine *e, const struct eng_chunk *chunks, uint32_t n, uint64_t *epoch)
{
	struct command c = {.kind = CMD_PASS};
	struct pass_buffer *p;
	status st;

	if (e->control.failed)
		return ST_DEVICE;
	if (!engine_prefill_room(e))
		return ST_AGAIN;
	check_chunks(e, chunks, n);
	for (uint32_t i = 0; i < n; i++)
		if (!chunk_valid(e, &chunks[i]))
			return ST_INVALID;
	c.index = free_pass(e);
	p = &e->passes[c.index];
	st = make_pasts(e, p, chunks, n);
	if (st != ST_OK)
		return st;
	batch_reset(&p->batch);
	/* Lines 1..seqs_max belong to the rows of steps. */
	for (uint32_t i = 0; i < n; i++)
		batch_add_chunk(&p->batch, &chunks[i], p->past[i], e->o.seqs_max + 1,
			e->o.logits);
	c.epoch = e->control.epoch + 1;
	if (!chan_push(e->commands, &c)) {
		release_pasts(p);
		return ST_AGAIN;
	}
	e->control.pass_used[c.index] = true;
	e->control.passes_queued++;
	*epoch = ++e->control.epoch;
	return ST_OK;
}

static struct table *find_table(struct engine *e, uint64_t tag)
{
	for (uint32_t i = 0; i < e->o.seqs_max; i++)
		if (e->control.tables[i].used && e->control.tables[i].tag == tag)
			return &e->control.tables[i];
	return NULL;
}

static struct table *free_table(struct engine *e)
{
	for (uint32_t i = 0; i < e->o.seqs_max; i++)
		if (!e->control.tables[i].used)
			return &e->control.tables[i];
	return NULL;
}

static uint32_t index_of(const struct engine *e, const struct table *t)
{
	return (uint32_t)(t - e->control.tables);
}

/* Entries behind those that rank 0 knows of. */
static void write_pages(
	struct engine *e, const struct table *t, const uint32_t *pages, uint32_t n)
{
	uint32_t stride = e->step_bounds.pages_stride;

	assert(n <= stride - t->n_pages && pages_valid(e, pages, n));
	memcpy(e->tables + (uint64_t)index_of(e, t) * stride + t->n_pages, pages,
		n * sizeof(*pages));
}

static bool join_valid(const struct engine *e, const struct eng_join *join)
{
	uint32_t n_forced = join->forced == NULL ? 0 : join->n_forced;

	return join->input < e->config.vocab && ids_valid(e, join->forced, n_forced) &&
	       ids_valid(e, join->past.ids, join->past.n_ids);
}

status engine_join(struct engine *e, const struct eng_join *join)
{
	struct table *t = free_table(e);
	struct command c = {.kind = CMD_JOIN};

	if (e->control.failed)
		return ST_DEVICE;
	if (t == NULL)
		return ST_LIMIT;
	if (!join_valid(e, join))
		return ST_INVALID;
	assert(find_table(e, join->tag) == NULL);
	assert(join->guide == NULL || engine_takes_guides(e));
	assert((uint64_t)join->n_pages * PAGE_TOKENS >= join->n_tokens);
	assert(join->slot > 0 && join->slot < e->plan.n_slots);
	*t = (struct table){.tag = join->tag};
	if (past_make(&t->past, &join->how, &join->past, e->config.vocab) != ST_OK)
		return ST_LIMIT;
	write_pages(e, t, join->pages, join->n_pages);
	t->n_pages = join->n_pages;
	c.join = (struct row_terms){.tag = join->tag,
		.table = index_of(e, t),
		.n_pages = join->n_pages,
		.slot = join->slot,
		.pos = join->n_tokens,
		.input = join->input,
		.steps = join->steps_max,
		.how = join->how,
		.past = t->past,
		.guide = join->guide,
		.fresh = true,
		.forced = join->forced,
		.n_forced = join->forced == NULL ? 0 : join->n_forced};
	if (!chan_push(e->commands, &c)) {
		past_release(t->past);
		return ST_AGAIN;
	}
	t->used = true;
	return ST_OK;
}

status engine_grow(struct engine *e, uint64_t tag, const uint32_t *pages, uint32_t n)
{
	struct table *t = find_table(e, tag);
	struct command c = {.kind = CMD_GROW};

	if (e->control.failed)
		return ST_DEVICE;
	assert(t != NULL && !t->leaving);
	write_pages(e, t, pages, n);
	c.index = index_of(e, t);
	c.n_pages = t->n_pages + n;
	if (!chan_push(e->commands, &c))
		return ST_AGAIN;
	t->n_pages += n;
	return ST_OK;
}

status engine_leave(struct engine *e, uint64_t tag)
{
	struct table *t = find_table(e, tag);
	struct command c = {.kind = CMD_LEAVE};

	if (e->control.failed)
		return ST_DEVICE;
	assert(t != NULL && !t->leaving);
	c.index = index_of(e, t);
	if (!chan_push(e->commands, &c))
		return ST_AGAIN;
	t->leaving = true;
	return ST_OK;
}

/* Up to 100 ms; sem_timedwait reads the wall clock, which may jump. */
static bool wait_parked(struct engine *e)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 100000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	return sem_timedwait(&e->parked, &until) == 0;
}

bool engine_park(struct engine *e, uint64_t timeout_ns)
{
	struct command c = {.kind = CMD_PARK};
	bool sent = false, parked = false;
	uint64_t began;

	clock_look();
	began = clock_ran_ns();
	/* Rank 0 empties the ring before it starts anything. */
	while (!parked && clock_ran_since(began) <= timeout_ns) {
		if (!sent)
			sent = chan_push(e->commands, &c);
		if (sent)
			parked = wait_parked(e);
		else
			sched_yield();
		clock_look();
	}
	return parked;
}

void engine_unpark(struct engine *e)
{
	sem_post(&e->unpark);
}

int engine_fd(const struct engine *e)
{
	return chan_fd(e->outcomes);
}

/* What the last poll showed is the engine's again. */
static void give_back(struct engine *e)
{
	const struct outcome *o = &e->control.held;

	if (!e->control.holding)
		return;
	e->control.holding = false;
	if (o->pass != NO_BUFFER)
		e->control.pass_used[o->pass] = false;
	if (o->step != NO_BUFFER) {
		struct command c = {.kind = CMD_GIVE, .index = o->step};
		bool sent = chan_push(e->commands, &c);

		/* At most STEP_BUFFERS of them are under way (engine_setup.c). */
		assert(sent || e->control.failed);
		(void)sent;
	}
}

/* The descriptor is acknowledged only when nothing is left, and what came in between
 * is looked for once more, so it stays readable while results wait. */
static bool next_outcome(struct engine *e)
{
	if (chan_pop(e->outcomes, &e->control.held))
		return true;
	chan_ack(e->outcomes);
	return chan_pop(e->outcomes, &e->control.held);
}

const struct eng_result *engine_poll(struct engine *e)
{
	struct outcome *o = &e->control.held;

	give_back(e);
	if (!next_outcome(e))
		return NULL;
	e->control.holding = true;
	if (o->pass != NO_BUFFER) {
		e->control.passes_queued--;
		release_pasts(&e->passes[o->pass]);
	}
	if (o->result.kind == ENG_LEFT) {
		o->result.tokens = &o->last;
		past_release(e->control.tables[o->table].past);
		e->control.tables[o->table] = (struct table){0};
	}
	if (o->result.kind == ENG_FAILED)
		e->control.failed = true;
	return &o->result;
}
