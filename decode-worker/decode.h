/* The decode role and its jobs. Private to this folder. */
#ifndef DECODE_WORKER_DECODE_H
#define DECODE_WORKER_DECODE_H
#include "common/worker/jobs.h"
#include "common/worker/sampling.h"
#include "common/worker/worker.h"
#include "decode-worker/dw_text.h"

/* A sequence on its way from a lease to its last token, or to another decode worker.
 * dw_jobs is the table.
 *
 *   QUEUED --started--> PULLING --pulled--> READY --joined--> RUNNING
 *      |                 |   |                |                  |
 *      |            failed   ended            |                ended
 *      |                 |   v                |                  v
 *      |                 | ABORTING           |               LEAVING
 *      v                 v   v                v                  v
 *     GONE <-------------+---+----------------+----- left -------+
 *      ^
 *      +-- lease ended -- OFFERED <--left-- OFFERING <--offers-- RUNNING
 *
 * QUEUED    holds nothing
 * PULLING   holds pages and a slot; the importer writes them
 * ABORTING  ended, but the importer may still write (until its answer)
 * READY     the state is here and complete; no row in the engine yet
 * RUNNING   a row of the engine
 * LEAVING   ended, but a step may still touch its pages (until ENG_LEFT, page rule 4)
 * OFFERING  leaves the engine to go on elsewhere; its tokens still count until ENG_LEFT
 * OFFERED   a lease holds pages and slot; the router was told */
enum dw_state {
	DW_GONE = JOB_GONE,
	DW_QUEUED = JOB_QUEUED,
	DW_PULLING = JOB_OWN_STATES,
	DW_ABORTING,
	DW_READY,
	DW_RUNNING,
	DW_LEAVING,
	DW_OFFERING,
	DW_OFFERED,
	DW__STATES,
};
enum dw_event {
	DW_ENDED = JOB_ENDED, /* and evicted, rejected */
	DW_STARTED = JOB_OWN_EVENTS,
	DW_PULLED,
	DW_PULL_FAILED,
	DW_JOINED,
	DW_LEFT,
	DW_OFFERS,
	DW_LEASE_ENDED,
	DW__EVENTS,
};

struct dw;
struct dw_job {
	struct job job;
	struct dw *d;

	/* where the state is */
	char source_id[49];
	char link_path[RUNTIME_PATH_BYTES];
	uint64_t source_incarnation, lease; /* adopted from */
	uint64_t offer;                     /* OFFERED: the lease */
	uint64_t group; /* first lease of the choices of this prompt; 0: it has no others
			 */
	uint32_t *src_pages; /* n_state_pages */
	uint32_t src_slot;
	uint64_t pull; /* PULLING, ABORTING: the importer's handle */

	/* Positions: the state covers n_tokens = n_prompt + n_generated - 1 tokens; the
	 * last generated one is the next input and stands at position n_tokens. */
	uint32_t n_prompt, n_tokens; /* n_generated is of the head */
	uint32_t last_token;
	uint32_t n_end; /* n_tokens when nothing more may be generated */
	struct sampling_terms draw;
	struct guide *guide; /* of RUNNING the engine's; NULL: no grammar */
	uint32_t
		*past; /* ids that a penalty needs: n_past, of the prompt n_past_prompt */
	uint32_t n_past, n_past_prompt;
	struct dw_text text;

	uint32_t *pages; /* room for all that the sequence may ever need */
	uint32_t n_pages, pages_max;
	uint32_t n_state_pages; /* the first ones come with the state */
	uint32_t n_shared;      /* of these the first ones are those of another choice */
	uint32_t n_told;        /* pages that the engine knows of */
	uint32_t slot;

	struct pull_result pulled; /* without its error */
	bool adopted;              /* was said */
	bool rejected;             /* was said: nothing more is */
	bool leave_sent;
	uint64_t arrived_ns;
};

/* Tokens of one step for one router. */
struct dw_out {
	uint64_t router;
	struct wire_token *records; /* [max_num_seqs] */
	struct wire_logprob *tops;  /* [max_num_seqs * SAMPLE_TOP_MAX] */
	uint32_t n, n_tops;
};

struct dw_end {
	struct dw_job *job;
	enum wire_finish reason;
};

struct dw {
	struct worker *w;
	struct jobs *jobs; /* the worker's */
	bool starved;      /* a running row wanted a page and there was none */
	struct dw_out out[ROUTERS_MAX];
	struct dw_end *ends; /* [max_num_seqs] rows that ended in this step */
	uint32_t n_ends;
};

/* dw_job.c */
extern const struct job_kind dw_jobs;
struct dw_job *dw_of(struct job *job);
/* Tells the router and moves; the job may be gone after each of these. */
void dw_evict(struct dw *d, struct dw_job *j);
void dw_reject(struct dw *d, struct dw_job *j, enum wire_reject reason, const char *text);
/* Rows whose leave found no room in the engine's queue. */
void dw_leave_again(struct dw *d);

/* dw_adopt.c: the message that makes a job */
/* The memory of a job. */
void dw_release(struct job *job);
status dw_on_adopt(void *self, const void *msg, struct err *err);

/* dw_admit.c: QUEUED -> PULLING -> READY -> RUNNING */
/* The state's pages and the one that the next token is written to. */
uint32_t dw_pages_needed(uint32_t n_tokens);
void dw_admit(struct dw *d);
void dw_join(struct dw *d);

/* dw_offer.c: RUNNING -> OFFERING -> OFFERED */
/* Running sequences, and those that wait for a place, are for other workers now. */
void dw_offer_all(struct dw *d);
/* An OFFERING row has left the engine. */
void dw_offer(struct dw *d, struct dw_job *j);
void dw_on_lease_freed(void *ctx, const struct lease *lease);
status dw_on_release(void *self, const void *msg, struct err *err);
/* Actions of the table. */
void dw_say_offered(void *self, struct job *job);
void dw_withdraw(void *self, struct job *job);
void dw_disown(void *self, struct job *job);

/* dw_step.c: tokens, growth */
void dw_step(struct dw *d, const struct eng_result *r);
void dw_grow(struct dw *d);

#endif
