/* What one pass of an op must do at least, from its arguments alone: bytes that it must
 * move through device memory, each input read once and each output written once, and
 * its multiplications and additions. Pure functions of a case; nothing is run.
 *
 * A = bytes of an activation, C = bytes of an element of a KV page or conv state, W(w) =
 * bytes of a weight with its scales; other letters as in kernels/ops.h. S' = sequences
 * that have rows, L = their tokens after the pass. Page tables, positions and other
 * index arrays of a sequence are not counted, nor are exponentials and roots.
 *
 *   embed         read: ids, a table row per distinct id; write x. No arithmetic.
 *   add_norm      read x, add, gain; write y, and x when something was added.
 *                 flops: T * width * (5, and 1 for the addition)
 *   linear        read x, W; write y. flops: 2 T n k
 *   attn_prep     read query part of qg, k, v, gains; write q, and K and V into pages.
 *                 flops: T (NQ + NKV) (4 D + 3 rotary)
 *   attn_prefill, attn_decode
 *                 read q, gate part of qg, K and V of L tokens once per sequence (not
 *                 once per row or query head); write o.
 *                 flops: 4 NQ D per causal pair, of which a row has pos + 1
 *   gdn_prep      read qkv, a, b, conv weights, conv state of S'; write q, k, v, g, beta,
 *                 conv state. flops: T (2 CD taps + 2 NK * 3 DK)
 *   gdn_prefill   read q, k, v, z, g, beta, gain, state of S'; write y, state. flops of
 *                 the chunked form, as many rows at a time as gdn_prefill/chunks takes
 *                 (WORK_CHUNK); a chunk of c rows has
 *                   per key head: the lower triangles of K K^T and Q K^T, 2 c^2 DK
 *                   per value head: the inverse of I + A, c^3 / 3; K S^T, Q S^T and N^T
 * K, 6 c DK DV; two triangular matrices times c rows, 2 c^2 DV gdn_decode    the same
 * bytes; flops of the rule itself, 7 DK DV per row and value head swiglu        read
 * gate, up; write y. flops: 2 T width moe_route     read x, W(router), W(shared_router);
 * write ids, weights, shared. With forced ids: those, and router rows of distinct ids
 * only. flops: 2 H per logit that is needed moe           read x, ids, weights, shared,
 * gate, up and down of the distinct experts that rows chose, the shared expert; write y.
 *                 flops: per row 6 H I for each of K experts and 6 H I' for the shared
 * one head          read rows of x, W; write logits. flops: 2 n_out n k sample read
 * n_valid logits of each row and, of rows with a penalty, as many counts; write token,
 * logprob, flags. flops: 2 n_valid per row, for the sum of the softmax */
#ifndef TESTS_BENCH_OP_WORK_H
#define TESTS_BENCH_OP_WORK_H
#include "kernels/check_case.h"

#define WORK_CHUNK 64u

struct op_work {
	double read, written; /* bytes */
	double flops;
};

/* act: the backend's type of activations. */
struct op_work op_work_of(const struct check_case *c, enum dtype act);

#endif
