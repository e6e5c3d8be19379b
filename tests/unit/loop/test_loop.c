// labels: threads
/* The loop: timers, jobs, hooks, signals, directories. */
#include "unit/loop/loop_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- timers ---- */

#define N_TIMERS 500u

struct tick {
	struct loop_timer timer;
	struct loop *loop;
	uint64_t due_ns;
	unsigned calls;
};

static uint64_t last_due_ns;
static unsigned n_fired;

static void on_tick(void *ctx)
{
	struct tick *t = ctx;

	t->calls++;
	n_fired++;
	assert_true(clock_ns() >= t->due_ns);
	assert_true(t->due_ns >= last_due_ns);
	last_due_ns = t->due_ns;
}

/* Random starts, moves and stops; what remains fires in order, once each. */
static void timers_fire_in_order_and_stopped_ones_do_not(void **state)
{
	struct fixture *f = *state;
	struct tick *t = calloc(N_TIMERS, sizeof(*t));
	struct loop_timer end = {0};
	unsigned n_running = 0;

	last_due_ns = 0;
	n_fired = 0;
	srand(3);
	for (unsigned i = 0; i < 5 * N_TIMERS; i++) {
		struct tick *k = &t[(unsigned)rand() % N_TIMERS];

		if (rand() % 3 == 0) {
			loop_timer_stop(&k->timer);
		} else {
			loop_timer_start(f->loop, &k->timer, (uint64_t)(rand() % 60), 0,
				on_tick, k);
			k->due_ns = k->timer.due_ns;
		}
	}
	for (unsigned i = 0; i < N_TIMERS; i++)
		n_running += loop_timer_running(&t[i].timer);
	assert_in_range(n_running, 100, N_TIMERS);
	loop_timer_start(f->loop, &end, 70, 0, stop_loop, f->loop);
	loop_run(f->loop);
	assert_int_equal(n_fired, n_running);
	for (unsigned i = 0; i < N_TIMERS; i++) {
		assert_true(t[i].calls <= 1);
		assert_false(loop_timer_running(&t[i].timer));
	}
	free(t);
}

static void count_and_stop(void *ctx)
{
	struct tick *t = ctx;

	if (++t->calls == 5) {
		loop_timer_stop(&t->timer);
		loop_stop(t->loop);
	}
}

static void free_owner(void *ctx)
{
	struct tick *t = ctx;

	loop_stop(t->loop);
	free(t);
}

static void restart_itself(void *ctx)
{
	struct tick *t = ctx;

	if (++t->calls < 1000)
		loop_timer_start(t->loop, &t->timer, 0, 0, restart_itself, t);
	else
		loop_stop(t->loop);
}

static void a_timer_may_repeat_restart_stop_or_free_itself(void **state)
{
	struct fixture *f = *state;
	struct tick t = {.loop = f->loop};
	struct tick *owned = calloc(1, sizeof(*owned));
	uint64_t start = clock_ns();

	loop_timer_start(f->loop, &t.timer, 1, 4, count_and_stop, &t);
	loop_run(f->loop);
	assert_int_equal(t.calls, 5);
	assert_true(clock_ns() - start >= 16 * NS_PER_MS);
	owned->loop = f->loop;
	loop_timer_start(f->loop, &owned->timer, 1, 10, free_owner, owned);
	/* A repeating timer runs again after its callback unless it is stopped. */
	loop_timer_stop(&owned->timer);
	loop_timer_start(f->loop, &owned->timer, 1, 0, free_owner, owned);
	loop_run(f->loop);
	t.calls = 0;
	loop_timer_start(f->loop, &t.timer, 0, 0, restart_itself, &t);
	loop_run(f->loop);
	assert_int_equal(t.calls, 1000);
}

static uint64_t still_clock(void)
{
	return NS_PER_S;
}

