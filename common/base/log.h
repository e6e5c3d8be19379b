/* One event, one line: `time level file: words key=value`. Lines about a request carry
 * req=ID. Thread-safe. Identical texts within a second are counted, not repeated.
 *
 * In a program (process.h) nobody waits for the reader of the log: lines that find no
 * room are dropped, and a line says how many. Elsewhere each line is one write(2). */
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H
#include "common/base/attr.h"
#include "common/base/err.h"

#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

#define LOG_LEVEL_WORDS "error|warn|info|debug" /* in this order */
void log_level_set(enum log_level level);
/* word: one of them. */
void log_level_word(const char *word);
/* Name of the process shown in each line, e.g. "prefill/p0". Copied. */
void log_name_set(const char *name);
void log_at(enum log_level level, const char *file, const char *fmt, ...)
	PRINTF_LIKE(3, 4);

#define log_error(...) log_at(LOG_ERROR, __FILE__, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_WARN, __FILE__, __VA_ARGS__)
#define log_info(...)  log_at(LOG_INFO, __FILE__, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __FILE__, __VA_ARGS__)

/* Text of a client as one word of a line: what is not printable ASCII, and space, quote,
 * backslash, equals and percent signs are written as %XX. Cut to fit. Returns word. */
#define LOG_WORD_BYTES 256u
const char *log_word(char word[LOG_WORD_BYTES], const char *text);

/* Lines go to a copy of this descriptor; without a call, to stderr itself. */
void log_to(int fd);
/* For process.c. A thread writes from now on; what was logged before a crash or a failed
 * assertion is still written. */
MUST_CHECK status log_begin(struct err *err);
/* Lines that were dropped so far, because they were not read. */
uint64_t log_dropped(void);
/* Gives the thread its time, but waits for no reader that has stalled. */
void log_end(void);

/* Program output that is no log line (help, plans, tables); to stdout. */
void out_print(const char *fmt, ...) PRINTF_LIKE(1, 2);

#endif
