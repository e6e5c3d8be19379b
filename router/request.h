/* One generation on its way through the workers: what was asked, what came back, which
 * worker holds what for it, and what may happen next. Only request_move() writes the
 * state; everything that leaves this file goes through request_ops, so the table is
 * tested without workers.
 *
 *   PREPARE --prepared--> QUEUED --dispatched--> PREFILL --prefilled--> PLACE
 *                           ^                       |                     | placed
 *                           +---- later, replay ----+     d lost, later   v
 *                           +-------- replay -------- PLACE <-------- HANDOVER
 *                           +-------- replay -------- DECODE <--adopted---+
 *                                                 PLACE <-- offered --+
 *   every state --ended, failed, cancelled--> DONE
 *
 * PREPARE   template and tokenizer run; no worker knows of it
 * QUEUED    waits for credits of a prefill and a decode worker; no worker knows of it
 * PREFILL   p computes; d is reserved (or was lost: chosen again later)
 * PLACE     the state lies at p under a lease, no decode worker was told; p is the
 * prefill worker, or a decode worker that offered what it had begun HANDOVER  d was told
 * to adopt; p may be gone, then d's word decides DECODE    d holds the sequence; the
 * giver frees its copy by itself, and is told to when it has not by the end DONE      the
 * client's side has its end; claims may be outstanding
 *
 * Several choices of one prompt are several requests with consecutive numbers. The first
 * one leads: it alone is prefilled, for all of them, while the others wait in QUEUED;
 * then each goes its own way from PLACE on, with a lease of its own, and if its state
 * is lost it is prefilled alone.
 *
 * A claim is what one worker holds for one attempt. It outlives the state, and ends by
 * that worker's word (freed, rejected) or by its loss; the record lives until then. */
#ifndef ROUTER_REQUEST_H
#define ROUTER_REQUEST_H
#include "common/base/list.h"
#include "common/wire/wire.h"
#include "router/api.h"
#include "router/fleet.h"
#include "router/output.h"

/* KV pages hold this many tokens everywhere (the layout's PAGE_TOKENS; workers whose
 * pages differ have another compat_hash, and their own word on room is final). */
#define TOKENS_PER_PAGE 64u

#define REQUEST_STATE_MAP(X)                                                             \
	X(PREPARE, "prepare")                                                            \
	X(QUEUED, "queued")                                                              \
	X(PREFILL, "prefill")                                                            \
	X(PLACE, "place")                                                                \
	X(HANDOVER, "handover")                                                          \
	X(DECODE, "decode")                                                              \
	X(DONE, "done")

enum request_state {
#define X(name, text) RQ_##name,
	REQUEST_STATE_MAP(X)
#undef X
		RQ__STATES
};

/* name, who causes it, and what `what` of request_move points to */
#define REQUEST_EVENT_MAP(X)                                                             \
	X(PREPARED, us)     /* NULL; ids are set */                                      \
	X(DISPATCHED, us)   /* struct request_route */                                   \
	X(SHARED, us)       /* struct request_share */                                   \
	X(PREFILLED, peer)  /* struct msg_prefilled */                                   \
	X(FIRST_ENDS, us)   /* NULL; finish is set */                                    \
	X(PLACED, us)       /* struct request_route, d only; or NULL */                  \
	X(ADOPTED, peer)    /* struct msg_adopted */                                     \
	X(TOKEN, peer)      /* struct request_token */                                   \
	X(OFFERED, peer)    /* struct msg_offered */                                     \
	X(P_FINISHED, peer) /* struct msg_finished */                                    \
	X(D_FINISHED, peer) /* struct msg_finished */                                    \
	X(P_LATER, peer)    /* struct msg_rejected */                                    \
	X(D_LATER, peer)    /* struct msg_rejected */                                    \
	X(P_REJECTED, peer) /* struct msg_rejected */                                    \
	X(D_REJECTED, peer) /* struct msg_rejected */                                    \
	X(P_LOST, peer)     /* NULL; lost_text is set */                                 \
	X(D_LOST, peer)     /* NULL; lost_text is set */                                 \
	X(EVICTED, peer)    /* NULL; lost_text is set */                                 \
	X(CANCELLED, us)    /* NULL */                                                   \
	X(FAILED, us)       /* struct api_error */

