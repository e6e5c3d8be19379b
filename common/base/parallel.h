/* Jobs side by side, for work at start, and turns at what only one of them may use. A
 * thread of its own that lives on is not made here. */
#ifndef COMMON_BASE_PARALLEL_H
#define COMMON_BASE_PARALLEL_H
#include <stdint.h>

/* Calls job(arg, i) once for each i below n_jobs, on at most n_threads threads, the
 * caller among them, and returns when all are done. Jobs begin in ascending order. With
 * one thread, or when the system gives no other, the caller does them one by one. */
void parallel_run(uint32_t n_threads, uint32_t n_jobs, void (*job)(void *arg, uint32_t i),
	void *arg);
/* Processors that this process may run on, at least 1. */
uint32_t parallel_processors(void);

/* One holder at a time; NULL stands for a turn that nobody else wants. */
struct turn;
struct turn *turn_create(void);
void turn_destroy(struct turn *t);
void turn_take(struct turn *t);
void turn_give(struct turn *t);

#endif
