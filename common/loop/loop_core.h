/* What the files of common/loop share about a loop. Private to this folder. */
#ifndef COMMON_LOOP_LOOP_CORE_H
#define COMMON_LOOP_LOOP_CORE_H
#include "common/loop/loop.h"

#include <uv.h>

#define LOOP_HOOKS_MAX 16

struct loop {
	uv_loop_t uv;
	uv_prepare_t before_sleep;
	uv_idle_t no_sleep; /* active: the turn polls and does not sleep */
	uv_timer_t alarm;   /* armed for the earliest loop_timer */
	uv_signal_t term, interrupt;
	bool has_signals;
	uv_signal_t hangup;
	bool has_hangup;
	void (*on_hangup)(void *ctx);
	void *on_hangup_ctx;
	bool awake;
	unsigned n_signals;
	void (*on_signal)(void *ctx, unsigned count);
	void *on_signal_ctx;
	struct loop_timer *timers; /* root of a pairing heap, earliest first */
	uint64_t serving_ns;       /* timers due up to this moment are being called */
	uint64_t jobs;             /* loop_work in flight */
	struct {
		void (*fn)(void *ctx); /* NULL: free */
		void *ctx;
	} hooks[LOOP_HOOKS_MAX];
};

/* loop_timer.c: let the loop sleep no longer than until the earliest timer. */
void loop_timer_arm(struct loop *l);

#endif
