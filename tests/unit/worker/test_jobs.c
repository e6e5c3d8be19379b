/* The job table: places given out once and taken back, whatever ends a job, and random
 * lives of which every step leaves the table true.
 * What is said to routers is counted here. */
// wrap: answer_finished answer_freed answer_rejected
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/worker/answer.h"
#include "common/worker/jobs.h"
#include "common/worker/worker.h"

#include <string.h>

/* A kind with what both roles have: work under way that outlives the end of its job, a
 * state that outlives its router, an action that moves on by itself. */
enum {
	GONE = JOB_GONE,
	QUEUED = JOB_QUEUED,
	BUSY = JOB_OWN_STATES, /* holds; under_way */
	READY,                 /* holds */
	LENT,                  /* holds; others read it: n_lent */
	LEAVING,               /* ended, but still under_way */
	STATES
};
enum {
	ENDED = JOB_ENDED,
	ADMITTED = JOB_OWN_EVENTS,
	DONE,
	FAILED,
	LENT_OUT,
	QUIET,
	RETURNED,
};

struct task {
	struct job job;
	void *owned; /* mem_take */
	bool holds, under_way;
	uint32_t n_lent;
};

#define CAPACITY 24u
#define SEQS     4096u

struct rig {
	struct worker w;
	struct worker_conf conf;
	struct jobs *jobs;
	uint32_t held, disowned;
	uint32_t finished, freed, rejected;
	enum wire_finish reason; /* the last one */
	uint8_t freed_of[SEQS];
};
static struct rig rig;

void __wrap_answer_finished(struct worker *w, struct wire_request r,
	enum wire_finish reason, uint32_t n_generated, const char *text);
void __wrap_answer_freed(struct worker *w, struct wire_request r);
void __wrap_answer_rejected(struct worker *w, struct wire_request r,
	enum wire_reject reason, bool later, const char *fmt, ...) PRINTF_LIKE(5, 6);

void __wrap_answer_finished(struct worker *w, struct wire_request r,
	enum wire_finish reason, uint32_t n_generated, const char *text)
{
	(void)w;
	(void)text;
	assert_int_equal(n_generated, r.seq % 7);
	rig.finished++;
	rig.reason = reason;
}

void __wrap_answer_freed(struct worker *w, struct wire_request r)
{
	(void)w;
	rig.freed++;
	rig.freed_of[r.seq % SEQS]++;
}

void __wrap_answer_rejected(struct worker *w, struct wire_request r,
	enum wire_reject reason, bool later, const char *fmt, ...)
{
	(void)w;
	(void)r;
	(void)reason;
	(void)later;
	(void)fmt;
	rig.rejected++;
}

static struct task *task_of(struct job *job)
{
	return container_of(job, struct task, job);
}

static void nothing(void *self, struct job *job)
{
	assert_ptr_equal(self, &rig);
	(void)job;
}

static void begin(void *self, struct job *job)
{
	nothing(self, job);
	task_of(job)->holds = task_of(job)->under_way = true;
	rig.held++;
}

static void give_back(void *self, struct job *job)
{
	nothing(self, job);
	assert_true(task_of(job)->holds && !task_of(job)->under_way);
	task_of(job)->holds = false;
	rig.held--;
}

static void leave(void *self, struct job *job)
{
	nothing(self, job);
	if (!task_of(job)->under_way)
		jobs_move(rig.jobs, job, QUIET);
}

static void take_back(void *self, struct job *job)
{
	nothing(self, job);
	if (task_of(job)->n_lent == 1) {
		task_of(job)->n_lent = 0;
		jobs_move(rig.jobs, job, RETURNED);
	}
}

static const struct job_move moves[STATES][JOB_EVENTS_MAX] = {
	[QUEUED] = {[ADMITTED] = {BUSY, begin}, [ENDED] = {GONE, nothing}},
	[BUSY] = {[DONE] = {READY, nothing},
		[FAILED] = {GONE, give_back},
		[ENDED] = {LEAVING, leave}},
	[READY] = {[LENT_OUT] = {LENT, nothing}, [ENDED] = {GONE, give_back}},
	[LENT] = {[RETURNED] = {GONE, give_back}, [ENDED] = {LENT, take_back}},
	[LEAVING] = {[QUIET] = {GONE, give_back}, [ENDED] = {LEAVING, nothing}},
};

static void check(const void *self, const struct job *job)
{
	const struct task *t = container_of(job, const struct task, job);

	assert_ptr_equal(self, &rig);
	assert_non_null(t->owned);
	assert_int_equal(t->holds, job->state != QUEUED);
	assert_int_equal(t->n_lent > 0, job->state == LENT);
	assert_true(!t->under_way || job->state == BUSY || job->state == LEAVING);
	assert_true(t->under_way || job->state != LEAVING);
}

