/* An event loop: one per thread, and everything here is called on that thread except
 * the work function of a job. Objects that the system may still refer to (watchers)
 * are closed inside: after the stop or close call no callback comes any more.
 *
 * One turn: turn hooks -> sleep until something is due -> descriptors -> timers. */
#ifndef COMMON_LOOP_LOOP_H
#define COMMON_LOOP_LOOP_H
#include "common/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct loop;
/* Start-up memory. Ends the process with a sentence when the system has no epoll. */
struct loop *loop_create(void);
/* Until loop_stop from a callback: the turn is finished first. Called before loop_run,
 * loop_stop makes it return at once. */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);
/* Waits for jobs in flight, runs the pending closes. Every watcher of the loop must
 * have been closed by its owner: an open one is a bug and asserts. */
void loop_destroy(struct loop *l);

/* A timer lives inside the structure that it serves: zero it, start it, stop it before
 * the structure goes away. Starting a running timer moves it. It may stop or restart
 * itself, or free its owner, from its own callback. */
struct loop_timer {
	void (*fn)(void *ctx);
	void *ctx;
	struct loop *loop; /* NULL: not running. The rest belongs to loop_timer.c */
	uint64_t due_ns;
	uint64_t repeat_ns;
	uint64_t began_ns, patience_ns; /* of loop_timer_wait; 0: it is none */
	struct loop_timer *child, *next, *prev;
};

/* First call after delay_ms, then every repeat_ms (0: once). Late by less than 2 ms
 * plus what the turn takes; a repeat that was missed is skipped, not made up for. */
void loop_timer_start(struct loop *l, struct loop_timer *t, uint64_t delay_ms,
	uint64_t repeat_ms, void (*fn)(void *ctx), void *ctx);
/* Once, for a wait that ends with a verdict about somebody else: time in which this
 * process did not run does not count (clock_ran_ns, whose clock_look must come from a
 * repeating timer of this loop; without one it is loop_timer_start). */
void loop_timer_wait(struct loop *l, struct loop_timer *t, uint64_t delay_ms,
	void (*fn)(void *ctx), void *ctx);
void loop_timer_stop(struct loop_timer *t);
bool loop_timer_running(const struct loop_timer *t);

/* Descriptor events, level-triggered. */
enum loop_event {
	LOOP_READABLE = 1,
	LOOP_WRITABLE = 2,
	/* The peer closed its writing side (RDHUP), hung up, or the descriptor failed. It
	 * can come with READABLE: data sent before the end is still to be read. */
	LOOP_GONE = 4,
};

struct loop_fd;
typedef void loop_fd_fn(void *ctx, int fd, unsigned events);
/* One watcher per descriptor. Watches nothing until started. ST_IO: the kernel cannot
 * poll it (a regular file) or it is watched already; ST_LIMIT: no request memory. */
MUST_CHECK status loop_fd_open(struct loop_fd **out, struct loop *l, int fd,
	loop_fd_fn *fn, void *ctx, struct err *err);
/* events: or of loop_event; replaces what was watched before. */
void loop_fd_start(struct loop_fd *w, unsigned events);
void loop_fd_stop(struct loop_fd *w);
/* The watcher is gone for the caller. close_the_fd: the descriptor is closed by the
 * loop once that is safe; otherwise it is the caller's again, unwatched, at return.
 * NULL is allowed. */
void loop_fd_close(struct loop_fd *w, bool close_the_fd);

/* Starts the threads of the pool, which all loops share, now: the first job would start
 * them, and ends the process when memory for their stacks is refused then. */
void loop_start_pool(struct loop *l);
/* Run work(ctx) on the pool, then done(ctx) on the loop thread. ST_LIMIT: no request
 * memory. A job cannot be withdrawn; ctx must live until done. */
MUST_CHECK status loop_work(
	struct loop *l, void (*work)(void *ctx), void (*done)(void *ctx), void *ctx);

/* fn runs once per turn before the loop sleeps. At most 16 hooks. */
void loop_on_turn(struct loop *l, void (*fn)(void *ctx), void *ctx);
void loop_off_turn(struct loop *l, void (*fn)(void *ctx), void *ctx);
/* From a turn hook: more is to be done, do not sleep in this turn. */
void loop_keep_awake(struct loop *l);

/* SIGTERM and SIGINT: fn gets how many came so far (1 = drain, 2 = now). Once per
 * process; ends with the loop. */
/* SIGHUP; once, after loop_on_signals. */
MUST_CHECK status loop_on_hangup(
	struct loop *l, void (*fn)(void *ctx), void *ctx, struct err *err);
MUST_CHECK status loop_on_signals(struct loop *l, void (*fn)(void *ctx, unsigned count),
	void *ctx, struct err *err);

/* fn runs when entries of the directory may have changed, and every rescan_ms, because
 * notifications can be lost; it reads the directory itself. */
struct loop_dir;
MUST_CHECK status loop_dir_open(struct loop_dir **out, struct loop *l, const char *path,
	uint64_t rescan_ms, void (*fn)(void *ctx), void *ctx, struct err *err);
void loop_dir_close(struct loop_dir *d);

#endif
