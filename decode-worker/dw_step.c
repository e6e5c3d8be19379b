/* Steps of the engine: tokens go to their routers, ends are found, pages are added. */
#include "common/base/log.h"
#include "common/worker/answer.h"
#include "decode-worker/decode.h"

#include <assert.h>

/* The row that a token belongs to; NULL: it ended, and the engine had not heard yet. */
static struct dw_job *running(struct dw *d, uint64_t tag)
{
	struct job *job = jobs_of_tag(d->jobs, tag);
	bool runs =
		job != NULL && (job->state == DW_RUNNING || job->state == DW_OFFERING);

	return runs ? dw_of(job) : NULL;
}

/* Rows of a router that is gone are not running, so ROUTERS_MAX boxes are enough. */
static struct dw_out *outbox(struct dw *d, uint64_t router)
{
	uint32_t i = 0;

	while (d->out[i].n > 0 && d->out[i].router != router) {
		i++;
		assert(i < ROUTERS_MAX);
	}
	d->out[i].router = router;
	return &d->out[i];
}

static void end_row(struct dw *d, struct dw_job *j, enum wire_finish reason)
{
	d->ends[d->n_ends++] = (struct dw_end){.job = j, .reason = reason};
}

static void take_token(struct dw *d, struct dw_job *j, const struct eng_token *t)
{
	struct dw_out *o;
	enum wire_finish why;

	assert(t->position == j->n_tokens + 1);
	if (t->flags & SAMPLE_NAN) {
		end_row(d, j, FINISH_NAN);
		return;
	}
	j->n_tokens++;
	j->job.n_generated++;
	j->last_token = t->token;
	o = outbox(d, j->job.req.router);
	o->records[o->n++] = (struct wire_token){.seq = j->job.req.seq,
		.attempt = j->job.req.attempt,
		.token = t->token,
		.choice = (uint16_t)j->draw.how.choice,
		.n_tops = (uint16_t)t->n_top,
		.logprob = t->logprob};
	for (uint32_t k = 0; k < t->n_top; k++)
		o->tops[o->n_tops++] =
			(struct wire_logprob){t->top[k].token, t->top[k].logprob};
	if (dw_text_feed(&j->text, t->token, &why))
		end_row(d, j, why);
	else if (j->n_tokens >= j->n_end)
		end_row(d, j, FINISH_LENGTH);
}

static void send_tokens(struct dw *d)
{
	for (uint32_t i = 0; i < ROUTERS_MAX && d->out[i].n > 0; i++) {
		struct dw_out *o = &d->out[i];
		struct msg_tokens m = {.router = o->router,
			.records = {(const uint8_t *)o->records,
				o->n * sizeof(*o->records)},
			.has_tops = o->n_tops > 0,
			.tops = {(const uint8_t *)o->tops, o->n_tops * sizeof(*o->tops)}};

		routers_send(d->w->routers, o->router, MSG_tokens, &m);
		o->n = o->n_tops = 0;
	}
}

/* After the tokens, so that a router has them all when it hears of the end. */
static void send_ends(struct dw *d)
{
	for (uint32_t i = 0; i < d->n_ends; i++) {
		bool nan = d->ends[i].reason == FINISH_NAN;

		worker_note_nan(d->w, nan);
		jobs_end(d->jobs, &d->ends[i].job->job, d->ends[i].reason,
			nan ? "NaN or infinite logits" : NULL);
	}
	d->n_ends = 0;
}

void dw_step(struct dw *d, const struct eng_result *r)
{
	struct stats *s = &d->w->stats;

	s->v[STAT_decode_steps]++;
	s->v[STAT_decode_tokens] += r->n;
	s->v[STAT_decode_rows_max] = MAX(s->v[STAT_decode_rows_max], r->n);
	for (uint32_t i = 0; i < r->n; i++) {
		struct dw_job *j = running(d, r->tokens[i].tag);

		if (j != NULL)
			take_token(d, j, &r->tokens[i]);
	}
	send_tokens(d);
	send_ends(d);
}

/* ---- growth ---- */

/* The page of the next token and one ahead of it, since the engine is some steps ahead
 * of what is known here; never more than the answer can need. */
static uint32_t pages_wanted(const struct dw_job *j)
{
	return MIN(CEIL_DIV(j->n_tokens + 1 + PAGE_TOKENS, PAGE_TOKENS), j->pages_max);
}

/* Pages that the engine has not been told of yet (its queue was full, or they came with
 * the admission). */
static void tell(struct dw *d, struct dw_job *j)
{
	if (j->n_told < j->n_pages &&
		engine_grow(d->w->engine, j->job.tag, j->pages + j->n_told,
			j->n_pages - j->n_told) == ST_OK)
		j->n_told = j->n_pages;
}

/* false: it stands still for want of a page. */
static bool grow(struct dw *d, struct dw_job *j)
{
	while (j->n_pages < pages_wanted(j)) {
		if (pool_take(d->w->pages, &j->pages[j->n_pages], 1) != ST_OK) {
			d->starved = true;
			break;
		}
		pool_fill_done(d->w->pages, &j->pages[j->n_pages], 1);
		j->n_pages++;
	}
	tell(d, j);
	return j->n_pages * PAGE_TOKENS > j->n_tokens;
}

/* The youngest of those that have generated least. */
static struct dw_job *least_progress(struct dw *d)
{
	struct dw_job *least = NULL;

	list_each (j, &d->jobs->order, struct dw_job, job.node) {
		if (j->job.state == DW_RUNNING &&
			(least == NULL || j->job.n_generated <= least->job.n_generated))
			least = j;
	}
	return least;
}

void dw_grow(struct dw *d)
{
	bool stuck = false;

	d->starved = false;
	list_each (j, &d->jobs->order, struct dw_job, job.node) {
		if (j->job.state == DW_RUNNING && !grow(d, j))
			stuck = true;
	}
	/* Pages of a row that is leaving are on their way. */
	if (stuck && d->jobs->count[DW_LEAVING] + d->jobs->count[DW_OFFERING] == 0)
		dw_evict(d, least_progress(d));
}
