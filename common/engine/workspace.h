/* Activations of one rank between the ops of a forward pass: one allocation, cut by
 * the largest pass. Attention, GDN and MLP never live at the same time and share the
 * same bytes. */
#ifndef COMMON_ENGINE_WORKSPACE_H
#define COMMON_ENGINE_WORKSPACE_H
#include "common/engine/carve.h"
#include "kernels/ops.h"

struct workspace {
	void *x; /* act [T][H] residual */
	void *h; /* act [T][H] normed, what a mixer or MLP reads */
	void *y; /* act [T][H] what it adds to the residual */
	struct {
		void *qg, *q, *k, *v, *o;
	} attn;
	struct {
		void *qkv, *z, *a, *b, *q, *k, *v, *y;
		float *g, *beta;
	} gdn;
	struct {
		void *gate, *up, *act;
	} dense;
	struct {
		uint32_t *ids, *forced;
		float *weights, *shared;
	} moe;
	float *logits;    /* [out_max][V] */
	float *part;      /* the same of this rank's rows of the head; NULL: it has all */
	uint16_t *counts; /* [2 * seqs_max][V]: lines of step rows, then of chunks */
	float *inv_freq;  /* [rotary / 2] */
	void *work;       /* scratch of the ops */
	uint64_t work_bytes;
};

/* act: type of activations; work_bytes: of kernels_select. */
void workspace_place(struct workspace *w, struct carve *c, const struct kernel_shapes *s,
	enum dtype act, uint64_t work_bytes);

#endif
