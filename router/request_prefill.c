/* A state lies under a lease: of a prompt that was computed, with its logprobs and the
 * first token of every choice, or of an answer that goes on at another decode worker. */
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "router/request_impl.h"

#include <string.h>

bool request_waits(const struct request *r)
{
	const struct request *l = requests_find(r->set, r->leader);

	return l != NULL && !l->shared &&
	       (l->state == RQ_PREPARE || l->state == RQ_QUEUED ||
		       l->state == RQ_PREFILL);
}

uint32_t request_asks(const struct request *r)
{
	return r->shared ? 1 : MAX(r->n_choices, 1u);
}

bool request_wants_scores(const struct request *r)
{
	return r->score && r->n_scored + 1 < r->n_prompt;
}

/* Saying the same again is no progress. */
void request_progress(struct request *r, uint64_t tokens_final)
{
	if (r->state != RQ_PREFILL || tokens_final <= r->n_final ||
		tokens_final > r->n_ids)
		return;
	r->n_final = (uint32_t)tokens_final;
	r->moved_ns = clock_ran_ns();
}

/* A prompt waits for those before it in passes, an adopt for a place: as long as the
 * worker goes on with them. */
uint64_t request_moved_ns(const struct request *r)
{
	if (r->state == RQ_PREFILL)
		return MAX(r->moved_ns, r->p->worked_ns);
	if (r->state == RQ_HANDOVER && r->d->queued > 0)
		return MAX(r->moved_ns, r->d->worked_ns);
	return r->moved_ns;
}

static void breach(struct request *r)
{
	struct api_error e;

	r->set->breaches++;
	api_error_set(&e, 500, "worker_protocol", NULL,
		"A worker broke the protocol while it served this request.");
	request_fire(r, EV_FAILED, &e);
}

static bool scores_right(const struct request *r, const struct msg_prompt_logprobs *m)
{
	size_t n = wire_count(m->entries, struct wire_logprob), rows;

	if (r->state != RQ_PREFILL || !r->score || m->width != 1 + r->score_top ||
		n == 0 || n % m->width != 0)
		return false;
	rows = n / m->width;
	if ((m->from != 1 && m->from != r->n_scored + 1) || m->from + rows > r->n_prompt)
		return false;
	for (size_t i = 0; i < rows; i++) {
		struct wire_logprob row;

		wire_get(m->entries, i * m->width, &row, sizeof(row));
		if (row.token != r->ids[m->from + i])
			return false;
	}
	return true;
}

void request_scores(struct request *r, const struct msg_prompt_logprobs *m)
{
	if (r->state == RQ_DONE)
		return;
	if (!scores_right(r, m)) {
		breach(r);
		return;
	}
	r->n_scored = (uint32_t)(m->from - 1 +
				 wire_count(m->entries, struct wire_logprob) / m->width);
	r->set->ops->score(r->set->self, r, m);
}

/* Where a state lies, in the words of its worker. */
struct state_word {
	uint64_t lease, group; /* group: the first lease of that state; 0: it has one */
	struct bytes pages;
	uint64_t slot, n_tokens;
};

/* Of request `leader` as its worker knows it. */
static bool keep_lease(
	struct request *r, const struct request *leader, const struct state_word *m)
{
	size_t n = wire_count(m->pages, uint32_t);
	uint32_t *pages = mem_regrow(r->pages, MAX(n, 1u) * sizeof(*pages));

	if (pages == NULL)
		return false;
	memcpy(pages, m->pages.at, n * sizeof(*pages));
	r->pages = pages;
	r->n_pages = (uint32_t)n;
	r->lease = m->lease;
	r->lease_group = m->group;
	r->lease_seq = leader->seq;
	r->lease_attempt = leader->attempt;
	r->p_slot = (uint32_t)m->slot;
	r->n_state = (uint32_t)m->n_tokens;
	r->leased = true;
	return true;
}

/* The lease of choice k. */
static struct state_word word_of(const struct msg_prefilled *m, uint32_t k)
{
	bool several = wire_count(m->first, struct wire_first) > 1;

	return (struct state_word){.lease = m->lease + k,
		.group = several ? m->lease : 0,
		.pages = m->pages,
		.slot = m->slot,
		.n_tokens = m->n_tokens};
}

static void fail_memory(struct request *r)
{
	struct api_error e;

	api_error_set(&e, 503, "overloaded", NULL,
		"The router has no memory left for this request.");
	request_fire(r, EV_FAILED, &e);
}

/* Number k of the message's first tokens; what came before it is skipped. */
static struct request_token first_token(const struct msg_prefilled *m, uint32_t k)
{
	struct wire_first first = {0};
	size_t at = 0;

