/* moe_route and moe against double precision; ties; bits across row counts and formats.
 */
#include "weight_test.h"

#define TOLERANCE 3e-5 /* as for linear; the two products in a row double it at most */

static void route_double(const struct test_weight *router, const float *x, double *p)
{
	double sum = 0;

	product_double(&router->w, 0, x, router->w.k, 1, p);
	for (uint32_t e = 0; e < router->w.n; e++) {
		p[e] = exp(p[e]);
		sum += p[e];
	}
	for (uint32_t e = 0; e < router->w.n; e++)
		p[e] /= sum;
}

/* K largest of p in descending order. */
static void largest(const double *p, uint32_t n, uint32_t k, uint32_t *ids)
{
	for (uint32_t j = 0; j < k; j++) {
		uint32_t best = UINT32_MAX;

		for (uint32_t e = 0; e < n; e++) {
			bool taken = false;

			for (uint32_t i = 0; i < j; i++)
				taken |= ids[i] == e;
			if (!taken && (best == UINT32_MAX || p[e] > p[best]))
				best = e;
		}
		ids[j] = best;
	}
}

static void check_route(const struct variant *v, enum weight_format f, uint32_t rows,
	uint32_t n_experts, uint32_t top_k, bool forced)
{
	enum { H = 72 };
	struct test_weight router = weight_make(f, 1, n_experts, H, false);
	struct test_weight shared_router = weight_make(f, 1, 1, H, false);
	float *x = random_floats((uint64_t)rows * H, 2.0f);
	float *weights = canary_floats((uint64_t)rows * top_k);
	float *shared = canary_floats(rows);
	float *ids_memory = canary_floats((uint64_t)rows * top_k);
	uint32_t *ids = (uint32_t *)(void *)ids_memory;
	uint32_t *choice = mem_alloc((uint64_t)rows * top_k, 4);
	double *p = mem_alloc(n_experts, sizeof(*p));
	struct op_moe_route op = {.ids = ids,
		.weights = weights,
		.shared = shared,
		.x = x,
		.forced = forced ? choice : NULL,
		.router = &router.w,
		.shared_router = &shared_router.w,
		.n_rows = rows,
		.n_experts = n_experts,
		.top_k = top_k};

	for (uint32_t i = 0; i < rows * top_k; i++)
		choice[i] = (i / top_k * 5 + i % top_k) % n_experts;
	RUN(moe_route, v, &op);
	for (uint32_t t = 0; t < rows; t++) {
		double sum = 0, want[32], gate;

		route_double(&router, x + (uint64_t)t * H, p);
		if (!forced)
			largest(p, n_experts, top_k, choice + t * top_k);
		assert_memory_equal(ids + t * top_k, choice + t * top_k, top_k * 4);
		for (uint32_t j = 0; j < top_k; j++)
			sum += want[j] = p[ids[t * top_k + j]];
		for (uint32_t j = 0; j < top_k; j++)
			want[j] /= sum;
		assert_close(weights + t * top_k, top_k, want, 1, top_k, 1e-5);
		product_double(&shared_router.w, 0, x + (uint64_t)t * H, H, 1, &gate);
		gate = 1 / (1 + exp(-gate));
		assert_true(fabs((double)shared[t] - gate) < 2e-6);
	}
	canary_check(weights, (uint64_t)rows * top_k);
	canary_check(shared, rows);
	canary_check(ids_memory, (uint64_t)rows * top_k);
	mem_free(p);
	mem_free(choice);
	canary_free(ids_memory);
	canary_free(shared);
	canary_free(weights);
	mem_free(x);
	weight_free(&shared_router);
	weight_free(&router);
}

static void route_matches_double_precision(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v, OP_moe_route)
	{
		for (int f = WF_F32; f <= WF_BF16; f++) {
			check_route(v, (enum weight_format)f, 0, 16, 4, false);
			check_route(v, (enum weight_format)f, 1, 16, 4, false);
			check_route(v, (enum weight_format)f, 35, 512, 10, false);
			check_route(v, (enum weight_format)f, 17, 13, 3, false);
			check_route(v, (enum weight_format)f, 3, 5, 5, false);
			check_route(v, (enum weight_format)f, 9, 16, 4, true);
		}
	}
}

