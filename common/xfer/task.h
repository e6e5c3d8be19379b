/* A piece of work on the loop's pool that its owner can leave behind: owners are torn
 * down on the loop thread while the pool may still read their memory. A task stands
 * first in a structure from mem_take. */
#ifndef COMMON_XFER_TASK_H
#define COMMON_XFER_TASK_H
#include "common/loop/loop.h"
#include <semaphore.h>
#include <stdatomic.h>

struct task {
	void (*run)(struct task *t);  /* pool thread; looks at cancel now and then */
	void (*done)(struct task *t); /* loop thread; may start the task again */
	atomic_bool cancel;
	/* task.c's */
	atomic_int phase;
	sem_t finished;
	bool started, abandoned;
};

/* ST_LIMIT: no request memory. */
MUST_CHECK status task_start(struct loop *loop, struct task *t);
/* Ends the ownership at once. A running task is cancelled and waited for, so that run
 * does not execute any more at return; done is not called. Frees t, now or later. */
void task_abandon(struct task *t);

#endif