enum request_event {
#define X(name, who) EV_##name,
	REQUEST_EVENT_MAP(X)
#undef X
		EV__EVENTS
};

enum request_finish {
	REQUEST_OPEN,
	REQUEST_STOP,
	REQUEST_LENGTH,
	REQUEST_FAILED,    /* error says why */
	REQUEST_CANCELLED, /* nobody waits for an answer */
};

/* Both choices of a dispatch. hold is what the request will hold of each. */
struct request_route {
	struct worker_view *p, *d;
	struct fleet_hold p_hold, d_hold;
};

/* A prompt was computed for several choices: this one's part of it. */
struct request_share {
	const struct request *leader;
	const struct msg_prefilled *m;
	uint32_t k; /* its place among the choices of that prefill */
};

/* One more token. */
struct request_token {
	uint32_t token;
	float logprob;
	struct bytes tops; /* struct wire_logprob each, the likeliest at its place */
	bool ends;         /* a stop token: it ends the answer and has no text */
};

/* Why a worker does not go on with it. Only a loss counts against max_replays: an end of
 * service and want of pages say nothing about the request. */
#define REQUEST_LOSS_MAP(X)                                                              \
	X(WORKER, "worker_lost", true)                                                   \
	X(DRAIN, "draining", false)                                                      \
	X(PAGES, "worker_lost", false)
enum request_loss {
#define X(name, code, counts) LOSS_##name,
	REQUEST_LOSS_MAP(X)
#undef X
};

struct request_claim {
	struct worker_view *w;
	uint32_t attempt;
	bool told;          /* w knows of it */
	uint64_t told_beat; /* the last beat that went to w before */
	struct fleet_hold hold;
};
/* Two of the running attempt, and what earlier attempts have not got back yet. */
#define REQUEST_CLAIMS_MAX 8u

struct requests;
struct request {
	/* the set (requests.c) */
	struct requests *set;
	struct list_node node; /* of the list of its state (requests.h) */
	uint32_t slot_at;

	uint64_t seq;     /* never 0 */
	uint32_t attempt; /* from 1; another one whenever a worker may know the last */
	enum request_state state;
	char id[130];   /* of the HTTP request, for logs */
	char trace[33]; /* of the client's trace, for logs; "": none */

	/* asked for; fixed once QUEUED */
	uint32_t *ids; /* the prompt, then what was generated; mem_take */
	uint32_t n_prompt, n_ids, ids_cap;
	uint32_t max_tokens;
	struct wire_sampling draw; /* what it points to outlives it */
	bool score; /* logprobs of the prompt are wanted, with score_top likeliest */
	uint32_t score_top;
	uint32_t n_choices;       /* that it leads, itself included; others 1 */
	uint32_t choice;          /* its own number */
	uint64_t leader;          /* seq; 0: it leads or goes alone */
	enum output_mode mode;    /* how its text is to be read */
	const uint32_t *stop_ids; /* end the answer and give no text; outlive it */
	uint32_t n_stop_ids;
	const struct stop_set *stop; /* of the call; outlives it */

	/* where it is */
	struct worker_view *p, *d; /* of this attempt; NULL: none */
	struct worker_view *giver; /* adopted from: has not given its copy back yet */
	bool leased;               /* p holds the state under `lease` */
	bool adopt_sent;           /* d knows of it */
	bool front;                /* the next QUEUED is entered at the head */
	unsigned size_class;       /* QUEUED: of the list that it is in */
	uint64_t tried;            /* number of the last round that looked at it */
	uint32_t replays;          /* after losses that count */
	uint32_t evictions;
	enum request_loss loss; /* the last one */
	bool computed;          /* its prompt was, once: it counts only then */
	uint32_t pulls_failed;  /* of this lease */
	bool shared;            /* its prefill was shared out */
	uint32_t n_scored;      /* prompt tokens whose logprobs have come */
	uint32_t n_final;       /* tokens that p has computed, as far as it said */
	uint32_t deaths;        /* workers that were lost while they worked on it */
	uint64_t lease;
	uint64_t lease_group; /* the first lease of that state; 0: it is the only one */
	uint64_t lease_seq;   /* under which request p has it */
	uint32_t lease_attempt;
	uint64_t source; /* key of the worker that d adopts from; it may be gone */
	uint32_t *pages; /* at p; mem_take */
	uint32_t n_pages, p_slot, n_state;
	struct request_claim claim[REQUEST_CLAIMS_MAX];
	uint32_t n_claims;
	char lost_text[160];    /* what happened to a worker, for the client */
	uint64_t not_before_ns; /* dispatch and placing wait until then */

