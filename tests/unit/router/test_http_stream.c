// labels: threads
/* Streams as they leave: how many sends they cost, and whole for whoever reads late. */
#include "http_rig.h"

#include <sys/syscall.h>

#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\n\r\n"

/* The pieces of each send of this process that has some; sends to a full socket. */
static atomic_uint n_sends, pieces[64], n_partial;

static unsigned pieces_in(const void *buf, size_t len)
{
	const char *at = buf, *end = at + len;
	unsigned n = 0;

	while ((at = memmem(at, (size_t)(end - at), PIECE, sizeof(PIECE) - 1)) != NULL) {
		n++;
		at++;
	}
	return n;
}

/* The name that a program defines itself is the one that its libraries find. */
ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	unsigned n = pieces_in(buf, len);
	ssize_t sent;

	if (n > 0)
		atomic_store(&pieces[atomic_fetch_add(&n_sends, 1) % 64], n);
	sent = syscall(SYS_sendto, fd, buf, len, flags, NULL, 0);
	if (sent != (ssize_t)len)
		atomic_fetch_add(&n_partial, 1);
	return sent;
}

static void what_is_written_in_one_turn_goes_out_in_one_send(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	int fd = connect_to(r);

	(void)state;
	atomic_store(&n_sends, 0);
	put(fd, GET("/burst"));
	take_until(fd, "\r\n0\r\n\r\n");
	assert_int_equal(atomic_load(&n_sends), 2);
	assert_int_equal(atomic_load(&pieces[0]), 1);
	assert_int_equal(atomic_load(&pieces[1]), 3);
	rig_until(&r->delivered, 1);
	close(fd);
	rig_stop(r);
}

static char read_byte(int fd)
{
	static char buf[1 << 16];
	static size_t at, n;

	if (at == n) {
		ssize_t k = recv(fd, buf, sizeof(buf), 0);

		assert_true(k > 0);
		n = (size_t)k;
		at = 0;
	}
	return buf[at++];
}

static void read_text(int fd, const char *text)
{
	for (size_t i = 0; text[i] != 0; i++)
		assert_int_equal(read_byte(fd), text[i]);
}

static size_t read_size(int fd)
{
	char line[32];
	size_t n = 0;

	while ((line[n] = read_byte(fd)) != '\n')
		n = MIN(n + 1, sizeof(line) - 1);
	line[n] = '\0';
	return strtoul(line, NULL, 16);
}

/* The socket is full many times before it has read all. */
static void who_reads_late_gets_every_byte_and_asks_again(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	int fd = connect_to(r), small = 1 << 17;
	size_t len, total = 0;
	unsigned n_head = 0;

	(void)state;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	put(fd, GET("/burst/100"));
	usleep(300000);
	/* The head, up to its empty line. */
	for (unsigned run = 0; run < 4; n_head++) {
		char c = read_byte(fd);

		run = c == "\r\n\r\n"[run] ? run + 1 : c == '\r';
		assert_true(n_head < 4096);
	}
	assert_int_equal(read_size(fd), sizeof(PIECE) - 1);
	read_text(fd, PIECE "\r\n");
	while ((len = read_size(fd)) > 0) {
		for (size_t i = 0; i < len; i++, total++)
			assert_int_equal(read_byte(fd), 'a' + total % 65536 % 23);
		read_text(fd, "\r\n");
	}
	read_text(fd, "\r\n");
	assert_int_equal(total, 100u << 16);
	assert_true(atomic_load(&n_partial) > 0);
	rig_until(&r->delivered, 1);
	put(fd, GET("/burst"));
	read_text(fd, "HTTP/1.1 200");
	close(fd);
	rig_stop(r);
}

static void who_leaves_a_full_stream_ends_it(void **state)
{
	struct rig *r = rig_start((struct http_options){0});
	int fd = connect_to(r), small = 4096;

	(void)state;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	put(fd, GET("/burst/100"));
	usleep(300000);
	close(fd);
	rig_until(&r->ends, 1);
	assert_int_equal(atomic_load(&r->delivered), 0);
	rig_stop(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_in_one_turn_goes_out_in_one_send),
		cmocka_unit_test(who_reads_late_gets_every_byte_and_asks_again),
		cmocka_unit_test(who_leaves_a_full_stream_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
