/* The prefill role: its jobs and what it knows of passes in flight. Private to this
 * folder. */
#ifndef PREFILL_WORKER_PREFILL_H
#define PREFILL_WORKER_PREFILL_H
#include "common/worker/jobs.h"
#include "common/worker/sampling.h"
#include "common/worker/worker.h"
#include "prefill-worker/pw_cost.h"
#include "prefill-worker/pw_sched.h"

/* A prompt on its way to a lease. pw_jobs is the table.
 *
 *   QUEUED --admitted--> FILLING --sampled--> COMPUTED --granted--> EXPORTED
 *      |                  |    \                 |                     |
 *      |                  |     +--ended------+  |                     | lease ended
 *      +------ended-------+--NaN--+           |  |                     |
 *                                 v           v  v                     v
 *                                GONE <-- LEAVING    (no pass in flight) GONE
 *
 * QUEUED    holds its ids, no pages
 * FILLING   holds pages and a slot; in_flight chunks are with the engine
 * COMPUTED  all tokens done, first token sampled; the lease is not granted yet
 * EXPORTED  the lease holds pages and slot; the router was told
 * LEAVING   withdrawn while a pass may still touch its pages (page rule 4) */
enum pw_state {
	PW_GONE = JOB_GONE,
	PW_QUEUED = JOB_QUEUED,
	PW_FILLING = JOB_OWN_STATES,
	PW_COMPUTED,
	PW_EXPORTED,
	PW_LEAVING,
	PW__STATES
};
enum pw_event {
	PW_ENDED = JOB_ENDED, /* cancel, deadline, router lost, drain cut */
	PW_ADMITTED = JOB_OWN_EVENTS,
	PW_SAMPLED,
	PW_NAN,
	PW_GRANTED,
	PW_QUIET, /* no chunk in flight any more */
	PW_LEASE_ENDED,
	PW__EVENTS,
};

struct pw_job {
	struct job job;
	uint32_t *ids; /* prompt, and for a replay what was generated so far */
	uint32_t n_ids;
	uint32_t *pages; /* n_pages = ceil(n_ids / PAGE_TOKENS), taken at admission */
	uint32_t n_pages;
	uint32_t slot;
	uint32_t next;      /* tokens given to the engine */
	uint32_t done;      /* tokens computed */
	uint32_t in_flight; /* chunks */
	struct sampling_terms draw;
	struct guide *guide; /* NULL: no grammar */
	uint32_t n_prompt;
	uint32_t n_choices;
	struct wire_first *firsts; /* [n_choices] */
	struct wire_logprob *tops; /* [n_choices][draw.how.n_top] or NULL */
	bool score;                /* the prompt's logprobs are wanted */
	uint32_t score_top;
	uint64_t lease;    /* the first of n_leases that were granted */
	uint32_t n_leases; /* that have not ended */
	uint64_t arrived_ns, started_ns, computed_ns;
};

/* One pass with the engine; the engine holds two, results come in order. */
#define PASSES_MAX 4u
struct pw_chunk {
	struct pw_job *job;
	uint32_t n_tokens;
};
struct pw_pass {
	uint64_t epoch;
	struct pw_chunk *chunks; /* [max_num_seqs] */
	uint32_t n;
	double context; /* of its tokens (pw_cost.h) */
};

struct pw {
	struct worker *w;
	struct jobs *jobs;                 /* the worker's */
	struct pw_pass passes[PASSES_MAX]; /* ring */
	uint32_t first_pass, n_passes;
	struct pw_cost cost;
	/* Scratch of one scheduling, start-up memory. */
	struct eng_chunk *eng_chunks; /* [max_num_seqs] */
	struct pw_take *takes;        /* [max_num_seqs] */
	uint32_t *left;               /* [jobs->capacity] */
	struct pw_job **waiting;      /* [jobs->capacity] */
};

/* pw_job.c */
extern const struct job_kind pw_jobs;
struct pw_job *pw_of(struct job *job);
/* Pages and slot for the oldest queued prompts, as far as there are any. */
void pw_admit(struct pw *p);
/* COMPUTED jobs become leases, and their routers are told. */
void pw_grant(struct pw *p);
void pw_on_lease_freed(void *ctx, const struct lease *lease);

/* pw_score.c */
/* The rows of the result that belong to this job's prompt go to its router; false: they
 * are not finite, or there is no memory to send them, and the job ended. */
bool pw_score(struct pw *p, struct pw_job *j, const struct eng_result *r);

/* pw_pass.c */
/* As many passes as the engine takes. */
void pw_pass_form(struct pw *p);
void pw_pass_done(struct pw *p, const struct eng_result *r);

#endif
