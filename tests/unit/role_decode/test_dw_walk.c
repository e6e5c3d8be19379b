/* Random lives of sequences over the role's own functions, pools and table of moves:
 * after every step the job table, pages and slots are true, and at the end all of it is
 * back. Importer, engine and routers are played here. */
// clang-format off
// wrap: answer_finished answer_freed answer_rejected routers_send importer_pull importer_cancel engine_join engine_grow engine_leave exporter_revoke
// clang-format on
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/worker/answer.h"
#include "decode-worker/decode.h"

#include <stdio.h>

#define PAGES 18u
#define SLOTS 8u
#define ROWS  4u
#define PULLS 3u
#define STEPS 40000u

struct pull_played {
	void (*done)(void *ctx, const struct pull_result *r);
	void *ctx;
	uint64_t handle; /* 0: none */
	bool cancelled;
};

struct row_played {
	uint64_t tag; /* 0: none */
	uint32_t n_tokens, n_pages, steps_left;
	bool leaves;
};

static struct rig {
	struct worker w;
	struct worker_conf conf;
	struct dw *d;
	struct pull_played pull[PULLS];
	struct row_played row[ROWS];
	uint64_t step, last_handle;
	uint32_t finished, freed, rejected, evicted, adopted, shared, nan, offered;
	uint64_t lease[SLOTS]; /* that were offered; 0: none */
} rig;

static uint32_t below(uint32_t which, uint32_t n)
{
	return philox4x32(3, rig.step, which).v[0] % n;
}

/* ---- who is played ---- */

void __wrap_answer_finished(struct worker *w, struct wire_request r,
	enum wire_finish reason, uint32_t n_generated, const char *text);
void __wrap_answer_freed(struct worker *w, struct wire_request r);
void __wrap_answer_rejected(struct worker *w, struct wire_request r,
	enum wire_reject reason, bool later, const char *fmt, ...) PRINTF_LIKE(5, 6);
bool __wrap_routers_send(
	struct routers *s, uint64_t incarnation, uint8_t type, const void *msg);
status __wrap_importer_pull(struct importer *m, const struct pull *p,
	void (*done)(void *ctx, const struct pull_result *r), void *ctx, uint64_t *handle,
	struct err *err);
void __wrap_importer_cancel(struct importer *m, uint64_t handle);
status __wrap_engine_join(struct engine *e, const struct eng_join *join);
status __wrap_engine_grow(
	struct engine *e, uint64_t tag, const uint32_t *pages, uint32_t n);
status __wrap_engine_leave(struct engine *e, uint64_t tag);

void __wrap_answer_finished(struct worker *w, struct wire_request r,
	enum wire_finish reason, uint32_t n_generated, const char *text)
{
	(void)text;
	assert_int_equal(jobs_find(w->jobs, r)->n_generated, n_generated);
	rig.finished++;
	rig.nan += reason == FINISH_NAN;
}

void __wrap_answer_freed(struct worker *w, struct wire_request r)
{
	assert_null(jobs_find(w->jobs, r));
	rig.freed++;
}

void __wrap_answer_rejected(struct worker *w, struct wire_request r,
	enum wire_reject reason, bool later, const char *fmt, ...)
{
	(void)fmt;
	assert_true(later && (reason == REJECT_SOURCE || reason == REJECT_FULL ||
				     reason == REJECT_DRAINING));
	/* What found no place was no job. */
	rig.rejected += jobs_find(w->jobs, r) != NULL;
}

bool __wrap_routers_send(
	struct routers *s, uint64_t incarnation, uint8_t type, const void *msg)
{
	(void)s;
	(void)incarnation;
	if (type == MSG_offered) {
		const struct msg_offered *m = msg;
		uint32_t i = 0;

		while (rig.lease[i] != 0)
			assert_true(++i < SLOTS);
		rig.lease[i] = m->lease;
		rig.offered++;
		assert_int_equal(wire_count(m->pages, uint32_t),
			CEIL_DIV(m->n_tokens, PAGE_TOKENS));
	}
	rig.evicted += type == MSG_evicted;
	rig.adopted += type == MSG_adopted;
	return true;
}

status __wrap_importer_pull(struct importer *m, const struct pull *p,
	void (*done)(void *ctx, const struct pull_result *r), void *ctx, uint64_t *handle,
	struct err *err)
{
	uint32_t i = 0;

	(void)m;
	assert_int_equal(p->n_before + p->n_pages, CEIL_DIV(p->n_tokens, PAGE_TOKENS));
	rig.shared += p->n_before > 0;
	if (below(20, 20) == 0)
		return err_set(err, ST_PEER, "no such worker");
	while (i < PULLS && rig.pull[i].handle != 0)
		i++;
	if (i == PULLS)
		return err_set(err, ST_LIMIT, "too many pulls");
	*handle = ++rig.last_handle;
	rig.pull[i] = (struct pull_played){.done = done, .ctx = ctx, .handle = *handle};
	return ST_OK;
}

