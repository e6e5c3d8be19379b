/* Log lines and program output: the one place of the libraries that prints. */
#include "common/base/log.h"

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log_queue.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024
#define RECENT         32

/* A text seen within the last second. `held` counts the repeats that were not
 * written; they are reported by the next line after the second is over. */
struct recent {
	uint64_t hash; /* 0: unused */
	uint64_t first_ns;
	uint64_t held;
	enum log_level level;
	const char *file;
	char text[LINE_MAX_BYTES];
};

static _Atomic int max_level = LOG_INFO;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* everything below */
static struct recent recent[RECENT];
static char process_name[64];

static const char *const level_names[] = {
	[LOG_ERROR] = "error",
	[LOG_WARN] = "warn",
	[LOG_INFO] = "info",
	[LOG_DEBUG] = "debug",
};

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

/* A text may quote what a peer sent: one line stays one line. */
static void flatten(char *text)
{
	for (; *text != 0; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = ' ';
}

/* The length, with the end of the line. */
static size_t format_line(char line[LOG_LINE_BYTES_MAX], enum log_level level,
	const char *file, const char *text, uint64_t repeated)
{
	char when[32];
	char count[40] = "";
	struct timespec now;
	struct tm tm;
	int n;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	if (repeated > 0)
		snprintf(count, sizeof(count), " repeated=%llu",
			(unsigned long long)repeated);
	n = snprintf(line, LOG_LINE_BYTES_MAX - 1, "%s.%03ldZ %s %s%s%s: %s%s", when,
		now.tv_nsec / 1000000, level_names[level], process_name,
		process_name[0] != 0 ? " " : "", base_of(file), text, count);
	if (n < 0)
		return 0;
	if ((size_t)n > LOG_LINE_BYTES_MAX - 2)
		n = (int)LOG_LINE_BYTES_MAX - 2;
	line[n++] = '\n';
	return (size_t)n;
}

static void write_line(
	enum log_level level, const char *file, const char *text, uint64_t repeated)
{
	char line[LOG_LINE_BYTES_MAX];

	log_queue_put(line, format_line(line, level, file, text, repeated));
}

/* Report repeats whose second is over, and forget their texts. */
static void flush_old(uint64_t now)
{
	for (size_t i = 0; i < RECENT; i++) {
		struct recent *r = &recent[i];

		if (r->hash == 0 || now - r->first_ns < NS_PER_S)
			continue;
		if (r->held > 0)
			write_line(r->level, r->file, r->text, r->held);
		r->hash = 0;
	}
}

/* true: the text was written less than a second ago, and is now counted. */
static bool held_back(enum log_level level, const char *file, const char *text)
{
	uint64_t now = clock_ns();
	uint64_t hash = hash64(text, strlen(text), (uint64_t)level + 1) | 1;
	struct recent *slot = &recent[0];

	flush_old(now);
	for (size_t i = 0; i < RECENT; i++) {
		struct recent *r = &recent[i];

		if (r->hash == hash && strcmp(r->text, text) == 0) {
			r->held++;
			return true;
		}
		if (r->hash == 0 || (slot->hash != 0 && r->first_ns < slot->first_ns))
			slot = r;
	}
	if (slot->hash != 0 && slot->held > 0)
		write_line(slot->level, slot->file, slot->text, slot->held);
	slot->hash = hash;
	slot->first_ns = now;
	slot->held = 0;
	slot->level = level;
	slot->file = file;
	snprintf(slot->text, sizeof(slot->text), "%s", text);
	return false;
}

/* ---- a log that nobody needs to read ---- */

static size_t notice_dropped(char line[LOG_LINE_BYTES_MAX], uint64_t n_dropped)
{
	char text[120];
	size_t n;

	snprintf(text, sizeof(text),
		"%llu log lines were dropped: they were not read fast enough",
		(unsigned long long)n_dropped);
	pthread_mutex_lock(&lock);
	n = format_line(line, LOG_WARN, __FILE__, text, 0);
	pthread_mutex_unlock(&lock);
	return n;
}

static const int deadly[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
static struct sigaction before[COUNT(deadly)]; /* sanitizers have handlers */

/* What was logged before a crash is written first; then the signal takes its course. */
static void on_crash(int number, siginfo_t *info, void *unused)
{
	(void)unused;
	log_queue_drain();
	for (size_t i = 0; i < COUNT(deadly); i++)
		if (deadly[i] == number)
			sigaction(number, &before[i], NULL);
	/* A fault comes again by itself, with what is known of it. */
	if (info->si_code <= 0)
		raise(number);
}

void log_to(int fd)
{
	pthread_mutex_lock(&lock);
	log_queue_to(fd);
	pthread_mutex_unlock(&lock);
}

status log_begin(struct err *err)
{
	struct sigaction act = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO};
	status st;

	log_to(STDERR_FILENO);
	st = log_queue_start(notice_dropped, err);
	for (size_t i = 0; st == ST_OK && i < COUNT(deadly); i++)
		sigaction(deadly[i], &act, &before[i]);
	return st;
}

uint64_t log_dropped(void)
{
	return log_queue_dropped();
}

void log_end(void)
{
	log_queue_drain();
}

/* An assertion speaks through the log: the C library's own words go to a descriptor that
 * may block for ever. */
_Noreturn void __assert_fail(
	const char *expression, const char *file, unsigned line, const char *function)
{
	log_error("assertion failed: %s in %s, %s:%u", expression, function, file, line);
	abort();
}

/* ---- lines ---- */

const char *log_word(char word[LOG_WORD_BYTES], const char *text)
{
	size_t n = 0;

	for (; *text != 0 && n + 4 <= LOG_WORD_BYTES; text++) {
		unsigned char c = (unsigned char)*text;

		if (c > ' ' && c < 0x7f && strchr("\"\\=%", c) == NULL)
			word[n++] = (char)c;
		else
			n += (size_t)snprintf(word + n, 4, "%%%02X", c);
	}
	word[n] = 0;
	return word;
}

void log_level_set(enum log_level level)
{
	atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
}

void log_level_word(const char *word)
{
	for (size_t i = 0; i < COUNT(level_names); i++)
		if (strcmp(word, level_names[i]) == 0)
			log_level_set((enum log_level)i);
}

void log_name_set(const char *name)
{
	pthread_mutex_lock(&lock);
	snprintf(process_name, sizeof(process_name), "%s", name);
	pthread_mutex_unlock(&lock);
}

void log_at(enum log_level level, const char *file, const char *fmt, ...)
{
	char text[LINE_MAX_BYTES];
	va_list ap;
	int saved = errno;

	if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	flatten(text);
	pthread_mutex_lock(&lock);
	if (!held_back(level, file, text))
		write_line(level, file, text, 0);
	pthread_mutex_unlock(&lock);
	errno = saved;
}

void out_print(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stdout, fmt, ap);
	va_end(ap);
	fflush(stdout);
}
