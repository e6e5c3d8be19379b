/* Roles of real checkpoints: they are the file's own bytes, packed and fused layouts
 * come out in the engine's order, and the slices of all ranks make up the whole. */
#include "common/model/weights_impl.h"

#include "unit/model/edit.h"

static const struct {
	const char *dir;
	uint64_t unused_mtp;
} checkpoints[] = {
	{GOLDEN "tiny-moe", 0},
	{GOLDEN "tiny-dense", 0},
	{GOLDEN "tiny-next", 0},
	{DEMO, 19},
};

static const struct {
	enum weight_role role;
	enum shard_rule rule;
	bool stack;
} roles[] = {
#define STACK_VEC                     false
#define STACK_MAT                     false
#define STACK_STACK                   true
#define X(role, where, rule, storage) {WR_##role, rule, STACK_##storage},
	WEIGHT_MAP(X)
#undef X
};

static struct weights *open_rank(
	const struct model_config *c, const char *dir, uint32_t rank, uint32_t n_ranks)
{
	struct weights *w = NULL;

	CHECK_OK(weights_open(&w, c, dir, rank, n_ranks, &err));
	return w;
}

/* One matrix of rows cut by bytes: whole[n][bytes] from parts. */
struct rows {
	const uint8_t *at;
	uint64_t n, bytes;
};

static void check_rows(
	struct rows whole, uint64_t row, struct rows part, uint64_t from, uint64_t n)
{
	assert_int_equal(whole.bytes, part.bytes);
	assert_true(row + n <= whole.n && from + n <= part.n);
	assert_memory_equal(whole.at + row * whole.bytes, part.at + from * part.bytes,
		n * part.bytes);
}

/* parts: the ranks' slices of `whole`, put together by the rule. width[0..2]: for QKV,
 * rows of the q, k and v parts of the whole. */
static void check_union(enum shard_rule rule, struct rows whole, const struct rows *part,
	uint32_t n_ranks, const uint32_t width[3])
{
	for (uint32_t r = 0; r < n_ranks; r++) {
		switch (rule) {
		case SHARD_WHOLE:
			check_rows(whole, 0, part[r], 0, whole.n);
			break;
		case SHARD_ROWS_QKV:
			for (uint32_t i = 0, at = 0, local = 0; i < 3; i++) {
				uint32_t n = width[i] / n_ranks;

				check_rows(whole, at + r * n, part[r], local, n);
				at += width[i];
				local += n;
			}
			break;
		case SHARD_COLS_Q:
		case SHARD_COLS_GDN_V:
		case SHARD_COLS_WIDTH:
			assert_int_equal(part[r].bytes * n_ranks, whole.bytes);
			for (uint64_t i = 0; i < whole.n; i++)
				assert_memory_equal(
					whole.at + i * whole.bytes + r * part[r].bytes,
					part[r].at + i * part[r].bytes, part[r].bytes);
			break;
		case SHARD_ROWS_VOCAB:
		case SHARD_ROWS_Q:
		case SHARD_ROWS_KV:
		case SHARD_ROWS_GDN_V:
		case SHARD_ROWS_GDN_VS:
		case SHARD_ROWS_WIDTH:
			assert_int_equal(part[r].n * n_ranks, whole.n);
			check_rows(whole, r * part[r].n, part[r], 0, part[r].n);
			break;
		}
	}
}

static struct rows rows_of(const struct role_data *d, uint32_t matrix, bool scale)
{
	uint64_t bytes = scale ? d->info.scale_bytes : d->info.data_bytes;

	bytes /= d->info.count;
	return (struct rows){.at = (scale ? d->scale : d->data) + matrix * bytes,
		.n = d->info.n,
		.bytes = bytes / d->info.n};
}

static void check_role(size_t i, struct weights *const *w, uint32_t n_ranks,
	struct weights *one, uint32_t layer, const struct model_config *c)
{
	const uint32_t width[3] = {c->gdn_k_heads * c->gdn_k_dim,
		c->gdn_k_heads * c->gdn_k_dim, c->gdn_v_heads * c->gdn_v_dim};
	struct role_data whole = role_read(one, roles[i].role, layer), part[2];

