/* Where log lines wait for the thread that writes them: a reader of the log that stalls
 * holds up that thread and nothing else. Lines come out in the order in which they went
 * in, several in one write(2) but never a part of one. When they do not fit any more they
 * are dropped, all that come until the queue is empty again, and a line says how many.
 * Private to log.c. */
#ifndef COMMON_BASE_LOG_QUEUE_H
#define COMMON_BASE_LOG_QUEUE_H
#include "common/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A write of this size to a pipe is never mixed with another process's. */
#define LOG_LINE_BYTES_MAX 2048u

/* The line that says how many were dropped, with its end; the length. */
typedef size_t log_notice_fn(char out[LOG_LINE_BYTES_MAX], uint64_t n_dropped);

/* Lines go to a descriptor of our own for what `fd` stands for; to nowhere when it stands
 * for nothing. */
void log_queue_to(int fd);
/* From now on a thread writes. Before, and when there is none, log_queue_put does. */
MUST_CHECK status log_queue_start(log_notice_fn *notice, struct err *err);
/* One line with its end. One caller at a time. */
void log_queue_put(const char *line, size_t len);
/* Lines that were ever dropped. From any thread. */
uint64_t log_queue_dropped(void);
/* Waits until all is written, but not for a reader that takes nothing for half a second.
 * From any thread, and from a signal handler. */
void log_queue_drain(void);

#endif
