/* What workers hold for a generation, and the news that they hold it no more. */
#include "router/request_impl.h"

#include <assert.h>
#include <stdio.h>

struct fleet_hold request_prefill_hold(const struct request *r)
{
	return (struct fleet_hold){
		.slots = 1,
		.queue = 1,
		.pages = CEIL_DIV(r->n_ids, TOKENS_PER_PAGE),
		.tokens = r->n_ids,
		.round = r->set->rounds,
	};
}

struct fleet_hold request_decode_hold(const struct request *r)
{
	uint64_t tokens = (uint64_t)r->n_prompt + MIN(r->max_tokens, REQUEST_AHEAD);

	return (struct fleet_hold){
		.slots = 1,
		.pages = CEIL_DIV(MAX(tokens, r->n_ids + 1u), TOKENS_PER_PAGE),
		.round = r->set->rounds,
	};
}

void request_claim(
	struct request *r, struct worker_view *w, const struct fleet_hold *hold)
{
	assert(r->n_claims < REQUEST_CLAIMS_MAX);
	fleet_hold(w, hold);
	r->claim[r->n_claims++] =
		(struct request_claim){.w = w, .attempt = r->attempt, .hold = *hold};
}

void request_claim_told(struct request *r, struct worker_view *w)
{
	for (uint32_t i = 0; i < r->n_claims; i++)
		if (r->claim[i].w == w && r->claim[i].attempt == r->attempt) {
			r->claim[i].told = true;
			r->claim[i].told_beat = r->set->beat;
		}
}

bool request_claims(
	const struct request *r, const struct worker_view *w, uint32_t attempt)
{
	for (uint32_t i = 0; i < r->n_claims; i++)
		if (r->claim[i].w == w && r->claim[i].attempt == attempt)
			return true;
	return false;
}

static bool uses_lease(const struct request *q, const struct request *leader,
	const struct request_claim *claim)
{
	return q != NULL && q->lease_seq == leader->seq &&
	       q->lease_attempt == claim->attempt &&
	       ((q->leased && q->p == claim->w) || q->giver == claim->w);
}

bool request_wants(const struct request *r, const struct request_claim *claim)
{
	if (claim->attempt == r->attempt &&
		(r->d == claim->w || (r->p == claim->w && !r->leased)))
		return true;
	/* The leases of all choices are one claim of the one that led. */
	for (uint32_t k = 0; k < MAX(r->n_choices, 1u); k++)
		if (uses_lease(requests_find(r->set, r->seq + k), r, claim))
			return true;
	return false;
}

static void drop_claim(struct request *r, uint32_t i)
{
	fleet_unhold(r->claim[i].w, &r->claim[i].hold);
	r->claim[i] = r->claim[--r->n_claims];
}

void request_return(struct request *r, struct worker_view *w, uint32_t attempt)
{
	for (uint32_t i = r->n_claims; i-- > 0;)
		if (r->claim[i].w == w && r->claim[i].attempt == attempt)
			drop_claim(r, i);
}

void request_lighten_prefill(struct request *r)
{
	for (uint32_t i = 0; i < r->n_claims; i++) {
		struct fleet_hold *h = &r->claim[i].hold;
		struct fleet_hold gone = {.queue = h->queue, .tokens = h->tokens};

		if (r->claim[i].w != r->p || r->claim[i].attempt != r->attempt)
			continue;
		fleet_unhold(r->p, &gone);
		h->queue = 0;
		h->tokens = 0;
	}
}

void request_unreserve(struct request *r)
{
	if (r->d != NULL && !r->adopt_sent)
		request_return(r, r->d, r->attempt);
	r->d = NULL;
	r->adopt_sent = false;
}

void request_let_go(struct request *r)
{
	const struct request_ops *ops = r->set->ops;
	void *self = r->set->self;

	if (r->d != NULL && r->adopt_sent)
		ops->send_cancel(self, r, r->d);
	if (r->p != NULL && r->leased)
		ops->send_release(self, r, r->p);
	else if (r->p != NULL)
		ops->send_cancel(self, r, r->p);
	if (r->giver != NULL)
		ops->send_release(self, r, r->giver);
	request_unreserve(r);
	r->giver = NULL;
	r->p = NULL;
	r->leased = false;
}

/* ---- news of workers that hold nothing any more ---- */

static void without(struct request *r, struct worker_view *w, enum request_loss loss,
	const char *text)
{
	bool was_p = r->p == w;

	if (!was_p && r->d != w)
		return;
	r->loss = loss;
	snprintf(r->lost_text, sizeof(r->lost_text), "%s", text);
	if (was_p) {
		r->p = NULL;
		r->leased = false;
		request_fire(r, EV_P_LOST, NULL);
	} else {
		r->d = NULL;
		r->adopt_sent = false;
		request_fire(r, EV_D_LOST, NULL);
	}
}

void request_freed(struct request *r, struct worker_view *w, uint32_t attempt)
{
	/* A lease keeps the attempt in which it was computed. */
	bool state = ((r->p == w && r->leased) || r->giver == w) &&
		     r->lease_seq == r->seq && attempt == r->lease_attempt;

	request_return(r, w, attempt);
	if (attempt != r->attempt && !state)
		return;
	if (r->giver == w)
		r->giver = NULL;
	if (r->p == w || (r->d == w && r->adopt_sent))
		without(r, w, LOSS_WORKER, "A worker gave the state up");
}

/* Messages keep their order: a beat that was built after w was told, and read after it
 * told us all that ended there before, is right about what it names. */
bool request_absent(
	struct request *r, struct worker_view *w, uint32_t attempt, uint64_t beat)
{
	for (uint32_t i = 0; i < r->n_claims; i++)
		if (r->claim[i].w == w && r->claim[i].attempt == attempt &&
			r->claim[i].told && r->claim[i].told_beat < beat) {
			request_freed(r, w, attempt);
			return true;
		}
	return false;
}

/* Its claim ends with `freed`, which follows. */
void request_cut(struct request *r, struct worker_view *w)
{
	char text[sizeof(r->lost_text)];

	snprintf(text, sizeof(text), "Worker %s went out of service", w->id);
	without(r, w, LOSS_DRAIN, text);
}

void request_worker_lost(struct request *r, struct worker_view *w, const char *text)
{
	for (uint32_t i = r->n_claims; i-- > 0;)
		if (r->claim[i].w == w)
			drop_claim(r, i);
	if (r->giver == w)
		r->giver = NULL;
	/* Where its state only lay, it did nothing. */
	r->deaths += (r->state == RQ_PREFILL && r->p == w) ||
		     ((r->state == RQ_HANDOVER || r->state == RQ_DECODE) && r->d == w);
	without(r, w, LOSS_WORKER, text);
}