	for (uint32_t r = 0; r < n_ranks; r++)
		part[r] = role_read(w[r], roles[i].role, layer);
	for (uint32_t m = 0; m < whole.info.count; m++) {
		for (int scale = 0; scale < (whole.scale != NULL ? 2 : 1); scale++) {
			struct rows p[2];

			for (uint32_t r = 0; r < n_ranks; r++)
				p[r] = rows_of(&part[r], m, scale);
			check_union(roles[i].rule, rows_of(&whole, m, scale), p, n_ranks,
				width);
		}
		for (uint32_t r = 0; r < n_ranks && whole.scale2 != NULL; r++)
			assert_true(part[r].scale2[m] == whole.scale2[m]);
	}
	for (uint32_t r = 0; r < n_ranks; r++)
		role_release(&part[r]);
	role_release(&whole);
}

/* To compare by: what all layers have in common counts for each. */
static uint64_t rank_bytes(const struct weights *w)
{
	uint64_t sum = 0;

	for (unsigned role = 0; role < WR__COUNT; role++)
		for (uint32_t layer = 0; layer < w->config->n_layers; layer++) {
			struct weight_info i = weights_info(w, role, layer);

			sum += i.data_bytes + i.scale_bytes + i.scale2_bytes;
		}
	return sum;
}

static void slices_of_all_ranks_make_up_the_whole(void **state)
{
	(void)state;
	for (size_t d = 0; d < COUNT(checkpoints); d++) {
		struct model_config c;
		struct weights *one, *w[2];
		uint32_t checked = 0;

		CHECK_OK(model_config_load(&c, checkpoints[d].dir, &err));
		one = open_rank(&c, checkpoints[d].dir, 0, 1);
		for (uint32_t r = 0; r < 2; r++)
			w[r] = open_rank(&c, checkpoints[d].dir, r, 2);
		for (uint32_t layer = 0; layer < c.n_layers; layer++) {
			for (size_t i = 0; i < COUNT(roles); i++) {
				if (!weights_info(one, roles[i].role, layer).present) {
					assert_false(
						weights_info(w[1], roles[i].role, layer)
							.present);
					continue;
				}
				check_role(i, &one, 1, one, layer, &c);
				check_role(i, w, 2, one, layer, &c);
				checked++;
			}
		}
		assert_true(checked > 50);
		assert_true(rank_bytes(w[0]) < rank_bytes(one));
		for (uint32_t r = 0; r < 2; r++)
			weights_close(w[r]);
		weights_close(one);
	}
}

/* Roles without any re-ordering are the file's bytes. */
static void plain_roles_are_the_bytes_of_the_file(void **state)
{
	static const struct {
		enum weight_role role;
		uint32_t layer;
		const char *name;
	} rows[] = {
		{WR_EMBED, 0, "embed_tokens.weight"},
		{WR_Q, 3, "layers.3.self_attn.q_proj.weight"},
		{WR_O, 3, "layers.3.self_attn.o_proj.weight"},
		{WR_GDN_QKV, 1, "layers.1.linear_attn.in_proj_qkv.weight"},
		{WR_GDN_Z, 2, "layers.2.linear_attn.in_proj_z.weight"},
		{WR_GDN_OUT, 0, "layers.0.linear_attn.out_proj.weight"},
		{WR_MLP_DOWN, 2, "layers.2.mlp.down_proj.weight"},
		{WR_GDN_A_LOG, 1, "layers.1.linear_attn.A_log"},
		{WR_GDN_NORM, 1, "layers.1.linear_attn.norm.weight"},
	};
	struct edit *e = edit_open(GOLDEN "tiny-dense");
	struct weights *w = open_rank(&e->config, GOLDEN "tiny-dense", 0, 1);

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct role_data got = role_read(w, rows[i].role, rows[i].layer);
		char name[128];

		snprintf(name, sizeof(name), "model.language_model.%s", rows[i].name);
		assert_memory_equal(got.data, edit_data(e, name), got.info.data_bytes);
		role_release(&got);
	}
	assert_false(weights_info(w, WR_LM_HEAD, 0).present); /* tied */
	assert_false(weights_info(w, WR_ROUTER, 0).present);
	weights_close(w);
	edit_close(e);
}