static void a_timer_without_delay_does_not_stop_the_turns(void **state)
{
	struct fixture *f = *state;
	struct hook h = {f->loop, 0, 100};
	struct tick t = {.loop = f->loop};

	clock_replace(still_clock);
	loop_on_turn(f->loop, count_turns, &h);
	loop_timer_start(f->loop, &t.timer, 0, 0, restart_itself, &t);
	loop_run(f->loop);
	assert_int_equal(h.turns, 100);
	assert_int_equal(t.calls, 1);
	assert_true(loop_timer_running(&t.timer));
	loop_timer_stop(&t.timer);
	loop_off_turn(f->loop, count_turns, &h);
	clock_replace(NULL);
}

struct sleeper {
	struct loop *loop;
	struct loop_timer look, plain, wait;
	unsigned looks, plain_at, wait_at; /* looks at that moment */
};

/* Looks each 20 ms, and once is away for longer than a gap. */
static void look(void *ctx)
{
	struct sleeper *s = ctx;

	if (++s->looks == 5)
		usleep(800000);
	clock_look();
}

static void on_plain(void *ctx)
{
	struct sleeper *s = ctx;

	s->plain_at = s->looks;
}

static void on_wait(void *ctx)
{
	struct sleeper *s = ctx;

	s->wait_at = s->looks;
	loop_stop(s->loop);
}

static void a_wait_does_not_count_what_this_process_slept(void **state)
{
	struct fixture *f = *state;
	struct sleeper s = {.loop = f->loop};
	uint64_t began = clock_ns();

	loop_timer_start(f->loop, &s.look, 0, 20, look, &s);
	loop_timer_start(f->loop, &s.plain, 300, 0, on_plain, &s);
	loop_timer_wait(f->loop, &s.wait, 300, on_wait, &s);
	loop_run(f->loop);
	loop_timer_stop(&s.look);
	assert_true(clock_ns() - began >= 1000 * NS_PER_MS);
	assert_true(s.plain_at >= 5 && s.plain_at < s.wait_at);
	/* Started as a plain one again, it is one. */
	loop_timer_start(f->loop, &s.wait, 0, 0, on_wait, &s);
	loop_run(f->loop);
}

/* ---- jobs ---- */

#define N_JOBS 200u

struct job {
	struct loop *loop;
	pthread_t loop_thread;
	unsigned *n_done;
	uint64_t in, out;
};

static void square(void *ctx)
{
	struct job *j = ctx;

	assert_false(pthread_equal(pthread_self(), j->loop_thread));
	j->out = j->in * j->in;
}

static void squared(void *ctx)
{
	struct job *j = ctx;

	assert_true(pthread_equal(pthread_self(), j->loop_thread));
	assert_int_equal(j->out, j->in * j->in);
	if (++*j->n_done == N_JOBS)
		loop_stop(j->loop);
}

static void jobs_run_elsewhere_and_end_on_the_loop(void **state)
{
	struct fixture *f = *state;
	static struct job jobs[N_JOBS];
	unsigned n_done = 0;

	for (unsigned i = 0; i < N_JOBS; i++) {
		jobs[i] = (struct job){f->loop, pthread_self(), &n_done, i, 0};
		assert_int_equal(loop_work(f->loop, square, squared, &jobs[i]), ST_OK);
	}
	loop_run(f->loop);
	assert_int_equal(n_done, N_JOBS);
}

static void slow(void *ctx)
{
	(void)ctx;
	usleep(20000);
}

static void mark(void *ctx)
{
	*(bool *)ctx = true;
}

static void a_loop_waits_for_its_jobs_when_it_is_destroyed(void **state)
{
	bool done = false;
	struct loop *l = loop_create();

	(void)state;
	assert_int_equal(loop_work(l, slow, mark, &done), ST_OK);
	loop_destroy(l);
	assert_true(done);
}

static void without_request_memory_a_job_is_refused(void **state)
{
	struct fixture *f = *state;

	mem_budget(0);
	assert_int_equal(loop_work(f->loop, slow, mark, NULL), ST_LIMIT);
	mem_budget(UINT64_C(1) << 30);
}

/* ---- hooks ---- */

