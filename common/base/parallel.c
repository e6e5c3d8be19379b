/* Threads that take the next job until there is none. */
#include "common/base/parallel.h"

#include "common/base/attr.h"
#include "common/base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

#define THREADS_MAX 64u

struct crew {
	void (*job)(void *arg, uint32_t i);
	void *arg;
	uint32_t n_jobs;
	_Atomic uint32_t next;
};

static void *work(void *ctx)
{
	struct crew *c = ctx;

	for (uint32_t i; (i = atomic_fetch_add(&c->next, 1)) < c->n_jobs;)
		c->job(c->arg, i);
	return NULL;
}

void parallel_run(uint32_t n_threads, uint32_t n_jobs, void (*job)(void *arg, uint32_t i),
	void *arg)
{
	struct crew c = {.job = job, .arg = arg, .n_jobs = n_jobs};
	uint32_t wanted = MIN(MIN(n_threads, n_jobs), THREADS_MAX);
	pthread_t others[THREADS_MAX];
	uint32_t n = 0;

	while (n + 1 < wanted && pthread_create(&others[n], NULL, work, &c) == 0)
		n++;
	(void)work(&c);
	for (uint32_t i = 0; i < n; i++)
		(void)pthread_join(others[i], NULL);
}

uint32_t parallel_processors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return 1;
	return (uint32_t)MAX(1, CPU_COUNT(&set));
}

struct turn {
	pthread_mutex_t lock;
};

struct turn *turn_create(void)
{
	struct turn *t = mem_alloc(1, sizeof(*t));
	int rc = pthread_mutex_init(&t->lock, NULL);

	assert(rc == 0);
	return t;
}

void turn_destroy(struct turn *t)
{
	if (t == NULL)
		return;
	(void)pthread_mutex_destroy(&t->lock);
	mem_free(t);
}

void turn_take(struct turn *t)
{
	if (t != NULL) {
		int rc = pthread_mutex_lock(&t->lock);

		assert(rc == 0);
	}
}

void turn_give(struct turn *t)
{
	if (t != NULL) {
		int rc = pthread_mutex_unlock(&t->lock);

		assert(rc == 0);
	}
}