void __wrap_importer_cancel(struct importer *m, uint64_t handle)
{
	uint32_t i = 0;

	(void)m;
	while (rig.pull[i].handle != handle)
		assert_true(++i < PULLS);
	rig.pull[i].cancelled = true;
}

void __wrap_exporter_revoke(struct exporter *x, uint64_t generation);
void __wrap_exporter_revoke(struct exporter *x, uint64_t generation)
{
	(void)x;
	(void)generation;
}

/* An importer has it, the router releases it, or its time is over. */
static void end_lease(uint32_t i)
{
	struct err err;

	if (rig.lease[i] != 0 && lease_find(rig.w.leases, rig.lease[i]) != NULL) {
		struct lease *l = lease_find(rig.w.leases, rig.lease[i]);

		if (below(26, 2) == 0) {
			assert_int_equal(lease_claim(rig.w.leases, rig.lease[i], 1,
						 l->n_tokens, &l, &err),
				ST_OK);
			if (below(27, 2) == 0)
				jobs_cut(rig.w.jobs, "while it is read");
			assert_int_equal(
				lease_done(rig.w.leases, rig.lease[i], 1, &err), ST_OK);
		} else if (below(26, 2) == 1) {
			lease_release(rig.w.leases, rig.lease[i]);
		}
	}
	rig.lease[i] = 0;
}

static struct row_played *row_of(uint64_t tag)
{
	uint32_t i = 0;

	while (rig.row[i].tag != tag)
		assert_true(++i < ROWS);
	return &rig.row[i];
}

status __wrap_engine_join(struct engine *e, const struct eng_join *join)
{
	(void)e;
	if (below(21, 5) == 0)
		return ST_AGAIN;
	*row_of(0) = (struct row_played){.tag = join->tag,
		.n_tokens = join->n_tokens,
		.n_pages = join->n_pages,
		.steps_left = join->steps_max};
	return ST_OK;
}

status __wrap_engine_grow(
	struct engine *e, uint64_t tag, const uint32_t *pages, uint32_t n)
{
	(void)e;
	(void)pages;
	if (below(22, 5) == 0)
		return ST_AGAIN;
	row_of(tag)->n_pages += n;
	return ST_OK;
}

status __wrap_engine_leave(struct engine *e, uint64_t tag)
{
	(void)e;
	if (below(23, 3) == 0)
		return ST_AGAIN;
	assert_false(row_of(tag)->leaves);
	row_of(tag)->leaves = true;
	return ST_OK;
}

static void end_pull(struct pull_played *p)
{
	struct pull_played ended = *p;
	struct pull_result r = {.transport = "played", .bytes = 1};

	if (p->handle == 0)
		return;
	if (below(24, 6) == 0 || (p->cancelled && below(25, 4) > 0))
		r.code = err_set(&r.err, ST_PEER, "the pull ended");
	*p = (struct pull_played){0};
	ended.done(ended.ctx, &r);
}

/* Also rows that the role has ended: the engine has not heard yet. */
static void engine_steps(void)
{
	struct eng_token tokens[ROWS];
	struct eng_result r = {.kind = ENG_STEP, .tokens = tokens};

	for (uint32_t i = 0; i < ROWS; i++) {
		struct row_played *row = &rig.row[i];

		if (row->tag == 0 || row->steps_left == 0 ||
			row->n_pages * PAGE_TOKENS <= row->n_tokens)
			continue;
		row->steps_left--;
		row->n_tokens++;
		tokens[r.n] = (struct eng_token){.tag = row->tag,
			.position = row->n_tokens,
			.flags = below(200 + i, 300) == 0 ? SAMPLE_NAN : 0};
		if (tokens[r.n++].flags != 0)
			row->steps_left = 0;
	}
	role_decode.on_result(rig.d, &r);
}

static void rows_left(void)
{
	for (uint32_t i = 0; i < ROWS; i++) {
		struct eng_token t = {.tag = rig.row[i].tag};
		struct eng_result r = {.kind = ENG_LEFT, .tokens = &t, .n = 1};

		if (!rig.row[i].leaves)
			continue;
		rig.row[i] = (struct row_played){0};
		role_decode.on_result(rig.d, &r);
	}
}

/* ---- what happens ---- */

static bool add(uint64_t seq)
{
	/* Most choices of a group are of one prompt; a router may lie. */
	uint64_t prompt = below(13, 4) > 0 ? seq / 4 * 2 + seq % 2 : rig.step;
	uint32_t n = 1 + philox4x32(4, prompt, 0).v[0] % (3 * PAGE_TOKENS);
	struct dw_job made = {
		.job = {.req = {.router = 1 + seq % 2, .seq = seq}, .n_generated = 1},
		.d = rig.d,
		.source_incarnation = 1 + below(11, 2),
		.group = seq % 4 == 3 ? 0 : 1 + seq / 4 * 2 + seq % 2,
		.n_prompt = n,
		.n_tokens = n,
		.n_end = n + 1 + below(12, 5 * PAGE_TOKENS),
		.n_state_pages = CEIL_DIV(n, PAGE_TOKENS)};

	snprintf(made.source_id, sizeof(made.source_id), "p");
	made.pages_max = CEIL_DIV(made.n_end, PAGE_TOKENS);
	if (jobs_refuse_full(rig.w.jobs, made.job.req, dw_pages_needed(n)))
		return false;
	made.src_pages = mem_take(made.n_state_pages, sizeof(*made.src_pages));
	made.pages = mem_take(made.pages_max, sizeof(*made.pages));
	return jobs_add(rig.w.jobs, &made.job, ST_OK, NULL) != NULL;
}