static void a_hook_runs_each_turn_and_can_forbid_sleep(void **state)
{
	struct fixture *f = *state;
	struct hook h = {f->loop, 0, 1000};
	struct hook removed = {f->loop, 0, 1};

	/* Nothing else is due: without loop_keep_awake this would sleep for ever. */
	loop_on_turn(f->loop, count_turns, &h);
	loop_run(f->loop);
	assert_int_equal(h.turns, 1000);
	loop_off_turn(f->loop, count_turns, &h);
	loop_on_turn(f->loop, count_turns, &removed);
	loop_off_turn(f->loop, count_turns, &removed);
	run_some_turns(f->loop);
	assert_int_equal(removed.turns, 0);
}

/* ---- signals ---- */

static void on_signal(void *ctx, unsigned count)
{
	struct hook *h = ctx;

	assert_int_equal(count, h->turns + 1);
	h->turns = count;
	if (count == 1)
		kill(getpid(), SIGINT);
	else
		loop_stop(h->loop);
}

static void signals_are_counted(void **state)
{
	struct fixture *f = *state;
	struct hook h = {f->loop, 0, 0};
	struct err err;

	assert_int_equal(loop_on_signals(f->loop, on_signal, &h, &err), ST_OK);
	kill(getpid(), SIGTERM);
	loop_run(f->loop);
	assert_int_equal(h.turns, 2);
}

/* ---- directories ---- */

struct dir {
	struct loop *loop;
	unsigned calls, stop_at;
};

static void on_dir(void *ctx)
{
	struct dir *d = ctx;

	if (++d->calls == d->stop_at)
		loop_stop(d->loop);
}

static void make_file(const char *dir, const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
}

static void remove_file(const char *dir, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
}

static void a_directory_tells_changes_at_once(void **state)
{
	struct fixture *f = *state;
	struct dir d = {f->loop, 0, 1};
	char path[] = "/tmp/baton-dir-XXXXXX";
	struct loop_dir *w;
	uint64_t start;
	struct err err;

	assert_non_null(mkdtemp(path));
	assert_int_equal(
		loop_dir_open(&w, f->loop, path, 20000, on_dir, &d, &err), ST_OK);
	make_file(path, "a");
	start = clock_ns();
	loop_run(f->loop);
	assert_true(clock_ns() - start < 10 * NS_PER_S); /* the rescan was not needed */
	loop_dir_close(w);
	remove_file(path, "a");
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(loop_dir_open(&w, f->loop, path, 10, on_dir, &d, &err), ST_IO);
	assert_non_null(strstr(err.text, path));
}

/* The rescan notices it, and from then on changes are told at once again. */
static void a_directory_that_was_made_again_is_watched_again(void **state)
{
	struct fixture *f = *state;
	struct dir d = {f->loop, 0, 0};
	char path[] = "/tmp/baton-dir-XXXXXX";
	struct loop_timer end = {0};
	struct loop_dir *w;
	uint64_t start;
	struct err err;

	assert_non_null(mkdtemp(path));
	assert_int_equal(loop_dir_open(&w, f->loop, path, 800, on_dir, &d, &err), ST_OK);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	loop_timer_start(f->loop, &end, 900, 0, stop_loop, f->loop);
	loop_run(f->loop);
	assert_true(d.calls > 0);
	d.stop_at = d.calls + 1;
	make_file(path, "a");
	start = clock_ns();
	loop_run(f->loop);
	assert_true(clock_ns() - start < 500 * NS_PER_MS); /* before the next rescan */
	loop_dir_close(w);
	remove_file(path, "a");
	rmdir(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(timers_fire_in_order_and_stopped_ones_do_not),
		T(a_timer_may_repeat_restart_stop_or_free_itself),
		T(a_timer_without_delay_does_not_stop_the_turns),
		T(a_wait_does_not_count_what_this_process_slept),
		T(jobs_run_elsewhere_and_end_on_the_loop),
		T(a_loop_waits_for_its_jobs_when_it_is_destroyed),
		T(without_request_memory_a_job_is_refused),
		T(a_hook_runs_each_turn_and_can_forbid_sleep),
		T(signals_are_counted),
		T(a_directory_tells_changes_at_once),
		T(a_directory_that_was_made_again_is_watched_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
