/* The engine: rank threads that run the model over kernels/ops.h. The control thread
 * owns every account (which page belongs to whom); it sends passes, joins, leaves and
 * pages, and gets results back through one channel. Everything below except
 * engine_create is called from the control thread and never blocks.
 *
 * A prefill pass holds chunks of several sequences. Decode runs by itself: every step
 * advances all joined rows by one token, the sampled ids stay on the device as the next
 * input, and each step's tokens are reported. What a row is (prefill or decode) is said
 * by the command, never inferred from shapes. */
#ifndef COMMON_ENGINE_ENGINE_H
#define COMMON_ENGINE_ENGINE_H
#include "common/base/err.h"
#include "common/model/model_config.h"
#include "common/state/layout.h"
#include "kernels/backend.h"
#include "kernels/ops.h"
#include <stdbool.h>

struct engine_options {
	const char *model_dir;
	const char *config_file; /* config.json; NULL or "": that of model_dir */
	/* "bf16" or "nvfp4": random weights, model_dir is not read (weights_dummy.h);
	 * NULL or "": the checkpoint's */
	const char *dummy;
	const char *gpus;      /* "cpu:0" or "cpu:0,cpu:1" or "0,1": one rank each */
	const char *kernels;   /* forced variants, "" for none */
	uint32_t rows_max;     /* tokens of one prefill pass */
	uint32_t seqs_max;     /* rows of one decode step, chunks of one pass */
	uint32_t len_max;      /* tokens of one sequence (0: the model's max_position) */
	uint64_t n_pages;      /* KV pages with the dead one; 0: from memory_bytes */
	uint64_t n_slots;      /* state slots with the dead one; 0: seqs_max + 1 */
	uint64_t memory_bytes; /* for weights, workspace and state; 0: 80 % of what is
				  free, on CPUs at most 2 GiB a rank */
	enum dtype kv_dtype, conv_dtype;
	uint32_t n_valid;     /* vocabulary rows that may be sampled; 0: all */
	bool expert_parallel; /* ranks have experts whole, and some of them */
	bool logits;          /* passes and steps return logits (tools) */
};

struct engine;

/* The model that these options name. */
MUST_CHECK status engine_read_config(
	const struct engine_options *options, struct model_config *out, struct err *err);
/* ST_LIMIT: the plan needs more memory than there is. ST_INVALID: the options or a file
 * of the model. Loads the model, chooses kernels, allocates (the plan is logged in bytes
 * first), starts the rank threads. Takes as long as the weights take to read. */
MUST_CHECK status engine_create(
	struct engine **out, const struct engine_options *options, struct err *err);
/* The same plan as text, without allocating or reading weights: weights, workspace,
 * pages, slots in bytes per rank, "N tokens, at most K requests of M tokens". */
MUST_CHECK status engine_plan(
	const struct engine_options *options, struct sink *out, struct err *err);
void engine_destroy(struct engine *e);

const struct model_config *engine_config(const struct engine *e);
const struct layout *engine_layout(const struct engine *e); /* model_hash included */
uint32_t engine_ranks(const struct engine *e);
struct backend *engine_backend(const struct engine *e, uint32_t rank);
void *engine_arena(const struct engine *e, uint32_t rank);
uint64_t engine_pages(const struct engine *e); /* with the dead one */
uint64_t engine_slots(const struct engine *e);
uint32_t engine_len_max(const struct engine *e);
void engine_report(const struct engine *e, struct sink *out); /* kernel table */

/* Choices that are sampled from one row. */
#define ENG_CHOICES_MAX 128u

/* What a sampled row has behind it. Read during the call only. */
struct guide; /* common/grammar/guide.h */

struct eng_past {
	const struct sample_edit *edits; /* how.n_bias biases, then how.n_bans bans */
	/* The prompt and what was generated, for a penalty. */
	const uint32_t *ids;
	uint32_t n_ids, n_prompt;
};

/* One chunk of a prefill pass. Pointers are read during the call only. */
struct eng_chunk {
	uint64_t tag; /* the caller's; comes back in results */
	const uint32_t *ids;
	uint32_t n_tokens;     /* > 0 */
	uint32_t pos;          /* position of ids[0] */
	const uint32_t *pages; /* page table of the sequence up to pos + n_tokens */
	uint32_t n_pages;
	uint32_t zero_from; /* pages[zero_from..] and, when pos = 0, the slot are zeroed
			       first */
	uint32_t slot;
	bool sample; /* draw a token from the last row's logits with `how` */
	/* position, line and edits are set by the engine; position: pos + n_tokens */
	struct sample_row how;
	uint32_t n_choices; /* drawn: how.choice, how.choice + 1, ...; 0 is 1 */
	struct eng_past past;
	struct guide *guide; /* of what is drawn, behind the ids; or NULL. Looked at in
				the call */
	/* Not with options.logits: the first n_score rows give the logprob of score[i]
	 * as the token behind row i, and of the score_top likeliest. */
	const uint32_t *score;
	uint32_t n_score, score_top;
};

/* Whether the sampler of rank 0's device takes masks: no chunk or row has a guide
 * otherwise. */
bool engine_takes_guides(const struct engine *e);

/* Rows that a pass may score and sample together. */
uint32_t engine_out_max(const struct engine *e);

