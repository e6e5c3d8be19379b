/* Workers: who is let in, who is alive, and what is promised of them. */
#include "fleet_fixture.h"

static struct fleet *make(void)
{
	return fleet_create(&fleet_defaults);
}

/* ---- hello ---- */

static void a_hello_makes_a_worker_with_its_capacity(void **state)
{
	struct fleet *f = make();
	struct worker_view *w = join(f, "p0", 7, WIRE_PREFILL, MS(1));
	char name[80];

	(void)state;
	assert_int_equal(fleet_count(f), 1);
	assert_int_equal(w->slots, 4);
	assert_int_equal(w->pages, 100);
	assert_int_equal(w->slots_free, 4);
	assert_int_equal(w->len_max, 4096);
	assert_string_equal(w->link_path, "/run/baton/link");
	fleet_name(w, name);
	assert_string_equal(name, "p0#0000000000000007");
	assert_ptr_equal(fleet_find(f, BYTES_STR("p0")), w);
	assert_null(fleet_find(f, BYTES_STR("p")));
	assert_int_equal(fleet_usable(f, WIRE_PREFILL), 1);
	assert_int_equal(fleet_usable(f, WIRE_DECODE), 0);
	fleet_destroy(f);
}

static void bad_hellos_are_refused_with_both_values(void **state)
{
	struct fleet *f = make();
	struct worker_view *w;
	enum wire_refusal code;
	struct msg_hello m;
	struct err err;
	status st;

	(void)state;
	join(f, "p0", 1, WIRE_PREFILL, 0);

	m = hello_of("d0", 2, WIRE_DECODE);
	m.proto_min = m.proto_max = WIRE_PROTO_MAX + 1;
	st = say_hello(f, &m, 2, 0, &w, &code, &err);
	assert_int_not_equal(st, ST_OK);
	assert_int_equal(code, REFUSED_PROTOCOL);
	assert_non_null(strstr(err.text, "2..2"));

	m = hello_of("d0", 2, WIRE_DECODE);
	m.tokenizer_hash = 0xBAD;
	st = say_hello(f, &m, 2, 0, &w, &code, &err);
	assert_int_not_equal(st, ST_OK);
	assert_int_equal(code, REFUSED_TOKENIZER);
	assert_non_null(strstr(err.text, "0000000000000bad"));
	assert_non_null(strstr(err.text, "00000000000070b1"));

	m = hello_of("d0", 2, WIRE_DECODE);
	m.compat_hash = 0xBAD;
	st = say_hello(f, &m, 2, 0, &w, &code, &err);
	assert_int_not_equal(st, ST_OK);
	assert_int_equal(code, REFUSED_COMPAT);
	assert_non_null(strstr(err.text, "0000000000000bad"));
	assert_non_null(strstr(err.text, "000000000000c0a7"));

	m = hello_of("d0", 2, WIRE_DECODE);
	m.compat_hash = 0xBAD;
	m.model_hash = 0xBAD;
	st = say_hello(f, &m, 2, 0, &w, &code, &err);
	assert_int_not_equal(st, ST_OK);
	assert_int_equal(code, REFUSED_COMPAT);
	assert_non_null(strstr(err.text, "weights 0000000000000bad of d0, those of p0 "
					 "are 0000000000060de1 (another checkpoint"));

	m = hello_of("p0", 2, WIRE_PREFILL);
	st = say_hello(f, &m, 2, 0, &w, &code, &err);
	assert_int_not_equal(st, ST_OK);
	assert_int_equal(code, REFUSED_ID_IN_USE);
	assert_non_null(strstr(err.text, "0000000000000001"));
	assert_non_null(strstr(err.text, "0000000000000002"));
	assert_int_equal(fleet_count(f), 1);
	fleet_destroy(f);
}

static void a_hello_that_makes_no_sense_is_malformed(void **state)
{
	static const char *const ids[] = {"", "a#b", "a b", "a\nb", "\x80"};
	struct fleet *f = make();
	struct worker_view *w;
	enum wire_refusal code;
	struct msg_hello m;
	struct err err;

	(void)state;
	for (size_t i = 0; i < COUNT(ids); i++) {
		m = hello_of(ids[i], 1, WIRE_PREFILL);
		assert_int_not_equal(say_hello(f, &m, 1, 0, &w, &code, &err), ST_OK);
		assert_int_equal(code, REFUSED_MALFORMED);
	}
	m = hello_of("p0", 1, WIRE_ROUTER);
	assert_int_not_equal(say_hello(f, &m, 1, 0, &w, &code, &err), ST_OK);
	assert_int_equal(code, REFUSED_MALFORMED);
	m = hello_of("p0", 1, WIRE_PREFILL);
	m.has_slots = false;
	assert_int_not_equal(say_hello(f, &m, 1, 0, &w, &code, &err), ST_OK);
	assert_int_equal(code, REFUSED_MALFORMED);
	assert_int_equal(fleet_count(f), 0);
	fleet_destroy(f);
}

