/* An adopt message becomes a job, or is answered with the reason why not. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/worker/answer.h"
#include "common/worker/guides.h"
#include "decode-worker/decode.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool copy_text(char *out, size_t size, struct bytes text)
{
	if (text.len == 0 || text.len >= size || memchr(text.at, 0, text.len) != NULL)
		return false;
	memcpy(out, text.at, text.len);
	out[text.len] = 0;
	return true;
}

static status check_ids(
	struct dw *d, const char *whose, struct bytes ids, struct err *err)
{
	size_t n = wire_count(ids, uint32_t);

	for (size_t i = 0; i < n; i++)
		if (wire_u32(ids, i) >= d->w->n_valid)
			return err_set(err, ST_INVALID,
				"%s id %u at %zu; the vocabulary has %u", whose,
				wire_u32(ids, i), i, d->w->n_valid);
	return ST_OK;
}

/* The numbers must describe one sequence: the state covers all but the last token. */
static status check_counts(struct dw *d, const struct msg_adopt *m, struct err *err)
{
	size_t n_gen = wire_count(m->generated, uint32_t);
	uint64_t n_pages = wire_count(m->pages, uint32_t);

	if (n_gen == 0)
		return err_set(
			err, ST_INVALID, "no generated token: the first is the input");
	if (m->n_prompt == 0 || m->n_tokens != m->n_prompt + n_gen - 1)
		return err_set(err, ST_INVALID,
			"the state covers %" PRIu64 " tokens; prompt %" PRIu64
			" and %zu generated make %" PRIu64,
			m->n_tokens, m->n_prompt, n_gen, m->n_prompt + n_gen - 1);
	if (n_pages != CEIL_DIV(m->n_tokens, PAGE_TOKENS))
		return err_set(err, ST_INVALID,
			"%" PRIu64 " pages for %" PRIu64 " tokens", n_pages, m->n_tokens);
	if (m->slot == 0)
		return err_set(err, ST_INVALID, "slot 0 holds no state");
	if (m->has_prompt && wire_count(m->prompt, uint32_t) != m->n_prompt)
		return err_set(err, ST_INVALID,
			"%zu ids of a prompt of %" PRIu64 " tokens",
			wire_count(m->prompt, uint32_t), m->n_prompt);
	return check_ids(d, "generated", m->generated, err) == ST_OK
		       ? check_ids(d, "prompt", m->prompt, err)
		       : ST_INVALID;
}

void dw_release(struct job *job)
{
	struct dw_job *j = dw_of(job);

	mem_give(j->src_pages);
	mem_give(j->pages);
	mem_give(j->past);
	j->src_pages = j->pages = j->past = NULL;
	sampling_release(&j->draw);
	guide_destroy(j->guide);
	j->guide = NULL;
	dw_text_release(&j->text);
}

/* The ids that its penalties count. */
static status keep_past(struct dw_job *j, const struct msg_adopt *m, struct err *err)
{
	uint32_t n_prompt = m->has_prompt ? j->n_prompt : 0;

	if (sampling_needs_prompt(&j->draw.how) && !m->has_prompt)
		return err_set(err, ST_INVALID,
			"a repetition penalty without the ids of the prompt");
	if (!sampling_needs_answer(&j->draw.how))
		return ST_OK;
	j->past = mem_take(n_prompt + j->job.n_generated, sizeof(*j->past));
	if (j->past == NULL)
		return err_set(err, ST_LIMIT, "no request memory");
	if (n_prompt > 0)
		memcpy(j->past, m->prompt.at, m->prompt.len);
	memcpy(j->past + n_prompt, m->generated.at, m->generated.len);
	j->n_past = n_prompt + j->job.n_generated;
	j->n_past_prompt = n_prompt;
	return ST_OK;
}

static status fill_job(
	struct dw *d, struct dw_job *j, const struct msg_adopt *m, struct err *err)
{
	uint32_t n_gen = (uint32_t)wire_count(m->generated, uint32_t);
	uint64_t n_answer = MIN(m->max_tokens, (uint64_t)d->w->len_max - m->n_prompt);
	status st;

