/* One end of a link against a socket that a test drives by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/xfer/raw_peer.h"
#include <fcntl.h>
#include <sys/mman.h>

struct ends {
	struct loop *loop;
	struct link *link;
	int own, other; /* the link's, ours */
	uint32_t fds, n_messages, n_ends;
	struct err why;
	uint64_t last; /* lease or rank of the last message */
	uint64_t taken;
	int received_fd;
	bool in_order, destroy_at_end, refuse;
};

static status on_any(void *ctx, const void *msg, int *fd, struct err *err)
{
	struct ends *e = ctx;

	(void)msg;
	(void)fd;
	e->n_messages++;
	if (e->refuse)
		return err_set(err, ST_INVALID, "this one is refused");
	return ST_OK;
}

static status on_claimed(void *ctx, const void *msg, int *fd, struct err *err)
{
	((struct ends *)ctx)->last = ((const struct msg_claimed *)msg)->lease;
	return on_any(ctx, msg, fd, err);
}

static status on_arena(void *ctx, const void *msg, int *fd, struct err *err)
{
	((struct ends *)ctx)->received_fd = *fd;
	*fd = -1;
	return on_any(ctx, msg, fd, err);
}

static void on_end(void *ctx, const struct err *why)
{
	struct ends *e = ctx;

	e->n_ends++;
	e->why = *why;
	if (e->destroy_at_end) {
		link_destroy(e->link);
		e->link = NULL;
	}
}

static const struct link_handler handlers[] = {
	{MSG_arena, on_arena},
	{MSG_claimed, on_claimed},
	{MSG_revoke, on_any},
	{MSG_denied, on_any},
	{MSG_fetched, on_any},
};
static const struct link_events events = {handlers, COUNT(handlers), on_end};

static int set_up(void **state)
{
	struct ends *e = test_calloc(1, sizeof(*e));
	int pair[2];
	struct err err;

	e->taken = mem_taken();
	e->loop = loop_create();
	loop_for(e->loop, 1); /* whatever it opens at its first turn is open now */
	e->fds = count_fds();
	e->received_fd = -1;
	assert_int_equal(0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair));
	CHECK_OK(link_create(&e->link, e->loop, pair[0], WIRE_IMPORTER, &events, e, &err),
		err);
	e->own = pair[0];
	e->other = pair[1];
	*state = e;
	return 0;
}

static int tear_down(void **state)
{
	struct ends *e = *state;

	link_destroy(e->link);
	if (e->other >= 0)
		close(e->other);
	if (e->received_fd >= 0)
		close(e->received_fd);
	SOON(e->loop, count_fds() == e->fds);
	loop_destroy(e->loop);
	assert_int_equal(e->taken, mem_taken());
	test_free(e);
	return 0;
}

static bool has_message(void *ctx)
{
	const struct ends *e = ctx;

	return e->n_messages > 0;
}

static bool has_ended(void *ctx)
{
	const struct ends *e = ctx;

	return e->n_ends > 0;
}

static struct msg_arena an_arena(uint8_t record[LAYOUT_RECORD_BYTES])
{
	return (struct msg_arena){.rank = 1,
		.ranks = 2,
		.kind = TICKET_MEMFD,
		.bytes = 4096,
		.pages = 3,
		.slots = 4,
		.layout = {record, LAYOUT_RECORD_BYTES},
		.device_uuid = BYTES_STR("cpu:0 x")};
}

static void a_ticket_arrives_with_its_descriptor(void **state)
{
	struct ends *e = *state;
	uint8_t record[LAYOUT_RECORD_BYTES] = {0};
	struct msg_arena arena = an_arena(record);
	int fd = memfd_create("test", MFD_CLOEXEC);
	struct stat sent, got;

	raw_send(e->other, MSG_arena, &arena, &fd, 1);
	assert_int_equal(0, fstat(fd, &sent));
	close(fd);
	assert_true(loop_until(e->loop, has_message, e, 20000));
	assert_true(e->received_fd >= 0);
	assert_int_equal(0, fstat(e->received_fd, &got));
	assert_int_equal(sent.st_ino, got.st_ino);
	assert_int_equal(FD_CLOEXEC, fcntl(e->received_fd, F_GETFD));
	assert_int_equal(0, e->n_ends);
}

