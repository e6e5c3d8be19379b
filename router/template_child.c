/* One child process: its start with limits, its socket, its end. */
#include "router/template_impl.h"

#include "common/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The program of the children is part of ours. */
__asm__(".section .rodata\n"
	"template_host_text:\n"
	".incbin \"" BATON_SOURCE_DIR "/router/template_host.py\"\n"
	"template_host_end:\n"
	".byte 0\n"
	".previous\n");
extern const char template_host_text[], template_host_end[];

#define CHILD_SOCKET 3
/* What one call may write, and what it may read: a child as fast as we are would keep
 * the loop for as long as a prompt of many megabytes takes. */
#define TURN_BYTES   (1u << 20)

/* A file that holds the program, at its beginning. */
static int open_program(struct err *err)
{
	size_t left = (size_t)(template_host_end - template_host_text);
	const char *at = template_host_text;
	int fd = memfd_create("template_host", MFD_CLOEXEC);

	while (fd >= 0 && left > 0) {
		ssize_t n = write(fd, at, left);

		if (n <= 0) {
			close(fd);
			fd = -1;
			break;
		}
		at += n;
		left -= (size_t)n;
	}
	if (fd < 0 || lseek(fd, 0, SEEK_SET) != 0)
		err_set(err, ST_IO, "template child: memory file: %s", strerror(errno));
	return fd;
}

/* Between fork and exec: other threads may hold locks, so only system calls. */
static _Noreturn void become_child(
	const struct template *t, int program, int sock, pid_t parent)
{
	char *const argv[] = {t->python, (char[]){"-I"}, (char[]){"-"}, NULL};
	char *const env[] = {
		(char[]){"LC_ALL=C.UTF-8"}, (char[]){"PATH=/usr/bin:/bin"}, NULL};
	const struct rlimit memory = {t->memory_bytes, t->memory_bytes};
	const struct rlimit none = {0, 0};
	sigset_t empty;

	sigemptyset(&empty);
	sigprocmask(SIG_SETMASK, &empty, NULL);
	signal(SIGPIPE, SIG_DFL);
	/* Sent to the whole group; ours is to end with the router, by the socket. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The order matters: sock may be 0, program may be 3. */
	sock = fcntl(sock, F_DUPFD, 10);
	program = fcntl(program, F_DUPFD, 10);
	if (getppid() != parent || dup2(program, STDIN_FILENO) < 0 ||
		dup2(sock, CHILD_SOCKET) < 0)
		_exit(127);
	close_range(CHILD_SOCKET + 1, ~0u, 0);
	setrlimit(RLIMIT_AS, &memory);
	setrlimit(RLIMIT_CORE, &none);
	execve(t->python, argv, env);
	_exit(127);
}

static void on_socket(void *ctx, int fd, unsigned events)
{
	struct template_child *c = ctx;

	(void)fd;
	(void)events;
	template_child_io(c);
}

status template_child_spawn(struct template_child *c, struct err *err)
{
	struct template *t = c->t;
	pid_t parent = getpid();
	int pair[2], program;

	program = open_program(err);
	if (program < 0)
		return err->code;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
		close(program);
		return err_set(err, ST_IO, "template child: socket: %s", strerror(errno));
	}
	c->pid = fork();
	if (c->pid == 0)
		become_child(t, program, pair[1], parent);
	close(program);
	close(pair[1]);
	c->fd = pair[0];
	if (c->pid < 0) {
		c->pid = 0;
		err_set(err, ST_IO, "template child: fork: %s", strerror(errno));
		template_child_kill(c);
		return err->code;
	}
	fcntl(c->fd, F_SETFL, O_NONBLOCK);
	if (loop_fd_open(&c->watch, t->loop, c->fd, on_socket, c, err) != ST_OK) {
		template_child_kill(c);
		return err->code;
	}
	loop_fd_start(c->watch, LOOP_READABLE | LOOP_GONE);
	sink_init(&c->in, TEMPLATE_RESULT_MAX + 8);
	return ST_OK;
}