static void the_same_incarnation_may_say_hello_again(void **state)
{
	struct fleet *f = make();
	struct worker_view *w = join(f, "p0", 1, WIRE_PREFILL, 0);

	(void)state;
	assert_ptr_equal(join(f, "p0", 1, WIRE_PREFILL, MS(10)), w);
	assert_int_equal(fleet_count(f), 1);
	fleet_destroy(f);
}

static void another_build_is_no_reason(void **state)
{
	struct msg_hello m = hello_of("d0", 2, WIRE_DECODE);
	struct fleet *f = make();
	struct worker_view *w;
	enum wire_refusal code;
	struct err err;

	(void)state;
	join(f, "p0", 1, WIRE_PREFILL, 0);
	m.build = BYTES_STR("another\nbuild");
	assert_int_equal(say_hello(f, &m, 2, 0, &w, &code, &err), ST_OK);
	assert_string_equal(w->build, "another?build");
	fleet_destroy(f);
}

/* ---- life ---- */

static void silence_stops_new_work_then_loses_the_worker(void **state)
{
	struct fleet *f = make();
	struct worker_view *w = join(f, "d0", 1, WIRE_DECODE, 0);

	(void)state;
	assert_null(fleet_tick(f, MS(1999)));
	assert_int_equal(w->state, WORKER_KNOWN);
	assert_null(fleet_tick(f, MS(2000)));
	assert_int_equal(w->state, WORKER_SILENT);
	assert_int_equal(fleet_usable(f, WIRE_DECODE), 0);
	assert_ptr_equal(fleet_heard(f, BYTES_STR("d0"), 1, MS(3000)), w);
	assert_int_equal(w->state, WORKER_KNOWN);
	assert_null(fleet_tick(f, MS(6999)));
	assert_ptr_equal(fleet_tick(f, MS(7000)), w);
	assert_int_equal(w->state, WORKER_LOST);
	assert_null(fleet_tick(f, MS(7000)));
	assert_null(fleet_heard(f, BYTES_STR("d0"), 1, MS(7001)));
	fleet_bury(f, w);
	assert_int_equal(fleet_count(f), 0);
	fleet_destroy(f);
}

static void the_end_of_a_connection_loses_its_worker_only(void **state)
{
	struct fleet *f = make();
	struct worker_view *p = join(f, "p0", 1, WIRE_PREFILL, 0);
	struct worker_view *d = join(f, "d0", 2, WIRE_DECODE, 0);

	(void)state;
	assert_null(fleet_disconnected(f, 3));
	assert_null(fleet_disconnected(f, -1));
	assert_ptr_equal(fleet_disconnected(f, 2), d);
	assert_null(fleet_disconnected(f, 2));
	fleet_bury(f, d);
	assert_int_equal(fleet_count(f), 1);
	assert_ptr_equal(fleet_at(f, 0), p);
	assert_int_equal(p->state, WORKER_KNOWN);
	fleet_destroy(f);
}

static void an_id_is_free_once_its_incarnation_is_buried(void **state)
{
	struct fleet *f = make();
	struct worker_view *w = join(f, "p0", 1, WIRE_PREFILL, 0);

	(void)state;
	assert_ptr_equal(fleet_disconnected(f, 1), w);
	fleet_bury(f, w);
	w = join(f, "p0", 2, WIRE_PREFILL, MS(1));
	assert_int_equal(w->incarnation, 2);
	assert_int_equal(w->held_slots, 0);
	/* And one that only slept may come back. */
	assert_ptr_equal(fleet_disconnected(f, 2), w);
	fleet_bury(f, w);
	join(f, "p0", 1, WIRE_PREFILL, MS(2));
	fleet_destroy(f);
}

static void no_more_than_the_maximum_is_taken(void **state)
{
	struct fleet *f = make();
	struct worker_view *w;
	enum wire_refusal code;
	struct msg_hello m;
	struct err err;
	char id[16];

	(void)state;
	for (unsigned i = 0; i < FLEET_WORKERS_MAX; i++) {
		snprintf(id, sizeof(id), "d%u", i);
		join(f, id, i + 1, WIRE_DECODE, 0);
	}
	m = hello_of("one-more", 999, WIRE_DECODE);
	assert_int_equal(say_hello(f, &m, 1, 0, &w, &code, &err), ST_LIMIT);
	assert_int_equal(fleet_count(f), FLEET_WORKERS_MAX);
	fleet_destroy(f);
}

/* ---- credits ---- */

static struct sched_worker view_of(const struct fleet *f, uint8_t role)
{
	struct sched_worker w[FLEET_WORKERS_MAX];
	uint32_t index[FLEET_WORKERS_MAX];