	*j = (struct dw_job){.d = d,
		.job = {.req = wire_request_of(m), .n_generated = n_gen},
		.source_incarnation = m->source_incarnation,
		.lease = m->lease,
		.group = m->shared,
		.src_slot = (uint32_t)m->slot,
		.n_prompt = (uint32_t)m->n_prompt,
		.n_tokens = (uint32_t)m->n_tokens,
		.last_token = wire_u32(m->generated, n_gen - 1),
		.n_end = (uint32_t)(m->n_prompt + MAX(n_answer, n_gen) - 1),
		.n_state_pages = (uint32_t)wire_count(m->pages, uint32_t),
		.arrived_ns = clock_ns()};
	if (!copy_text(j->source_id, sizeof(j->source_id), m->source_id) ||
		!copy_text(j->link_path, sizeof(j->link_path), m->link_path))
		return err_set(
			err, ST_INVALID, "source_id or link_path is no usable text");
	j->pages_max = CEIL_DIV(MAX(j->n_end, j->n_tokens + 1), PAGE_TOKENS);
	j->src_pages = mem_take(j->n_state_pages, sizeof(*j->src_pages));
	j->pages = mem_take(j->pages_max, sizeof(*j->pages));
	if (j->src_pages == NULL || j->pages == NULL)
		return err_set(err, ST_LIMIT, "no request memory");
	memcpy(j->src_pages, m->pages.at, m->pages.len);
	st = sampling_make(&j->draw, &m->draw, m->n_prompt, d->w->n_valid, err);
	if (st == ST_OK)
		st = keep_past(j, m, err);
	if (st == ST_OK)
		st = guides_make(&j->guide, d->w, &m->draw, m->generated, err);
	if (st != ST_OK)
		return st;
	j->draw.how.choice = (uint32_t)m->choice;
	return dw_text_init(&j->text, d->w->tokenizer, m, err);
}

/* The answer may have ended already, by the rules that hold for every later token. */
static bool ended_already(
	struct dw_job *j, const struct msg_adopt *m, enum wire_finish *why)
{
	for (uint32_t i = 0; i < j->job.n_generated; i++) {
		bool end = dw_text_feed(&j->text, wire_u32(m->generated, i), why);

		if (end && (*why == FINISH_STOP_STRING || i + 1 == j->job.n_generated))
			return true;
	}
	*why = FINISH_LENGTH;
	return j->n_tokens >= j->n_end;
}

static void add_job(struct dw *d, const struct msg_adopt *m)
{
	enum wire_finish why;
	struct dw_job made;
	struct err err;
	status st = fill_job(d, &made, m, &err);
	struct job *job = jobs_add(d->jobs, &made.job, st, &err);

	if (job == NULL)
		return;
	if (ended_already(dw_of(job), m, &why))
		jobs_end(d->jobs, job, why, NULL);
	else
		dw_admit(d); /* at once, so that the next message finds the true queue */
}

status dw_on_adopt(void *self, const void *msg, struct err *err)
{
	struct dw *d = self;
	const struct msg_adopt *m = msg;
	struct wire_request r = wire_request_of(m);
	struct err why;

	(void)err;
	if (m->has_trace)
		answer_trace(r, m->trace);
	if (jobs_refuse(d->jobs, r))
		return ST_OK;
	if (!m->final)
		answer_rejected(
			d->w, r, REJECT_SOURCE, true, "early adopts are not served");
	else if (check_counts(d, m, &why) != ST_OK)
		answer_rejected(d->w, r, REJECT_INVALID, false, "%s", why.text);
	else if (m->draw.grammar_kind != 0 && !guides_can(d->w, &why))
		answer_rejected(d->w, r, REJECT_UNSUPPORTED, false, "%s", why.text);
	else if (m->n_tokens >= d->w->len_max)
		answer_rejected(d->w, r, REJECT_TOO_LONG, false,
			"%" PRIu64 " tokens and one to come; a sequence may have %u",
			m->n_tokens, d->w->len_max);
	else if (!jobs_refuse_full(d->jobs, r, dw_pages_needed((uint32_t)m->n_tokens)))
		add_job(d, m);
	return ST_OK;
}
