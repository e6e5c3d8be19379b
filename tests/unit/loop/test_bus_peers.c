// labels: threads
/* Peers that break the rules, die, or come and go: what a router is told and when. */
#include "unit/loop/bus_fixture.h"

#include <signal.h>
#include <sys/wait.h>

static void a_peer_that_announces_an_oversize_frame_loses_its_connection(void **state)
{
	struct fixture *f = *state;
	/* Long frame of 16 MiB + 1 bytes. */
	static const char huge[9] = {0x02, 0, 0, 0, 0, 1, 0, 0, 1};
	int fd;

	open_pair(f, &note_events, NULL, 10, 8);
	f->router.stop_after_disconnects = 1;
	fd = connect_raw(f);
	handshake_raw(fd);
	send_raw(fd, "\x00\x02\x07x", 4);
	loop_run(f->loop); /* the good message came through */
	assert_int_equal(f->router.received, 1);
	send_raw(fd, huge, sizeof(huge));
	loop_run(f->loop);
	assert_int_equal(f->router.received, 1);
	assert_int_equal(f->router.disconnects, 1);
	assert_int_equal(f->router.conn_disconnected, f->router.conn_of_message);
	close(fd);
}

static void messages_of_another_shape_are_dropped_and_counted(void **state)
{
	struct fixture *f = *state;
	int fd;

	open_pair(f, &note_events, NULL, 10, 8);
	fd = connect_raw(f);
	handshake_raw(fd);
	/* Empty frame; two frames; three frames; then a good one. */
	send_raw(fd, "\x00\x00", 2);
	assert_int_equal(send(fd,
				 "\x01\x01"
				 "a"
				 "\x00\x01"
				 "b",
				 6, MSG_NOSIGNAL),
		6);
	assert_int_equal(send(fd,
				 "\x01\x00"
				 "\x01\x01"
				 "c"
				 "\x00\x01"
				 "d",
				 8, MSG_NOSIGNAL),
		8);
	send_raw(fd, "\x00\x02\x07x", 4);
	loop_run(f->loop);
	assert_int_equal(f->router.received, 1);
	assert_int_equal(f->router.malformed, 3);
	close(fd);
}

/* A hook that runs after the bus's own, once: meanwhile a message arrives, and the send
 * consumes what would have announced it. Nothing else will ever wake the loop. */
struct late_send {
	struct fixture *f;
	int fd;
	bool done;
};

static void send_late(void *ctx)
{
	struct late_send *l = ctx;
	struct side *s = &l->f->router;

	if (l->done)
		return;
	l->done = true;
	send_raw(l->fd, "\x00\x02\x07y", 4);
	usleep(50000);
	assert_int_equal(
		bus_send(s->bus, (struct bytes){(const uint8_t *)s->peer, s->peer_len}, 1,
			BYTES_STR("x")),
		ST_OK);
}

static void a_send_that_eats_the_edge_of_a_message_does_not_strand_it(void **state)
{
	struct fixture *f = *state;
	struct late_send l = {.f = f};

	open_pair(f, &note_events, NULL, 10, 8);
	l.fd = connect_raw(f);
	handshake_raw(l.fd);
	send_raw(l.fd, "\x00\x02\x07x", 4);
	loop_run(f->loop);
	assert_int_equal(f->router.received, 1);
	loop_on_turn(f->loop, send_late, &l);
	loop_run(f->loop);
	assert_int_equal(f->router.received, 2);
	loop_off_turn(f->loop, send_late, &l);
	close(l.fd);
}

/* ---- death ---- */

/* A process that says hello and waits to be killed. */
static pid_t start_peer(const struct fixture *f)
{
	pid_t pid = fork();

	if (pid == 0) {
		int fd = connect_raw(f);

		handshake_raw(fd);
		send_raw(fd, "\x00\x02\x07x", 4);
		pause();
		_exit(0);
	}
	return pid;
}

static void a_killed_peer_is_told_by_the_connection_of_its_messages(void **state)
{
	struct fixture *f = *state;
	pid_t first, second;
	int conn_first;

	open_pair(f, &note_events, NULL, 10, 8);
	f->router.conn_disconnected = -1;
	first = start_peer(f);
	loop_run(f->loop);
	conn_first = f->router.conn_of_message;
	assert_true(conn_first >= 0);
	second = start_peer(f);
	loop_run(f->loop);
	assert_int_equal(f->router.received, 2);
	assert_int_not_equal(f->router.conn_of_message, conn_first);
	f->router.stop_after_disconnects = 1;
	kill(first, SIGKILL);
	loop_run(f->loop);
	assert_int_equal(f->router.disconnects, 1);
	assert_int_equal(f->router.conn_disconnected, conn_first);
	f->router.stop_after_disconnects = 2;
	kill(second, SIGKILL);
	loop_run(f->loop);
	assert_int_equal(f->router.conn_disconnected, f->router.conn_of_message);
	waitpid(first, NULL, 0);
	waitpid(second, NULL, 0);
}

/* More connections come and go than events fit before the loop looks at them. */
static void every_end_is_told_when_many_come_at_once(void **state)
{
	struct fixture *f = *state;
	enum { N = 300 };

	open_pair(f, &note_events, NULL, 10, 8);
	f->router.stop_after_disconnects = N;
	for (int i = 0; i < N; i++) {
		int fd = connect_raw(f);

		handshake_raw(fd);
		close(fd);
	}
	loop_run(f->loop);
	assert_int_equal(f->router.connects, N);
	assert_int_equal(f->router.disconnects, N);
}

/* Numbers of connections are used again: the end of the old one comes first. */
static void the_end_of_a_connection_comes_before_messages_of_its_successor(void **state)
{
	struct fixture *f = *state;
	int fd, first;

	open_pair(f, &note_events, NULL, 10, 8);
	fd = connect_raw(f);
	handshake_raw(fd);
	send_raw(fd, "\x00\x02\x07x", 4);
	loop_run(f->loop);
	first = f->router.conn_of_message;
	close(fd);
	usleep(100000);
	fd = connect_raw(f);
	handshake_raw(fd);
	send_raw(fd, "\x00\x02\x07x", 4);
	usleep(100000);
	loop_run(f->loop);
	assert_int_equal(f->router.received, 2);
	/* The kernel gives the lowest free number; if not, this test shows nothing. */
	assert_int_equal(f->router.conn_of_message, first);
	assert_int_equal(f->router.disconnects_at_message, 1);
	assert_int_equal(f->router.connects, 2);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_peer_that_announces_an_oversize_frame_loses_its_connection),
		T(messages_of_another_shape_are_dropped_and_counted),
		T(a_send_that_eats_the_edge_of_a_message_does_not_strand_it),
		T(a_killed_peer_is_told_by_the_connection_of_its_messages),
		T(every_end_is_told_when_many_come_at_once),
		T(the_end_of_a_connection_comes_before_messages_of_its_successor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
