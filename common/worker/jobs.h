/* The jobs of a worker, one table for both roles: from a request (router, number,
 * attempt) to a place of a fixed number of them; live ones in order of arrival; each in a
 * state that only jobs_move() writes, by the role's table of moves; and whatever ends
 * them, which is the same for both. A role's own struct begins with struct job. Control
 * thread only. */
#ifndef COMMON_WORKER_JOBS_H
#define COMMON_WORKER_JOBS_H
#include "common/base/list.h"
#include "common/wire/wire.h"
#include <stdbool.h>

struct worker;

/* A role's states and events go on where these end. */
enum job_state { JOB_GONE, JOB_QUEUED, JOB_OWN_STATES };
enum job_event {
	JOB_NONE,
	JOB_ENDED, /* finished, cancelled, router lost, drain cut: every live state has it
		    */
	JOB_OWN_EVENTS
};
#define JOB_STATES_MAX 12u
#define JOB_EVENTS_MAX 12u

struct job {
	struct wire_request req;
	unsigned state;
	uint64_t tag;   /* of this use of the place: its index below a number that never
			   repeats */
	uint64_t named; /* the last beat of its router that named it */
	uint32_t n_generated;
	bool rejected; /* was said: nothing more is */
	struct list_node node;
};

struct job_move {
	unsigned next;
	void (*act)(void *self, struct job *job); /* NULL: this pair cannot happen */
};
void jobs_no_act(void *self, struct job *job);

/* A role's part, as data. self is the role's. */
struct job_kind {
	size_t bytes; /* of its struct */
	unsigned n_states;
	const struct job_move (*moves)[JOB_EVENTS_MAX]; /* [n_states] */
	/* Sets of states, MAY() each: */
	unsigned said; /* its end, or what stands for it, was said before */
	unsigned
		lasting; /* others may be reading it: it outlives its router's interest */
	/* Asserts what must hold in its state. */
	void (*check)(const void *self, const struct job *job);
	/* Gives back the memory that it owns. */
	void (*release)(struct job *job);
	/* A lasting one that its router does not know of any more; NULL: none is. */
	void (*disown)(void *self, struct job *job);
	/* Tokens that it waits for, as beats report them. */
	uint32_t (*waits)(const struct job *job);
};

/* What a beat says of the load. */
struct job_load {
	uint32_t running;
	uint32_t queued;
	uint64_t queued_tokens;
};

struct jobs {
	struct worker *w;
	const struct job_kind *kind;
	struct list order; /* live ones, oldest first; list_each with node job.node */
	uint32_t count[JOB_STATES_MAX]; /* GONE: free places */
	uint32_t capacity;
	/* private */
	struct idmap *index_of;
	char *places;   /* [capacity] of kind->bytes */
	uint32_t *free; /* stack of indices, count[JOB_GONE] */
	uint32_t last_use;
	struct job *moving;
	unsigned then;
};

bool request_eq(struct wire_request a, struct wire_request b);
/* Never 0. */
uint64_t request_key(struct wire_request r);

/* Start-up memory. */
struct jobs *jobs_create(
	struct worker *w, const struct job_kind *kind, uint32_t capacity);
/* Releases what live jobs own; nobody is told. */
void jobs_destroy(struct jobs *s);

/* What the role made of a request: its struct, with req and n_generated, is copied to its
 * place, QUEUED. st ST_LIMIT or ST_INVALID says why it could not be made. NULL: then, or
 * where no place is free, made is released and the request is answered `rejected`. */
MUST_CHECK struct job *jobs_add(
	struct jobs *s, struct job *made, status st, const struct err *err);
struct job *jobs_find(const struct jobs *s, struct wire_request r);
/* NULL: that job is gone. */
struct job *jobs_of_tag(const struct jobs *s, uint64_t tag);

/* The pair is impossible (an assert) unless the table knows it. A job that comes to GONE
 * gives up its memory and its place, and its router hears `freed` unless it was rejected.
 * From within an action of the same job the move is done when the action is over. */
void jobs_move(struct jobs *s, struct job *job, unsigned event);
bool jobs_move_known(const struct job_kind *kind, unsigned state, unsigned event);

/* JOB_ENDED, said to the router as far as it must be. The job may be gone after it. */
void jobs_end(struct jobs *s, struct job *job, enum wire_finish reason, const char *text);
/* One that ended before the cancel came is answered `freed`. */
void jobs_cancel(struct jobs *s, struct wire_request r);
/* A drain ran out of time: ends every job. */
void jobs_cut(struct jobs *s, const char *text);
/* What a router that is gone asked for ends unseen; lasting ones stay. */
void jobs_router_lost(struct jobs *s, uint64_t router);
/* The beat `number` of its router names this request; false: it is not held. Not wanted:
 * as if cancel were said again, which may have come before hello. */
bool jobs_named(struct jobs *s, struct wire_request r, uint64_t number, bool wanted);
/* After all of them: what of this router was not named is not wanted any more. */
void jobs_unnamed(struct jobs *s, uint64_t router, uint64_t number);

/* A slot and this many pages are free right now. */
bool jobs_room(const struct jobs *s, uint32_t n_pages);
/* Whether a new request is answered already: this worker drains, or that attempt was here
 * before. */
bool jobs_refuse(struct jobs *s, struct wire_request r);
/* The same for one that needs n_pages, when as many wait as may. */
bool jobs_refuse_full(struct jobs *s, struct wire_request r, uint32_t n_pages);

struct job_load jobs_load(const struct jobs *s);
/* Places, order, map and counts agree, and each job is as its state says: asserts. */
void jobs_check(const struct jobs *s);

#endif
