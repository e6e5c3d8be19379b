/* One HTTP request that asks for generation: n choices of each prompt, each with a
 * request of its own; a whole answer when all have ended, or a stream. It lives from
 * on_request to on_end of the HTTP server, whatever happens to its generations.
 *
 * A stream's header goes out with its first token, so that everything before it has a
 * true status; only a wait of keepalive_s after all generations were dispatched sends
 * it earlier. Once it is out, a failure is an error event and [DONE]. */
#ifndef ROUTER_CALL_H
#define ROUTER_CALL_H
#include "router/format.h"
#include "router/output.h"
#include "router/reply.h"

/* Kept where the answer shows them; else empty. */
struct choice_ids {
	uint32_t *v;
	uint32_t n, cap;
	uint32_t n_prompt; /* of v, in front */
	uint32_t written;
};

struct choice {
	struct call *call;
	struct request *r; /* NULL: not begun, or taken leave of */
	uint32_t index;
	bool began; /* its first event is out (a stream) */
	bool ended;
	bool has_out;
	int hit;            /* the stop string that ended the text; -1: none */
	int64_t stop_token; /* the client's one that ended it; -1: none */
	struct logprob_list logprobs;
	struct choice_ids ids;
	enum request_finish finish;
	struct output out;
	struct parts parts;         /* of has_out */
	struct choice_tools *tools; /* call_tools.c; NULL: it calls none */
	/* facts, copied when its request ends */
	uint32_t n_prompt, n_generated;
	uint64_t first_ns, last_ns;
};

struct call {
	struct served served; /* first: what http_user points to */
	struct router *rt;
	struct http_req *req;
	struct list_node node; /* of the router's calls */
	const struct answer_format *format;
	bool stream, begun, answered, gone;
	struct call_job *job; /* its body is being read; gen is empty until then */
	struct gen_request gen;
	char id[OUT_ID_BYTES];
	char trace[33]; /* of the client; "": none */
	const char *model;
	uint64_t created;
	struct choice *choices; /* [n_prompts][gen.n]; NULL: never admitted */
	uint32_t n, n_ended;
	struct logprob_list
		*prompts;   /* [n_prompts]; NULL: their logprobs are not wanted */
	uint32_t *stop_ids; /* that end an answer: the model's and the client's */
	uint32_t n_stop_ids;
	uint64_t written_ns;    /* when a stream last got a piece */
	struct sink piece;      /* the event being written */
	struct out_stream told; /* of it, so far */
	/* facts of its generations, for the line about the outcome */
	const char *error; /* code of what the client was told; NULL: no error */
	char finish[16], p_name[80], d_name[80], transport[33];
	uint64_t handover_bytes;
	uint64_t queue_ns, prefill_ns, handover_ns, first_ns;
};

/* on_request of a dialect's path: parses, admits, begins; or answers why not. */
void call_begin(
	struct router *rt, struct http_req *req, const struct answer_format *format);
/* What call_parse leads to: call->gen is there, or e says why not. */
void call_parsed(struct call *call, const struct api_error *e);
void call_no_memory(struct call *call, struct api_error *e);
/* Comments into silent streams. */
void call_keepalive(struct router *rt, uint64_t now_ns);

/* call_parse.c: from the body to call->gen, whose ids are of the vocabulary. */
/* false: *e says why it cannot begin. Else call_parsed follows, before this returns or
 * later, unless the call is forgotten. */
MUST_CHECK bool call_parse(struct call *call, struct api_error *e);
void call_parse_forget(struct call *call);

/* call_tokens.c: what request_ops needs. */
bool call_deliver(void *router, struct request *r, const struct request_token *token);
void call_score(void *router, struct request *r, const struct msg_prompt_logprobs *m);
void call_request_ended(void *router, struct request *r);

/* call_ids.c: ids that the answer shows. false: no memory. */
MUST_CHECK bool call_ids_begin(struct choice *c, const struct request *r);
MUST_CHECK bool call_ids_add(struct choice *c, uint32_t token);
/* What was not told yet; nothing when they are not wanted. */
void call_ids_next(struct choice *c, struct out_ids *out);

/* call_tools.c: calls of tools in the text of a choice. Nothing is begun where none are
 * declared. false: no memory. */
MUST_CHECK bool call_tools_begin(struct choice *c, size_t text_max);
void call_tools_release(struct choice *c);
/* What c->out has goes into c->parts; with finish all of it. */
void call_tools_take(struct choice *c);
void call_tools_finish(struct choice *c);

/* call_write.c: how the answer looks. */
/* What the text says so far, into c->parts. */
void call_take_parts(struct choice *c);
/* Parts of a stream that are there and not written. */
void call_write_parts(struct call *call, struct choice *c);
/* The choice has ended; with the last one the answer is complete. */
void call_write_end(struct call *call, struct choice *c);
/* Something did not fit into its bounds; the call then fails. */
bool call_is_full(const struct call *call);
void call_fail_size(struct call *call);
/* The whole call fails: an error answer or event; the other generations are withdrawn. */
void call_fail(struct call *call, const struct api_error *e, bool no_retry);
void call_write_keepalive(struct call *call);

/* call_draw.c: what the client said of drawing */
/* The list of stop ids, and gen.draw as workers get it. */
MUST_CHECK bool call_draw_prepare(struct call *call, struct api_error *e);
void call_draw_fill(const struct call *call, const struct choice *c, struct request *r);
void call_draw_release(struct call *call);
/* The number of the choice's prompt. */
uint32_t call_prompt_of(const struct choice *c);

#endif