/* Equal rows of the router give equal probabilities; the lowest index wins. */
static void ties_go_to_the_lowest_index(void **state)
{
	enum { H = 16, E = 12 };
	float router[E][H], x[H], weights[4];
	uint32_t ids[4];
	struct weight w = {.format = WF_F32, .count = 1, .n = E, .k = H, .data = router};
	struct op_moe_route op = {.ids = ids,
		.weights = weights,
		.x = x,
		.router = &w,
		.n_rows = 1,
		.n_experts = E,
		.top_k = 4};

	(void)state;
	for (uint32_t i = 0; i < H; i++)
		x[i] = random_uniform(0.1f, 1);
	FOR_EACH_VARIANT(v, OP_moe_route)
	{
		for (uint32_t e = 0; e < E; e++) {
			for (uint32_t i = 0; i < H; i++)
				router[e][i] = e == 7 ? 2.0f : e % 3 == 2 ? 1.0f : 0.5f;
		}
		/* 2, 5, 8, 11 are equal behind 7. */
		RUN(moe_route, v, &op);
		assert_memory_equal(ids, ((uint32_t[4]){7, 2, 5, 8}), sizeof(ids));
		assert_true(weights[1] == weights[2] && weights[2] == weights[3]);
	}
}

static void impossible_experts_are_refused(void **state)
{
	float router[4][8] = {{0}}, x[8] = {0}, weights[2];
	uint32_t ids[2], forced[2] = {1, 4};
	struct weight w = {.format = WF_F32, .count = 1, .n = 4, .k = 8, .data = router};
	struct op_moe_route op = {.ids = ids,
		.weights = weights,
		.x = x,
		.forced = forced,
		.router = &w,
		.n_rows = 1,
		.n_experts = 4,
		.top_k = 2};
	struct err err;

	(void)state;
	FOR_EACH_VARIANT(v, OP_moe_route)
	{
		assert_int_equal(run_moe_route(v, &op, &err), ST_INVALID);
		assert_non_null(strstr(err.text, "expert 4 of 4"));
	}
}

/* One MoE layer and its inputs. */
struct layer {
	struct test_weight w[6];
	uint32_t rows, top_k, hidden;
	float *x, *weights, *shared;
	uint32_t *ids;
};

enum { GATE, UP, DOWN, SH_GATE, SH_UP, SH_DOWN };

static struct layer make_layer(
	enum weight_format f, enum weight_format shared, uint32_t rows)
{
	enum { H = 64, I = 48, IS = 32, E = 7, K = 3 };
	struct layer l = {.rows = rows, .top_k = K, .hidden = H};

	l.w[GATE] = weight_make(f, E, I, H, true);
	l.w[UP] = weight_make(f, E, I, H, true);
	l.w[DOWN] = weight_make(f, E, H, I, true);
	l.w[SH_GATE] = weight_make(shared, 1, IS, H, true);
	l.w[SH_UP] = weight_make(shared, 1, IS, H, true);
	l.w[SH_DOWN] = weight_make(shared, 1, H, IS, true);
	l.x = random_floats((uint64_t)rows * H, 1.0f);
	l.weights = random_floats((uint64_t)rows * K, 0.3f);
	l.shared = random_floats(rows, 0.5f);
	l.ids = mem_alloc((uint64_t)rows * K, 4);
	/* Expert 5 is nobody's; rows take three different ones of the others. */
	for (uint32_t t = 0; t < rows; t++) {
		uint32_t from = random_below(6);

		for (uint32_t j = 0; j < K; j++) {
			uint32_t e = (from + 2 * j) % 6;

			l.ids[t * K + j] = e == 5 ? 6 : e;
		}
	}
	return l;
}

static void free_layer(struct layer *l)
{
	for (int i = 0; i < 6; i++)
		weight_free(&l->w[i]);
	mem_free(l->x);
	mem_free(l->weights);
	mem_free(l->shared);
	mem_free(l->ids);
}

/* Rows t.. of the layer with the given weights; y has their rows. */
static void run_layer(const struct variant *v, const struct layer *l,
	const struct test_weight *w, uint32_t t, uint32_t rows, float *y)
{
	struct kernel_shapes shapes = {.rows_max = rows,
		.hidden = l->hidden,
		.n_experts = w[DOWN].w.count,
		.top_k = l->top_k,
		.width = w[GATE].w.n,
		.shared_width = w[SH_GATE].w.n};
	uint64_t bytes = v->work_bytes(&shapes);
	uint8_t *work = mem_alloc(bytes, 1); /* exactly, for the address sanitizer */
	struct op_moe op = {.y = y,
		.x = l->x + (uint64_t)t * l->hidden,
		.ids = l->ids + (uint64_t)t * l->top_k,
		.weights = l->weights + (uint64_t)t * l->top_k,
		.shared = l->shared + t,
		.gate = &w[GATE].w,
		.up = &w[UP].w,
		.down = &w[DOWN].w,
		.sh_gate = &w[SH_GATE].w,
		.sh_up = &w[SH_UP].w,
		.sh_down = &w[SH_DOWN].w,
		.n_rows = rows,
		.top_k = l->top_k,
		.n_experts = w[DOWN].w.count,
		.work = work,
		.work_bytes = bytes};

	memset(work, 0xFF, bytes);
	RUN(moe, v, &op);
	mem_free(work);
}