static void release(struct job *job)
{
	mem_give(task_of(job)->owned);
	task_of(job)->owned = NULL;
}

static void disown(void *self, struct job *job)
{
	nothing(self, job);
	assert_int_equal(job->state, LENT);
	rig.disowned++;
}

static uint32_t waits(const struct job *job)
{
	return job->state == QUEUED ? 3 : 0;
}

static const struct job_kind kind = {
	.bytes = sizeof(struct task),
	.n_states = STATES,
	.moves = moves,
	.said = MAY(LENT) | MAY(LEAVING),
	.lasting = MAY(LENT),
	.check = check,
	.release = release,
	.disown = disown,
	.waits = waits,
};

static struct wire_request req(uint64_t router, uint64_t seq, uint32_t attempt)
{
	return (struct wire_request){.router = router, .seq = seq, .attempt = attempt};
}

static struct task *add(uint64_t router, uint64_t seq, uint32_t attempt)
{
	struct task made = {.job = {.req = req(router, seq, attempt),
				    .n_generated = (uint32_t)(seq % 7)},
		.owned = mem_take(1, 16)};
	struct job *job = jobs_add(rig.jobs, &made.job, ST_OK, NULL);

	jobs_check(rig.jobs);
	return job != NULL ? task_of(job) : NULL;
}

static void move(struct task *t, unsigned event)
{
	jobs_move(rig.jobs, &t->job, event);
	jobs_check(rig.jobs);
}

static void go(struct task *t, unsigned state)
{
	move(t, ADMITTED);
	if (state == BUSY)
		return;
	t->under_way = false;
	move(t, DONE);
	if (state == READY)
		return;
	t->n_lent = 1;
	move(t, LENT_OUT);
}

static int open_rig(void **state)
{
	(void)state;
	memset(&rig, 0, sizeof(rig));
	rig.conf.max_queued = 2;
	rig.w = (struct worker){.self = &rig,
		.conf = &rig.conf,
		.tombs = tombs_create(8, 1000),
		.pages = pool_create("page", 9),
		.slots = pool_create("slot", 4)};
	rig.w.jobs = rig.jobs = jobs_create(&rig.w, &kind, CAPACITY);
	return 0;
}

static int close_rig(void **state)
{
	(void)state;
	jobs_destroy(rig.jobs);
	tombs_destroy(rig.w.tombs);
	pool_destroy(rig.w.pages);
	pool_destroy(rig.w.slots);
	assert_int_equal(mem_taken(), 0);
	return 0;
}

/* ---- places ---- */

static void places_are_bounded_and_come_back(void **state)
{
	struct task *t[CAPACITY];

	(void)state;
	for (uint32_t i = 0; i < CAPACITY; i++) {
		t[i] = add(7, i, 0);
		assert_non_null(t[i]);
		for (uint32_t k = 0; k < i; k++)
			assert_ptr_not_equal(t[k], t[i]);
	}
	assert_int_equal(rig.jobs->order.n, CAPACITY);
	assert_null(add(7, 99, 0));
	assert_int_equal(rig.rejected, 1);
	move(t[2], ENDED);
	assert_null(jobs_find(rig.jobs, req(7, 2, 0)));
	assert_ptr_equal(add(7, 99, 0), t[2]);
	assert_ptr_equal(jobs_find(rig.jobs, req(7, 99, 0)), &t[2]->job);
}

static void every_part_of_a_request_counts(void **state)
{
	struct task *t = add(7, 1, 0);

	(void)state;
	assert_null(add(7, 1, 0)); /* it has a place already */
	assert_int_equal(rig.jobs->order.n, 1);
	assert_null(jobs_find(rig.jobs, req(8, 1, 0)));
	assert_null(jobs_find(rig.jobs, req(7, 2, 0)));
	assert_null(jobs_find(rig.jobs, req(7, 1, 1)));
	assert_ptr_equal(jobs_find(rig.jobs, req(7, 1, 0)), &t->job);
	jobs_cancel(rig.jobs, req(7, 1, 1)); /* another one: freed is all it hears */
	assert_int_equal(rig.jobs->order.n, 1);
	assert_int_equal(rig.freed, 1);
}

static void long_use_leaks_nothing(void **state)
{
	(void)state;
	for (uint64_t seq = 0; seq < SEQS; seq++) {
		if (seq >= CAPACITY)
			jobs_cancel(rig.jobs, req(1, seq - CAPACITY, 0));
		assert_non_null(add(1, seq, 0));
	}
	assert_int_equal(rig.jobs->order.n, CAPACITY);
	for (uint64_t seq = SEQS - CAPACITY; seq < SEQS; seq++)
		assert_non_null(jobs_find(rig.jobs, req(1, seq, 0)));
}

