/* Passes: chunks of several prompts go to the engine, results come back in order. */
#include "common/base/clock.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/grammar/guide.h"
#include "common/worker/answer.h"
#include "prefill-worker/prefill.h"

#include <assert.h>

/* A pass is to take this part of device_timeout_s at most: a device that only runs as
 * slowly as it did is never taken for one that hangs. */
#define PASS_PART 10u

/* FILLING jobs with tokens left, oldest first. *pos: the longest state among them. */
static uint32_t collect(struct pw *p, uint32_t *pos)
{
	uint32_t n = 0;

	*pos = 0;
	list_each (j, &p->jobs->order, struct pw_job, job.node) {
		if (j->job.state != PW_FILLING || j->next == j->n_ids)
			continue;
		p->waiting[n] = j;
		p->left[n++] = j->n_ids - j->next;
		*pos = MAX(*pos, j->next);
	}
	return n;
}

/* Rows of the chunk whose next token is one of the prompt. */
static uint32_t scored(const struct pw_job *j, uint32_t n_tokens)
{
	uint32_t last = MIN(j->next + n_tokens, j->n_prompt - 1);

	return j->score && last > j->next ? last - j->next : 0;
}

static struct eng_chunk chunk_of(const struct pw_job *j, uint32_t n_tokens)
{
	uint32_t end = j->next + n_tokens;

	return (struct eng_chunk){
		.tag = j->job.tag,
		.ids = j->ids + j->next,
		.n_tokens = n_tokens,
		.pos = j->next,
		.pages = j->pages,
		.n_pages = CEIL_DIV(end, PAGE_TOKENS),
		.zero_from = CEIL_DIV(j->next, PAGE_TOKENS),
		.slot = j->slot,
		.sample = end == j->n_ids,
		.how = j->draw.how,
		.n_choices = j->n_choices,
		.past = {.edits = j->draw.edits,
			.ids = j->ids,
			.n_ids = j->n_ids,
			.n_prompt = j->n_prompt},
		.guide = j->guide,
		.score = j->ids + j->next + 1,
		.n_score = scored(j, n_tokens),
		.score_top = j->score_top,
	};
}

/* As many of the chunks as the engine has room for rows that are scored or sampled; the
 * oldest prompt's always fits. */
static uint32_t within_bounds(const struct pw *p, uint32_t n)
{
	uint32_t room = engine_out_max(p->w->engine), used = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct eng_chunk *c = &p->eng_chunks[i];

		used += c->n_score + (c->sample ? c->n_choices : 0);
		if (used > room)
			return i;
	}
	return n;
}

/* The engine has taken it: now the jobs know. */
static void record(struct pw *p, uint64_t epoch, uint32_t n)
{
	struct pw_pass *pass = &p->passes[(p->first_pass + p->n_passes) % PASSES_MAX];
	uint64_t now = clock_ns();

	p->n_passes++;
	pass->epoch = epoch;
	pass->n = n;
	pass->context = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct pw_job *j = p->waiting[p->takes[i].item];

		pass->chunks[i] =
			(struct pw_chunk){.job = j, .n_tokens = p->takes[i].n_tokens};
		if (j->next == 0)
			j->started_ns = now;
		pass->context += pw_cost_context(j->next, p->takes[i].n_tokens);
		j->next += p->takes[i].n_tokens;
		j->in_flight++;
	}
}

static uint32_t rows_max(const struct pw *p, uint32_t pos)
{
	const struct worker_conf *conf = p->w->conf;

	return pw_cost_rows(&p->cost, pos, conf->device_timeout_s * NS_PER_S / PASS_PART,
		(uint32_t)conf->max_num_batched_tokens);
}

void pw_pass_form(struct pw *p)
{
	while (p->jobs->count[PW_FILLING] > 0 && p->n_passes < PASSES_MAX &&
		engine_prefill_room(p->w->engine) && !fault_paused(FAULT_prefill)) {
		uint32_t pos, n = collect(p, &pos);
		uint64_t epoch;

		n = pw_sched_pass(p->left, n, rows_max(p, pos),
			(uint32_t)p->w->conf->max_num_seqs, p->takes);
		if (n == 0)
			return;
		for (uint32_t i = 0; i < n; i++)
			p->eng_chunks[i] = chunk_of(
				p->waiting[p->takes[i].item], p->takes[i].n_tokens);
		n = within_bounds(p, n);
		if (engine_prefill(p->w->engine, p->eng_chunks, n, &epoch) != ST_OK)
			return; /* at the next result */
		record(p, epoch, n);
	}
}

static void say_progress(struct pw *p, const struct pw_job *j)
{
	struct msg_progress m = {REQ_MEMBERS(j->job.req), .tokens_final = j->done};

	routers_send(p->w->routers, j->job.req.router, MSG_progress, &m);
}

/* First tokens of the choices, in order; false: one is not finite. */
static bool keep_firsts(struct pw_job *j, const struct eng_result *r)
{
	uint32_t n = 0;
	bool bad = false;

	for (uint32_t i = 0; i < r->n; i++) {
		const struct eng_token *t = &r->tokens[i];

		if (t->tag != j->job.tag || t->scored)
			continue;
		assert(n < j->n_choices && t->position == j->n_ids);
		bad |= (t->flags & SAMPLE_NAN) != 0;
		for (uint32_t k = 0; k < t->n_top; k++)
			j->tops[n * t->n_top + k] =
				(struct wire_logprob){t->top[k].token, t->top[k].logprob};
		j->firsts[n++] = (struct wire_first){.token = t->token,
			.n_tops = t->n_top,
			.logprob = t->logprob,
			.choice = t->choice};
	}
	assert(n == j->n_choices);
	return !bad;
}

static void prompt_done(struct pw *p, struct pw_job *j, const struct eng_result *r)
{
	bool right = keep_firsts(j, r);

	guide_destroy(j->guide);
	j->guide = NULL;
	worker_note_nan(p->w, !right);
	jobs_move(p->jobs, &j->job, right ? PW_SAMPLED : PW_NAN);
}

static void chunk_done(struct pw *p, struct pw_job *j, const struct eng_result *r)
{
	if (j->job.state == PW_LEAVING) {
		if (j->in_flight == 0)
			jobs_move(p->jobs, &j->job, PW_QUIET);
	} else if (j->score && !pw_score(p, j, r)) {
		return;
	} else if (j->done == j->n_ids) {
		prompt_done(p, j, r);
	} else {
		say_progress(p, j);
	}
}

void pw_pass_done(struct pw *p, const struct eng_result *r)
{
	struct pw_pass *pass = &p->passes[p->first_pass];

	assert(p->n_passes > 0 && pass->epoch == r->epoch);
	p->first_pass = (p->first_pass + 1) % PASSES_MAX;
	p->n_passes--;
	pw_cost_note(&p->cost, r->n_rows, pass->context, r->took_ns);
	p->w->stats.v[STAT_prefill_tokens] += r->n_rows;
	p->w->stats.v[STAT_prefill_steps]++;
	for (uint32_t i = 0; i < pass->n; i++) {
		struct pw_job *j = pass->chunks[i].job;

		j->in_flight--;
		j->done += pass->chunks[i].n_tokens;
		chunk_done(p, j, r);
	}
}
