/* What answers are made of, and the answers that are no generated text. Text given in
 * must be valid UTF-8 (detok.h yields nothing else). A sink that overflowed is marked
 * full, as always. */
#ifndef ROUTER_API_OUT_H
#define ROUTER_API_OUT_H
#include "common/base/bytes.h"
#include "router/api.h"
#include "router/parts.h"
#include <stdbool.h>
#include <stdint.h>

/* Ids for an answer that shows them (return_token_ids). */
struct out_ids {
	bool given;
	const uint32_t *token; /* n_token; of a chunk: those that no chunk had before */
	size_t n_token;
	const uint32_t *prompt; /* NULL: not in this chunk */
	size_t n_prompt;
};

/* Where a stream is, for dialects whose events depend on those before. */
struct out_stream {
	uint64_t n_events;   /* numbered ones so far */
	uint32_t n_blocks;   /* that have begun */
	bool open;           /* the last of them has not ended */
	enum part_kind kind; /* of the last one: the part that began it */
	/* For dialects that say at the end of a block, and of all, what they said. */
	struct sink text, items; /* of the open block; JSON of those that have ended */
	char call_id[OUT_CALL_ID_BYTES]; /* of an open call, with its name */
	struct bytes call_name;
};

/* Equal in all chunks of an answer, but for the usage, the stream and what is of a
 * choice. */
struct out_usage;
struct out_head {
	const char *id;          /* "chatcmpl-..." or "cmpl-..." */
	const char *model;       /* the served name */
	const char *fingerprint; /* system_fingerprint; NULL: null */
	uint64_t created;        /* unix seconds */
	/* Put into every chunk (continuous_usage_stats); else NULL. */
	const struct out_usage *usage;
	/* JSON, of the choice of this chunk (out_logprobs.h); at = NULL: null. */
	struct bytes logprobs;
	struct out_ids ids;        /* of the choice of this chunk */
	struct bytes mirror;       /* JSON object: of the request (gen_request.mirror) */
	struct out_stream *stream; /* NULL in a whole answer */
};

/* A prefix of at most 15 bytes and 32 hexadecimal digits, with the zero. */
#define OUT_ID_BYTES 48u
void out_id_make(char id[OUT_ID_BYTES], const char *prefix);

/* ANSWER_CALLS: the model ended the answer, and it has complete calls. */
enum out_finish { ANSWER_OPEN, ANSWER_STOP, ANSWER_LENGTH, ANSWER_CALLS };

struct out_usage {
	uint64_t prompt_tokens;
	uint64_t completion_tokens;
	uint64_t cached_tokens;
	uint64_t reasoning_tokens;
};

/* Why a choice stopped beyond finish_reason: a matched stop string, a stop token id
 * that is not the model's usual end, or nothing (null). */
struct out_stop {
	struct bytes text; /* at = NULL: none */
	int64_t token;     /* -1: none */
};
#define OUT_STOP_NONE ((struct out_stop){{NULL, 0}, -1})

/* One finished choice of a whole answer. */
struct out_choice {
	uint32_t index;
	struct bytes content;         /* chat: at = NULL is null. completion: the text */
	struct bytes reasoning;       /* chat: at = NULL: members absent */
	const struct out_call *calls; /* n_calls; the last one may be incomplete */
	size_t n_calls;
	const struct parts
		*parts; /* the same in its order, nothing told; NULL: nothing */
	enum out_finish finish;
	struct out_stop stop;
	/* JSON (out_logprobs.h). at = NULL: null, and no member for those of the prompt.
	 */
	struct bytes logprobs, prompt_logprobs;
	struct out_ids ids;
};

/* {"error":{...}}, OpenAI's. */
void out_error(struct sink *out, const struct api_error *e);
void out_sse_keepalive(struct sink *out); /* a comment, only between whole events */

/* One entry of /v1/models; out_models is the list with it. */
struct out_model {
	const char *id;
	const char *root; /* where it came from; NULL: id */
	uint64_t created;
	uint64_t len_max; /* max_model_len */
};
void out_model(struct sink *out, const struct out_model *m);
void out_models(struct sink *out, const struct out_model *models, size_t n);

/* /tokenize and count_tokens. pieces: n texts (raw bytes of tokens, need not be UTF-8),
 * NULL: not asked.
 */
void out_tokens(struct sink *out, enum tok_shape shape, const uint32_t *ids, size_t n,
	const struct bytes *pieces, uint64_t len_max);
/* /detokenize: both member names, "prompt" and "content". */
void out_text(struct sink *out, struct bytes text);

#endif
