/* The block-scaled NVFP4 products for SM120 without an SM120: registers, scales and
 * numbers of a stage, through an emulator of the instruction. */
#include "fp4_warp.h"

enum { MANY = 10000 };

/* The definition: values times scales, one after another. */
static void define(void)
{
	static double w[ROWS][K], x[COLS][K];

	for (uint32_t k = 0; k < K; k++) {
		for (uint32_t r = 0; r < ROWS; r++)
			w[r][k] = weight_at(r, k);
		for (uint32_t c = 0; c < COLS; c++)
			x[c][k] = x_at(c, k);
	}
	for (uint32_t i = 0; i < ROWS * COLS; i++) {
		double sum = 0;

		for (uint32_t k = 0; k < K; k++)
			sum += w[i / COLS][k] * x[i % COLS][k];
		at.want[i / COLS][i % COLS] = sum;
	}
}

static bool same(double a, double b)
{
	return isnan(a) ? isnan(b) : a == b;
}

/* Tiles of the stage that are not what they should be. */
static uint32_t wrong_tiles(void)
{
	uint32_t wrong = 0;

	for (uint32_t t = 0; t < TILES; t++) {
		bool right = true;

		for (uint32_t i = 0; i < FP4_M * FP4_N; i++) {
			uint32_t r = t / (COLS / FP4_N) * FP4_M + i / FP4_N;
			uint32_t c = t % (COLS / FP4_N) * FP4_N + i % FP4_N;

			right &= same(at.got[r][c], at.want[r][c]);
		}
		wrong += !right;
	}
	return wrong;
}

static void random_tiles_equal_the_definition(void **state)
{
	(void)state;
	for (uint32_t done = 0; done < MANY; done += TILES) {
		random_stage();
		define();
		assert_true(run_stage(NULL, by_mma));
		assert_int_equal(wrong_tiles(), 0);
	}
}

static void steps_of_bf16_equal_the_definition(void **state)
{
	(void)state;
	for (uint32_t done = 0; done < MANY / 10; done += TILES) {
		random_stage();
		define();
		assert_true(run_stage(NULL, by_steps));
		assert_int_equal(wrong_tiles(), 0);
	}
}

static void swap_halves(struct call *c)
{
	for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
		uint32_t *a = c->lanes[lane].a;

		for (uint32_t i = 0; i < 2; i++) {
			uint32_t keep = a[i];

			a[i] = a[i + 2];
			a[i + 2] = keep;
		}
	}
}

static void neighbour_scales_a(struct call *c)
{
	struct call before = *c;

	for (uint32_t lane = 0; lane < PTX_LANES; lane++)
		c->lanes[lane].scale_a = before.lanes[(lane + 1) % PTX_LANES].scale_a;
}

static void neighbour_scales_b(struct call *c)
{
	struct call before = *c;

	for (uint32_t lane = 0; lane < PTX_LANES; lane++)
		c->lanes[lane].scale_b = before.lanes[(lane + 1) % PTX_LANES].scale_b;
}

/* As if a scale's block were told by the next byte. */
static void next_byte(struct call *c)
{
	for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
		uint32_t s = c->lanes[lane].scale_a;

		c->lanes[lane].scale_a = s >> 8 | s << 24;
	}
}

static void other_pair(struct call *c)
{
	c->select.thread_a ^= 1;
}

static void byte_of_one(struct call *c)
{
	c->select.byte_a = 1;
}

static void pair_of_two(struct call *c)
{
	c->select.thread_a = 2;
}

static void lane_of_four(struct call *c)
{
	c->select.thread_b = 4;
}

static void wrong_layouts_are_refused(void **state)
{
	static const struct {
		distort_fn distort;
		bool exists; /* as an instruction */
	} wrong[] = {{swap_halves, true}, {neighbour_scales_a, true},
		{neighbour_scales_b, true}, {next_byte, true}, {other_pair, true},
		{byte_of_one, false}, {pair_of_two, false}, {lane_of_four, false}};

	(void)state;
	random_stage();
	define();
	for (size_t i = 0; i < COUNT(wrong); i++) {
		assert_int_equal(run_stage(wrong[i].distort, by_mma), wrong[i].exists);
		if (wrong[i].exists)
			assert_int_equal(wrong_tiles(), TILES);
	}
	assert_true(run_stage(NULL, by_mma));
	assert_int_equal(wrong_tiles(), 0);
}