	/* how it ended: DONE */
	enum request_finish finish;
	struct api_error error;
	bool no_retry; /* the client must not send it again by itself */

	/* facts for log and metrics; ns of clock_ns, 0: did not happen. From queued_ns
	 * to adopted_ns they are of one attempt: a replay forgets them. */
	uint64_t begun_ns, queued_ns, dispatched_ns, prefilled_ns, adopt_ns, adopted_ns,
		done_ns, place_ns;
	uint64_t waits_ns; /* for room, since then; clock_ran_ns */
	uint64_t moved_ns; /* the last event or progress; clock_ran_ns */
	uint64_t handover_bytes;
	char transport[33];
	char p_name[80], d_name[80];

	/* owners */
	void *user;    /* the call's choice; NULL: detached */
	void *prepare; /* prepare.c, in PREPARE */
};

struct request_ops {
	void (*send_prefill)(void *self, struct request *r);
	void (*send_adopt)(void *self, struct request *r);
	void (*send_cancel)(void *self, struct request *r, struct worker_view *w);
	void (*send_release)(void *self, struct request *r, struct worker_view *w);
	void (*stop_prepare)(void *self, struct request *r);
	/* The text of one more token; true when a stop string ended the text. */
	bool (*deliver)(void *self, struct request *r, const struct request_token *token);
	/* Logprobs of prompt tokens from m->from on, in order; from 1 again in a replay.
	 */
	void (*score)(void *self, struct request *r, const struct msg_prompt_logprobs *m);
	/* Once, at DONE. */
	void (*end)(void *self, struct request *r);
};

/* ST_PEER: the pair is not in the table; nothing changed. */
MUST_CHECK status request_move(
	struct request *r, enum request_event ev, const void *what, struct err *err);
bool request_move_known(enum request_state state, enum request_event ev);
/* The event ends a request whatever its state; no-op when it is DONE. */
void request_cancel(struct request *r);
void request_fail(struct request *r, const struct api_error *e, bool no_retry);

/* Worker w gave back what attempt held. May move the request. */
void request_freed(struct request *r, struct worker_view *w, uint32_t attempt);
/* The same without a consequence for the state: a rejection has its own event. */
void request_return(struct request *r, struct worker_view *w, uint32_t attempt);
/* w does not hold what the beat of this number named: what it was told before is
 * returned. false: nothing was. */
bool request_absent(
	struct request *r, struct worker_view *w, uint32_t attempt, uint64_t beat);
/* Somebody still uses what is held there. */
bool request_wants(const struct request *r, const struct request_claim *claim);
/* What w holds, or will hold, for the attempt. */
bool request_claims(
	const struct request *r, const struct worker_view *w, uint32_t attempt);
/* w ended its work on it before it was done, because it ends itself. */
void request_cut(struct request *r, struct worker_view *w);
/* w is lost: claims on it end. */
void request_worker_lost(struct request *r, struct worker_view *w, const char *text);

/* It has nothing to do before its leader was prefilled. */
bool request_waits(const struct request *r);
/* p has computed so many tokens of it. */
void request_progress(struct request *r, uint64_t tokens_final);
/* When it last moved, or whom it waits for did; clock_ran_ns. */
uint64_t request_moved_ns(const struct request *r);
/* Choices that its next prefill is for. */
uint32_t request_asks(const struct request *r);
/* Its next prefill gives logprobs of the prompt. */
bool request_wants_scores(const struct request *r);
/* A part of them from p. A breach of the protocol ends the request. */
void request_scores(struct request *r, const struct msg_prompt_logprobs *m);

/* What a route costs; pages for the answer are counted up to REQUEST_AHEAD tokens. */
#define REQUEST_AHEAD 2048u
struct fleet_hold request_prefill_hold(const struct request *r);
struct fleet_hold request_decode_hold(const struct request *r);

uint32_t request_generated(const struct request *r);
const char *request_state_name(enum request_state state);
const char *request_event_name(enum request_event ev);

#endif