/* Queue one pass (sum of n_tokens <= rows_max, n <= seqs_max). ST_AGAIN: two passes are
 * queued already. ST_LIMIT: no request memory. ST_INVALID: an id is not below the model's
 * vocabulary. *epoch identifies its result. After ENG_FAILED was polled, every command is
 * ST_DEVICE. */
MUST_CHECK status engine_prefill(
	struct engine *e, const struct eng_chunk *chunks, uint32_t n, uint64_t *epoch);
bool engine_prefill_room(const struct engine *e);

struct eng_join {
	uint64_t tag; /* unique among joined rows */
	const uint32_t *pages;
	uint32_t n_pages;
	uint32_t slot;
	uint32_t n_tokens; /* covered by the state; the next input stands at this position
			    */
	uint32_t input;    /* token to feed first */
	struct sample_row how; /* position, line and edits are set by the engine */
	struct eng_past past;  /* with the input, not with forced ones */
	struct guide *guide;   /* behind the input, or NULL; rank 0's until ENG_LEFT */
	uint32_t steps_max;    /* the row stops by itself after this many tokens */
	/* tools: inputs of the steps after the first, or NULL; borrowed until ENG_LEFT */
	const uint32_t *forced;
	uint32_t n_forced;
};

/* ST_LIMIT: seqs_max rows are joined, or no request memory. ST_INVALID: an input is not
 * below the vocabulary. A row whose pages are full waits until engine_grow. A row that
 * stopped by steps_max, or because its logits were not finite (SAMPLE_NAN), still has to
 * be left. Pages behind those that n_tokens covers are growth pages. Join, grow and leave
 * give ST_AGAIN when more commands wait than rank 0 takes in one step. */
MUST_CHECK status engine_join(struct engine *e, const struct eng_join *join);
/* Further pages for a row. The engine zeroes a growth page when the row enters it. */
MUST_CHECK status engine_grow(
	struct engine *e, uint64_t tag, const uint32_t *pages, uint32_t n);
/* The row leaves at the next step boundary; ENG_LEFT is its last result, after which
 * no step touches its pages or slot. */
MUST_CHECK status engine_leave(struct engine *e, uint64_t tag);

enum eng_kind { ENG_PREFILLED, ENG_STEP, ENG_LEFT, ENG_FAILED };

struct eng_logprob {
	uint32_t token;
	float logprob;
};

struct eng_token {
	uint64_t tag;
	uint32_t token;
	uint32_t position; /* absolute, of this token */
	float logprob;
	uint32_t flags; /* SAMPLE_NAN */
	uint32_t choice;
	bool scored; /* it was given, not drawn */
	uint32_t n_top;
	const struct eng_logprob *top; /* as long as the result */
};

struct eng_result {
	enum eng_kind kind;
	uint64_t epoch; /* PREFILLED: of the pass; STEP: number of the step */
	/* PREFILLED: scored and sampled rows, in order; STEP: rows advanced; LEFT: one,
	 * the input that would have been next, at its position */
	const struct eng_token *tokens;
	uint32_t n;
	uint32_t n_rows;  /* tokens computed in the pass or step */
	uint64_t took_ns; /* PREFILLED: of the time in which this process ran */
	const float
		*logits; /* options.logits: PREFILLED [n_rows][V] all rows; STEP [n][V] */
	struct err err;  /* FAILED: the device is unusable, the process must end */
};

/* Readable (level-triggered) when results wait. */
int engine_fd(const struct engine *e);
/* The next result or NULL; valid until the next call. */
const struct eng_result *engine_poll(struct engine *e);

/* No rank is inside a pass or step between the two, nor is anything enqueued: for calls
 * that wait for devices (kernels/backend.h). engine_park waits for the end of what is
 * running; it is the one call that blocks. false: nothing ended within timeout_ns in
 * which this process ran, and the engine is of no use any more. */
MUST_CHECK bool engine_park(struct engine *e, uint64_t timeout_ns);
void engine_unpark(struct engine *e);

/* Tools: called on rank 0's thread after each layer (layer = 0.., then n_layers for the
 * final norm) of a prefill pass with the residual of all rows as F32. Set before the
 * first pass. */
typedef void (*engine_tap_fn)(
	void *ctx, uint32_t layer, const float *hidden, uint32_t n_rows, uint32_t width);
void engine_tap(struct engine *e, engine_tap_fn fn, void *ctx);
/* Tools: expert ids per MoE layer and row of the next prefill passes: forced (read) or
 * dumped (written), [n_moe_layers][rows][top_k]; NULL ends it. */
void engine_route(
	struct engine *e, const uint32_t *forced, uint32_t *dump, uint32_t n_rows);
/* Tools: bytes of a rank's arena to host memory, when no pass is running. */
MUST_CHECK status engine_read(struct engine *e, uint32_t rank, uint64_t offset,
	void *host, uint64_t bytes, struct err *err);

/* Numbers since start, written by rank 0, read by anyone. A lone rank reduces nothing. */
struct engine_counters {
	uint64_t allreduces, steps, passes, nan_rows, busy_ns;
};
struct engine_counters engine_counters(const struct engine *e);
/* Nanoseconds that this process ran (clock_ran_ns) since rank 0 took the batch that it
 * computes, or began with the layer of it that it is in; 0 when idle. */
uint64_t engine_stuck_ns(const struct engine *e);

#endif
