/* What the tests of the block-scaled NVFP4 products share: a stage as the kernel meets
 * it, what the 32 lanes of its warps do with it (kernels/cuda/fp4_stage.h, compiled for
 * this machine; instructions are noted), and how the emulator executes that. */
#ifndef TESTS_UNIT_KERNELS_FP4_WARP_H
#define TESTS_UNIT_KERNELS_FP4_WARP_H
#include "kernel_test.h"

#include "common/base/dtype.h"
#include "kernels/cpu/cpu.h"

#include "fp4_emulator.h"

static void note(const float *d, const uint32_t *a, const uint32_t *b, uint32_t sa,
	uint32_t pair, uint32_t sb, uint32_t lane);
#define FP4_MMA(way, d, a, b, sa, pair, sb, lane)                                        \
	((void)(way), note(d, a, b, sa, pair, sb, lane))
#include "kernels/cuda/fp4_stage.h"

enum {
	WARPS = 8,
	ROWS = FP4_TILES * FP4_M, /* of weights */
	COLS = 64,                /* rows of x */
	NT = COLS / 2 / FP4_N,    /* of a warp: two warps along x */
	K = FP4_STAGE_K,
	BLOCKS = K / FP4_BLOCK,
	CALLS = FP4_HALVES * NT * 2 * FP4_TERMS,
	TILES = FP4_TILES * (COLS / FP4_N), /* 16 by 8 results of a stage */
};

/* One instruction of a warp. */
struct call {
	struct ptx_operands lanes[PTX_LANES];
	struct ptx_selectors select;
	uint32_t d; /* first of its accumulators in a lane's list */
};

/* A stage as a checkpoint and the terms of x have it, and the results. */
static struct {
	uint32_t codes[ROWS][K / 8], scales[ROWS][K / FP4_K];
	struct fp4_terms x[COLS][BLOCKS];
	double want[ROWS][COLS], got[ROWS][COLS];
} at;

static struct call calls[CALLS];
static uint32_t n_calls, note_lane;
static float accumulators[2 * NT * 4];

static void note(const float *d, const uint32_t *a, const uint32_t *b, uint32_t sa,
	uint32_t pair, uint32_t sb, uint32_t lane)
{
	struct call *c = &calls[n_calls++];
	struct ptx_operands *o = &c->lanes[note_lane];

	assert_true(n_calls <= CALLS);
	memcpy(o->a, a, sizeof(o->a));
	memcpy(o->b, b, sizeof(o->b));
	o->scale_a = sa;
	o->scale_b = sb;
	/* Selectors and accumulators are the instruction's, not a lane's. */
	if (note_lane > 0)
		assert_true(c->d == d - accumulators && c->select.thread_a == pair &&
			    c->select.thread_b == lane);
	c->d = (uint32_t)(d - accumulators);
	c->select = (struct ptx_selectors){.thread_a = pair, .thread_b = lane};
}

/* What a layout that is not the instruction's would do to a warp's operands. */
typedef void (*distort_fn)(struct call *c);
/* How an instruction is executed; false: there is none such. */
typedef bool (*execute_fn)(double d[PTX_LANES][4], const struct call *c);

static inline bool by_mma(double d[PTX_LANES][4], const struct call *c)
{
	return ptx_mma_m16n8k64(d, c->lanes, &c->select);
}

/* The kernel's form on m16n8k16: scales from the lanes that have them, four steps. */
static inline bool by_steps(double d[PTX_LANES][4], const struct call *c)
{
	for (uint32_t j = 0; j < 4; j++) {
		struct ptx_operands wide[PTX_LANES];

		for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
			uint32_t from_b = fp4_sb_lane(lane, c->select.thread_b);
			float scale[2];

			for (uint32_t r = 0; r < 2; r++)
				scale[r] = fp4_step_scale(
					c->lanes[fp4_sa_lane(lane, c->select.thread_a, r)]
						.scale_a,
					lane, j);
			fp4_step_a(c->lanes[lane].a, j, scale, wide[lane].a);
			fp4_step_b(c->lanes[lane].b, j,
				fp4_step_scale(c->lanes[from_b].scale_b, lane, j),
				wide[lane].b);
		}
		ptx_mma_m16n8k16(d, (const struct ptx_operands *)wide);
	}
	return true;
}

