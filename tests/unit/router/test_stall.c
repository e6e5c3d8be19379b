/* What counts as life of a request at its workers. */
#include "request_rig.h"

#include "common/base/clock.h"

static void progress_of_a_prompt_is_life_and_saying_it_again_is_not(void **state)
{
	struct request *r;
	uint64_t moved;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_PREFILL);
	r->moved_ns = 1;
	request_progress(r, 64);
	moved = r->moved_ns;
	assert_true(moved > 1);
	r->moved_ns = 1;
	request_progress(r, 64);
	request_progress(r, 0);
	request_progress(r, 101); /* it has 100 */
	assert_int_equal(request_moved_ns(r), 1);
	request_progress(r, 100);
	assert_true(request_moved_ns(r) >= moved);
	request_cancel(r);
	rig_free_all(&g, r);
	rig_close(&g);
}

static void beat(struct worker_view *w, uint64_t step, uint64_t queued, uint64_t now_ns)
{
	struct msg_beat m = {.step = step, .queued = queued};

	fleet_beat(w, &m, now_ns);
}

static void a_prompt_lives_while_its_worker_ends_passes_of_others(void **state)
{
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_PREFILL);
	r->moved_ns = 10;
	beat(g.d, 9, 0, 40);
	assert_int_equal(request_moved_ns(r), 10);
	beat(g.p, 1, 3, 20);
	assert_int_equal(request_moved_ns(r), 20);
	beat(g.p, 1, 3, 30);
	assert_int_equal(request_moved_ns(r), 20);
	request_cancel(r);
	rig_free_all(&g, r);
	rig_close(&g);
}

/* With nothing queued there it waits for no place: what it waits for does not come. */
static void an_adopt_lives_while_its_worker_has_a_queue_and_works(void **state)
{
	struct request *r;
	struct rig g;

	(void)state;
	rig_open(&g);
	r = rig_request(&g, 5);
	rig_drive(&g, r, RQ_HANDOVER);
	r->moved_ns = 10;
	beat(g.d, 1, 1, 20);
	assert_int_equal(request_moved_ns(r), 20);
	beat(g.d, 2, 0, 30);
	assert_int_equal(request_moved_ns(r), 10);
	request_cancel(r);
	rig_free_all(&g, r);
	rig_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(progress_of_a_prompt_is_life_and_saying_it_again_is_not),
		cmocka_unit_test(a_prompt_lives_while_its_worker_ends_passes_of_others),
		cmocka_unit_test(an_adopt_lives_while_its_worker_has_a_queue_and_works),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