static void a_tag_is_of_one_use_of_a_place(void **state)
{
	struct task *t = add(1, 1, 0);
	uint64_t tag = t->job.tag;

	(void)state;
	assert_ptr_equal(jobs_of_tag(rig.jobs, tag), &t->job);
	move(t, ENDED);
	assert_null(jobs_of_tag(rig.jobs, tag));
	assert_ptr_equal(add(1, 2, 0), t);
	assert_null(jobs_of_tag(rig.jobs, tag));
	assert_ptr_equal(jobs_of_tag(rig.jobs, t->job.tag), &t->job);
}

/* ---- ends ---- */

static void an_end_is_said_once_and_freed_comes_last(void **state)
{
	struct task *t = add(1, 1, 0);

	(void)state;
	go(t, BUSY);
	jobs_end(rig.jobs, &t->job, FINISH_ERROR, "for a test");
	assert_int_equal(t->job.state, LEAVING);
	jobs_cancel(rig.jobs, req(1, 1, 0));
	assert_int_equal(rig.finished, 1);
	assert_int_equal(rig.reason, FINISH_ERROR);
	assert_int_equal(rig.freed, 0);
	t->under_way = false;
	move(t, QUIET);
	assert_int_equal(rig.freed, 1);
	assert_int_equal(rig.held, 0);
}

static void an_action_moves_its_own_job_on(void **state)
{
	struct task *t = add(1, 1, 0);

	(void)state;
	go(t, BUSY);
	t->under_way = false;
	jobs_end(rig.jobs, &t->job, FINISH_CANCELLED, NULL);
	jobs_check(rig.jobs);
	assert_int_equal(rig.jobs->order.n, 0);
	assert_int_equal(rig.held, 0);
	assert_int_equal(rig.freed, 1);
}

static void what_was_rejected_is_not_said_to_be_freed(void **state)
{
	struct task *t = add(1, 1, 0);

	(void)state;
	go(t, BUSY);
	t->under_way = false;
	t->job.rejected = true;
	move(t, FAILED);
	assert_int_equal(rig.freed, 0);
	assert_int_equal(rig.jobs->order.n, 0);
}

static void a_lost_router_ends_its_own_jobs_but_not_what_others_read(void **state)
{
	struct task *lent = add(1, 1, 0), *ready = add(1, 2, 0), *other = add(2, 1, 0);

	(void)state;
	go(lent, LENT);
	go(ready, READY);
	jobs_router_lost(rig.jobs, 1);
	jobs_check(rig.jobs);
	assert_int_equal(lent->job.state, LENT);
	assert_int_equal(ready->job.state, GONE);
	assert_int_equal(other->job.state, QUEUED);
	assert_int_equal(rig.finished, 1);
	assert_int_equal(rig.disowned, 0);
}

static void what_a_beat_does_not_name_is_ended_or_disowned(void **state)
{
	struct task *lent = add(1, 1, 0), *ready = add(1, 2, 0), *named = add(1, 3, 0),
		    *unwanted = add(1, 4, 0), *other = add(2, 1, 0);

	(void)state;
	go(lent, LENT);
	go(ready, READY);
	assert_true(jobs_named(rig.jobs, named->job.req, 5, true));
	assert_true(jobs_named(rig.jobs, unwanted->job.req, 5, false));
	assert_false(jobs_named(rig.jobs, req(1, 9, 0), 5, true));
	jobs_unnamed(rig.jobs, 1, 5);
	jobs_check(rig.jobs);
	assert_int_equal(rig.disowned, 1);
	assert_int_equal(lent->job.state, LENT);
	assert_int_equal(ready->job.state, GONE);
	assert_int_equal(named->job.state, QUEUED);
	assert_int_equal(unwanted->job.state, GONE);
	assert_int_equal(other->job.state, QUEUED);
}

static void a_cut_ends_every_job(void **state)
{
	struct task *lent = add(1, 1, 0), *busy = add(2, 2, 0);

	(void)state;
	add(1, 3, 0);
	go(lent, LENT);
	go(busy, BUSY);
	jobs_cut(rig.jobs, "for a test");
	jobs_check(rig.jobs);
	assert_int_equal(rig.reason, FINISH_DRAINED);
	assert_int_equal(rig.finished, 2); /* of the lent one more was said */
	assert_int_equal(rig.jobs->order.n, 1);
	assert_int_equal(busy->job.state, LEAVING);
}

