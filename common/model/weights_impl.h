/* What the weights*.c files share: the modules of a checkpoint, the pieces found for
 * them, and the rows and columns that a rank reads of a role. */
#ifndef COMMON_MODEL_WEIGHTS_IMPL_H
#define COMMON_MODEL_WEIGHTS_IMPL_H
#include "common/model/weights.h"

/* How tensors of a module are spelled: MODULE.weight with scales beside it, MODULE
 * alone, or mlp.experts.E.MODULE.weight. */
enum module_style { STYLE_WEIGHT, STYLE_BARE, STYLE_EXPERT };

/* Every module name of the text model, below its prefix and layer. */
#define MODULE_MAP(X)                                                                    \
	X(EMBED, global, "embed_tokens", WEIGHT)                                         \
	X(FINAL_NORM, global, "norm", WEIGHT)                                            \
	X(LM_HEAD, global, "lm_head", WEIGHT)                                            \
	X(NORM1, layer, "input_layernorm", WEIGHT)                                       \
	X(NORM2, layer, "post_attention_layernorm", WEIGHT)                              \
	X(Q, attn, "self_attn.q_proj", WEIGHT)                                           \
	X(K, attn, "self_attn.k_proj", WEIGHT)                                           \
	X(V, attn, "self_attn.v_proj", WEIGHT)                                           \
	X(O, attn, "self_attn.o_proj", WEIGHT)                                           \
	X(Q_NORM, attn, "self_attn.q_norm", WEIGHT)                                      \
	X(K_NORM, attn, "self_attn.k_norm", WEIGHT)                                      \
	X(QKV, gdn, "linear_attn.in_proj_qkv", WEIGHT)                                   \
	X(Z, gdn, "linear_attn.in_proj_z", WEIGHT)                                       \
	X(B, gdn, "linear_attn.in_proj_b", WEIGHT)                                       \
	X(A, gdn, "linear_attn.in_proj_a", WEIGHT)                                       \
	X(QKVZ, gdn, "linear_attn.in_proj_qkvz", WEIGHT)                                 \
	X(BA, gdn, "linear_attn.in_proj_ba", WEIGHT)                                     \
	X(CONV, gdn, "linear_attn.conv1d", WEIGHT)                                       \
	X(A_LOG, gdn, "linear_attn.A_log", BARE)                                         \
	X(DT_BIAS, gdn, "linear_attn.dt_bias", BARE)                                     \
	X(GDN_NORM, gdn, "linear_attn.norm", WEIGHT)                                     \
	X(GDN_OUT, gdn, "linear_attn.out_proj", WEIGHT)                                  \
	X(MLP_GATE, dense, "mlp.gate_proj", WEIGHT)                                      \
	X(MLP_UP, dense, "mlp.up_proj", WEIGHT)                                          \
	X(MLP_DOWN, dense, "mlp.down_proj", WEIGHT)                                      \
	X(ROUTER, moe, "mlp.gate", WEIGHT)                                               \
	X(EXP_GATE, moe, "gate_proj", EXPERT)                                            \
	X(EXP_UP, moe, "up_proj", EXPERT)                                                \
	X(EXP_DOWN, moe, "down_proj", EXPERT)                                            \
	X(EXPS_GATE_UP, moe, "mlp.experts.gate_up_proj", BARE)                           \
	X(EXPS_DOWN, moe, "mlp.experts.down_proj", BARE)                                 \
	X(SH_GATE, moe, "mlp.shared_expert.gate_proj", WEIGHT)                           \
	X(SH_UP, moe, "mlp.shared_expert.up_proj", WEIGHT)                               \
	X(SH_DOWN, moe, "mlp.shared_expert.down_proj", WEIGHT)                           \
	X(SH_ROUTER, moe, "mlp.shared_expert_gate", WEIGHT)

enum module {
#define X(name, where, text, style) MOD_##name,
	MODULE_MAP(X)
#undef X
		MOD__COUNT
};

enum where { WHERE_global, WHERE_layer, WHERE_attn, WHERE_gdn, WHERE_dense, WHERE_moe };

/* Tensors of one matrix. weight_scale is also FP8's, per tensor or per row. */
#define PART_MAP(X)                                                                      \
	X(WEIGHT, "weight")                                                              \
	X(PACKED, "weight_packed") /* compressed-tensors NVFP4 */                        \
	X(SCALE, "weight_scale")                                                         \
	X(SCALE_INV, "weight_scale_inv") /* FP8 per block; multiplies */                 \
	X(SCALE_2, "weight_scale_2")     /* ModelOpt NVFP4; multiplies */                \
	X(GLOBAL, "weight_global_scale") /* compressed-tensors; divides */

enum part {
#define X(name, text) PART_##name,
	PART_MAP(X)
#undef X
		PART__COUNT
};

#define UNUSED_MAP(X)                                                                    \
	X(INPUT_SCALE, "input_scale")                                                    \
	X(INPUT_GLOBAL_SCALE, "input_global_scale")                                      \
	X(K_SCALE, "k_scale")                                                            \
	X(V_SCALE, "v_scale")                                                            \
	X(MTP, "mtp")                                                                    \
	X(VISION, "vision")                                                              \
	X(LM_HEAD, "lm_head")

enum unused {
#define X(name, text) UNUSED_##name,
	UNUSED_MAP(X)
#undef X
		UNUSED__COUNT
};

