/* Logprobs of prompts: what a pass said of them goes to the router at once. */
#include "common/base/mem.h"
#include "common/worker/answer.h"
#include "prefill-worker/prefill.h"

#include <assert.h>

struct part {
	uint32_t width; /* the token itself and the likeliest */
	uint32_t n, from;
	bool bad;
	struct wire_logprob *entries; /* [n][width] */
};

static bool is_row_of(const struct eng_token *t, const struct pw_job *j)
{
	return t->tag == j->job.tag && t->scored;
}

static void put_row(struct part *part, const struct eng_token *t)
{
	struct wire_logprob *row = part->entries + (size_t)part->n * part->width;

	assert(t->n_top + 1 == part->width);
	if (part->n++ == 0)
		part->from = t->position;
	part->bad |= (t->flags & SAMPLE_NAN) != 0;
	row[0] = (struct wire_logprob){t->token, t->logprob};
	for (uint32_t k = 0; k < t->n_top; k++)
		row[1 + k] = (struct wire_logprob){t->top[k].token, t->top[k].logprob};
}

static void send_part(struct pw *p, const struct pw_job *j, const struct part *part)
{
	struct msg_prompt_logprobs m = {REQ_MEMBERS(j->job.req), .from = part->from,
		.width = part->width,
		.entries = {(const uint8_t *)part->entries,
			(size_t)part->n * part->width * sizeof(*part->entries)}};

	routers_send(p->w->routers, j->job.req.router, MSG_prompt_logprobs, &m);
}

bool pw_score(struct pw *p, struct pw_job *j, const struct eng_result *r)
{
	uint32_t n = 0;
	struct part part = {.width = 1 + j->score_top};

	for (uint32_t i = 0; i < r->n; i++)
		n += is_row_of(&r->tokens[i], j);
	if (n == 0)
		return true;
	part.entries = mem_take((size_t)n * part.width, sizeof(*part.entries));
	if (part.entries == NULL) {
		jobs_end(p->jobs, &j->job, FINISH_ERROR,
			"no request memory for prompt logprobs");
		return false;
	}
	for (uint32_t i = 0; i < r->n; i++)
		if (is_row_of(&r->tokens[i], j))
			put_row(&part, &r->tokens[i]);
	if (!part.bad)
		send_part(p, j, &part);
	mem_give(part.entries);
	worker_note_nan(p->w, part.bad);
	if (part.bad)
		jobs_end(p->jobs, &j->job, FINISH_NAN,
			"the prompt gave NaN or infinite logits");
	return !part.bad;
}
