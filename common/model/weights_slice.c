/* Which rows and columns of a checkpoint's matrix a rank holds. */
#include "common/model/weights_impl.h"

#include <assert.h>
#include <stdio.h>

struct share {
	uint32_t first, n;
};

/* Equal blocks of n things. */
static struct share share_of(uint32_t n, uint32_t rank, uint32_t n_ranks)
{
	assert(n % n_ranks == 0);
	return (struct share){n / n_ranks * rank, n / n_ranks};
}

/* KV heads, one of them shared by several ranks when there are fewer than ranks. */
static struct share kv_share(uint32_t n_kv, uint32_t rank, uint32_t n_ranks)
{
	if (n_kv >= n_ranks)
		return share_of(n_kv, rank, n_ranks);
	assert(n_ranks % n_kv == 0);
	return (struct share){rank / (n_ranks / n_kv), 1};
}

/* Adds rows; a run that continues the one before it joins it, so that a whole matrix
 * is one run whatever its parts are. */
static void add_rows(struct slice *s, uint32_t first, uint32_t n)
{
	struct row_runs *r = &s->rows;
	struct row_run *last = r->n > 0 ? &r->run[r->n - 1] : NULL;

	s->n_rows += n;
	if (last != NULL && last->count == 1 && last->first + last->unit == first) {
		last->unit += n;
		last->stride = last->unit;
		return;
	}
	assert(r->n < RUNS_MAX);
	r->run[r->n++] = (struct row_run){first, n, n, 1};
}

static void add_strided(struct slice *s, struct row_run run)
{
	assert(s->rows.n < RUNS_MAX);
	s->n_rows += run.unit * run.count;
	s->rows.run[s->rows.n++] = run;
}

/* in_proj_qkvz groups its rows by key head: q, k, then v and z of the value heads that
 * belong to this key head. */
static void packed_qkvz_rows(struct slice *s, const struct model_config *c,
	enum weight_role role, struct share k_heads)
{
	uint32_t dk = c->gdn_k_dim;
	uint32_t v_rows = c->gdn_v_heads / c->gdn_k_heads * c->gdn_v_dim;
	uint32_t group = 2 * dk + 2 * v_rows;
	uint32_t at = k_heads.first * group;

	if (role == WR_GDN_Z) {
		add_strided(s,
			(struct row_run){at + 2 * dk + v_rows, v_rows, group, k_heads.n});
		return;
	}
	add_strided(s, (struct row_run){at, dk, group, k_heads.n});
	add_strided(s, (struct row_run){at + dk, dk, group, k_heads.n});
	add_strided(s, (struct row_run){at + 2 * dk, v_rows, group, k_heads.n});
}

/* in_proj_ba likewise: b of the group's value heads, then a. */
static void packed_ba_rows(struct slice *s, const struct model_config *c,
	enum weight_role role, struct share k_heads)
{
	uint32_t r = c->gdn_v_heads / c->gdn_k_heads;

	add_strided(
		s, (struct row_run){k_heads.first * 2 * r + (role == WR_GDN_A ? r : 0), r,
			   2 * r, k_heads.n});
}

static void qkv_rows(
	struct slice *s, const struct model_config *c, uint32_t rank, uint32_t n_ranks)
{
	struct share k = share_of(c->gdn_k_heads, rank, n_ranks);
	struct share v = share_of(c->gdn_v_heads, rank, n_ranks);
	uint32_t kd = c->gdn_k_heads * c->gdn_k_dim;

	add_rows(s, k.first * c->gdn_k_dim, k.n * c->gdn_k_dim);
	add_rows(s, kd + k.first * c->gdn_k_dim, k.n * c->gdn_k_dim);
	add_rows(s, 2 * kd + v.first * c->gdn_v_dim, v.n * c->gdn_v_dim);
}