/* What a tensor name says. */
struct weight_name {
	enum { NAME_UNKNOWN, NAME_PART, NAME_UNUSED } kind;
	enum module module;
	enum part part;
	enum unused unused;
	bool in_layer;
	uint32_t layer;
	uint32_t expert; /* STYLE_EXPERT only */
};
struct weight_name weight_name_read(const char *name);
const char *module_text(enum module m);
enum module_style module_style(enum module m);
enum where module_where(enum module m);
/* A layer of this model has what stands at `where`. */
bool where_exists(const struct model_config *c, enum where where, uint32_t layer);

/* Index + 1 into the tensors of the checkpoint; 0: absent. */
struct piece {
	uint32_t at[PART__COUNT];
};

/* Rows of a source matrix in the order in which they are read: runs of `count` units
 * of `unit` rows, `stride` rows apart. */
#define RUNS_MAX 3u
struct row_runs {
	uint32_t n;
	struct row_run {
		uint32_t first, unit, stride, count;
	} run[RUNS_MAX];
};

/* The part of a role that a rank holds: these rows, columns [col0, col0 + cols). */
struct slice {
	struct row_runs rows;
	uint32_t n_rows;
	uint32_t col0, cols;
	uint32_t src_rows, src_cols; /* of the source matrix, of one expert */
};

/* module: where the role is read from, MOD_QKVZ, MOD_BA and MOD_EXPS_* being packed.
 * The ranks must have passed weights_check_ranks. */
void slice_of(struct slice *s, const struct model_config *c, enum weight_role role,
	enum module module, uint32_t rank, uint32_t n_ranks);
/* Experts of a rank, equally many on each, and the first of them. */
uint32_t slice_experts(const struct weights *w, uint32_t *first);
/* Row of the source matrix that local row i is read from. */
uint32_t slice_source_row(const struct slice *s, uint32_t i);
/* The same slice in units of blocks; false when it would cut one. */
bool slice_in_blocks(
	struct slice *out, const struct slice *s, uint32_t block_n, uint32_t block_k);

enum scale_kind {
	SCALE_NONE,
	SCALE_NVFP4,  /* E4M3 per 16 columns, and one F32 */
	SCALE_BLOCK,  /* FP8: per 128 x 128 */
	SCALE_ROW,    /* FP8: per row */
	SCALE_TENSOR, /* FP8: one */
};
#define NVFP4_GROUP 16u
#define FP8_BLOCK   128u

/* One role of one layer. */
struct entry {
	struct weight_info info;
	enum module module;
	enum scale_kind scale;
	struct slice slice;
	struct slice scale_slice; /* in units of scales; SCALE_NVFP4, _BLOCK, _ROW */
};

struct weights {
	struct model_config owned_config;
	const struct model_config *config; /* &owned_config */
	struct st_index *st;               /* NULL: dummy weights */
	struct dummy_pool *dummy;          /* NULL: of a checkpoint */
	uint32_t rank, n_ranks;
	/* Where the tensors are; NULL without a checkpoint. */
	struct piece *pieces;  /* [module][layer] */
	struct piece *experts; /* [EXP_GATE, EXP_UP, EXP_DOWN][layer][expert] */
	struct entry *entries; /* [role][layer] */
	uint64_t unused[UNUSED__COUNT];
};

const struct piece *weights_piece(
	const struct weights *w, enum module module, uint32_t layer, uint32_t expert);
/* The first tensor of a module of a layer, or NULL. */
const struct st_tensor *weights_tensor(
	const struct weights *w, enum module m, uint32_t layer);
struct entry *weights_entry(
	const struct weights *w, enum weight_role role, uint32_t layer);
enum where role_where(enum weight_role role);
enum shard_rule role_shard(enum weight_role role);
/* Role kept as an F32 vector; one matrix per expert. */
bool role_is_vec(enum weight_role role);
bool role_is_stack(enum weight_role role);

/* With room for every entry, and nothing in them. */
struct weights *weights_create(
	const struct model_config *config, uint32_t rank, uint32_t n_ranks);
/* The layer has such a role; global roles belong to layer 0. */
bool weights_has_role(const struct weights *w, enum weight_role role, uint32_t layer);
/* From format, scale kind and slice of an entry, all its sizes, and the scales that
 * belong to the slice; one that cuts a block is refused. */
MUST_CHECK status weights_size_entry(
	const struct weights *w, enum weight_role role, struct entry *e, struct err *err);

/* Where weights_read writes to. */
struct weights_out {
	void *data, *scale, *scale2;
};
void weights_fill_dummy(const struct weights *w, enum weight_role role, uint32_t layer,
	struct weights_out out);

/* Chooses the source, the format and the slice of a role; checks all its tensors. */
MUST_CHECK status weights_resolve(
	struct weights *w, enum weight_role role, uint32_t layer, struct err *err);

/* One notice when the head for drafts (mtp.*) that the config announces is not whole. */
void weights_tell_mtp(const struct weights *w);

/* "FILE: tensor NAME: " and the text. */
#define tensor_refuse(w, t, err, fmt, ...)                                               \
	err_set((err), ST_INVALID, "%s: tensor %s: " fmt,                                \
		st_file_name((w)->st, (t)->file), (t)->name __VA_OPT__(, ) __VA_ARGS__)

#endif
