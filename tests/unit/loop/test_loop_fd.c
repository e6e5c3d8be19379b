// labels: threads
/* Watchers of descriptors, and a channel that wakes the loop from another thread. */
#include "unit/loop/loop_fixture.h"

#include "common/base/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- descriptors ---- */

struct watch {
	struct loop *loop;
	struct loop_fd *fd;
	unsigned events; /* all so far */
	size_t bytes;
	unsigned calls;
};

static void on_fd(void *ctx, int fd, unsigned events)
{
	struct watch *w = ctx;
	char buf[64];
	ssize_t n = 0;

	w->events |= events;
	w->calls++;
	if (events & LOOP_READABLE)
		while ((n = read(fd, buf, sizeof(buf))) > 0)
			w->bytes += (size_t)n;
	if (n == 0 || (events & LOOP_GONE))
		loop_stop(w->loop);
}

static void a_socket_reports_data_room_and_the_end_of_its_peer(void **state)
{
	struct fixture *f = *state;
	struct watch w = {.loop = f->loop};
	struct err err;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
	assert_int_equal(loop_fd_open(&w.fd, f->loop, pair[0], on_fd, &w, &err), ST_OK);
	loop_fd_start(w.fd, LOOP_WRITABLE);
	loop_run(f->loop); /* on_fd stops the loop: nothing was read */
	assert_int_equal(w.events, LOOP_WRITABLE);
	w.events = 0;
	loop_fd_start(w.fd, LOOP_READABLE | LOOP_GONE);
	assert_int_equal(write(pair[1], "hello", 5), 5);
	close(pair[1]);
	loop_run(f->loop);
	assert_int_equal(w.bytes, 5);
	assert_true(w.events & LOOP_GONE);
	loop_fd_close(w.fd, true);
	run_some_turns(f->loop);
	assert_int_equal(fcntl(pair[0], F_GETFD), -1);
	assert_int_equal(errno, EBADF);
}

static void a_half_closed_peer_is_seen_without_watching_for_data(void **state)
{
	struct fixture *f = *state;
	struct watch w = {.loop = f->loop};
	struct err err;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(loop_fd_open(&w.fd, f->loop, pair[0], on_fd, &w, &err), ST_OK);
	loop_fd_start(w.fd, LOOP_GONE);
	assert_int_equal(write(pair[1], "x", 1), 1);
	assert_int_equal(shutdown(pair[1], SHUT_WR), 0);
	loop_run(f->loop);
	assert_int_equal(w.events, LOOP_GONE);
	assert_int_equal(w.bytes, 0);
	loop_fd_close(w.fd, false);
	/* Ours again at once, and the number may be watched anew. */
	close(pair[0]);
	close(pair[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
	assert_int_equal(loop_fd_open(&w.fd, f->loop, pair[0], on_fd, &w, &err), ST_OK);
	loop_fd_start(w.fd, LOOP_READABLE);
	close(pair[1]);
	loop_run(f->loop);
	loop_fd_close(w.fd, true);
}

static void what_cannot_be_watched_is_refused(void **state)
{
	struct fixture *f = *state;
	struct loop_fd *w = NULL;
	struct err err;
	FILE *file = tmpfile();

	assert_int_equal(
		loop_fd_open(&w, f->loop, fileno(file), on_fd, NULL, &err), ST_IO);
	assert_null(w);
	fclose(file);
}

/* ---- another thread ---- */

#define N_PUSHES 50000u

static void *push_all(void *ctx)
{
	for (uint32_t i = 0; i < N_PUSHES;)
		if (chan_push(ctx, &i))
			i++;
		else
			sched_yield();
	return NULL;
}

struct reader {
	struct loop *loop;
	struct chan *chan;
	uint32_t next;
};

static void on_chan(void *ctx, int fd, unsigned events)
{
	struct reader *r = ctx;
	uint32_t v;

	(void)fd;
	(void)events;
	chan_ack(r->chan);
	while (chan_pop(r->chan, &v))
		assert_int_equal(v, r->next++);
	if (r->next == N_PUSHES)
		loop_stop(r->loop);
}

static void a_channel_wakes_the_loop(void **state)
{
	struct fixture *f = *state;
	struct reader r = {.loop = f->loop, .chan = chan_create(64, sizeof(uint32_t))};
	struct loop_fd *w;
	struct err err;
	pthread_t writer;

	assert_int_equal(
		loop_fd_open(&w, f->loop, chan_fd(r.chan), on_chan, &r, &err), ST_OK);
	loop_fd_start(w, LOOP_READABLE);
	assert_int_equal(pthread_create(&writer, NULL, push_all, r.chan), 0);
	loop_run(f->loop);
	pthread_join(writer, NULL);
	loop_fd_close(w, false);
	chan_destroy(r.chan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_socket_reports_data_room_and_the_end_of_its_peer),
		T(a_half_closed_peer_is_seen_without_watching_for_data),
		T(what_cannot_be_watched_is_refused),
		T(a_channel_wakes_the_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