/* BF16 vectors are widened: the upper half of the F32 word. */
static void bf16_vectors_become_f32(void **state)
{
	static const char name[] =
		"model.language_model.layers.0.linear_attn.conv1d.weight";
	struct edit *e = edit_open(GOLDEN "tiny-moe");
	struct weights *w = open_rank(&e->config, GOLDEN "tiny-moe", 0, 1);
	struct role_data got = role_read(w, WR_GDN_CONV, 0);
	const uint8_t *bf16 = edit_data(e, name);

	(void)state;
	assert_int_equal(got.info.format, WF_F32);
	assert_int_equal(got.info.n, 1024);
	assert_int_equal(got.info.k, 4);
	for (size_t i = 0; i < 4096; i++) {
		const uint8_t word[4] = {0, 0, bf16[2 * i], bf16[2 * i + 1]};
		float v;

		memcpy(&v, word, 4);
		assert_true(((float *)(void *)got.data)[i] == v);
	}
	role_release(&got);
	weights_close(w);
	edit_close(e);
}

/* Qwen3-Next groups its rows by key head. Written out per head here, without the
 * runs and strides that the reader uses. */
static void next_projections_are_reordered(void **state)
{
	enum { NK = 2, R = 2, D = 128, H = 64, GROUP = 2 * D + 2 * R * D };
	struct edit *e = edit_open(GOLDEN "tiny-next");
	struct weights *w = open_rank(&e->config, GOLDEN "tiny-next", 0, 1);

	(void)state;
	for (uint32_t layer = 0; layer < 3; layer++) {
		struct role_data qkv = role_read(w, WR_GDN_QKV, layer);
		struct role_data z = role_read(w, WR_GDN_Z, layer);
		struct role_data a = role_read(w, WR_GDN_A, layer);
		struct role_data b = role_read(w, WR_GDN_B, layer);
		uint16_t(*file)[H], (*ba)[H];
		uint16_t(*got)[H] = (void *)qkv.data;
		char name[80];

		snprintf(name, sizeof(name),
			"model.layers.%u.linear_attn.in_proj_qkvz.weight", layer);
		file = (void *)edit_data(e, name);
		snprintf(name, sizeof(name),
			"model.layers.%u.linear_attn.in_proj_ba.weight", layer);
		ba = (void *)edit_data(e, name);
		for (uint32_t head = 0; head < NK * R; head++) {
			uint32_t g = head / R, j = head % R;

			for (uint32_t d = 0; d < D; d++) {
				if (j == 0) {
					assert_memory_equal(got[g * D + d],
						file[g * GROUP + d], sizeof(*got));
					assert_memory_equal(got[NK * D + g * D + d],
						file[g * GROUP + D + d], sizeof(*got));
				}
				assert_memory_equal(got[2 * NK * D + head * D + d],
					file[g * GROUP + 2 * D + j * D + d],
					sizeof(*got));
				assert_memory_equal(
					z.data + (head * D + d) * sizeof(*got),
					file[g * GROUP + 2 * D + R * D + j * D + d],
					sizeof(*got));
			}
			assert_memory_equal(b.data + head * sizeof(*ba),
				ba[g * 2 * R + j], sizeof(*ba));
			assert_memory_equal(a.data + head * sizeof(*ba),
				ba[g * 2 * R + R + j], sizeof(*ba));
		}
		role_release(&qkv);
		role_release(&z);
		role_release(&a);
		role_release(&b);
	}
	weights_close(w);
	edit_close(e);
}

/* Layer 1 of a checkpoint with fused experts, taken apart into one tensor each: the
 * roles read the same. */