/* Rows and columns of the role in the engine's own order. */
static void role_shape(
	const struct model_config *c, enum weight_role role, uint32_t *n, uint32_t *k)
{
	uint32_t vd = c->gdn_v_heads * c->gdn_v_dim;
	const uint32_t shape[WR__COUNT][2] = {
		[WR_EMBED] = {c->vocab, c->hidden},
		[WR_FINAL_NORM] = {c->hidden, 1},
		[WR_LM_HEAD] = {c->vocab, c->hidden},
		[WR_NORM1] = {c->hidden, 1},
		[WR_NORM2] = {c->hidden, 1},
		[WR_Q] = {2 * c->n_q * c->head_dim, c->hidden},
		[WR_K] = {c->n_kv * c->head_dim, c->hidden},
		[WR_V] = {c->n_kv * c->head_dim, c->hidden},
		[WR_O] = {c->hidden, c->n_q * c->head_dim},
		[WR_Q_NORM] = {c->head_dim, 1},
		[WR_K_NORM] = {c->head_dim, 1},
		[WR_GDN_QKV] = {model_conv_channels(c), c->hidden},
		[WR_GDN_Z] = {vd, c->hidden},
		[WR_GDN_B] = {c->gdn_v_heads, c->hidden},
		[WR_GDN_A] = {c->gdn_v_heads, c->hidden},
		[WR_GDN_CONV] = {model_conv_channels(c), c->conv_taps},
		[WR_GDN_A_LOG] = {c->gdn_v_heads, 1},
		[WR_GDN_DT_BIAS] = {c->gdn_v_heads, 1},
		[WR_GDN_NORM] = {c->gdn_v_dim, 1},
		[WR_GDN_OUT] = {c->hidden, vd},
		[WR_MLP_GATE] = {c->dense_width, c->hidden},
		[WR_MLP_UP] = {c->dense_width, c->hidden},
		[WR_MLP_DOWN] = {c->hidden, c->dense_width},
		[WR_ROUTER] = {c->n_experts, c->hidden},
		[WR_EXP_GATE] = {c->expert_width, c->hidden},
		[WR_EXP_UP] = {c->expert_width, c->hidden},
		[WR_EXP_DOWN] = {c->hidden, c->expert_width},
		[WR_SH_GATE] = {c->shared_width, c->hidden},
		[WR_SH_UP] = {c->shared_width, c->hidden},
		[WR_SH_DOWN] = {c->hidden, c->shared_width},
		[WR_SH_ROUTER] = {1, c->hidden},
	};

	*n = shape[role][0];
	*k = shape[role][1];
}

/* Head rows or columns: `width` of them per head. */
static struct share by_head(struct share heads, uint32_t width)
{
	return (struct share){heads.first * width, heads.n * width};
}

static void cut_by_rule(struct slice *s, const struct model_config *c,
	enum weight_role role, uint32_t rank, uint32_t n_ranks)
{
	struct share rows = {0, s->src_rows}, cols = {0, s->src_cols};
	enum shard_rule rule = role_shard(role);

	/* Which experts a rank has is told by their number, not by the slice of one. */
	if (c->by_expert && role_is_stack(role))
		rule = SHARD_WHOLE;
	switch (rule) {
	case SHARD_WHOLE:
		break;
	case SHARD_ROWS_Q:
		rows = by_head(share_of(c->n_q, rank, n_ranks), 2 * c->head_dim);
		break;
	case SHARD_ROWS_KV:
		rows = by_head(kv_share(c->n_kv, rank, n_ranks), c->head_dim);
		break;
	case SHARD_COLS_Q:
		cols = by_head(share_of(c->n_q, rank, n_ranks), c->head_dim);
		break;
	case SHARD_ROWS_QKV:
		qkv_rows(s, c, rank, n_ranks);
		rows.n = 0;
		break;
	case SHARD_ROWS_GDN_V:
		rows = by_head(share_of(c->gdn_v_heads, rank, n_ranks), c->gdn_v_dim);
		break;
	case SHARD_ROWS_GDN_VS:
		rows = share_of(c->gdn_v_heads, rank, n_ranks);
		break;
	case SHARD_COLS_GDN_V:
		cols = by_head(share_of(c->gdn_v_heads, rank, n_ranks), c->gdn_v_dim);
		break;
	case SHARD_ROWS_VOCAB:
	case SHARD_ROWS_WIDTH:
		rows = share_of(s->src_rows, rank, n_ranks);
		break;
	case SHARD_COLS_WIDTH:
		cols = share_of(s->src_cols, rank, n_ranks);
		break;
	}
	if (rows.n > 0)
		add_rows(s, rows.first, rows.n);
	s->col0 = cols.first;
	s->cols = cols.n;
}

void slice_of(struct slice *s, const struct model_config *c, enum weight_role role,
	enum module module, uint32_t rank, uint32_t n_ranks)
{
	struct share k_heads = {0, 0};

	*s = (struct slice){0};
	role_shape(c, role, &s->src_rows, &s->src_cols);
	if (module != MOD_QKVZ && module != MOD_BA) {
		cut_by_rule(s, c, role, rank, n_ranks);
		if (module == MOD_EXPS_GATE_UP) {
			s->src_rows *= 2;
			if (role == WR_EXP_UP)
				s->rows.run[0].first += c->expert_width;
		}
		return;
	}
	k_heads = share_of(c->gdn_k_heads, rank, n_ranks);
	s->cols = s->src_cols;
	if (module == MOD_QKVZ) {
		s->src_rows = model_conv_channels(c) + c->gdn_v_heads * c->gdn_v_dim;
		packed_qkvz_rows(s, c, role, k_heads);
	} else {
		s->src_rows = 2 * c->gdn_v_heads;
		packed_ba_rows(s, c, role, k_heads);
	}
}

