/* Several choices of one prompt: one prefill, then each goes its own way; what happens
 * when a worker is lost on either side of that point; logprobs of a prompt. */
#include "request_rig.h"

#define CHOICES 3u

struct family {
	struct rig g;
	struct request *r[CHOICES];
	struct wire_first first[CHOICES];
};

/* All are QUEUED. */
static void open_family(struct family *f)
{
	rig_open(&f->g);
	for (uint32_t k = 0; k < CHOICES; k++) {
		f->r[k] = rig_request(&f->g, 5);
		f->r[k]->choice = k;
		f->r[k]->n_choices = k == 0 ? CHOICES : 1;
		f->r[k]->leader = k == 0 ? 0 : f->r[0]->seq;
		f->first[k] = (struct wire_first){.token = 20 + k, .choice = k};
		rig_move(f->r[k], EV_PREPARED, NULL);
	}
}

static void close_family(struct family *f)
{
	for (uint32_t k = 0; k < CHOICES; k++) {
		request_cancel(f->r[k]);
		rig_free_all(&f->g, f->r[k]);
	}
	rig_close(&f->g);
}

static void dispatch(struct family *f, struct request *r)
{
	struct request_route route = rig_route(&f->g, r);

	rig_move(r, EV_DISPATCHED, &route);
}

static struct msg_prefilled prefilled(struct family *f, struct request *r, uint32_t n)
{
	struct msg_prefilled m = rig_prefilled(r, &f->first[0]);

	m.first.len = n * sizeof(f->first[0]);
	return m;
}

static void one_prefill_serves_all(void **state)
{
	struct msg_prefilled m;
	struct family f;

	(void)state;
	open_family(&f);
	assert_false(request_waits(f.r[0]));
	assert_true(request_waits(f.r[1]) && request_waits(f.r[2]));
	assert_int_equal(request_asks(f.r[0]), CHOICES);
	dispatch(&f, f.r[0]);
	assert_true(request_waits(f.r[1]));
	m = prefilled(&f, f.r[0], CHOICES);
	rig_move(f.r[0], EV_PREFILLED, &m);
	assert_int_equal(f.r[0]->state, RQ_HANDOVER);
	for (uint32_t k = 0; k < CHOICES; k++) {
		const struct request *r = f.r[k];

		assert_int_equal(r->state, k == 0 ? RQ_HANDOVER : RQ_PLACE);
		assert_int_equal(r->lease, 77 + k);
		assert_int_equal(r->lease_seq, f.r[0]->seq);
		assert_int_equal(r->ids[r->n_prompt], 20 + k);
		assert_ptr_equal(r->p, f.g.p);
		assert_false(request_waits(r));
	}
	rig_sent(&f.g, "prefill p0;adopt d0;");
	close_family(&f);
}

static void a_first_token_can_end_any_of_them(void **state)
{
	for (uint32_t ends = 0; ends < CHOICES; ends++) {
		struct msg_prefilled m;
		struct family f;

		(void)state;
		open_family(&f);
		dispatch(&f, f.r[0]);
		f.first[ends].token = RIG_STOP_ID;
		m = prefilled(&f, f.r[0], CHOICES);
		sink_reset(&f.g.log);
		rig_move(f.r[0], EV_PREFILLED, &m);
		for (uint32_t k = 0; k < CHOICES; k++)
			assert_int_equal(f.r[k]->state, k == ends ? RQ_DONE
							: k == 0  ? RQ_HANDOVER
								  : RQ_PLACE);
		rig_sent(&f.g, ends == 0 ? "release p0;" : "release p0;adopt d0;");
		close_family(&f);
	}
}

static void a_number_of_first_tokens_that_was_not_asked_for_is_a_breach(void **state)
{
	(void)state;
	for (uint32_t n = 0; n < CHOICES; n++) {
		struct msg_prefilled m;
		struct family f;

		open_family(&f);
		dispatch(&f, f.r[0]);
		m = prefilled(&f, f.r[0], n);
		rig_move(f.r[0], EV_PREFILLED, &m);
		assert_string_equal(f.r[0]->error.code, "worker_protocol");
		assert_int_equal(f.r[1]->state, RQ_QUEUED);
		/* Nobody leads any more. */
		assert_false(request_waits(f.r[1]));
		close_family(&f);
	}
}

static void a_prefill_worker_lost_before_it_answers_is_asked_again_for_all(void **state)
{
	struct msg_prefilled m;
	struct family f;

	(void)state;
	open_family(&f);
	f.g.set.max_replays = 2;
	dispatch(&f, f.r[0]);
	for (uint32_t k = 0; k < CHOICES; k++)
		request_worker_lost(f.r[k], f.g.p, "p0 was lost");
	assert_int_equal(f.r[0]->state, RQ_QUEUED);
	assert_int_equal(request_asks(f.r[0]), CHOICES);
	assert_true(request_waits(f.r[2]));
	dispatch(&f, f.r[0]);
	m = prefilled(&f, f.r[0], CHOICES);
	rig_move(f.r[0], EV_PREFILLED, &m);
	assert_int_equal(f.r[2]->state, RQ_PLACE);
	close_family(&f);
}