static void a_full_queue_takes_only_what_can_begin_at_once(void **state)
{
	(void)state;
	rig.conf.max_queued = 0;
	assert_false(jobs_refuse_full(rig.jobs, req(1, 1, 0), 8));
	assert_true(jobs_refuse_full(rig.jobs, req(1, 1, 0), 9));
	rig.conf.max_queued = 1;
	assert_false(jobs_refuse_full(rig.jobs, req(1, 1, 0), 9));
	add(1, 2, 0);
	assert_true(jobs_refuse_full(rig.jobs, req(1, 1, 0), 8));
	assert_int_equal(rig.rejected, 2);
	assert_int_equal(jobs_load(rig.jobs).queued, 1);
	assert_int_equal(jobs_load(rig.jobs).queued_tokens, 3);
}

/* ---- random lives ---- */

#define STEPS 60000u

static uint32_t below(uint64_t step, uint32_t which, uint32_t n)
{
	return philox4x32(11, step, which).v[0] % n;
}

/* One more thing that its worker may do. */
static void live(struct task *t, uint64_t step)
{
	switch (t->job.state) {
	case QUEUED:
		move(t, ADMITTED);
		break;
	case BUSY:
		t->under_way = below(step, 5, 3) == 0;
		if (!t->under_way)
			move(t, below(step, 6, 4) == 0 ? FAILED : DONE);
		break;
	case READY:
		t->n_lent = 1 + below(step, 5, 3);
		move(t, LENT_OUT);
		break;
	case LENT:
		if (--t->n_lent == 0)
			move(t, RETURNED);
		break;
	case LEAVING:
		t->under_way = false;
		move(t, QUIET);
		break;
	default:
		fail_msg("state %u", t->job.state);
	}
}

/* Some job, the older the rarer; NULL: there is none. */
static struct task *any(uint64_t step)
{
	uint32_t i = 0,
		 at = rig.jobs->order.n > 0 ? below(step, 1, rig.jobs->order.n) : 0;

	list_each (t, &rig.jobs->order, struct task, job.node)
		if (i++ == at)
			return t;
	return NULL;
}

static void beat(uint64_t router, uint64_t step)
{
	list_each (t, &rig.jobs->order, struct task, job.node) {
		uint32_t dice = below(step, 100 + (uint32_t)t->job.tag, 8);

		if (t->job.req.router == router && dice > 0)
			assert_true(jobs_named(rig.jobs, t->job.req, step, dice > 1));
	}
	jobs_unnamed(rig.jobs, router, step);
}

static void whatever_happens_the_table_is_true_and_each_job_is_freed_once(void **state)
{
	uint64_t seq = 0;
	uint32_t reached[STATES] = {0};

	(void)state;
	for (uint64_t step = 1; step <= STEPS && seq < SEQS; step++) {
		struct task *t = any(step);
		uint32_t dice = below(step, 2, 400);

		if (t == NULL || dice < 60) {
			seq += add(1 + seq % 3, seq, 0) != NULL;
		} else if (dice < 80) {
			jobs_cancel(rig.jobs, t->job.req);
		} else if (dice < 82) {
			jobs_router_lost(rig.jobs, 1 + step % 3);
		} else if (dice < 85) {
			beat(1 + step % 3, step);
		} else if (dice == 85) {
			jobs_cut(rig.jobs, "for a test");
		} else {
			live(t, step);
		}
		jobs_check(rig.jobs);
		for (unsigned s = 0; s < STATES; s++)
			reached[s] += rig.jobs->count[s];
	}
	while (rig.jobs->order.n > 0)
		live(list_first(&rig.jobs->order, struct task, job.node), 1);
	jobs_check(rig.jobs);
	assert_int_equal(rig.held, 0);
	assert_int_equal(mem_taken(), 0);
	assert_true(seq > 1000 && rig.disowned > 0);
	for (uint64_t i = 0; i < seq; i++)
		assert_int_equal(rig.freed_of[i], 1);
	for (unsigned s = 0; s < STATES; s++)
		assert_true(reached[s] > 1000);
}

#define RIGGED(test) cmocka_unit_test_setup_teardown(test, open_rig, close_rig)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIGGED(places_are_bounded_and_come_back),
		RIGGED(every_part_of_a_request_counts),
		RIGGED(long_use_leaks_nothing),
		RIGGED(a_tag_is_of_one_use_of_a_place),
		RIGGED(an_end_is_said_once_and_freed_comes_last),
		RIGGED(an_action_moves_its_own_job_on),
		RIGGED(what_was_rejected_is_not_said_to_be_freed),
		RIGGED(a_lost_router_ends_its_own_jobs_but_not_what_others_read),
		RIGGED(what_a_beat_does_not_name_is_ended_or_disowned),
		RIGGED(a_cut_ends_every_job),
		RIGGED(a_full_queue_takes_only_what_can_begin_at_once),
		RIGGED(whatever_happens_the_table_is_true_and_each_job_is_freed_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