void template_child_kill(struct template_child *c)
{
	if (c->pid > 0)
		kill(c->pid, SIGKILL);
	if (c->watch != NULL)
		loop_fd_close(c->watch, true);
	else if (c->fd >= 0)
		close(c->fd);
	c->watch = NULL;
	c->fd = -1;
	sink_release(&c->in);
	c->body = (struct bytes){0};
	c->n_sent = 0;
}

/* 0 when there is none: it has its whole limit left. */
uint64_t template_child_cpu_ns(const struct template_child *c)
{
	struct timespec t = {0};
	clockid_t id;

	if (c->pid <= 0 || clock_getcpuclockid(c->pid, &id) != 0 ||
		clock_gettime(id, &t) != 0)
		return 0;
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

bool template_child_reap(struct template_child *c)
{
	if (c->pid > 0 && waitpid(c->pid, NULL, WNOHANG) != 0)
		c->pid = 0;
	return c->pid == 0;
}

bool template_child_sends(const struct template_child *c)
{
	return c->body.at != NULL;
}

static void write_some(struct template_child *c)
{
	size_t total = sizeof(c->head) + c->body.len, most = TURN_BYTES;

	while (template_child_sends(c) && most > 0) {
		size_t in_head = MIN(c->n_sent, sizeof(c->head));
		size_t in_body = c->n_sent - in_head;
		struct iovec parts[] = {
			{c->head + in_head, sizeof(c->head) - in_head},
			{(void *)(uintptr_t)(c->body.at + in_body),
				MIN(c->body.len - in_body, most)},
		};
		struct msghdr m = {.msg_iov = parts, .msg_iovlen = COUNT(parts)};
		ssize_t n = sendmsg(c->fd, &m, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		/* A broken socket is seen by the reader, which comes right behind. */
		if (n < 0)
			break;
		c->n_sent += (size_t)n;
		most -= MIN((size_t)n, most);
		if (c->n_sent == total) {
			c->body = (struct bytes){0};
			c->n_sent = 0;
		}
	}
	if (c->watch != NULL)
		loop_fd_start(c->watch,
			LOOP_READABLE | LOOP_GONE |
				(template_child_sends(c) ? (unsigned)LOOP_WRITABLE : 0));
}

void template_child_send(struct template_child *c, struct bytes body)
{
	for (unsigned i = 0; i < sizeof(c->head); i++)
		c->head[i] = (uint8_t)(body.len >> 8 * i);
	c->body = body;
	c->n_sent = 0;
	write_some(c);
}

/* At most one frame is outstanding: a child speaks when it is asked. */
static bool take_frame(struct template_child *c)
{
	struct cursor at = {c->in.at, c->in.at + c->in.len};
	struct sink frame;
	uint32_t len;

	if (!cur_u32le(&at, &len))
		return false;
	if (len == 0 || len > TEMPLATE_RESULT_MAX) {
		template_on_end(c, ST_LIMIT, "The rendered prompt is too long.");
		return false;
	}
	if ((size_t)(at.end - at.at) < len)
		return false;
	frame = c->in;
	sink_init(&c->in, frame.max);
	template_on_frame(c, (char)frame.at[4], &frame,
		(struct bytes){frame.at + 5, (size_t)len - 1});
	sink_release(&frame);
	return true;
}

static void read_some(struct template_child *c)
{
	size_t most = TURN_BYTES;
	uint8_t block[16384];

	while (c->fd >= 0 && most >= sizeof(block)) {
		ssize_t n = recv(c->fd, block, sizeof(block), 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (n <= 0) {
			template_on_end(c, ST_PEER, "The process that renders it died.");
			return;
		}
		most -= (size_t)n;
		sink_put(&c->in, block, (size_t)n);
		if (c->in.full) {
			template_on_end(c, ST_LIMIT, "The rendered prompt is too long.");
			return;
		}
		while (take_frame(c))
			;
	}
}

void template_child_io(struct template_child *c)
{
	write_some(c);
	read_some(c);
	template_settle(c->t);
}
