/* One event, one line, one write(2): `time level file: words key=value`. Lines
 * about a request carry req=ID. Thread-safe. Identical texts within a second are
 * counted, not repeated. */
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H
#include "common/base/attr.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_level_set(enum log_level level);
/* Name of the process shown in each line, e.g. "prefill/p0". Copied. */
void log_name_set(const char *name);
void log_at(enum log_level level, const char *file, const char *fmt, ...)
	PRINTF_LIKE(3, 4);

#define log_error(...) log_at(LOG_ERROR, __FILE__, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_WARN, __FILE__, __VA_ARGS__)
#define log_info(...)  log_at(LOG_INFO, __FILE__, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __FILE__, __VA_ARGS__)

/* Program output that is no log line (help, plans, tables); to stdout. */
void out_print(const char *fmt, ...) PRINTF_LIKE(1, 2);

#endif
