/* Random lives of prompts over the real table of moves, pools and leases: after every
 * step the job table, pages and slots are true, and at the end all of it is back. The
 * engine's passes and importers are played here. */
// wrap: answer_finished answer_freed routers_send exporter_revoke
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/worker/answer.h"
#include "prefill-worker/prefill.h"

#define PAGES  40u
#define SLOTS  6u
#define QUEUED 6u
#define LINK   9u
#define STEPS  40000u

static struct rig {
	struct worker w;
	struct worker_conf conf;
	struct pw p;
	uint32_t finished, freed, prefilled, revoked, nan, expired;
} rig;

void __wrap_answer_finished(struct worker *w, struct wire_request r,
	enum wire_finish reason, uint32_t n_generated, const char *text);
void __wrap_answer_freed(struct worker *w, struct wire_request r);
bool __wrap_routers_send(
	struct routers *s, uint64_t incarnation, uint8_t type, const void *msg);
void __wrap_exporter_revoke(struct exporter *x, uint64_t generation);

void __wrap_answer_finished(struct worker *w, struct wire_request r,
	enum wire_finish reason, uint32_t n_generated, const char *text)
{
	(void)w;
	(void)r;
	(void)text;
	assert_int_equal(n_generated, 0);
	rig.finished++;
	rig.nan += reason == FINISH_NAN;
}

void __wrap_answer_freed(struct worker *w, struct wire_request r)
{
	assert_null(jobs_find(w->jobs, r));
	rig.freed++;
}

bool __wrap_routers_send(
	struct routers *s, uint64_t incarnation, uint8_t type, const void *msg)
{
	const struct msg_prefilled *m = msg;

	(void)s;
	(void)incarnation;
	assert_int_equal(type, MSG_prefilled);
	assert_int_equal(
		wire_count(m->pages, uint32_t), CEIL_DIV(m->n_tokens, PAGE_TOKENS));
	rig.prefilled++;
	return true;
}

void __wrap_exporter_revoke(struct exporter *x, uint64_t generation)
{
	const struct lease *l = lease_find(rig.w.leases, generation);

	(void)x;
	rig.revoked += l != NULL && l->claimer == LINK;
}

static uint32_t below(uint64_t step, uint32_t which, uint32_t n)
{
	return philox4x32(5, step, which).v[0] % n;
}

static void check_all(void)
{
	jobs_check(rig.w.jobs);
	pool_check(rig.w.pages);
	pool_check(rig.w.slots);
}

static void open_rig(void)
{
	rig = (struct rig){.conf = {.lease_ms = 1000, .max_queued = QUEUED}};
	rig.w = (struct worker){.conf = &rig.conf,
		.self = &rig.p,
		.pages = pool_create("page", PAGES),
		.slots = pool_create("slot", SLOTS)};
	rig.w.leases = leases_create(rig.w.pages, rig.w.slots, 2 * SLOTS, PAGES);
	rig.w.jobs = jobs_create(&rig.w, &pw_jobs, SLOTS + QUEUED);
	rig.p = (struct pw){.w = &rig.w, .jobs = rig.w.jobs};
	leases_on_freed(rig.w.leases, pw_on_lease_freed, &rig.p);
	log_level_set(LOG_WARN);
}

static void close_rig(void)
{
	jobs_destroy(rig.w.jobs);
	leases_destroy(rig.w.leases);
	pool_destroy(rig.w.pages);
	pool_destroy(rig.w.slots);
}

static bool add(uint64_t seq, uint64_t step)
{
	uint32_t n = 1 + below(step, 10, 12 * PAGE_TOKENS);
	struct pw_job made = {.job.req = {.router = 1 + seq % 2, .seq = seq},
		.n_ids = n,
		.n_pages = CEIL_DIV(n, PAGE_TOKENS),
		.n_prompt = n,
		.n_choices = 1 + below(step, 11, 3)};

	if (jobs_refuse_full(rig.w.jobs, made.job.req, made.n_pages))
		return false;
	made.ids = mem_take(n, sizeof(*made.ids));
	made.pages = mem_take(made.n_pages, sizeof(*made.pages));
	made.firsts = mem_take(made.n_choices, sizeof(*made.firsts));
	return jobs_add(rig.w.jobs, &made.job, ST_OK, NULL) != NULL;
}

/* A chunk to the engine, which holds two at most. */
static void send_chunk(struct pw_job *j, uint64_t step)
{
	uint32_t left = j->n_ids - j->next;

	if (j->job.state != PW_FILLING || left == 0 || j->in_flight == 2)
		return;
	j->next += 1 + below(step, 12, left);
	j->in_flight++;
}