static void fused_and_single_experts_are_the_same(void **state)
{
	enum { E = 8, I = 32, H = 64, MATRIX = I * H * 2 };
	static const char prefix[] = "model.language_model.layers.1.mlp.experts";
	static const enum weight_role want[] = {WR_EXP_GATE, WR_EXP_UP, WR_EXP_DOWN};
	struct edit *e = edit_open(GOLDEN "tiny-moe");
	struct weights *fused = open_rank(&e->config, GOLDEN "tiny-moe", 0, 1), *single;
	char name[128], from[128];

	(void)state;
	for (uint32_t x = 0; x < E; x++) {
		snprintf(from, sizeof(from), "%s.gate_up_proj", prefix);
		snprintf(name, sizeof(name), "%s.%u.gate_proj.weight", prefix, x);
		edit_add(e, name, STD_BF16, (uint64_t[]){I, H}, 2,
			edit_data(e, from) + 2 * x * MATRIX, MATRIX);
		snprintf(name, sizeof(name), "%s.%u.up_proj.weight", prefix, x);
		edit_add(e, name, STD_BF16, (uint64_t[]){I, H}, 2,
			edit_data(e, from) + (2 * x + 1) * MATRIX, MATRIX);
		snprintf(from, sizeof(from), "%s.down_proj", prefix);
		snprintf(name, sizeof(name), "%s.%u.down_proj.weight", prefix, x);
		edit_add(e, name, STD_BF16, (uint64_t[]){H, I}, 2,
			edit_data(e, from) + x * MATRIX, MATRIX);
	}
	edit_drop(e, from);
	snprintf(from, sizeof(from), "%s.gate_up_proj", prefix);
	edit_drop(e, from);
	edit_save(e);
	single = open_rank(&e->config, e->folder.path, 0, 1);
	for (size_t i = 0; i < COUNT(want); i++) {
		struct role_data a = role_read(fused, want[i], 1);
		struct role_data b = role_read(single, want[i], 1);

		check_same(&a, &b);
		role_release(&a);
		role_release(&b);
	}
	weights_close(fused);
	weights_close(single);
	edit_close(e);
}

/* All prefixes that exporters use name the same tensors. */
static void prefixes_are_equal(void **state)
{
	static const char *const prefixes[] = {"model.", "language_model.model."};
	struct edit *e = edit_open(GOLDEN "tiny-dense");
	struct weights *a = open_rank(&e->config, GOLDEN "tiny-dense", 0, 1), *b;

	(void)state;
	for (size_t p = 0; p < COUNT(prefixes); p++) {
		const char *old = p == 0 ? "model.language_model." : prefixes[p - 1];
		struct role_data x, y;

		for (uint32_t i = 0; i < e->n; i++) {
			char name[200];

			snprintf(name, sizeof(name), "%s%s", prefixes[p],
				e->t[i].name + strlen(old));
			edit_rename(e, e->t[i].name, name);
		}
		edit_save(e);
		b = open_rank(&e->config, e->folder.path, 0, 1);
		assert_int_equal(rank_bytes(a), rank_bytes(b));
		x = role_read(a, WR_MLP_UP, 2);
		y = role_read(b, WR_MLP_UP, 2);
		check_same(&x, &y);
		role_release(&x);
		role_release(&y);
		weights_close(b);
	}
	weights_close(a);
	edit_close(e);
}

static void known_unused_tensors_are_counted(void **state)
{
	struct edit *e = edit_open(DEMO);
	struct weights *w;
	struct sink text;
	const float one = 1;

	(void)state;
	edit_add(e, "model.visual.patch_embed.proj.weight", STD_F32, NULL, 0, &one, 4);
	edit_add(e, "visual.x", STD_F32, NULL, 0, &one, 4);
	edit_add(e, "model.language_model.layers.3.self_attn.k_proj.k_scale", STD_F32,
		NULL, 0, &one, 4);
	edit_add(e, "model.layers.3.self_attn.v_proj.v_scale", STD_F32, NULL, 0, &one, 4);
	edit_add(e, "model.layers.7.self_attn.k_scale", STD_F32, NULL, 0, &one, 4);
	edit_add(e, "model.layers.7.self_attn.qkv_proj.k_scale", STD_F32, NULL, 0, &one,
		4);
	edit_add(e, "lm_head.input_global_scale", STD_F32, NULL, 0, &one, 4);
	e->config.tied = true;
	edit_save(e);
	w = open_rank(&e->config, e->folder.path, 0, 1);
	sink_init(&text, 1024);
	weights_unused(w, &text);
	assert_string_equal(sink_cstr(&text),
		"unused: input_scale=384 input_global_scale=1 k_scale=3 v_scale=1 mtp=19 "
		"vision=2 lm_head=1");
	sink_release(&text);
	weights_close(w);
	edit_close(e);
}

