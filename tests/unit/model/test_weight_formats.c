/* Quantised checkpoints: what comes out dequantises to the known BF16 weights, and the
 * spellings of the exporters come out alike. */
#include "common/base/hash.h"
#include "unit/model/edit.h"

#include <math.h>

#define P0 "model.language_model.layers.0."
#define P3 "model.language_model.layers.3."

static struct weights *open_edit(struct edit *e, uint32_t rank, uint32_t n_ranks)
{
	struct weights *w = NULL;

	edit_save(e);
	CHECK_OK(weights_open(&w, &e->config, e->folder.path, rank, n_ranks, &err));
	return w;
}

static float e4m3(uint8_t code)
{
	int exponent = code >> 3 & 15, mantissa = code & 7;

	return exponent == 0 ? ldexpf((float)mantissa, -9)
			     : ldexpf(1 + (float)mantissa / 8, exponent - 7);
}

/* Element (row, k) of matrix m of an NVFP4 role. */
static float nvfp4_at(const struct role_data *d, uint32_t m, uint32_t row, uint32_t k)
{
	static const float magnitude[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
	size_t i = ((size_t)m * d->info.n + row) * d->info.k + k;
	uint8_t code = k % 2 == 0 ? d->data[i / 2] & 15 : d->data[i / 2] >> 4;
	float v = magnitude[code & 7] * e4m3(d->scale[i / 16]) * d->scale2[m];

	return code & 8 ? -v : v;
}

/* Codes 1..15 and 0 in order, scale 2, scale_2 1/8. */
static void the_golden_block_is_read(void **state)
{
	static const uint8_t codes[8] = {0x21, 0x43, 0x65, 0x87, 0xa9, 0xcb, 0xed, 0x0f};
	static const float want[16] = {0.125f, 0.25f, 0.375f, 0.5f, 0.75f, 1, 1.5f, -0.0f,
		-0.125f, -0.25f, -0.375f, -0.5f, -0.75f, -1, -1.5f, 0};
	static const float eighth = 0.125f;
	struct edit *e = edit_open(DEMO);
	struct role_data d;
	struct weights *w;

	(void)state;
	memcpy(edit_data(e, P0 "mlp.experts.5.up_proj.weight"), codes, 8);
	*edit_data(e, P0 "mlp.experts.5.up_proj.weight_scale") = 0x40;
	memcpy(edit_data(e, P0 "mlp.experts.5.up_proj.weight_scale_2"), &eighth, 4);
	w = open_edit(e, 0, 1);
	d = role_read(w, WR_EXP_UP, 0);
	for (uint32_t k = 0; k < 16; k++) {
		float v = nvfp4_at(&d, 5, 0, k);

		assert_true(v == want[k] && signbit(v) == signbit(want[k]));
	}
	role_release(&d);
	weights_close(w);
	edit_close(e);
}

static uint16_t bf16_at(const struct role_data *d, size_t i)
{
	uint16_t v;

	memcpy(&v, d->data + 2 * i, 2);
	return v;
}

static void check_equal_bf16(const struct role_data *q, const struct role_data *b)
{
	uint32_t n = q->info.n, k = q->info.k;

	assert_int_equal(q->info.format, WF_NVFP4);
	assert_int_equal(b->info.format, WF_BF16);
	assert_int_equal(q->info.count, b->info.count);
	assert_int_equal(n, b->info.n);
	assert_int_equal(k, b->info.k);
	for (uint32_t m = 0; m < q->info.count; m++) {
		for (uint32_t i = 0; i < n * k; i++) {
			float v = nvfp4_at(q, m, i / k, i % k);
			uint32_t word;

			memcpy(&word, &v, 4);
			assert_int_equal(word & 0xffff, 0);
			assert_int_equal(word >> 16, bf16_at(b, (size_t)m * n * k + i));
		}
	}
}

/* The script's output is known by its hash (it was compared once, bit for bit, with
 * the BF16 weights that the demo was trained to); every routed expert of the NVFP4
 * files dequantises to it exactly. */
static void the_demo_in_bf16_is_the_same_model(void **state)
{
	static const enum weight_role want[] = {WR_EXP_GATE, WR_EXP_UP, WR_EXP_DOWN};
	struct folder f;
	struct model_config c;
	struct st_index *ix = NULL;
	struct weights *q = NULL, *b = NULL;
	char command[600];
	uint64_t hash = 0;

	(void)state;
	folder_create(&f);
	snprintf(command, sizeof(command), "/usr/bin/python3 %smake_bf16_demo.py %s %s",
		GOLDEN, DEMO, f.path);
	assert_int_equal(system(command), 0);
	CHECK_OK(st_open(&ix, f.path, &err));
	for (uint32_t i = 0; i < st_count(ix); i++) {
		const struct st_tensor *t = st_at(ix, i);
		void *data = malloc(t->bytes);

		CHECK_OK(st_read(ix, t, 0, data, t->bytes, &err));
		hash = hash64(t->name, strlen(t->name), hash);
		hash = hash64(data, t->bytes, hash);
		free(data);
	}
	assert_int_equal(st_count(ix), 160);
	assert_int_equal(hash, UINT64_C(0x7bd3b749b6996130));
	st_close(ix);
	CHECK_OK(model_config_load(&c, f.path, &err));
	CHECK_OK(weights_open(&b, &c, f.path, 0, 1, &err));
	CHECK_OK(weights_open(&q, &c, DEMO, 0, 1, &err));
	for (uint32_t layer = 0; layer < c.n_layers; layer++) {
		for (size_t i = 0; i < COUNT(want); i++) {
			struct role_data x = role_read(q, want[i], layer);
			struct role_data y = role_read(b, want[i], layer);

			check_equal_bf16(&x, &y);
			role_release(&x);
			role_release(&y);
		}
	}
	weights_close(q);
	weights_close(b);
	folder_remove(&f);
}

/* compressed-tensors: weight_packed, and a global scale that divides. */
static void compressed_tensors_are_the_same_as_modelopt(void **state)
{
	static const char *const kinds[] = {"gate", "up", "down"};
	static const enum weight_role want[] = {WR_EXP_GATE, WR_EXP_UP, WR_EXP_DOWN};
	struct edit *e = edit_open(DEMO);
	struct weights *a = NULL, *b;

	(void)state;
	CHECK_OK(weights_open(&a, &e->config, DEMO, 0, 1, &err));
	for (uint32_t i = 0; i < 16 * 3; i++) {
		char from[128], to[160];
		float v;

		snprintf(from, sizeof(from), P0 "mlp.experts.%u.%s_proj.weight", i / 3,
			kinds[i % 3]);
		snprintf(to, sizeof(to), "%s_packed", from);
		edit_rename(e, from, to);
		snprintf(from + strlen(from), 16, "_scale_2");
		snprintf(to, sizeof(to), P0 "mlp.experts.%u.%s_proj.weight_global_scale",
			i / 3, kinds[i % 3]);
		memcpy(&v, edit_data(e, from), 4);
		v = 1 / v; /* the demo's are powers of two */
		edit_drop(e, from);
		edit_add(e, to, STD_F32, (uint64_t[]){1}, 1, &v, 4);
	}
	b = open_edit(e, 0, 1);
	for (size_t i = 0; i < COUNT(want); i++) {
		struct role_data x = role_read(a, want[i], 0),
				 y = role_read(b, want[i], 0);

		check_same(&x, &y);
		role_release(&x);
		role_release(&y);
	}
	weights_close(a);
	weights_close(b);
	edit_close(e);
}

/* Some releases quantise the head as well. */
static void a_quantised_head_is_cut_by_rows(void **state)
{
	enum { V = 2112, H = 128, HALF = V / 2 };
	struct edit *e = edit_open(DEMO);
	uint8_t *codes = malloc((size_t)V * H / 2), *scales = malloc((size_t)V * H / 16);
	const float scale_2 = 0.25f;
	struct role_data d;
	struct weights *w;

	(void)state;
	for (size_t i = 0; i < (size_t)V * H / 2; i++)
		codes[i] = (uint8_t)(i * 7);
	for (size_t i = 0; i < (size_t)V * H / 16; i++)
		scales[i] = (uint8_t)(i % 0x7f);
	edit_drop(e, "lm_head.weight");
	edit_add(
		e, "lm_head.weight", STD_U8, (uint64_t[]){V, H / 2}, 2, codes, V * H / 2);
	edit_add(e, "lm_head.weight_scale", STD_F8_E4M3, (uint64_t[]){V, H / 16}, 2,
		scales, V * H / 16);
	edit_add(e, "lm_head.weight_scale_2", STD_F32, NULL, 0, &scale_2, 4);
	w = open_edit(e, 1, 2);
	d = role_read(w, WR_LM_HEAD, 0);
	assert_int_equal(d.info.format, WF_NVFP4);
	assert_int_equal(d.info.n, HALF);
	assert_memory_equal(d.data, codes + HALF * H / 2, HALF * H / 2);
	assert_memory_equal(d.scale, scales + HALF * H / 16, HALF * H / 16);
	assert_true(*d.scale2 == 0.25f);
	role_release(&d);
	weights_close(w);
	edit_close(e);
	free(codes);
	free(scales);
}

/* module of tiny-dense becomes E4M3 with bytes 0..0x7e and a scale tensor whose
 * element i is i + 1 in this dtype. */
static void make_fp8(struct edit *e, const char *module, const char *scale_name,
	enum st_dtype dtype, const uint64_t *dim, uint32_t n_dims)
{
	char name[128];
	struct st_out_tensor *t;
	uint64_t n = 1, shape[2];
	uint8_t *bytes;

	snprintf(name, sizeof(name), P3 "%s.weight", module);
	t = edit_find(e, name);
	memcpy(shape, t->dim, sizeof(shape));
	edit_drop(e, name);
	bytes = malloc(shape[0] * shape[1]);
	for (uint64_t i = 0; i < shape[0] * shape[1]; i++)
		bytes[i] = (uint8_t)(i % 0x7f);
	edit_add(e, name, STD_F8_E4M3, shape, 2, bytes, shape[0] * shape[1]);
	free(bytes);
	for (uint32_t i = 0; i < n_dims; i++)
		n *= dim[i];
	bytes = malloc(n * 4);
	for (uint64_t i = 0; i < n; i++) {
		float v = (float)(i + 1);

		if (dtype == STD_F32)
			memcpy(bytes + 4 * i, &v, 4);
		else
			memcpy(bytes + 2 * i, (char *)&v + 2, 2);
	}
	snprintf(name, sizeof(name), P3 "%s.%s", module, scale_name);
	edit_add(e, name, dtype, dim, n_dims, bytes, n * (dtype == STD_F32 ? 4 : 2));
	free(bytes);
}

/* FP8 scales of every kind, and which of them a rank gets. first: scale 0 of rank 0
 * and of rank 1 of 2. */
static void fp8_scales_follow_their_slices(void **state)
{
	static const struct {
		enum weight_role role;
		const char *module, *scale;
		enum st_dtype dtype;
		uint64_t dim[2];
		uint32_t n_dims, n, k, block_n, block_k, n_scales;
		float first[2];
	} rows[] = {
		/* q: [4096, 96], 32 blocks of rows; a rank has 16 of them */
		{WR_Q, "self_attn.q_proj", "weight_scale_inv", STD_BF16, {32, 1}, 2, 2048,
			96, 128, 128, 16, {1, 17}},
		{WR_Q, "self_attn.q_proj", "weight_scale", STD_F32, {32, 1}, 2, 2048, 96,
			128, 128, 16, {1, 17}},
		{WR_Q, "self_attn.q_proj", "weight_scale", STD_F32, {4096, 1}, 2, 2048,
			96, 1, 96, 2048, {1, 2049}},
		{WR_Q, "self_attn.q_proj", "weight_scale", STD_F32, {4096}, 1, 2048, 96,
			1, 96, 2048, {1, 2049}},
		{WR_Q, "self_attn.q_proj", "weight_scale", STD_F32, {0}, 0, 2048, 96,
			2048, 96, 1, {1, 1}},
		{WR_Q, "self_attn.q_proj", "weight_scale", STD_BF16, {1}, 1, 2048, 96,
			2048, 96, 1, {1, 1}},
		/* o: [96, 2048], 16 blocks of columns; a rank has 8 of them */
		{WR_O, "self_attn.o_proj", "weight_scale_inv", STD_F32, {1, 16}, 2, 96,
			1024, 128, 128, 8, {1, 9}},
		{WR_O, "self_attn.o_proj", "weight_scale", STD_BF16, {96, 1}, 2, 96, 1024,
			1, 1024, 96, {1, 1}},
		{WR_O, "self_attn.o_proj", "weight_scale", STD_F32, {0}, 0, 96, 1024, 96,
			1024, 1, {1, 1}},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct edit *e = edit_open(GOLDEN "tiny-dense");

		make_fp8(e, rows[i].module, rows[i].scale, rows[i].dtype, rows[i].dim,
			rows[i].n_dims);
		for (uint32_t rank = 0; rank < 2; rank++) {
			struct weights *w = open_edit(e, rank, 2);
			struct role_data d = role_read(w, rows[i].role, 3);
			const float *scale = (void *)d.scale;

			assert_int_equal(d.info.format, WF_FP8);
			assert_int_equal(d.info.n, rows[i].n);
			assert_int_equal(d.info.k, rows[i].k);
			assert_int_equal(d.info.block_n, rows[i].block_n);
			assert_int_equal(d.info.block_k, rows[i].block_k);
			assert_int_equal(d.info.scale_bytes, rows[i].n_scales * 4);
			assert_int_equal(d.info.scale2_bytes, 0);
			for (uint32_t s = 0;
				s < rows[i].n_scales && rows[i].dtype == STD_F32; s++)
				assert_true(scale[s] == rows[i].first[rank] + (float)s);
			assert_true(scale[0] == rows[i].first[rank]);
			role_release(&d);
			weights_close(w);
		}
		edit_close(e);
	}
}

/* A row's scale is named by its row, whatever columns the rank holds. */
static void refuses_an_fp8_scale_that_is_not_finite(void **state)
{
	struct edit *e = edit_open(GOLDEN "tiny-dense");
	const float bad = INFINITY;
	struct weights *w;
	uint8_t data[96 * 1024];
	float scale[96];

	(void)state;
	make_fp8(e, "self_attn.o_proj", "weight_scale", STD_F32, (uint64_t[]){96, 1}, 2);
	memcpy(edit_data(e, P3 "self_attn.o_proj.weight_scale") + 5 * 4, &bad, 4);
	w = open_edit(e, 1, 2);
	CHECK_REFUSED("inf", ST_INVALID,
		"model.safetensors: tensor " P3
		"self_attn.o_proj.weight_scale: inf at [5][0]",
		weights_read(w, WR_O, 3, data, scale, NULL, &err));
	weights_close(w);
	edit_close(e);
}

/* Qwen3-Next's packed projection in FP8: groups of 128 rows keep their block scales. */
static void packed_fp8_scales_are_reordered(void **state)
{
	enum { ROWS = 1536, H = 64, BLOCKS = 12 };
	static const char name[] = "model.layers.0.linear_attn.in_proj_qkvz.weight";
	/* per key head 6 blocks [q k v v z z]; in order q q, k k, v v v v, then z z z z
	 */
	static const float qkv[8] = {0, 6, 1, 7, 2, 3, 8, 9}, z[4] = {4, 5, 10, 11};
	struct edit *e = edit_open(GOLDEN "tiny-next");
	uint8_t *bytes = calloc(ROWS, H);
	float scales[BLOCKS];
	struct role_data a, b;
	struct weights *w;

	(void)state;
	for (int i = 0; i < BLOCKS; i++)
		scales[i] = (float)i;
	edit_drop(e, name);
	edit_add(e, name, STD_F8_E4M3, (uint64_t[]){ROWS, H}, 2, bytes, ROWS * H);
	edit_add(e, "model.layers.0.linear_attn.in_proj_qkvz.weight_scale_inv", STD_F32,
		(uint64_t[]){BLOCKS, 1}, 2, scales, sizeof(scales));
	w = open_edit(e, 0, 1);
	a = role_read(w, WR_GDN_QKV, 0);
	b = role_read(w, WR_GDN_Z, 0);
	assert_int_equal(a.info.scale_bytes, sizeof(qkv));
	assert_int_equal(b.info.scale_bytes, sizeof(z));
	assert_memory_equal(a.scale, qkv, sizeof(qkv));
	assert_memory_equal(b.scale, z, sizeof(z));
	role_release(&a);
	role_release(&b);
	weights_close(w);
	edit_close(e);
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_golden_block_is_read),
		cmocka_unit_test(the_demo_in_bf16_is_the_same_model),
		cmocka_unit_test(compressed_tensors_are_the_same_as_modelopt),
		cmocka_unit_test(a_quantised_head_is_cut_by_rows),
		cmocka_unit_test(fp8_scales_follow_their_slices),
		cmocka_unit_test(refuses_an_fp8_scale_that_is_not_finite),
		cmocka_unit_test(packed_fp8_scales_are_reordered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