	assert_int_equal(fleet_snapshot(f, role, 0, w, index), 1);
	return w[0];
}

static void what_is_held_is_not_offered_again(void **state)
{
	struct fleet *f = make();
	struct worker_view *w = join(f, "p0", 1, WIRE_PREFILL, 0);
	struct fleet_hold h = {.slots = 1, .queue = 1, .pages = 30, .tokens = 1900};
	struct sched_worker v;

	(void)state;
	join(f, "d0", 2, WIRE_DECODE, 0);
	fleet_hold(w, &h);
	v = view_of(f, WIRE_PREFILL);
	assert_int_equal(v.slots, 3);
	assert_int_equal(v.pages, 70);
	assert_int_equal(v.queue, fleet_defaults.queue_max - 1);
	assert_int_equal(v.outstanding, 1900);
	fleet_unhold(w, &h);
	v = view_of(f, WIRE_PREFILL);
	assert_int_equal(v.slots, 4);
	assert_int_equal(v.pages, 100);
	assert_int_equal(v.outstanding, 0);
	fleet_destroy(f);
}

static void several_routers_share_what_the_worker_says_is_free(void **state)
{
	uint64_t stats[STAT__COUNT] = {[STAT_decode_rows_max] = 9};
	struct msg_beat beat = {
		.has_pages_free = true,
		.pages_free = 60,
		.has_slots_free = true,
		.slots_free = 3,
		.has_routers = true,
		.routers = 2,
		.has_stats = true,
		.stats = {(const uint8_t *)stats, sizeof(stats)},
	};
	struct fleet_hold one = {.slots = 1, .queue = 1, .pages = 1};
	struct fleet *f = make();
	struct worker_view *w = join(f, "d0", 1, WIRE_DECODE, 0);
	struct sched_worker v;

	(void)state;
	fleet_beat(w, &beat, 0);
	assert_int_equal(w->stats.v[STAT_decode_rows_max], 9);
	v = view_of(f, WIRE_DECODE);
	assert_int_equal(v.slots, 1);
	assert_int_equal(v.pages, 30);
	assert_true(v.untouched);
	assert_int_equal(v.slots_free, 3);
	assert_int_equal(v.pages_free, 60);
	assert_int_equal(v.slots_all, 4);
	assert_int_equal(v.pages_all, 100);
	fleet_hold(w, &one);
	assert_false(view_of(f, WIRE_DECODE).untouched);
	fleet_unhold(w, &one);
	beat.routers = 1;
	fleet_beat(w, &beat, 0);
	v = view_of(f, WIRE_DECODE);
	assert_int_equal(v.slots, 4); /* our own book is exact then */
	fleet_destroy(f);
}

static void a_worker_that_refused_is_left_alone_until_it_speaks(void **state)
{
	struct msg_beat beat = {.has_routers = true, .routers = 1};
	struct fleet *f = make();
	struct worker_view *w = join(f, "d0", 1, WIRE_DECODE, 0);

	(void)state;
	w->full = true;
	assert_int_equal(view_of(f, WIRE_DECODE).queue, 0);
	fleet_beat(w, &beat, 0);
	assert_int_equal(view_of(f, WIRE_DECODE).queue, fleet_defaults.queue_max);
	fleet_destroy(f);
}

static void a_beat_says_whether_it_drains(void **state)
{
	struct msg_beat beat = {.has_draining = true, .draining = 1};
	struct fleet *f = make();
	struct worker_view *w = join(f, "d0", 1, WIRE_DECODE, 0);

	(void)state;
	fleet_beat(w, &beat, 0);
	assert_true(view_of(f, WIRE_DECODE).draining);
	assert_int_equal(fleet_usable(f, WIRE_DECODE), 0);
	beat.draining = 0;
	fleet_beat(w, &beat, 0);
	assert_int_equal(fleet_usable(f, WIRE_DECODE), 1);
	fleet_destroy(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_hello_makes_a_worker_with_its_capacity),
		cmocka_unit_test(bad_hellos_are_refused_with_both_values),
		cmocka_unit_test(a_hello_that_makes_no_sense_is_malformed),
		cmocka_unit_test(the_same_incarnation_may_say_hello_again),
		cmocka_unit_test(another_build_is_no_reason),
		cmocka_unit_test(silence_stops_new_work_then_loses_the_worker),
		cmocka_unit_test(the_end_of_a_connection_loses_its_worker_only),
		cmocka_unit_test(an_id_is_free_once_its_incarnation_is_buried),
		cmocka_unit_test(no_more_than_the_maximum_is_taken),
		cmocka_unit_test(what_is_held_is_not_offered_again),
		cmocka_unit_test(several_routers_share_what_the_worker_says_is_free),
		cmocka_unit_test(a_worker_that_refused_is_left_alone_until_it_speaks),
		cmocka_unit_test(a_beat_says_whether_it_drains),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
