/* The prefill role: messages of routers become jobs; each turn admits, forms passes and
 * grants leases. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/worker/answer.h"
#include "common/worker/guides.h"
#include "prefill-worker/prefill.h"

#include <inttypes.h>
#include <string.h>

/* ---- messages ---- */

/* Logprobs of longer prompts are refused. */
#define SCORE_TOKENS_MAX 32768u

static status check_prefill(struct pw *p, const struct msg_prefill *m, struct err *err)
{
	size_t n = wire_count(m->ids, uint32_t);

	if (n == 0 || m->n_prompt == 0 || m->n_prompt > n)
		return err_set(err, ST_INVALID,
			"%zu ids with a prompt of %" PRIu64 " tokens", n, m->n_prompt);
	if (m->n == 0 || m->n > ENG_CHOICES_MAX)
		return err_set(err, ST_INVALID, "n=%" PRIu64 " is not in 1..%u", m->n,
			ENG_CHOICES_MAX);
	if (m->has_prompt_logprobs && m->n_prompt > SCORE_TOKENS_MAX)
		return err_set(err, ST_INVALID,
			"logprobs of a prompt of %" PRIu64 " tokens; at most %u",
			m->n_prompt, SCORE_TOKENS_MAX);
	for (size_t i = 0; i < n; i++)
		if (wire_u32(m->ids, i) >= p->w->n_valid)
			return err_set(err, ST_INVALID,
				"id %u at position %zu; the vocabulary has %u",
				wire_u32(m->ids, i), i, p->w->n_valid);
	return ST_OK;
}

/* Everything of a job but its place; what it owns is released by pw_jobs. */
static status fill_job(
	struct pw *p, struct pw_job *j, const struct msg_prefill *m, struct err *err)
{
	uint32_t n = (uint32_t)wire_count(m->ids, uint32_t);
	uint32_t n_tops = (uint32_t)(m->n * m->draw.top_logprobs);
	struct bytes generated;
	status st;

	*j = (struct pw_job){.job.req = wire_request_of(m),
		.n_ids = n,
		.n_pages = CEIL_DIV(n, PAGE_TOKENS),
		.n_prompt = (uint32_t)m->n_prompt,
		.n_choices = (uint32_t)m->n,
		.score = m->has_prompt_logprobs,
		.score_top = (uint32_t)m->prompt_logprobs,
		.arrived_ns = clock_ns()};
	st = sampling_make(&j->draw, &m->draw, m->n_prompt, p->w->n_valid, err);
	if (st != ST_OK)
		return st;
	j->draw.how.choice = (uint32_t)m->choice;
	j->ids = mem_take(n, sizeof(*j->ids));
	j->pages = mem_take(j->n_pages, sizeof(*j->pages));
	j->firsts = mem_take(j->n_choices, sizeof(*j->firsts));
	if (n_tops > 0)
		j->tops = mem_take(n_tops, sizeof(*j->tops));
	if (j->ids == NULL || j->pages == NULL || j->firsts == NULL ||
		(n_tops > 0 && j->tops == NULL))
		return err_set(err, ST_LIMIT, "no request memory");
	memcpy(j->ids, m->ids.at, n * sizeof(*j->ids));
	generated = (struct bytes){(const uint8_t *)(j->ids + j->n_prompt),
		(n - j->n_prompt) * sizeof(*j->ids)};
	return guides_make(&j->guide, p->w, &m->draw, generated, err);
}

static void add_job(struct pw *p, const struct msg_prefill *m)
{
	struct pw_job made;
	struct err err;
	status st = fill_job(p, &made, m, &err);

	if (jobs_add(p->jobs, &made.job, st, &err) != NULL)
		pw_admit(p); /* at once, so that the next message finds the true queue */
}

static status on_prefill(void *self, const void *msg, struct err *err)
{
	struct pw *p = self;
	const struct msg_prefill *m = msg;
	struct wire_request r = wire_request_of(m);
	size_t n = wire_count(m->ids, uint32_t);
	struct err why;

	(void)err;
	if (m->has_trace)
		answer_trace(r, m->trace);
	if (jobs_refuse(p->jobs, r))
		return ST_OK;
	if (check_prefill(p, m, &why) != ST_OK)
		answer_rejected(p->w, r, REJECT_INVALID, false, "%s", why.text);
	else if (m->draw.grammar_kind != 0 && !guides_can(p->w, &why))
		answer_rejected(p->w, r, REJECT_UNSUPPORTED, false, "%s", why.text);
	else if (n > p->w->len_max)
		answer_rejected(p->w, r, REJECT_TOO_LONG, false,
			"%zu tokens; a sequence may have %u", n, p->w->len_max);
	else if (!jobs_refuse_full(p->jobs, r, (uint32_t)CEIL_DIV(n, PAGE_TOKENS)))
		add_job(p, m);
	return ST_OK;
}

static status on_release(void *self, const void *msg, struct err *err)
{
	struct pw *p = self;
	const struct msg_release *m = msg;
	struct wire_request r = wire_request_of(m);
	struct job *job = jobs_find(p->jobs, r);
	const struct pw_job *j;

	if (job == NULL) {
		answer_freed(p->w, r);
		return ST_OK;
	}
	j = pw_of(job);
	if (job->state != PW_EXPORTED || m->lease - j->lease >= j->n_choices)
		return err_set(err, ST_INVALID,
			REQ_FMT " has lease %" PRIu64 ", not %" PRIu64, REQ_ARG(r),
			j->lease, m->lease);
	lease_release(p->w->leases, m->lease);
	return ST_OK;
}

static const struct role_handler handlers[] = {
	{MSG_prefill, on_prefill},
	{MSG_release, on_release},
};

/* ---- the role's functions ---- */

static status start(struct worker *w, void **self, struct err *err)
{
	uint32_t seqs = (uint32_t)w->conf->max_num_seqs;
	struct pw *p = mem_alloc(1, sizeof(*p));

	(void)err;
	p->w = w;
	p->jobs = w->jobs;
	p->left = mem_alloc(p->jobs->capacity, sizeof(*p->left));
	p->waiting = mem_alloc(p->jobs->capacity, sizeof(*p->waiting));
	p->eng_chunks = mem_alloc(seqs, sizeof(*p->eng_chunks));
	p->takes = mem_alloc(seqs, sizeof(*p->takes));
	for (uint32_t i = 0; i < PASSES_MAX; i++)
		p->passes[i].chunks = mem_alloc(seqs, sizeof(struct pw_chunk));
	leases_on_freed(w->leases, pw_on_lease_freed, p);
	*self = p;
	return ST_OK;
}

static void stop(void *self)
{
	struct pw *p = self;

	leases_on_freed(p->w->leases, NULL, NULL);
	for (uint32_t i = 0; i < PASSES_MAX; i++)
		mem_free(p->passes[i].chunks);
	mem_free(p->left);
	mem_free(p->waiting);
	mem_free(p->eng_chunks);
	mem_free(p->takes);
	mem_free(p);
}

static void on_result(void *self, const struct eng_result *r)
{
	if (r->kind == ENG_PREFILLED)
		pw_pass_done(self, r);
}

static void turn(void *self)
{
	struct pw *p = self;

	pw_admit(p);
	pw_pass_form(p);
	pw_grant(p);
}

const struct role role_prefill = {
	.name = "prefill",
	.party = WIRE_PREFILL,
	.handlers = handlers,
	.n_handlers = COUNT(handlers),
	.jobs = &pw_jobs,
	.start = start,
	.on_result = on_result,
	.turn = turn,
	.stop = stop,
};