static void refused_frames_end_the_link_once(void **state)
{
	static const struct {
		const char *name;
		uint8_t in[16];
		size_t n;
		uint32_t n_fds;
		const char *text;
	} c[] = {
		{"unknown type", {200, 0x80}, 2, 0,
			"unexpected frame of type 200 (unknown)"},
		{"wrong direction", {MSG_claim, 0x80}, 2, 0, "of type 42 (claim)"},
		{"of the bus", {MSG_hello, 0x80}, 2, 0, "of type 1 (hello)"},
		{"no body", {MSG_revoke}, 1, 0, "revoke"},
		{"truncated", {MSG_revoke, 0x81, 0x01}, 3, 0, "revoke"},
		{"missing field", {MSG_revoke, 0x80}, 2, 0, "revoke"},
		{"trailing", {MSG_revoke, 0x81, 1, 5, 0}, 5, 0, "revoke"},
		{"key twice", {MSG_revoke, 0x82, 1, 5, 1, 6}, 6, 0, "revoke"},
		{"array bomb", {MSG_revoke, 0xdd, 0xff, 0xff, 0xff, 0xff}, 6, 0,
			"revoke"},
		{"bin lies", {MSG_revoke, 0x81, 1, 0xc6, 0xff, 0xff, 0xff, 0xff}, 8, 0,
			"revoke"},
		{"ext", {MSG_revoke, 0x81, 1, 0xd4, 0, 0}, 6, 0, "revoke"},
		{"a descriptor", {MSG_revoke, 0x81, 1, 5}, 4, 1,
			"revoke came with a descriptor"},
		{"two descriptors", {MSG_revoke, 0x81, 1, 5}, 4, 2,
			"a frame with 2 descriptors"},
		{"eight descriptors", {MSG_revoke, 0x81, 1, 5}, 4, 8,
			"a frame with 8 descriptors"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(c); i++) {
		void *one = NULL;
		struct ends *e;
		int fds[8];

		set_up(&one);
		e = one;
		for (size_t f = 0; f < COUNT(fds); f++)
			fds[f] = e->other;
		raw_send_bytes(e->other, c[i].in, c[i].n, fds, c[i].n_fds);
		raw_send_bytes(e->other, c[i].in, c[i].n, fds, c[i].n_fds);
		assert_true(loop_until(e->loop, has_ended, e, 20000));
		if (e->why.code != ST_INVALID)
			fail_msg("%s: %s", c[i].name, e->why.text);
		says(&e->why, c[i].text);
		loop_for(e->loop, 5);
		assert_int_equal(1, e->n_ends);
		tear_down(&one); /* descriptors that came along are closed */
	}
}

static void a_frame_too_long_is_refused(void **state)
{
	struct ends *e = *state;
	uint8_t *frame = test_calloc(LINK_FRAME_MAX + 1, 1);

	frame[0] = MSG_revoke;
	raw_send_bytes(e->other, frame, LINK_FRAME_MAX + 1, NULL, 0);
	assert_true(loop_until(e->loop, has_ended, e, 20000));
	assert_int_equal(ST_INVALID, e->why.code);
	says(&e->why, "more than 4096 bytes");
	test_free(frame);
}

static void a_refusal_of_the_owner_ends_the_link(void **state)
{
	struct ends *e = *state;
	static const uint8_t revoke[] = {MSG_revoke, 0x81, 1, 5};

	e->refuse = e->destroy_at_end = true;
	raw_send_bytes(e->other, revoke, sizeof(revoke), NULL, 0);
	assert_true(loop_until(e->loop, has_ended, e, 20000));
	says(&e->why, "this one is refused");
	assert_null(e->link);
}

static void the_end_of_the_peer_is_seen_after_its_last_words(void **state)
{
	struct ends *e = *state;
	static const uint8_t revoke[] = {MSG_revoke, 0x81, 1, 5};
	struct msg_done done = {.lease = 3, .ok = 1};

	/* What the peer leaves unread makes its close a reset. */
	link_send(e->link, MSG_done, &done, -1);
	for (int i = 0; i < 100; i++)
		raw_send_bytes(e->other, revoke, sizeof(revoke), NULL, 0);
	close(e->other);
	e->other = -1;
	assert_true(loop_until(e->loop, has_ended, e, 20000));
	assert_int_equal(100, e->n_messages);
	assert_int_equal(ST_PEER, e->why.code);
	says(&e->why, "the peer closed the link");
	link_send(e->link, MSG_done, &done, -1); /* into nothing */
	loop_for(e->loop, 5);
	assert_int_equal(1, e->n_ends);
}

static void sending_to_a_dead_peer_ends_the_link_later(void **state)
{
	struct ends *e = *state;
	struct msg_done done = {.lease = 3, .ok = 1};

	close(e->other);
	e->other = -1;
	e->destroy_at_end = true;
	for (int i = 0; i < 10; i++) {
		link_send(e->link, MSG_done, &done, -1);
		assert_int_equal(0, e->n_ends);
	}
	assert_true(loop_until(e->loop, has_ended, e, 20000));
	assert_int_equal(ST_PEER, e->why.code);
	assert_int_equal(1, e->n_ends);
}

static void a_peer_that_does_not_read_is_cut(void **state)
{
	struct ends *e = *state;
	struct msg_done done = {.ok = 1};
	uint64_t most = 0;

	for (done.lease = 1; done.lease < 20000; done.lease++) {
		link_send(e->link, MSG_done, &done, -1);
		most = MAX(most, mem_taken());
	}
	assert_int_equal(0, e->n_ends);
	assert_true(loop_until(e->loop, has_ended, e, 20000));
	assert_int_equal(ST_LIMIT, e->why.code);
	says(&e->why, "does not read: 512 frames wait");
	assert_true(most - e->taken < 200000);
}

struct reader {
	struct ends *e;
	uint64_t next, until;
};

static bool reads_all(void *ctx)
{
	struct reader *r = ctx;
	struct msg_done done = {0};
	uint8_t in[LINK_FRAME_MAX];
	struct err err;
	ssize_t n;

	/* Slowly, so that the queue is needed all the time. */
	for (int i = 0; i < 7; i++) {
		n = recv(r->e->other, in, sizeof(in), 0);
		if (n < 0)
			break;
		assert_int_equal(MSG_done, in[0]);
		CHECK_OK(wire_decode(wire_find(MSG_done),
				 (struct bytes){in + 1, (size_t)n - 1}, &done, &err),
			err);
		assert_int_equal(r->next, done.lease);
		r->next++;
	}
	return r->next == r->until;
}

static void what_waits_goes_out_in_order(void **state)
{
	struct ends *e = *state;
	struct msg_done done = {.ok = 1};
	struct reader r = {.e = e, .next = 1};
	int small = 4096;

	/* A small buffer, so that most of the frames have to wait. */
	assert_int_equal(
		0, setsockopt(e->own, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)));
	for (done.lease = 1; done.lease <= 500; done.lease++)
		link_send(e->link, MSG_done, &done, -1);
	r.until = 501;
	assert_true(mem_taken() - e->taken > 400 * 32);
	assert_true(loop_until(e->loop, reads_all, &r, 10000));
	assert_int_equal(0, e->n_ends);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(a_ticket_arrives_with_its_descriptor),
		cmocka_unit_test(refused_frames_end_the_link_once),
		WITH(a_frame_too_long_is_refused),
		WITH(a_refusal_of_the_owner_ends_the_link),
		WITH(the_end_of_the_peer_is_seen_after_its_last_words),
		WITH(sending_to_a_dead_peer_ends_the_link_later),
		WITH(a_peer_that_does_not_read_is_cut),
		WITH(what_waits_goes_out_in_order),
	};

	log_level_set(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
