/* The queue of log lines and the thread that writes them. */
#include "common/base/log_queue.h"

#include "common/base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* Some thousand lines: more than a start or an end says, small beside everything else. */
#define QUEUE_BYTES    (256u << 10)
/* Whole lines that go out in one write; PIPE_BUF of Linux. */
#define WRITE_BYTES    4096u
/* A reader that takes nothing for so long has stalled; one that is slow gets this long.
 */
#define STALLED_MS     500
#define DRAIN_MS       3000
/* Not one that somebody closes by habit. */
#define DESCRIPTOR_MIN 3

static struct {
	_Atomic int fd; /* ours, or stderr itself before log_queue_to; -1: nowhere */
	_Atomic bool threaded;
	log_notice_fn *notice;
	sem_t more;
	/* Bytes that ever went in and out. The one is written by the callers of put, who
	 * exclude each other, the other by the thread: it needs no lock, so that a crash
	 * inside of one does not keep the lines before it from being written. */
	_Atomic uint64_t put, taken;
	/* Lines that were dropped and not told yet; while there are, all are dropped. */
	_Atomic uint64_t dropped;
	_Atomic uint64_t ever_dropped;
	char bytes[QUEUE_BYTES];
} queue = {.fd = STDERR_FILENO};

static void write_all(const char *at, size_t len)
{
	int fd = atomic_load(&queue.fd);

	while (len > 0) {
		ssize_t n = write(fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		/* Somebody who shares it made it non-blocking. */
		if (n < 0 && errno == EAGAIN) {
			struct pollfd p = {.fd = fd, .events = POLLOUT};

			(void)poll(&p, 1, -1);
			continue;
		}
		if (n <= 0)
			return; /* nowhere left to tell it */
		at += n;
		len -= (size_t)n;
	}
}

/* As many whole lines as one write takes. */
static size_t next_lines(char out[WRITE_BYTES])
{
	uint64_t from = atomic_load(&queue.taken);
	uint64_t n = MIN(atomic_load(&queue.put) - from, WRITE_BYTES);
	size_t lines = 0;

	for (size_t i = 0; i < n; i++) {
		out[i] = queue.bytes[(from + i) % QUEUE_BYTES];
		if (out[i] == '\n')
			lines = i + 1;
	}
	return lines;
}

static void write_queued(void)
{
	char text[WRITE_BYTES];
	size_t n;

	while ((n = next_lines(text)) > 0) {
		write_all(text, n);
		atomic_fetch_add(&queue.taken, n);
	}
}

static void *writer(void *unused)
{
	char notice[LOG_LINE_BYTES_MAX];

	(void)unused;
	for (;;) {
		uint64_t n;

		while (sem_wait(&queue.more) != 0)
			;
		write_queued();
		n = atomic_load(&queue.dropped);
		if (n == 0)
			continue;
		/* What comes in after the subtraction is kept, and written after this. */
		write_all(notice, queue.notice(notice, n));
		atomic_fetch_sub(&queue.dropped, n);
	}
	return NULL;
}

void log_queue_to(int fd)
{
	int mine = fcntl(fd, F_DUPFD_CLOEXEC, DESCRIPTOR_MIN);
	int old = atomic_exchange(&queue.fd, mine);

	if (old >= DESCRIPTOR_MIN)
		close(old);
}

status log_queue_start(log_notice_fn *notice, struct err *err)
{
	sigset_t all, was;
	pthread_t thread;
	int rc;

	queue.notice = notice;
	sem_init(&queue.more, 0, 0);
	/* Signals are for the threads that expect them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	rc = pthread_create(&thread, NULL, writer, NULL);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (rc != 0)
		return err_set(err, ST_NOMEM, "no thread for the log: %s", strerror(rc));
	pthread_detach(thread);
	atomic_store(&queue.threaded, true);
	return ST_OK;
}

static void enqueue(const char *line, size_t len)
{
	uint64_t put = atomic_load(&queue.put);
	size_t at = put % QUEUE_BYTES;
	size_t first = MIN(len, QUEUE_BYTES - at);

	memcpy(queue.bytes + at, line, first);
	memcpy(queue.bytes, line + first, len - first);
	atomic_store(&queue.put, put + len);
}

void log_queue_put(const char *line, size_t len)
{
	uint64_t waiting = atomic_load(&queue.put) - atomic_load(&queue.taken);

	if (atomic_load(&queue.fd) < 0)
		return;
	if (!atomic_load(&queue.threaded)) {
		write_all(line, len);
		return;
	}
	if (atomic_load(&queue.dropped) > 0 || len > QUEUE_BYTES - waiting) {
		atomic_fetch_add(&queue.dropped, 1);
		atomic_fetch_add(&queue.ever_dropped, 1);
	} else {
		enqueue(line, len);
	}
	sem_post(&queue.more);
}

uint64_t log_queue_dropped(void)
{
	return atomic_load(&queue.ever_dropped);
}

void log_queue_drain(void)
{
	uint64_t taken = atomic_load(&queue.taken);
	int stalled = 0;

	if (!atomic_load(&queue.threaded))
		return;
	for (int ms = 0; ms < DRAIN_MS && stalled < STALLED_MS; ms++) {
		uint64_t now = atomic_load(&queue.taken);

		if (now == atomic_load(&queue.put) && atomic_load(&queue.dropped) == 0)
			return;
		stalled = now == taken ? stalled + 1 : 0;
		taken = now;
		(void)poll(NULL, 0, 1);
	}
}
