/* The decode role and its jobs. Private to this folder. */
#ifndef DECODE_WORKER_DECODE_H
#define DECODE_WORKER_DECODE_H
#include "common/worker/reqmap.h"
#include "common/worker/sampling.h"
#include "common/worker/worker.h"
#include "decode-worker/dw_text.h"

/* A sequence on its way from a lease to its last token. Only dw_move() writes the state.
 *
 *   QUEUED --started--> PULLING --pulled--> READY --joined--> RUNNING
 *      |                 |   |                |                  |
 *      |            failed   ended            |                ended
 *      |                 |   v                |                  v
 *      |                 | ABORTING           |               LEAVING
 *      v                 v   v                v                  v
 *     GONE <-------------+---+----------------+----- left -------+
 *
 * QUEUED    holds nothing
 * PULLING   holds pages and a slot; the importer writes them
 * ABORTING  ended, but the importer may still write (until its answer)
 * READY     the state is here and complete; no row in the engine yet
 * RUNNING   a row of the engine
 * LEAVING   ended, but a step may still touch its pages (until ENG_LEFT, page rule 4) */
enum dw_state {
	DW_GONE,
	DW_QUEUED,
	DW_PULLING,
	DW_ABORTING,
	DW_READY,
	DW_RUNNING,
	DW_LEAVING,
	DW__STATES,
};
enum dw_event {
	DW_STARTED,
	DW_PULLED,
	DW_PULL_FAILED,
	DW_JOINED,
	DW_ENDED, /* finished, evicted, cancelled, rejected, router lost, cut */
	DW_LEFT,
	DW__EVENTS,
};

struct dw;
struct dw_job {
	struct dw *d;
	enum dw_state state;
	struct wire_request req;
	uint64_t named; /* the last beat of its router that named it */
	uint64_t
		tag; /* of this use of the place: index and a number that never repeats */

	/* where the state is */
	char source_id[49];
	char link_path[RUNTIME_PATH_BYTES];
	uint64_t source_incarnation, lease;
	uint64_t group; /* first lease of the choices of this prompt; 0: it has no others
			 */
	uint32_t *src_pages; /* n_state_pages */
	uint32_t src_slot;
	uint64_t pull; /* PULLING, ABORTING: the importer's handle */

	/* Positions: the state covers n_tokens = n_prompt + n_generated - 1 tokens; the
	 * last generated one is the next input and stands at position n_tokens. */
	uint32_t n_prompt, n_generated, n_tokens;
	uint32_t last_token;
	uint32_t n_end; /* n_tokens when nothing more may be generated */
	struct sampling_terms draw;
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
	struct reqmap *requests;
	struct dw_job *jobs; /* by index of requests */
	uint32_t capacity;
	uint32_t *order; /* live jobs, oldest first */
	uint32_t n_order;
	uint32_t count[DW__STATES];
	uint32_t last_use; /* upper half of the newest tag */
	bool starved;      /* a running row wanted a page and there was none */
	struct dw_out out[ROUTERS_MAX];
	struct dw_end *ends; /* [max_num_seqs] rows that ended in this step */
	uint32_t n_ends;
};

/* dw_job.c */
bool dw_move_known(enum dw_state state, enum dw_event ev);
void dw_move(struct dw *d, struct dw_job *j, enum dw_event ev);
struct dw_job *dw_find(struct dw *d, struct wire_request r);
/* Tells the router and moves; the job may be gone after each of these. A job that is on
 * its way out already stays as it is. */
void dw_finish(struct dw *d, struct dw_job *j, enum wire_finish reason, const char *text);
void dw_evict(struct dw *d, struct dw_job *j);
void dw_reject(struct dw *d, struct dw_job *j, enum wire_reject reason, const char *text);
/* Rows whose leave found no room in the engine's queue. */
void dw_leave_again(struct dw *d);

/* dw_adopt.c: the message that makes a job */
/* Gives back the memory of a job that is not in the table. */
void dw_release(struct dw_job *j);
status dw_on_adopt(void *self, const void *msg, struct err *err);

/* dw_admit.c: QUEUED -> PULLING -> READY -> RUNNING */
bool dw_has_room(const struct dw *d, uint32_t n_tokens);
void dw_admit(struct dw *d);
void dw_join(struct dw *d);

/* dw_step.c: tokens, growth */
void dw_step(struct dw *d, const struct eng_result *r);
void dw_grow(struct dw *d);

#endif