static struct job *any(void)
{
	uint32_t n = rig.w.jobs->order.n, i = 0, at = n > 0 ? below(1, n) : 0;

	list_each (job, &rig.w.jobs->order, struct job, node)
		if (i++ == at)
			return job;
	return NULL;
}

static void end_some(void)
{
	uint64_t router = 1 + rig.step % 2;
	struct job *job = any();

	switch (below(3, 10)) {
	case 0:
		jobs_router_lost(rig.w.jobs, router);
		break;
	case 1:
		jobs_unnamed(rig.w.jobs, router, rig.step);
		break;
	case 2:
		role_decode.peer_down(rig.d, BYTES_STR("p"), 1 + below(4, 2));
		break;
	case 3:
		if (below(5, 4) == 0)
			jobs_cut(rig.w.jobs, "for a test");
		break;
	default:
		if (job != NULL)
			jobs_cancel(rig.w.jobs, job->req);
	}
}

static void check_all(void)
{
	jobs_check(rig.w.jobs);
	pool_check(rig.w.pages);
	pool_check(rig.w.slots);
}

static void happen(uint64_t *seq)
{
	uint32_t dice = below(2, 200);

	if (dice < 30)
		*seq += add(*seq);
	else if (dice < 33)
		end_some();
	else if (dice < 60)
		end_pull(&rig.pull[below(6, PULLS)]);
	else if (dice < 70)
		rows_left();
	else if (dice < 80)
		end_lease(below(7, SLOTS));
	else if (dice < 81)
		dw_offer_all(rig.d);
	else
		engine_steps();
	check_all();
	role_decode.turn(rig.d);
	check_all();
}

static void open_rig(void)
{
	void *self;
	struct err err;

	rig = (struct rig){.conf = {.max_queued = 6,
				   .max_num_seqs = ROWS,
				   .nan_limit = UINT32_MAX,
				   .lease_ms = 1000000}};
	rig.w = (struct worker){.conf = &rig.conf,
		.pages = pool_create("page", PAGES),
		.slots = pool_create("slot", SLOTS)};
	rig.w.leases = leases_create(rig.w.pages, rig.w.slots, SLOTS, PAGES);
	rig.w.jobs = jobs_create(&rig.w, &dw_jobs, SLOTS + 6);
	assert_int_equal(role_decode.start(&rig.w, &self, &err), ST_OK);
	rig.w.self = rig.d = self;
	log_level_set(LOG_WARN);
}

static void close_rig(void)
{
	role_decode.stop(rig.d);
	jobs_destroy(rig.w.jobs);
	leases_destroy(rig.w.leases);
	pool_destroy(rig.w.pages);
	pool_destroy(rig.w.slots);
}

static void end_all(void)
{
	jobs_cut(rig.w.jobs, "for a test");
	for (uint32_t i = 0; i < 100; i++) {
		rig.step++;
		for (uint32_t k = 0; k < PULLS; k++)
			end_pull(&rig.pull[k]);
		for (uint32_t k = 0; k < SLOTS; k++)
			end_lease(k);
		dw_leave_again(rig.d);
		rows_left();
	}
}

static void whatever_happens_to_sequences_all_pages_and_slots_come_back(void **state)
{
	uint64_t seq = 0;
	uint32_t reached[DW__STATES] = {0};

	(void)state;
	open_rig();
	for (rig.step = 1; rig.step <= STEPS; rig.step++) {
		happen(&seq);
		for (unsigned s = 0; s < DW__STATES; s++)
			reached[s] += rig.w.jobs->count[s];
	}
	end_all();
	check_all();
	assert_int_equal(rig.w.jobs->order.n, 0);
	assert_int_equal(pool_count(rig.w.pages, POOL_FREE), pool_size(rig.w.pages));
	assert_int_equal(pool_count(rig.w.slots, POOL_FREE), pool_size(rig.w.slots));
	assert_int_equal(mem_taken(), 0);
	/* Each had one end, or was offered; freed came after it unless it was rejected.
	 */
	assert_int_equal(rig.finished + rig.evicted + rig.rejected + rig.offered, seq);
	assert_int_equal(rig.freed + rig.rejected, seq);
	assert_true(rig.finished > 100 && rig.evicted > 10 && rig.rejected > 10);
	assert_true(rig.adopted > 100 && rig.nan > 10 && rig.shared > 10);
	assert_true(rig.offered > 100);
	for (unsigned s = 0; s < DW__STATES; s++)
		assert_true(reached[s] > 100);
	close_rig();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			whatever_happens_to_sequences_all_pages_and_slots_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