	for (uint32_t i = 0; i <= k; i++) {
		at += i > 0 ? first.n_tops : 0;
		wire_get(m->first, i, &first, sizeof(first));
	}
	return (struct request_token){.token = first.token,
		.logprob = first.logprob,
		.tops = {m->tops.at + at * sizeof(struct wire_logprob),
			first.n_tops * sizeof(struct wire_logprob)}};
}

/* In PLACE, with the lease kept. */
static void begin_answer(struct request *r, const struct msg_prefilled *m, uint32_t k)
{
	struct request_token first = first_token(m, k);
	enum request_finish finish = REQUEST_LENGTH;

	r->prefilled_ns = r->place_ns = clock_ns();
	r->waits_ns = clock_ran_of(r->place_ns);
	r->pulls_failed = 0;
	if (r->max_tokens > 0) {
		if (!request_append(r, first.token))
			return;
		finish = request_add_token(r, &first);
	}
	if (r->state != RQ_PLACE)
		return; /* the client's side gave up while it was told */
	r->finish = finish;
	if (finish != REQUEST_OPEN)
		request_fire(r, EV_FIRST_ENDS, NULL);
	else if (r->d != NULL)
		request_fire(r, EV_PLACED, NULL);
}

static bool tops_right(const struct msg_prefilled *m)
{
	size_t n = wire_count(m->first, struct wire_first), sum = 0;

	for (size_t i = 0; i < n; i++) {
		struct wire_first first;

		wire_get(m->first, i, &first, sizeof(first));
		sum += first.n_tops;
	}
	return sum == wire_count(m->tops, struct wire_logprob);
}

/* Others get their part before the leader may end. One that ended the whole call has
 * ended the leader, too. */
static void share_out(struct request *r, const struct msg_prefilled *m)
{
	for (uint32_t k = 1; k < r->n_choices && r->state == RQ_PLACE; k++) {
		struct request *other = requests_find(r->set, r->seq + k);
		struct request_share share = {.leader = r, .m = m, .k = k};

		if (other != NULL && other->leader == r->seq && other->state == RQ_QUEUED)
			request_fire(other, EV_SHARED, &share);
	}
}

void request_prefilled(struct request *r, const void *what)
{
	const struct msg_prefilled *m = what;
	struct state_word word = word_of(m, 0);
	uint32_t n = request_asks(r);

	if (m->n_tokens != r->n_ids || m->lease == 0 ||
		wire_count(m->first, struct wire_first) != n || !tops_right(m) ||
		request_wants_scores(r) ||
		wire_count(m->pages, uint32_t) !=
			CEIL_DIV(m->n_tokens, TOKENS_PER_PAGE)) {
		request_fire(r, EV_PREFILLED, m); /* a breach, in PLACE */
		return;
	}
	if (!keep_lease(r, r, &word)) {
		fail_memory(r);
		return;
	}
	request_lighten_prefill(r);
	r->computed = true;
	if (n > 1) {
		r->shared = true;
		share_out(r, m);
	}
	if (r->state == RQ_PLACE)
		begin_answer(r, m, 0);
}

void request_shared(struct request *r, const void *what)
{
	const struct request_share *s = what;
	struct state_word word = word_of(s->m, s->k);

	r->leader = 0;
	r->computed = true;
	r->p = s->leader->p;
	r->dispatched_ns = s->leader->dispatched_ns;
	memcpy(r->p_name, s->leader->p_name, sizeof(r->p_name));
	if (keep_lease(r, s->leader, &word))
		begin_answer(r, s->m, s->k);
	else
		fail_memory(r);
}

/* d let it go between two steps: its word holds nothing that had not come as tokens. The
 * attempt stays d's; the next one that adopts has another number. */
void request_offered(struct request *r, const void *what)
{
	const struct msg_offered *m = what;
	struct state_word word = {.lease = m->lease,
		.pages = m->pages,
		.slot = m->slot,
		.n_tokens = m->n_tokens};

	if (m->lease == 0 || m->n_tokens + 1 != r->n_ids ||
		wire_count(m->pages, uint32_t) !=
			CEIL_DIV(m->n_tokens, TOKENS_PER_PAGE)) {
		request_fire(r, EV_PREFILLED, NULL); /* a breach, in PLACE */
		return;
	}
	/* Whom d adopted from has another lease, which nobody needs any more. */
	if (r->giver != NULL)
		r->set->ops->send_release(r->set->self, r, r->giver);
	r->giver = NULL;
	if (!keep_lease(r, r, &word)) {
		fail_memory(r);
		return;
	}
	r->p = r->d;
	r->d = NULL;
	r->adopt_sent = false;
	r->attempt++;
	r->pulls_failed = 0;
	r->place_ns = clock_ns();
	r->waits_ns = clock_ran_of(r->place_ns);
}
