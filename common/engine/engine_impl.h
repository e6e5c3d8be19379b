/* What the files of the engine share. Nobody else includes this, except its tests.
 *
 * Threads. The control thread calls engine.h; each rank has a thread. Rank 0 leads: it
 * alone takes commands, decides what runs next, keeps the decode rows and reports. The
 * others (followers) get one work item per pass or step, copy rank 0's batch and run
 * the same forward pass; all meet at its end, so that the batch may change again. */
#ifndef COMMON_ENGINE_ENGINE_IMPL_H
#define COMMON_ENGINE_ENGINE_IMPL_H
#include "common/base/ring.h"
#include "common/engine/batch.h"
#include "common/engine/collective.h"
#include "common/engine/eng_plan.h"
#include "common/engine/engine.h"
#include "common/engine/past.h"
#include "common/engine/rows.h"
#include "common/engine/step_graph.h"
#include "common/engine/workspace.h"
#include "common/model/weights.h"
#include "kernels/registry.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

/* Two passes may be queued; a third buffer holds the result that is being read. */
#define PASSES_QUEUED 2u
#define PASS_BUFFERS  3u
/* Steps that may wait to be read before rank 0 stops stepping. */
#define STEP_BUFFERS  8u
#define NO_BUFFER     UINT32_MAX

enum phase { PHASE_PREFILL, PHASE_DECODE };

/* Control thread to rank 0. */
enum command_kind {
	CMD_PASS,
	CMD_JOIN,
	CMD_GROW,
	CMD_LEAVE,
	CMD_GIVE,
	CMD_PARK,
	CMD_STOP
};

struct command {
	enum command_kind kind;
	uint32_t index;   /* PASS: buffer; GIVE: step buffer; others: table */
	uint64_t epoch;   /* PASS */
	uint32_t n_pages; /* GROW: pages of the table that are valid now */
	struct row_terms join;
};

/* Rank 0 to the control thread. */
struct outcome {
	struct eng_result result;
	struct eng_token last; /* LEFT: result.tokens points here once it is copied */
	uint32_t pass, step;   /* buffer that is to be given back, or NO_BUFFER */
	uint32_t table;        /* LEFT */
};

/* Rank 0 to a follower. */
enum work_kind { WORK_RUN, WORK_STOP };

struct work {
	enum work_kind kind;
	enum phase phase;
	const struct batch *batch; /* rank 0's */
};

struct pass_buffer {
	struct batch batch;
	struct eng_token *tokens;                  /* [out_max] */
	struct eng_logprob (*top)[SAMPLE_TOP_MAX]; /* [out_max] */
	float *logits;                             /* options.logits: [rows_max][V] */
	struct row_past **past; /* [seqs_max], the control thread's; n_past of them */
	uint32_t n_past;
};

struct step_buffer {
	struct eng_token *tokens;                  /* [seqs_max] */
	struct eng_logprob (*top)[SAMPLE_TOP_MAX]; /* [seqs_max] */
	float *logits;                             /* options.logits: [seqs_max][V] */
	bool out; /* rank 0's: handed to the control thread */
};

/* Projections of a layer that are one matrix; without data where they are not.
 * all: Q, K, V, or QKV, Z, B, A of a GDN; gates: B, A. */
struct fused {
	struct weight all, gates;
};

struct rank {
	struct engine *e;
	uint32_t index;
	struct backend *b;
	struct stream *s;      /* of the rank's thread */
	struct stream *io;     /* of the control thread */
	struct kernels *k;     /* CPU ranks share rank 0's */
	struct weights *files; /* open while loading */
	uint64_t digest;       /* this rank's share of weights_digest */
	struct weight global[WR__COUNT];
	struct weight (*layer)[WR__COUNT];
	struct fused *fused; /* [n_layers] */
	void *weights_mem, *workspace_mem, *pinned_mem, *arena;
	struct workspace ws;
	struct batch pass, step; /* a follower's copies; rank 0 uses step only */
	/* Of passes and of steps, in the workspace; NULL where pinned memory is as near
	 * to the ops as any. rows_mirrored: rows_version of the step that is there. */
	uint8_t *pass_mirror, *step_mirror;
	uint64_t rows_mirrored;
	struct chan *work; /* follower */
	struct step_graphs graphs;
	pthread_t thread;
	bool running;
	status started;     /* of the thread that allocated and loaded */
	atomic_bool broken; /* err says why; set before the collective is aborted */
	struct err err;
};

/* The control thread's account of a row of engine_join. */
struct table {
	uint64_t tag;
	bool used, leaving;
	uint32_t n_pages;
	struct row_past *past;
};

struct control {
	uint64_t epoch;
	uint32_t passes_queued;
	bool pass_used[PASS_BUFFERS];
	struct table *tables; /* [seqs_max] */
	struct outcome held;  /* what engine_poll returned last */
	bool holding, failed;
};

struct route {
	const uint32_t *forced; /* [n_moe_layers][n_rows][top_k] */
	uint32_t *dump;
	uint32_t n_rows;
	uint32_t at; /* first row of the pass that is running; rank 0 moves it on */
};

struct tap {
	engine_tap_fn fn;
	void *ctx;
	float *hidden; /* [rows_max][H] */
	void *raw;     /* act [rows_max][H] */
};

struct engine {
	struct engine_options o;
	struct model_config config;
	struct layout layout;
	struct kernel_shapes shapes; /* of a rank */
	struct batch_bounds pass_bounds, step_bounds;
	struct eng_plan plan;
	bool planning; /* nothing will be allocated: devices may be absent */
	uint32_t n_ranks;
	struct rank rank[RANKS_MAX];
	struct collective *collective;

	struct chan *commands, *outcomes;
	struct pass_buffer passes[PASS_BUFFERS];
	struct step_buffer steps[STEP_BUFFERS];
	/* Page tables of joined rows, [seqs_max][pages_stride]. The control thread writes
	 * entries that rank 0 has not been told of yet. */
	uint32_t *tables;
	struct rows rows; /* rank 0's */
	struct control control;
	struct tap tap;
	struct route route;
	sem_t parked, unpark; /* rank 0 stands at a step boundary; it may go on */

	_Atomic uint64_t n_allreduces, n_steps, n_passes, n_nan_rows, busy_ns;
	_Atomic uint64_t busy_since; /* clock_ran_ns; 0: rank 0 has nothing to do */
};

/* engine_load.c: weights into rank->weights_mem and the tables of struct weight. Bytes
 * that the rank needs follow from its open files. */
uint64_t engine_load_bytes(const struct rank *r);
/* Sets r->digest too. */
MUST_CHECK status engine_load(struct rank *r, struct err *err);
/* Hash of every number of the config that the forward pass depends on. */
uint64_t engine_load_geometry(const struct model_config *c);

/* fuse.c: after the weights are there. */
MUST_CHECK status engine_fuse(struct rank *r, struct err *err);

/* engine_setup.c: everything but threads. */
MUST_CHECK status engine_setup_prepare(
	struct engine *e, const struct engine_options *o, struct err *err);
MUST_CHECK status engine_setup_allocate(struct engine *e, struct err *err);
void engine_setup_release(struct engine *e);

/* rank.c */
void *rank_lead(void *rank);
void *rank_follow(void *rank);

#endif