static void one_that_is_replayed_is_prefilled_alone(void **state)
{
	struct request_route route;
	struct msg_prefilled m;
	struct family f;

	(void)state;
	open_family(&f);
	f.g.set.max_replays = 2;
	dispatch(&f, f.r[0]);
	m = prefilled(&f, f.r[0], CHOICES);
	rig_move(f.r[0], EV_PREFILLED, &m);
	route = rig_route(&f.g, f.r[1]);
	rig_move(f.r[1], EV_PLACED, &route);
	rig_move(f.r[1], EV_ADOPTED, &rig_adopted);
	request_worker_lost(f.r[1], f.g.d, "d0 was lost");
	assert_int_equal(f.r[1]->state, RQ_QUEUED);
	assert_false(request_waits(f.r[1]));
	assert_int_equal(request_asks(f.r[1]), 1);
	dispatch(&f, f.r[1]);
	m = prefilled(&f, f.r[1], 1);
	m.lease = 500;
	rig_move(f.r[1], EV_PREFILLED, &m);
	assert_int_equal(f.r[1]->lease, 500);
	assert_int_equal(f.r[1]->lease_seq, f.r[1]->seq);
	assert_int_equal(f.r[1]->n_ids, 102);
	close_family(&f);
}

static void likeliest_tokens_go_to_whom_they_belong(void **state)
{
	static const struct wire_logprob tops[] = {{1, -1}, {2, -2}, {3, -3}};
	struct msg_prefilled m;
	struct family f;

	(void)state;
	open_family(&f);
	dispatch(&f, f.r[0]);
	f.first[0].n_tops = 2;
	f.first[2].n_tops = 1;
	m = prefilled(&f, f.r[0], CHOICES);
	m.tops = (struct bytes){(const uint8_t *)tops, 2 * sizeof(tops[0])};
	rig_move(f.r[0], EV_PREFILLED, &m); /* one is missing */
	assert_string_equal(f.r[0]->error.code, "worker_protocol");
	close_family(&f);
	open_family(&f);
	dispatch(&f, f.r[0]);
	f.first[0].n_tops = 2;
	f.first[2].n_tops = 1;
	m = prefilled(&f, f.r[0], CHOICES);
	m.tops = (struct bytes){(const uint8_t *)tops, sizeof(tops)};
	rig_move(f.r[0], EV_PREFILLED, &m);
	assert_int_equal(f.r[0]->state, RQ_HANDOVER);
	close_family(&f);
}

/* Rows from..from + rows - 1 of the rig's prompt. */
static void send_scores(struct request *r, uint32_t from, uint32_t rows, uint32_t spoil)
{
	struct wire_logprob entries[200] = {{0, 0}};
	struct msg_prompt_logprobs m = {.from = from,
		.width = 2,
		.entries = {(const uint8_t *)entries, 2 * rows * sizeof(entries[0])}};

	for (uint32_t i = 0; i < rows; i++)
		entries[2 * i].token = 1000 + from + i;
	if (spoil == 1)
		entries[0].token++;
	else if (spoil == 2)
		m.width = 1;
	else if (spoil == 3)
		m.entries.len -= sizeof(entries[0]);
	request_scores(r, &m);
}

static struct request *scored_request(struct rig *g)
{
	struct request *r;

	rig_open(g);
	r = rig_request(g, 5);
	r->score = true;
	r->score_top = 1;
	rig_drive(g, r, RQ_PREFILL);
	return r;
}

static void logprobs_of_a_prompt_come_in_parts_and_in_order(void **state)
{
	struct wire_first first = {.token = 11};
	struct msg_prefilled m;
	struct request *r;
	struct rig g;

	(void)state;
	r = scored_request(&g);
	assert_true(request_wants_scores(r));
	send_scores(r, 1, 60, 0);
	send_scores(r, 61, 39, 0);
	assert_false(request_wants_scores(r));
	m = rig_prefilled(r, &first);
	rig_move(r, EV_PREFILLED, &m);
	assert_int_equal(r->state, RQ_HANDOVER);
	rig_sent(&g, "scores 1;scores 61;adopt d0;");
	request_cancel(r);
	rig_free_all(&g, r);
	rig_close(&g);
}

static void what_is_wrong_with_them_ends_the_request(void **state)
{
	struct wire_first first = {.token = 11};
	struct msg_prefilled m;
	struct request *r;
	struct rig g;

	(void)state;
	for (uint32_t spoil = 1; spoil < 7; spoil++) {
		r = scored_request(&g);
		if (spoil < 4) {
			send_scores(r, 1, 10, spoil);
		} else if (spoil == 4) {
			send_scores(r, 1, 10, 0);
			send_scores(r, 12, 10, 0); /* a gap */
		} else if (spoil == 5) {
			send_scores(r, 1, 100, 0); /* more than there are */
		} else {
			send_scores(r, 1, 98, 0); /* one is missing at the end */
			m = rig_prefilled(r, &first);
			rig_move(r, EV_PREFILLED, &m);
		}
		assert_string_equal(r->error.code, "worker_protocol");
		rig_free_all(&g, r);
		rig_close(&g);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_prefill_serves_all),
		cmocka_unit_test(a_first_token_can_end_any_of_them),
		cmocka_unit_test(
			a_number_of_first_tokens_that_was_not_asked_for_is_a_breach),
		cmocka_unit_test(
			a_prefill_worker_lost_before_it_answers_is_asked_again_for_all),
		cmocka_unit_test(one_that_is_replayed_is_prefilled_alone),
		cmocka_unit_test(likeliest_tokens_go_to_whom_they_belong),
		cmocka_unit_test(logprobs_of_a_prompt_come_in_parts_and_in_order),
		cmocka_unit_test(what_is_wrong_with_them_ends_the_request),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