static void expert_double(
	const struct test_weight *w, uint32_t e, const float *x, double times, double *y)
{
	double gate[64], up[64], out[64];
	float inner[64];

	product_double(&w[0].w, e, x, w[0].w.k, 1, gate);
	product_double(&w[1].w, e, x, w[1].w.k, 1, up);
	for (uint32_t i = 0; i < w[0].w.n; i++)
		inner[i] = (float)(gate[i] / (1 + exp(-gate[i])) * up[i]);
	product_double(&w[2].w, e, inner, w[2].w.k, 1, out);
	for (uint32_t i = 0; i < w[2].w.n; i++)
		y[i] += times * out[i];
}

static void moe_matches_double_precision(void **state)
{
	static const uint32_t rows[] = {0, 1, 2, 37};

	(void)state;
	FOR_EACH_VARIANT(v, OP_moe)
	{
		for (int f = 0; f < WF__COUNT; f++) {
			for (size_t i = 0; i < COUNT(rows); i++) {
				struct layer l = make_layer((enum weight_format)f,
					i % 2 == 0 ? WF_BF16 : (enum weight_format)f,
					rows[i]);
				uint64_t n = (uint64_t)l.rows * l.hidden;
				float *y = canary_floats(n);

				run_layer(v, &l, l.w, 0, l.rows, y);
				for (uint32_t t = 0; t < l.rows; t++) {
					double want[64] = {0};
					const float *x = l.x + (uint64_t)t * l.hidden;

					for (uint32_t j = 0; j < l.top_k; j++)
						expert_double(l.w, l.ids[t * l.top_k + j],
							x,
							(double)l
								.weights[t * l.top_k + j],
							want);
					expert_double(l.w + SH_GATE, 0, x,
						(double)l.shared[t], want);
					assert_close(y + (uint64_t)t * l.hidden, l.hidden,
						want, 1, l.hidden, TOLERANCE);
				}
				canary_check(y, n);
				canary_free(y);
				free_layer(&l);
			}
		}
	}
}

static void rows_do_not_depend_on_each_other(void **state)
{
	enum { T = 300 }; /* more than a block of rows */
	static const uint32_t chunks[] = {1, 2, 3, 64, 257};

	(void)state;
	FOR_EACH_VARIANT(v, OP_moe)
	{
		for (int f = 0; f < WF__COUNT; f++) {
			struct layer l = make_layer((enum weight_format)f, WF_BF16, T);
			uint64_t n = (uint64_t)T * l.hidden;
			float *whole = canary_floats(n), *parts = canary_floats(n);

			run_layer(v, &l, l.w, 0, T, whole);
			for (size_t c = v->oracle ? COUNT(chunks) - 1 : 0;
				c < COUNT(chunks); c++) {
				for (uint32_t t = 0; t < T; t += chunks[c])
					run_layer(v, &l, l.w, t, MIN(chunks[c], T - t),
						parts + (uint64_t)t * l.hidden);
				assert_same_bits(whole, parts, n);
			}
			canary_free(parts);
			canary_free(whole);
			free_layer(&l);
		}
	}
}

static void nvfp4_equals_its_bf16_bit_for_bit(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v, OP_moe)
	{
		for (uint32_t rows = 1; rows <= 33; rows += 32) {
			struct layer l = make_layer(WF_NVFP4, WF_NVFP4, rows);
			struct test_weight as_bf16[6];
			float a[33 * 64], b[33 * 64];

			for (int i = 0; i < 6; i++)
				as_bf16[i] = weight_as_bf16(&l.w[i].w);
			run_layer(v, &l, l.w, 0, rows, a);
			run_layer(v, &l, as_bf16, 0, rows, b);
			assert_same_bits(a, b, (uint64_t)rows * l.hidden);
			for (int i = 0; i < 6; i++)
				weight_free(&as_bf16[i]);
			free_layer(&l);
		}
	}
}