/* The older chunk comes back. */
static void chunk_back(struct pw_job *j, uint64_t step)
{
	uint32_t n = j->next - j->done;

	if (j->in_flight == 0)
		return;
	j->done += j->in_flight-- == 2 ? 1 + below(step, 13, n - 1) : n;
	if (j->job.state == PW_LEAVING && j->in_flight == 0)
		jobs_move(rig.w.jobs, &j->job, PW_QUIET);
	else if (j->job.state == PW_FILLING && j->done == j->n_ids)
		jobs_move(rig.w.jobs, &j->job,
			below(step, 14, 10) == 0 ? PW_NAN : PW_SAMPLED);
}

/* Importers claim, finish, give back and die; routers release. */
static void play_lease(struct pw_job *j, uint64_t step)
{
	uint64_t lease = j->lease + below(step, 15, j->n_choices);
	struct lease *l;
	struct err err;
	status st = ST_OK;

	if (j->job.state != PW_EXPORTED)
		return;
	l = lease_find(rig.w.leases, lease);
	if (l == NULL)
		return;
	if (l->claimer == 0)
		st = lease_claim(rig.w.leases, lease, LINK, j->n_ids, &l, &err);
	else if (below(step, 16, 3) == 0)
		st = lease_unclaim(rig.w.leases, lease, LINK, NS_PER_S, &err);
	else
		st = lease_done(rig.w.leases, lease, LINK, &err);
	assert_int_equal(st, ST_OK);
	if (below(step, 17, 4) == 0)
		lease_release(rig.w.leases, lease);
}

static void end_some(struct pw_job *j, uint64_t step)
{
	uint64_t router = 1 + step % 2;

	switch (below(step, 3, 12)) {
	case 0:
		jobs_router_lost(rig.w.jobs, router);
		break;
	case 1:
		list_each (other, &rig.w.jobs->order, struct pw_job, job.node)
			if (other->job.req.router == router &&
				below(step, (uint32_t)(100 + other->job.tag), 4) > 0)
				assert_true(jobs_named(
					rig.w.jobs, other->job.req, step, true));
		jobs_unnamed(rig.w.jobs, router, step);
		break;
	case 2:
		lease_link_lost(rig.w.leases, LINK, NS_PER_S);
		break;
	case 3:
		rig.expired += lease_expire(rig.w.leases, UINT64_MAX);
		break;
	case 4:
		if (below(step, 4, 4) == 0)
			jobs_cut(rig.w.jobs, "for a test");
		break;
	default:
		jobs_cancel(rig.w.jobs, j->job.req);
	}
}

static void step_of(struct pw_job *j, uint64_t step)
{
	switch (below(step, 2, 16)) {
	case 0:
		end_some(j, step);
		break;
	case 1:
	case 2:
	case 3:
		play_lease(j, step);
		break;
	case 4:
	case 5:
	case 6:
	case 7:
	case 8:
	case 9:
		send_chunk(j, step);
		break;
	default:
		chunk_back(j, step);
	}
}

static struct pw_job *any(uint64_t step)
{
	uint32_t n = rig.w.jobs->order.n, i = 0, at = n > 0 ? below(step, 1, n) : 0;

	list_each (j, &rig.w.jobs->order, struct pw_job, job.node)
		if (i++ == at)
			return j;
	return NULL;
}

static void end_all(void)
{
	jobs_cut(rig.w.jobs, "for a test");
	lease_link_lost(rig.w.leases, LINK, NS_PER_S);
	list_each (j, &rig.w.jobs->order, struct pw_job, job.node)
		while (j->job.state == PW_LEAVING)
			chunk_back(j, 1);
}

static void whatever_happens_to_prompts_all_pages_and_slots_come_back(void **state)
{
	uint64_t seq = 0;
	uint32_t reached[PW__STATES] = {0};

	(void)state;
	open_rig();
	for (uint64_t step = 1; step <= STEPS; step++) {
		struct pw_job *j = any(step);

		if (j == NULL || rig.w.jobs->count[PW_QUEUED] == 0)
			seq += add(seq, step);
		else
			step_of(j, step);
		check_all();
		pw_admit(&rig.p);
		pw_grant(&rig.p);
		check_all();
		for (unsigned s = 0; s < PW__STATES; s++)
			reached[s] += rig.w.jobs->count[s];
	}
	end_all();
	check_all();
	assert_int_equal(rig.w.jobs->order.n, 0);
	assert_int_equal(pool_count(rig.w.pages, POOL_FREE), pool_size(rig.w.pages));
	assert_int_equal(pool_count(rig.w.slots, POOL_FREE), pool_size(rig.w.slots));
	assert_int_equal(lease_count(rig.w.leases), 0);
	assert_int_equal(mem_taken(), 0);
	/* Each ended once, and said so before unless it had its leases. */
	assert_int_equal(rig.freed, seq);
	assert_int_equal(rig.finished + rig.prefilled, seq);
	assert_true(rig.prefilled > 100 && rig.revoked > 100 && rig.nan > 10);
	assert_true(rig.expired > 10);
	for (unsigned s = 0; s < PW__STATES; s++)
		assert_true(s == PW_COMPUTED || reached[s] > 100);
	close_rig();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			whatever_happens_to_prompts_all_pages_and_slots_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
