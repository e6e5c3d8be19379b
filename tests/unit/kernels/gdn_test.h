/* A GDN layer with random parameters and the buffers of a pass, for the tests of gdn_prep
 * and of the delta rule. */
#ifndef TESTS_UNIT_KERNELS_GDN_TEST_H
#define TESTS_UNIT_KERNELS_GDN_TEST_H
#include "seq_test.h"

#define TAPS 4u

/* One layer. Slot s of the recurrent state is at rec + s * rec_n, of the convolution at
 * conv + s * conv_n elements; the two ops see one op_slot each. */
struct layer {
	uint32_t n_k, n_v, dk, dv, channels;
	enum dtype conv_dtype;
	float *conv_w, *a_log, *dt_bias, *gain, *rec;
	void *conv;
	uint64_t rec_n, conv_n;
	float eps;
	bool sigmoid_gate;
};

static inline struct layer make_layer(
	uint32_t n_k, uint32_t n_v, uint32_t dk, uint32_t dv, enum dtype conv_dtype)
{
	struct layer l = {.n_k = n_k,
		.n_v = n_v,
		.dk = dk,
		.dv = dv,
		.channels = 2 * n_k * dk + n_v * dv,
		.conv_dtype = conv_dtype,
		.rec_n = (uint64_t)n_v * dv * dk,
		.eps = 1e-6f};

	l.conv_n = (uint64_t)l.channels * (TAPS - 1);
	l.conv_w = random_floats((uint64_t)l.channels * TAPS, 0.7f);
	l.a_log = random_floats(n_v, 0.7f);
	l.dt_bias = random_floats(n_v, 0.7f);
	l.gain = random_floats(dv, 1.0f);
	l.rec = mem_alloc((TEST_SEQS_MAX + 1) * l.rec_n, sizeof(float));
	l.conv = mem_alloc((TEST_SEQS_MAX + 1) * l.conv_n, dtype_bytes(conv_dtype));
	return l;
}

static inline void clear_state(struct layer *l)
{
	memset(l->rec, 0, (TEST_SEQS_MAX + 1) * l->rec_n * sizeof(float));
	memset(l->conv, 0, (TEST_SEQS_MAX + 1) * l->conv_n * dtype_bytes(l->conv_dtype));
}

static inline void free_layer(struct layer *l)
{
	mem_free(l->conv_w);
	mem_free(l->a_log);
	mem_free(l->dt_bias);
	mem_free(l->gain);
	mem_free(l->rec);
	mem_free(l->conv);
}

struct pass {
	uint32_t rows;
	float *qkv, *a, *b, *z;          /* inputs */
	float *q, *k, *v, *g, *beta, *y; /* outputs */
	uint32_t qkv_stride, ab_stride, z_stride;
};

static inline struct pass make_pass(const struct layer *l, uint32_t rows)
{
	struct pass p = {.rows = rows,
		.qkv_stride = l->channels + 3,
		.ab_stride = l->n_v + 2,
		.z_stride = l->n_v * l->dv + 1};

	p.qkv = random_floats((uint64_t)rows * p.qkv_stride, 1.5f);
	p.a = random_floats((uint64_t)rows * p.ab_stride, 1.0f);
	p.b = random_floats((uint64_t)rows * p.ab_stride, 1.0f);
	p.z = random_floats((uint64_t)rows * p.z_stride, 1.0f);
	p.q = canary_floats((uint64_t)rows * l->n_k * l->dk);
	p.k = canary_floats((uint64_t)rows * l->n_k * l->dk);
	p.v = canary_floats((uint64_t)rows * l->n_v * l->dv);
	p.g = canary_floats((uint64_t)rows * l->n_v);
	p.beta = canary_floats((uint64_t)rows * l->n_v);
	p.y = canary_floats((uint64_t)rows * l->n_v * l->dv);
	return p;
}

static inline void free_pass(const struct layer *l, struct pass *p)
{
	canary_check(p->q, (uint64_t)p->rows * l->n_k * l->dk);
	canary_check(p->k, (uint64_t)p->rows * l->n_k * l->dk);
	canary_check(p->v, (uint64_t)p->rows * l->n_v * l->dv);
	canary_check(p->g, (uint64_t)p->rows * l->n_v);
	canary_check(p->beta, (uint64_t)p->rows * l->n_v);
	canary_check(p->y, (uint64_t)p->rows * l->n_v * l->dv);
	mem_free(p->qkv);
	mem_free(p->a);
	mem_free(p->b);
	mem_free(p->z);
	canary_free(p->q);
	canary_free(p->k);
	canary_free(p->v);
	canary_free(p->g);
	canary_free(p->beta);
	canary_free(p->y);
}

/* gdn_prep of rows t.. of the pass. */
static inline void prepare(const struct variant *v, const struct layer *l,
	const struct pass *p, struct op_rows rows, uint64_t t)
{
	struct op_gdn_prep op = {.q = p->q + t * l->n_k * l->dk,
		.k = p->k + t * l->n_k * l->dk,
		.v = p->v + t * l->n_v * l->dv,
		.g = p->g + t * l->n_v,
		.beta = p->beta + t * l->n_v,
		.qkv = p->qkv + t * p->qkv_stride,
		.a = p->a + t * p->ab_stride,
		.b = p->b + t * p->ab_stride,
		.conv_w = l->conv_w,
		.a_log = l->a_log,
		.dt_bias = l->dt_bias,
		.rows = rows,
		.state = {.conv = l->conv,
			.slot_bytes = l->conv_n * dtype_bytes(l->conv_dtype),
			.conv_dtype = l->conv_dtype},
		.n_k = l->n_k,
		.n_v = l->n_v,
		.dk = l->dk,
		.dv = l->dv,
		.taps = TAPS,
		.qkv_stride = p->qkv_stride,
		.ab_stride = p->ab_stride};

	RUN(gdn_prep, v, &op);
}

#endif
