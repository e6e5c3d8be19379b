/* Tasks on the pool. */
#include "common/xfer/task.h"
#include "common/base/mem.h"
#include <errno.h>

enum { TASK_QUEUED, TASK_RUNNING, TASK_FINISHED, TASK_WITHDRAWN };

static void run_task(void *ctx)
{
	struct task *t = ctx;
	int queued = TASK_QUEUED;

	if (!atomic_compare_exchange_strong(&t->phase, &queued, TASK_RUNNING))
		return;
	t->run(t);
	atomic_store(&t->phase, TASK_FINISHED);
	sem_post(&t->finished);
}

static void finish_task(void *ctx)
{
	struct task *t = ctx;

	sem_destroy(&t->finished);
	t->started = false;
	if (t->abandoned)
		mem_give(t);
	else
		t->done(t);
}

status task_start(struct loop *loop, struct task *t)
{
	status st;

	atomic_store(&t->phase, TASK_QUEUED);
	sem_init(&t->finished, 0, 0);
	t->started = true;
	st = loop_work(loop, run_task, finish_task, t);
	if (st != ST_OK) {
		t->started = false;
		sem_destroy(&t->finished);
	}
	return st;
}

void task_abandon(struct task *t)
{
	int queued = TASK_QUEUED;

	if (t == NULL)
		return;
	if (!t->started) {
		mem_give(t);
		return;
	}
	t->abandoned = true;
	atomic_store(&t->cancel, true);
	if (!atomic_compare_exchange_strong(&t->phase, &queued, TASK_WITHDRAWN))
		while (sem_wait(&t->finished) < 0 && errno == EINTR)
			;
}
