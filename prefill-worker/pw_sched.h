/* Which chunks of which prompts make up the next pass: a pure function.
 *
 * The rule, in the order in which the tokens of a pass are given out:
 * 1. The oldest prompt comes first and gets all it needs; but while other prompts are
 *    waiting that fit into half a pass whole, it leaves them up to half of the pass.
 * 2. Then, oldest first, prompts that fit whole into what is left.
 * 3. What is then left goes to unfinished prompts, oldest first.
 * A prompt that the pass does not finish is cut at a multiple of PAGE_TOKENS.
 *
 * So a prompt of at most half a pass is computed in the next pass that is formed,
 * however long the prompts before it are, as long as the short ones waiting before it
 * leave room; and the oldest prompt gets at least half of every pass, however many
 * short ones arrive. */
#ifndef PREFILL_WORKER_PW_SCHED_H
#define PREFILL_WORKER_PW_SCHED_H
#include <stdint.h>

struct pw_take {
	uint32_t item;     /* index into left[] */
	uint32_t n_tokens; /* > 0 */
};

/* left: tokens still to be computed of each waiting prompt, oldest first, all > 0.
 * takes: room for seqs_max; at most one per prompt. Returns how many were written; 0
 * only when n is 0. */
uint32_t pw_sched_pass(const uint32_t *left, uint32_t n, uint32_t rows_max,
	uint32_t seqs_max, struct pw_take *takes);

#endif
