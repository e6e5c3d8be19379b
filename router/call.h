/* One HTTP request that asks for generation: one choice per prompt, each with a
 * request of its own; a whole answer when all have ended, or a stream. It lives from
 * on_request to on_end of the HTTP server, whatever happens to its generations.
 *
 * A stream's header goes out with its first token, so that everything before it has a
 * true status; only a wait of keepalive_s after all generations were dispatched sends
 * it earlier. Once it is out, a failure is an error event and [DONE]. */
#ifndef ROUTER_CALL_H
#define ROUTER_CALL_H
#include "router/api_out.h"
#include "router/output.h"
#include "router/reply.h"

struct choice {
	struct call *call;
	struct request *r; /* NULL: not begun, or taken leave of */
	uint32_t index;
	bool began; /* its first event is out (a stream) */
	bool ended;
	bool has_out;
	int hit; /* the stop string that ended the text; -1: none */
	enum request_finish finish;
	struct output out;
	/* facts, copied when its request ends */
	uint32_t n_prompt, n_generated;
	uint64_t first_ns, last_ns;
};

struct call {
	struct served served; /* first: what http_user points to */
	struct router *rt;
	struct http_req *req;
	struct call *next, *prev;
	enum gen_kind kind;
	bool stream, begun, answered, gone;
	struct gen_request gen;
	char id[OUT_ID_BYTES];
	const char *model;
	uint64_t created;
	struct choice *choices; /* NULL: never admitted */
	uint32_t n, n_ended;
	uint64_t written_ns; /* when a stream last got a piece */
	struct sink piece;   /* the event being written */
	/* facts of its generations, for the line about the outcome */
	const char *error; /* code of what the client was told; NULL: no error */
	char finish[16], p_name[80], d_name[80], transport[33];
	uint64_t handover_bytes;
	uint64_t queue_ns, prefill_ns, handover_ns, first_ns;
};

/* on_request of the two generation paths: parses, admits, begins; or answers why not. */
void call_begin(struct router *rt, struct http_req *req, enum gen_kind kind);
/* Comments into silent streams. */
void call_keepalive(struct router *rt, uint64_t now_ns);
/* Every generation that is not over fails with this. */
void call_fail_all(struct router *rt, const struct api_error *e);

/* call_write.c: what request_ops needs, and how the answer looks. */
bool call_deliver(void *router, struct request *r, uint32_t token);
void call_request_ended(void *router, struct request *r);
/* The whole call fails: an error answer or event; the other generations are withdrawn. */
void call_fail(struct call *call, const struct api_error *e, bool no_retry);
void call_write_keepalive(struct call *call);

#endif