/* Columns of a matrix that is read in several strips of whole rows (of 4 MiB). */
static void wide_columns_are_cut_from_every_strip(void **state)
{
	enum { H = 96, I = 32768, HALF = I / 2 };
	static const char prefix[] = "model.language_model.layers.0.mlp";
	struct edit *e = edit_open(GOLDEN "tiny-dense");
	uint16_t(*down)[I] = malloc(sizeof(*down) * H);
	char name[128];

	(void)state;
	for (uint32_t i = e->n; i-- > 0;) {
		const char *layer = strstr(e->t[i].name, "layers.");

		if (layer != NULL && layer[7] != '0')
			edit_drop(e, e->t[i].name);
	}
	e->config.n_layers = 1;
	e->config.dense_width = I;
	for (uint32_t i = 0; i < H * I; i++)
		down[i / I][i % I] = (uint16_t)(i * 40503u >> 8);
	for (int m = 0; m < 3; m++) {
		static const char *const kinds[] = {"gate", "up", "down"};

		snprintf(name, sizeof(name), "%s.%s_proj.weight", prefix, kinds[m]);
		edit_drop(e, name);
		edit_add(e, name, STD_BF16,
			m == 2 ? (uint64_t[]){H, I} : (uint64_t[]){I, H}, 2, down,
			sizeof(*down) * H);
	}
	edit_save(e);
	for (uint32_t rank = 0; rank < 2; rank++) {
		struct weights *w = open_rank(&e->config, e->folder.path, rank, 2);
		struct role_data d = role_read(w, WR_MLP_DOWN, 0);

		assert_int_equal(d.info.k, HALF);
		for (uint32_t i = 0; i < H; i++)
			assert_memory_equal(
				d.data + i * HALF * 2, &down[i][rank * HALF], HALF * 2);
		role_release(&d);
		weights_close(w);
	}
	free(down);
	edit_close(e);
}

/* Fewer KV heads than ranks: each is read by neighbouring ranks. */
static void kv_heads_are_replicated(void **state)
{
	struct model_config c;

	(void)state;
	CHECK_OK(model_config_load(&c, GOLDEN "tiny-moe", &err));
	c.gdn_k_heads = 16;
	c.gdn_v_heads = 64;
	c.n_q = 32;
	c.n_kv = 2;
	CHECK_OK(weights_check_ranks(&c, 8, &err));
	for (uint32_t r = 0; r < 8; r++) {
		struct slice s;

		slice_of(&s, &c, WR_V, MOD_V, r, 8);
		assert_int_equal(s.n_rows, 256);
		assert_int_equal(slice_source_row(&s, 0), r / 4 * 256);
		slice_of(&s, &c, WR_Q, MOD_Q, r, 8);
		assert_int_equal(s.n_rows, 4 * 512);
		assert_int_equal(slice_source_row(&s, 0), r * 4 * 512);
	}
	c.n_kv = 4;
	for (uint32_t r = 0; r < 2; r++) {
		struct slice s;

		slice_of(&s, &c, WR_K, MOD_K, r, 2);
		assert_int_equal(s.n_rows, 512);
		assert_int_equal(slice_source_row(&s, 0), r * 512);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slices_of_all_ranks_make_up_the_whole),
		cmocka_unit_test(plain_roles_are_the_bytes_of_the_file),
		cmocka_unit_test(bf16_vectors_become_f32),
		cmocka_unit_test(next_projections_are_reordered),
		cmocka_unit_test(fused_and_single_experts_are_the_same),
		cmocka_unit_test(prefixes_are_equal),
		cmocka_unit_test(known_unused_tensors_are_counted),
		cmocka_unit_test(wide_columns_are_cut_from_every_strip),
		cmocka_unit_test(kv_heads_are_replicated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
