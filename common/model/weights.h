/* From checkpoint names to the matrices that the engine computes with: which tensor
 * plays which role, in which format (decided per tensor by what is on disk), and
 * which slice of it a tensor-parallel rank holds. Unknown or missing tensors are
 * fatal and named; known-unused ones are counted by kind. */
#ifndef COMMON_MODEL_WEIGHTS_H
#define COMMON_MODEL_WEIGHTS_H
#include "common/base/dtype.h"
#include "common/model/model_config.h"
#include "common/model/safetensors.h"

/* How a rank's slice is cut.
 *   WHOLE   every rank holds all of it
 *   ROWS_*  output rows, by head of the named kind (or plain blocks)
 *   COLS_*  input columns; the product is summed over ranks
 * Stacks of experts are cut by expert instead, in equal runs of them, with
 * config.by_expert. KV heads are replicated when there are fewer than ranks (rank r reads
 * head r / (ranks / n_kv)). */
enum shard_rule {
	SHARD_WHOLE,
	SHARD_ROWS_VOCAB,  /* by token, equal blocks */
	SHARD_ROWS_Q,      /* by query head, 2 * head_dim rows each (query | gate) */
	SHARD_ROWS_KV,     /* by KV head */
	SHARD_COLS_Q,      /* by query head, head_dim columns each */
	SHARD_ROWS_QKV,    /* GDN [q | k | v] parts, each by its head */
	SHARD_ROWS_GDN_V,  /* by GDN value head, gdn_v_dim rows each */
	SHARD_ROWS_GDN_VS, /* by GDN value head, one row (or element) each */
	SHARD_COLS_GDN_V,
	SHARD_ROWS_WIDTH, /* MLP width, equal blocks */
	SHARD_COLS_WIDTH,
};

/* One line per role: role, where it stands, shard rule, storage.
 * Storage: VEC = kept as F32 vector (small; read from F32 or BF16);
 *          MAT = a matrix in its own format;  STACK = one matrix per expert. */
#define WEIGHT_MAP(X)                                                                    \
	X(EMBED, global, SHARD_ROWS_VOCAB, MAT)     /* [vocab][H] */                     \
	X(FINAL_NORM, global, SHARD_WHOLE, VEC)     /* [H] */                            \
	X(LM_HEAD, global, SHARD_ROWS_VOCAB, MAT)   /* [vocab][H] */                     \
	X(NORM1, layer, SHARD_WHOLE, VEC)           /* [H] */                            \
	X(NORM2, layer, SHARD_WHOLE, VEC)           /* [H] */                            \
	X(Q, attn, SHARD_ROWS_Q, MAT)               /* [n_q][query|gate][D], H */        \
	X(K, attn, SHARD_ROWS_KV, MAT)              /* [n_kv * D][H] */                  \
	X(V, attn, SHARD_ROWS_KV, MAT)              /* [n_kv * D][H] */                  \
	X(O, attn, SHARD_COLS_Q, MAT)               /* [H][n_q * D] */                   \
	X(Q_NORM, attn, SHARD_WHOLE, VEC)           /* [D] */                            \
	X(K_NORM, attn, SHARD_WHOLE, VEC)           /* [D] */                            \
	X(GDN_QKV, gdn, SHARD_ROWS_QKV, MAT)        /* [2 KD + VD][H] */                 \
	X(GDN_Z, gdn, SHARD_ROWS_GDN_V, MAT)        /* [VD][H] */                        \
	X(GDN_B, gdn, SHARD_ROWS_GDN_VS, MAT)       /* [nV][H] */                        \
	X(GDN_A, gdn, SHARD_ROWS_GDN_VS, MAT)       /* [nV][H] */                        \
	X(GDN_CONV, gdn, SHARD_ROWS_QKV, VEC)       /* [2 KD + VD][taps] */              \
	X(GDN_A_LOG, gdn, SHARD_ROWS_GDN_VS, VEC)   /* [nV] */                           \
	X(GDN_DT_BIAS, gdn, SHARD_ROWS_GDN_VS, VEC) /* [nV] */                           \
	X(GDN_NORM, gdn, SHARD_WHOLE, VEC)          /* [dv] */                           \
	X(GDN_OUT, gdn, SHARD_COLS_GDN_V, MAT)      /* [H][VD] */                        \
	X(MLP_GATE, dense, SHARD_ROWS_WIDTH, MAT)   /* [I][H] */                         \
	X(MLP_UP, dense, SHARD_ROWS_WIDTH, MAT)     /* [I][H] */                         \
	X(MLP_DOWN, dense, SHARD_COLS_WIDTH, MAT)   /* [H][I] */                         \
	X(ROUTER, moe, SHARD_WHOLE, MAT)            /* [E][H] */                         \
	X(EXP_GATE, moe, SHARD_ROWS_WIDTH, STACK)   /* E x [I][H] */                     \
	X(EXP_UP, moe, SHARD_ROWS_WIDTH, STACK)     /* E x [I][H] */                     \
	X(EXP_DOWN, moe, SHARD_COLS_WIDTH, STACK)   /* E x [H][I] */                     \
	X(SH_GATE, moe, SHARD_ROWS_WIDTH, MAT)      /* [Is][H] */                        \
	X(SH_UP, moe, SHARD_ROWS_WIDTH, MAT)        /* [Is][H] */                        \
	X(SH_DOWN, moe, SHARD_COLS_WIDTH, MAT)      /* [H][Is] */                        \
	X(SH_ROUTER, moe, SHARD_WHOLE, MAT)         /* [1][H] */