static inline void fill_stage(uint32_t *weights, uint32_t *x)
{
	for (uint32_t tile = 0; tile < FP4_TILES; tile++) {
		const uint32_t *codes = at.codes[tile * FP4_M];
		const uint32_t *scales = at.scales[tile * FP4_M];

		for (uint32_t half = 0; half < FP4_HALVES; half++) {
			for (uint32_t i = 0; i < FP4_PIECE_CODES; i++)
				weights[fp4_stage_codes(tile, half) + i] =
					fp4_packed_codes(codes, scales, K,
						half * FP4_PIECE_CODES + i);
			for (uint32_t i = 0; i < FP4_PIECE_SCALES; i++)
				weights[fp4_stage_scales(tile, half) + i] =
					fp4_packed_scales(
						scales, K, half * FP4_PIECE_SCALES + i);
		}
	}
	for (uint32_t c = 0; c < COLS; c++) {
		for (uint32_t b = 0; b < BLOCKS; b++)
			fp4_put(x, c, b, &at.x[c][b]);
	}
}

static inline bool run_warp(const uint32_t *weights, const uint32_t *x, uint32_t warp,
	distort_fn distort, execute_fn execute)
{
	static double d[2 * NT][PTX_LANES][4];
	uint32_t tile = warp % 4 * 2, group = warp / 4 * NT;

	for (note_lane = 0; note_lane < PTX_LANES; note_lane++) {
		n_calls = 0;
		fp4_multiply(weights, x, tile, group, NT, note_lane, 0, accumulators);
		assert_int_equal(n_calls, CALLS);
	}
	memset(d, 0, sizeof(d));
	for (uint32_t i = 0; i < CALLS; i++) {
		if (distort != NULL)
			distort(&calls[i]);
		if (!execute(d[calls[i].d / 4], &calls[i]))
			return false;
	}
	for (uint32_t i = 0; i < 2 * NT * PTX_LANES * 4; i++) {
		uint32_t t = i / (PTX_LANES * 4), lane = i / 4 % PTX_LANES, e = i % 4;

		at.got[(tile + t / NT) * FP4_M + fp4_d_row(lane, e)]
		      [(group + t % NT) * FP4_N + fp4_d_column(lane, e)] = d[t][lane][e];
	}
	return true;
}

/* The stage through the kernel's lanes, into at.got. */
static inline bool run_stage(distort_fn distort, execute_fn execute)
{
	static uint32_t weights[FP4_STAGE_WORDS];
	static uint32_t x[COLS / FP4_N * FP4_HALVES * FP4_X_WORDS];

	memset(weights, 0xFF, sizeof(weights));
	memset(x, 0xFF, sizeof(x));
	fill_stage(weights, x);
	for (uint32_t warp = 0; warp < WARPS; warp++) {
		if (!run_warp(weights, x, warp, distort, execute))
			return false;
	}
	return true;
}

static inline double weight_at(uint32_t row, uint32_t k)
{
	uint32_t scale = at.scales[row][k / FP4_K] >> (k / FP4_BLOCK % 4 * 8) & 0xFFu;

	return (double)e2m1_value(at.codes[row][k / 8] >> (k % 8 * 4) & 15u) *
	       (double)e4m3_value((uint8_t)scale);
}

static inline double x_at(uint32_t column, uint32_t k)
{
	const struct fp4_terms *v = &at.x[column][k / FP4_BLOCK];
	double sum = 0;

	for (uint32_t t = 0; t < FP4_TERMS; t++)
		sum += (double)e2m1_value(v->codes[t][k / 8 % 2] >> (k % 8 * 4) & 15u) *
		       (double)e4m3_value((uint8_t)v->scale[t]);
	return sum;
}

static inline uint32_t random_scales(uint32_t sign)
{
	uint32_t word = 0;

	for (uint32_t j = 0; j < 4; j++)
		word |= (random_below(0x7F) | (random_below(2) * 0x80u & sign))
			<< (8 * j);
	return word;
}

/* Any codes, any scales but NaN; those of weights with a sign, too. */
static inline void random_stage(void)
{
	for (uint32_t r = 0; r < ROWS; r++) {
		for (uint32_t i = 0; i < K / 8; i++)
			at.codes[r][i] = (uint32_t)random_u64();
		for (uint32_t i = 0; i < K / FP4_K; i++)
			at.scales[r][i] = random_scales(0x80u);
	}
	for (uint32_t i = 0; i < COLS * BLOCKS * FP4_TERMS; i++) {
		struct fp4_terms *v =
			&at.x[i / FP4_TERMS / BLOCKS][i / FP4_TERMS % BLOCKS];

		v->codes[i % FP4_TERMS][0] = (uint32_t)random_u64();
		v->codes[i % FP4_TERMS][1] = (uint32_t)random_u64();
		v->scale[i % FP4_TERMS] = random_below(0x7F);
	}
}

#endif