static void a_layer_without_shared_expert_has_none(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v, OP_moe)
	{
		struct layer l = make_layer(WF_BF16, WF_BF16, 1);
		float with[64], without[64], y[64], work[4096];
		double shared[64] = {0}, want[64];
		struct op_moe op = {.y = y,
			.x = l.x,
			.ids = l.ids,
			.weights = l.weights,
			.gate = &l.w[GATE].w,
			.up = &l.w[UP].w,
			.down = &l.w[DOWN].w,
			.n_rows = 1,
			.top_k = l.top_k,
			.n_experts = l.w[DOWN].w.count,
			.work = work,
			.work_bytes = sizeof(work)};
		struct err err;

		run_layer(v, &l, l.w, 0, 1, with);
		RUN(moe, v, &op);
		memcpy(without, y, sizeof(y));
		expert_double(l.w + SH_GATE, 0, l.x, (double)l.shared[0], shared);
		for (int i = 0; i < 64; i++)
			want[i] = (double)with[i] - shared[i];
		assert_close(without, 64, want, 1, 64, 1e-4);
		op.work_bytes = 64;
		assert_int_equal(run_moe(v, &op, &err), ST_LIMIT);
		assert_non_null(strstr(err.text, "64 bytes of scratch"));
		op.work_bytes = sizeof(work);
		l.ids[1] = 7;
		assert_int_equal(run_moe(v, &op, &err), ST_INVALID);
		assert_non_null(strstr(err.text, "expert 7 of 7"));
		free_layer(&l);
	}
}

/* Experts first .. first + n - 1 of a stack in BF16. */
static struct weight part_of(const struct weight *w, uint32_t first, uint32_t n)
{
	struct weight part = *w;

	part.count = n;
	part.data = (const uint8_t *)w->data + (uint64_t)first * w->n * w->k * 2;
	return part;
}

static void parts_of_the_experts_add_up(void **state)
{
	enum { ROWS = 9, H = 64 };
	static const uint32_t first[] = {0, 2, 3, 7}, n[] = {2, 1, 4, 0};

	(void)state;
	FOR_EACH_VARIANT(v, OP_moe)
	{
		struct layer l = make_layer(WF_BF16, WF_BF16, ROWS);
		float all[ROWS * H], y[ROWS * H];
		double sum[ROWS * H] = {0};
		uint32_t bytes = 1u << 20;
		void *work = mem_alloc(bytes, 1);
		struct err err;

		run_layer(v, &l, l.w, 0, ROWS, all);
		for (size_t i = 0; i < COUNT(first); i++) {
			struct weight gate = part_of(&l.w[GATE].w, first[i], n[i]);
			struct weight up = part_of(&l.w[UP].w, first[i], n[i]);
			struct weight down = part_of(&l.w[DOWN].w, first[i], n[i]);
			struct op_moe op = {.y = y,
				.x = l.x,
				.ids = l.ids,
				.weights = l.weights,
				.shared = l.shared,
				.gate = &gate,
				.up = &up,
				.down = &down,
				.sh_gate = i == 1 ? &l.w[SH_GATE].w : NULL,
				.sh_up = &l.w[SH_UP].w,
				.sh_down = &l.w[SH_DOWN].w,
				.n_rows = ROWS,
				.top_k = l.top_k,
				.first = first[i],
				.n_experts = 7,
				.work = work,
				.work_bytes = bytes};

			memset(work, 0xFF, bytes);
			RUN(moe, v, &op);
			for (uint32_t k = 0; k < ROWS * H; k++)
				sum[k] += (double)y[k];
			op.n_experts = first[i] + n[i] - 1;
			assert_int_equal(run_moe(v, &op, &err), ST_INVALID);
		}
		assert_close(all, H, sum, ROWS, H, 1e-5);
		mem_free(work);
		free_layer(&l);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(route_matches_double_precision),
		cmocka_unit_test(ties_go_to_the_lowest_index),
		cmocka_unit_test(impossible_experts_are_refused),
		cmocka_unit_test(moe_matches_double_precision),
		cmocka_unit_test(parts_of_the_experts_add_up),
		cmocka_unit_test(rows_do_not_depend_on_each_other),
		cmocka_unit_test(nvfp4_equals_its_bf16_bit_for_bit),
		cmocka_unit_test(a_layer_without_shared_expert_has_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