/* Of every register the place that the header says is the one that the ISA numbers. */
static void every_register_is_where_the_isa_has_it(void **state)
{
	(void)state;
	for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
		uint32_t group = lane >> 2, thread = lane & 3u;

		for (uint32_t i = 0; i < 32; i++) {
			bool upper = i < 8 || (i >= 16 && i < 24);

			assert_int_equal(
				fp4_a_row(lane, i / 8), upper ? group : group + 8);
			assert_int_equal(fp4_a_k(lane, i / 8) + i % 8,
				thread * 8 + (i & 7u) + (i < 16 ? 0 : 32));
		}
		for (uint32_t i = 0; i < 16; i++) {
			uint32_t k = thread * 8 + (i & 7u) + (i < 8 ? 0 : 32);

			assert_int_equal(fp4_b_k(lane, i / 8) + i % 8, k);
			assert_int_equal(fp4_b_column(lane), group);
			assert_int_equal(fp4_x_word(group, 0, k / 8), lane * 2 + i / 8);
		}
		assert_int_equal(fp4_sa_row(lane), group + (thread % 2 == 1 ? 8 : 0));
		assert_int_equal(fp4_sa_pair(lane), thread / 2);
		assert_int_equal(
			fp4_sa_lane(lane - thread, thread / 2, thread % 2), lane);
		assert_int_equal(fp4_sb_lane(lane - thread, thread), lane);
	}
}

static void same_stage(uint32_t code, uint32_t scale)
{
	memset(at.codes, (int)(code * 0x11u), sizeof(at.codes));
	memset(at.scales, (int)scale, sizeof(at.scales));
	for (uint32_t i = 0; i < COLS * BLOCKS * FP4_TERMS; i++) {
		struct fp4_terms *v =
			&at.x[i / FP4_TERMS / BLOCKS][i / FP4_TERMS % BLOCKS];

		v->codes[i % FP4_TERMS][0] = v->codes[i % FP4_TERMS][1] =
			code * 0x11111111u;
		v->scale[i % FP4_TERMS] = scale & 0x7Fu;
	}
}

static void expect_everywhere(double value)
{
	assert_true(run_stage(NULL, by_mma));
	for (uint32_t i = 0; i < ROWS * COLS; i++)
		assert_true(at.got[i / COLS][i % COLS] == value);
	assert_true(run_stage(NULL, by_steps));
	for (uint32_t i = 0; i < ROWS * COLS; i++)
		assert_true(at.got[i / COLS][i % COLS] == value);
}

static void zeros_and_extremes_are_exact(void **state)
{
	double largest = 6.0 * 448.0;

	(void)state;
	same_stage(0, 0x7E); /* zeros */
	expect_everywhere(0);
	same_stage(8, 0x7E); /* negative ones */
	expect_everywhere(0);
	same_stage(7, 0); /* largest codes of no scale */
	expect_everywhere(0);
	same_stage(7, 0x7E);
	expect_everywhere(K * FP4_TERMS * largest * largest);
	same_stage(15, 0x7E);
	expect_everywhere(K * FP4_TERMS * largest * largest);
	same_stage(1, 1); /* smallest */
	expect_everywhere(K * FP4_TERMS * 0x1p-20);
	/* A negative scale of weights: 15 becomes 7 there, not in x. */
	same_stage(15, 0xFE);
	expect_everywhere(-(K * FP4_TERMS * largest * largest));
}

/* Code 0 does not save a row from the NaN of its scale, nor does any other row suffer. */
static void nan_scales_stay_in_their_row_and_column(void **state)
{
	(void)state;
	random_stage();
	at.scales[37][1] = (at.scales[37][1] & 0xFF00FFFFu) | 0x7F0000u;
	memset(at.codes[37], 0, sizeof(at.codes[37]));
	at.scales[ROWS - 1][0] = 0xFFFFFFFFu;
	at.x[11][5].scale[2] = 0x7F;
	define();
	assert_true(isnan(at.want[37][0]) && isnan(at.want[ROWS - 1][63]) &&
		    isnan(at.want[0][11]) && !isnan(at.want[36][10]));
	assert_true(run_stage(NULL, by_mma));
	assert_int_equal(wrong_tiles(), 0);
	assert_true(run_stage(NULL, by_steps));
	assert_int_equal(wrong_tiles(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_register_is_where_the_isa_has_it),
		cmocka_unit_test(random_tiles_equal_the_definition),
		cmocka_unit_test(wrong_layouts_are_refused),
		cmocka_unit_test(steps_of_bf16_equal_the_definition),
		cmocka_unit_test(zeros_and_extremes_are_exact),
		cmocka_unit_test(nan_scales_stay_in_their_row_and_column),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
