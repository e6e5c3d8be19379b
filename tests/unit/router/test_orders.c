/* Orders of batonctl over a real socket: who is told what, and what is refused. */
#include "wired_rig.h"

/* Peer a is batonctl, b a decode worker. */
static struct worker_view *d0_joins(struct wired *x)
{
	struct msg_hello d = hello_of("d0", 8, WIRE_DECODE);

	say(&x->b, MSG_hello, &d);
	listen_for(x, 2);
	return fleet_at(x->rt.fleet, 0);
}

static void give(struct wired *x, const char *verb, const char *id, const char *args)
{
	struct msg_order m = {.id = bytes_of_str(id),
		.verb = bytes_of_str(verb),
		.args = bytes_of_str(args)};

	say(&x->a, MSG_order, &m);
}

static void check_ordered(const struct wired *x, enum wire_ordered code, const char *says)
{
	struct msg_ordered m = {0};
	char text[513];

	read_newest(&x->a, MSG_ordered, &m);
	snprintf(text, sizeof(text), "%.*s", (int)m.text.len, (const char *)m.text.at);
	assert_int_equal(m.code, code);
	if (strstr(text, says) == NULL)
		fail_msg("'%s' is not in '%s'", says, text);
}

static void say_beat(struct wired *x, bool draining, bool ends)
{
	struct msg_beat m = {.incarnation = 8,
		.has_draining = true,
		.draining = draining,
		.has_ends = true,
		.ends = ends};

	say(&x->b, MSG_beat, &m);
}

/* Whatever was said before has been read. */
static void read_all(struct wired *x)
{
	struct msg_ask ask = {.what = BYTES_STR("x"), .tag = 1};

	say(&x->b, MSG_ask, &ask);
	listen_for(x, 1);
	assert_int_equal(newest(&x->b), MSG_answer);
}

static void what_makes_no_sense_is_refused_and_nobody_is_told(void **state)
{
	static const struct {
		const char *verb, *id, *args;
		enum wire_ordered code;
		const char *says;
	} rows[] = {
		{"drain", "d1", "", ORDERED_UNKNOWN, "no worker of this id"},
		{"undrain", "d", "", ORDERED_UNKNOWN, "no worker of this id"},
		{"dance", "d0", "", ORDERED_MALFORMED, "'drain'"},
		{"drain", "d0", "fast", ORDERED_MALFORMED, "'force'"},
		{"undrain", "d0", "force", ORDERED_MALFORMED, "'undrain'"},
		{"drain", "d0", "force fast", ORDERED_MALFORMED, "'migrate'"},
		{"undrain", "d0", "migrate", ORDERED_MALFORMED, "'undrain'"},
		{"drain", "d0", "", ORDERED_REFUSED, "d0 is the last decode worker"},
		{"drain", "d0", "force migrate", ORDERED_REFUSED,
			"no other decode worker takes work"},
	};
	struct wired *x = *state;
	struct worker_view *w = d0_joins(x);
	uint32_t heard = x->b.n_heard;

	for (size_t i = 0; i < COUNT(rows); i++) {
		give(x, rows[i].verb, rows[i].id, rows[i].args);
		listen_for(x, 1);
		check_ordered(x, rows[i].code, rows[i].says);
	}
	assert_int_equal(x->b.n_heard, heard);
	assert_int_equal(fleet_shown(w), SHOWN_up);
}

static void an_order_holds_against_a_beat_from_before_it(void **state)
{
	struct wired *x = *state;
	struct worker_view *w = d0_joins(x);

	give(x, "drain", "d0", "force");
	listen_for(x, 2);
	assert_int_equal(newest(&x->b), MSG_drain);
	check_ordered(x, ORDERED_OBEYED, "");
	assert_int_equal(fleet_shown(w), SHOWN_draining);
	assert_int_equal(fleet_usable(x->rt.fleet, WIRE_DECODE), 0);
	say_beat(x, false, false);
	read_all(x);
	assert_int_equal(fleet_usable(x->rt.fleet, WIRE_DECODE), 0);
	say_beat(x, true, false);
	listen_for(x, 1);
	assert_int_equal(newest(&x->b), MSG_beat); /* nothing more is placed there */
	assert_int_equal(fleet_shown(w), SHOWN_draining);
	say_beat(x, false, false);
	read_all(x);
	assert_int_equal(fleet_shown(w), SHOWN_up);
}

static void a_worker_that_drains_is_told_again_without_force(void **state)
{
	struct wired *x = *state;
	struct worker_view *w = d0_joins(x);
	struct msg_drained drained = {.clean = 1};

	say_beat(x, true, false);
	listen_for(x, 1);
	say(&x->b, MSG_drained, &drained);
	give(x, "drain", "d0", "");
	listen_for(x, 2);
	check_ordered(x, ORDERED_OBEYED, "");
	read_all(x);
	assert_int_equal(fleet_shown(w), SHOWN_drained);
	give(x, "undrain", "d0", "");
	listen_for(x, 2);
	assert_int_equal(newest(&x->b), MSG_undrain);
	check_ordered(x, ORDERED_OBEYED, "");
}

static void a_worker_whose_process_ends_is_left_alone(void **state)
{
	struct wired *x = *state;
	uint32_t heard;

	d0_joins(x);
	say_beat(x, true, true);
	listen_for(x, 1);
	heard = x->b.n_heard;
	give(x, "drain", "d0", "force");
	listen_for(x, 1);
	check_ordered(x, ORDERED_REFUSED, "ends");
	give(x, "undrain", "d0", "");
	listen_for(x, 1);
	check_ordered(x, ORDERED_REFUSED, "ends");
	assert_int_equal(x->b.n_heard, heard);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WIRED(what_makes_no_sense_is_refused_and_nobody_is_told),
		WIRED(an_order_holds_against_a_beat_from_before_it),
		WIRED(a_worker_that_drains_is_told_again_without_force),
		WIRED(a_worker_whose_process_ends_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