uint32_t slice_experts(const struct weights *w, uint32_t *first)
{
	const struct model_config *c = w->config;
	struct share s = c->by_expert ? share_of(c->n_experts, w->rank, w->n_ranks)
				      : (struct share){0, c->n_experts};

	*first = s.first;
	return s.n;
}

uint32_t slice_source_row(const struct slice *s, uint32_t i)
{
	const struct row_run *r = s->rows.run;

	while (i >= r->unit * r->count) {
		i -= r->unit * r->count;
		r++;
		assert(r < s->rows.run + s->rows.n);
	}
	return r->first + i / r->unit * r->stride + i % r->unit;
}

/* [first, first + n) of `whole` covers whole blocks; the last block may be short. */
static bool on_edges(uint32_t first, uint32_t n, uint32_t whole, uint32_t block)
{
	return first % block == 0 && (n % block == 0 || first + n == whole);
}

bool slice_in_blocks(
	struct slice *out, const struct slice *s, uint32_t block_n, uint32_t block_k)
{
	struct slice b = *s;

	if (!on_edges(s->col0, s->cols, s->src_cols, block_k))
		return false;
	b.n_rows = 0;
	for (uint32_t i = 0; i < s->rows.n; i++) {
		const struct row_run *r = &s->rows.run[i];
		struct row_run *to = &b.rows.run[i];
		/* Only the end of the matrix may stand inside a block, and only
		 * when nothing follows it here. */
		uint32_t whole = i + 1 == s->rows.n ? s->src_rows : 0;

		if (r->count > 1 && (r->stride % block_n != 0 || r->unit % block_n != 0))
			return false;
		if (!on_edges(r->first, r->unit, whole, block_n))
			return false;
		*to = (struct row_run){r->first / block_n, CEIL_DIV(r->unit, block_n),
			CEIL_DIV(r->stride, block_n), r->count};
		b.n_rows += to->unit * to->count;
	}
	b.col0 = s->col0 / block_k;
	b.cols = CEIL_DIV(s->cols, block_k);
	b.src_rows = CEIL_DIV(s->src_rows, block_n);
	b.src_cols = CEIL_DIV(s->src_cols, block_k);
	*out = b;
	return true;
}

/* What of the model n_ranks does not divide, as a sentence; false: it divides all. */
static bool is_undivided(const struct model_config *c, uint32_t n_ranks, struct err *err)
{
	const struct {
		uint32_t n;
		const char *what;
	} counts[] = {
		{c->n_q, "query heads"},
		{c->n_kv < n_ranks ? 0 : c->n_kv, "KV heads"},
		{c->gdn_k_heads, "GDN key heads"},
		{c->gdn_v_heads, "GDN value heads"},
		{c->by_expert ? c->n_experts : 0, "experts"},
		{c->by_expert ? 0 : c->expert_width, "columns of an expert"},
		{c->shared_width, "columns of the shared expert"},
		{c->dense_width, "columns of the MLP"},
		{c->n_kv < n_ranks && n_ranks % c->n_kv != 0 ? 0 : c->vocab,
			"rows of the vocabulary"},
	};

	for (size_t i = 0; i < COUNT(counts); i++)
		if (counts[i].n % n_ranks != 0) {
			(void)err_set(err, ST_INVALID,
				"%u ranks do not divide the model's %u %s", n_ranks,
				counts[i].n, counts[i].what);
			return true;
		}
	if (c->n_kv >= n_ranks || n_ranks % c->n_kv == 0)
		return false;
	(void)err_set(err, ST_INVALID,
		"the model's %u KV heads neither divide nor are divided by %u ranks",
		c->n_kv, n_ranks);
	return true;
}

status weights_check_ranks(
	const struct model_config *c, uint32_t n_ranks, struct err *err)
{
	char fit[4 * MODEL_RANKS_MAX] = "";
	struct err why, other;
	size_t at = 0;

	if (n_ranks == 0)
		return err_set(err, ST_INVALID, "0 ranks");
	if (!is_undivided(c, n_ranks, &why))
		return ST_OK;
	for (uint32_t n = 1; n <= MODEL_RANKS_MAX; n++)
		if (!is_undivided(c, n, &other))
			at += (size_t)snprintf(
				fit + at, sizeof(fit) - at, "%s%u", n > 1 ? ", " : "", n);
	return err_set(
		err, ST_INVALID, "%s; these numbers of ranks do: %s", why.text, fit);
}