enum weight_role {
#define X(role, where, shard, storage) WR_##role,
	WEIGHT_MAP(X)
#undef X
		WR__COUNT
};

/* The rank-local part of one role of one layer, as weights_read lays it out:
 *   data   [count][n][k]  F32, BF16 or E4M3; NVFP4: [count][n][k / 2], low nibble = even
 * k scale  NVFP4: E4M3 [count][n][k / 16]; FP8: F32 [count][ceil(n / block_n)][ceil(k /
 * block_k)] scale2 NVFP4: F32 [count], multiplies (compressed-tensors' divisors are
 * inverted here) VEC roles: F32, n x k elements, count 1 (conv: n channels, k taps). */
struct weight_info {
	enum weight_format format;
	uint32_t count, n, k;
	uint32_t block_n, block_k; /* FP8 only */
	uint64_t data_bytes, scale_bytes, scale2_bytes;
	bool present; /* false: the layer has no such role, or LM_HEAD is tied */
};

struct weights;

/* dir: the checkpoint. Resolves and checks every tensor for this rank of n_ranks (1 for
 * no tensor parallelism). ST_INVALID with tensor and reason. Reads no weight data. */
MUST_CHECK status weights_open(struct weights **out, const struct model_config *config,
	const char *dir, uint32_t rank, uint32_t n_ranks, struct err *err);
void weights_close(struct weights *w);

/* layer is ignored for global roles. */
struct weight_info weights_info(
	const struct weights *w, enum weight_role role, uint32_t layer);
/* Fill data, scale, scale2 (sizes of weights_info; scale and scale2 may be NULL when
 * their size is 0). Scales are checked: finite, NaN codes refused. */
MUST_CHECK status weights_read(const struct weights *w, enum weight_role role,
	uint32_t layer, void *data, void *scale, void *scale2, struct err *err);
/* Identity of the weights: what tells one checkpoint from another. The sum over the
 * ranks is the same for any number of them, for any cut into shards, and for copies of
 * the files; each rank reads its share of the samples. Covers name, dtype, shape and
 * samples of every tensor that is used (weights_digest.c says which bytes). */
MUST_CHECK status weights_digest(const struct weights *w, uint64_t *out, struct err *err);
const char *weight_role_name(enum weight_role role);
/* "unused: input_scale=768 k_scale=2 mtp=19 vision=0 ..." for the start log. */
void weights_unused(const struct weights *w, struct sink *out);

/* Tensor parallelism that this model allows: ranks divides the vocabulary, GDN key heads,
 * GDN value heads, query heads and MLP widths, and KV heads divide or are divided by it;
 * NVFP4 and FP8 slices keep whole scale blocks. The error names what does not divide. */
MUST_CHECK status weights_check_ranks(
	const struct model_config *config, uint32_t n_ranks, struct err *err);

#endif
