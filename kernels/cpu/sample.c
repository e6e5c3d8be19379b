/* Drawing one token per row. Every restriction (top-k, top-p, min-p) keeps a prefix of
 * the tokens in descending order of logit, ties in ascending order of id; a heap gives
 * that order as far as it is needed, so a draw from a peaked distribution over 250,000
 * tokens pops a handful. Sums are F64: their error stays far below the spacing of the
 * 24-bit uniform number. Scratch: the heap, and the logits of a row that are not drawn
 * from as they came. */
#include "kernels/cpu/cpu.h"

#include "common/base/rng.h"

#include <float.h>
#include <string.h>

struct token_heap {
	const float *logits;
	uint32_t *ids;
	uint32_t n;
};

uint64_t sample_work_plain(const struct kernel_shapes *shapes)
{
	return (uint64_t)shapes->vocab * (sizeof(uint32_t) + sizeof(float));
}

static bool comes_before(const struct token_heap *h, uint32_t a, uint32_t b)
{
	float x = h->logits[h->ids[a]];
	float y = h->logits[h->ids[b]];

	return x > y || (x == y && h->ids[a] < h->ids[b]);
}

static void sink_down(struct token_heap *h, uint32_t at)
{
	for (;;) {
		uint32_t child = 2 * at + 1;
		uint32_t id;

		if (child >= h->n)
			return;
		if (child + 1 < h->n && comes_before(h, child + 1, child))
			child++;
		if (!comes_before(h, child, at))
			return;
		id = h->ids[at];
		h->ids[at] = h->ids[child];
		h->ids[child] = id;
		at = child;
	}
}

static void heap_build(struct token_heap *h)
{
	for (uint32_t i = 0; i < h->n; i++)
		h->ids[i] = i;
	for (uint32_t i = h->n / 2; i > 0; i--)
		sink_down(h, i - 1);
}

/* The tokens taken so far stand behind the heap, the first one last. */
static uint32_t heap_take(struct token_heap *h)
{
	uint32_t id = h->ids[0];

	h->n--;
	h->ids[0] = h->ids[h->n];
	h->ids[h->n] = id;
	sink_down(h, 0);
	return id;
}

/* What one pass over the valid logits says about a row. */
struct row_facts {
	uint32_t best; /* largest, lowest id of equals */
	bool bad;      /* NaN or infinite */
	double total;  /* sum of exp(logit - largest) */
};

static struct row_facts survey(const float *logits, uint32_t n)
{
	struct row_facts f = {.best = 0};

	for (uint32_t i = 0; i < n; i++) {
		f.bad |= !isfinite(logits[i]);
		if (logits[i] > logits[f.best])
			f.best = i;
	}
	for (uint32_t i = 0; i < n && !f.bad; i++)
		f.total += exp((double)logits[i] - (double)logits[f.best]);
	return f;
}

/* Probability relative to the most likely token. */
static double relative(
	const float *logits, uint32_t id, uint32_t best, double temperature)
{
	return exp(((double)logits[id] - (double)logits[best]) / temperature);
}

/* Sum over the k largest, which are taken out of the heap, or over all. */
static double top_total(
	struct token_heap *h, uint32_t k, uint32_t best, double temperature)
{
	double total = 0;

	if (k == 0 || k >= h->n) {
		for (uint32_t i = 0; i < h->n; i++)
			total += relative(h->logits, i, best, temperature);
		return total;
	}
	for (uint32_t i = 0; i < k; i++)
		total += relative(h->logits, heap_take(h), best, temperature);
	return total;
}

/* Number i of the order; taken from the heap when it was not yet. */
static uint32_t nth(struct token_heap *h, uint32_t n_all, uint32_t i)
{
	return i < n_all - h->n ? h->ids[n_all - 1 - i] : heap_take(h);
}

static uint32_t draw(const struct sample_row *row, const float *logits, uint32_t n,
	uint32_t best, uint32_t *ids)
{
	struct token_heap h = {logits, ids, n};
	uint32_t most = row->top_k == 0 ? n : MIN(row->top_k, n);
	double temperature = (double)row->temperature;
	double u = (double)rng_token_uniform(row->seed, row->choice, row->position);
	double total, limit, sum = 0;
	uint32_t kept = 0, drawn = best;

	heap_build(&h);
	total = top_total(&h, row->top_k, best, temperature);
	limit = row->top_p < 1.0f ? (double)row->top_p * total : total;
	if (row->top_p < 1.0f || row->min_p > 0.0f) {
		/* The prefix that the draw is restricted to, and its sum. */
		while (kept < most && (kept == 0 || sum < limit)) {
			double p = relative(logits, nth(&h, n, kept), best, temperature);

			if (kept > 0 && p < (double)row->min_p)
				break;
			sum += p;
			kept++;
		}
		total = sum;
		most = kept;
		sum = 0;
	}
	for (uint32_t i = 0; i < most; i++) {
		uint32_t id = nth(&h, n, i);
		double p = relative(logits, id, best, temperature);

		/* Only rounding can ask for more than what has a probability. */
		if (p == 0)
			break;
		drawn = id;
		sum += p;
		if (sum >= u * total)
			break;
	}
	return drawn;
}

/* ---- changes of the logits ---- */

static bool has_penalty(const struct sample_row *row)
{
	return row->presence != 0.0f || row->frequency != 0.0f ||
	       (row->repetition != 0.0f && row->repetition != 1.0f);
}

/* A tiny repetition divides beyond the largest float: two infinite logits would have no
 * distribution. Below, -INFINITY is a ban. */
static float penalise(const struct sample_row *row, uint16_t seen, float x)
{
	float r = row->repetition == 0.0f ? 1.0f : row->repetition;
	float times = (float)(seen & SAMPLE_TIMES);

	if (seen == 0)
		return x;
	x = MIN(x > 0.0f ? x / r : x * r, FLT_MAX);
	x -= row->frequency * times;
	return MIN(times > 0.0f ? x - row->presence : x, FLT_MAX);
}

/* Tokens that may not come have no probability. */
static void cover(
	const struct op_sample *op, const struct sample_row *row, float *changed)
{
	const uint32_t *mask = op->masks + (uint64_t)(row->mask - 1) * op->mask_words;

	for (uint32_t v = 0; v < op->n_valid; v++)
		if ((mask[v / 32] & 1u << v % 32) == 0)
			changed[v] = -INFINITY;
}

/* The logits that the row draws from: as they came, or changed in `changed`. */
static const float *change(const struct op_sample *op, const struct sample_row *row,
	const float *logits, float *changed)
{
	const struct sample_edit *edits =
		op->edits == NULL ? NULL : op->edits + row->edits;
	bool bans = row->n_bans > 0 && row->position < row->ban_until;
	bool penalty = row->line > 0 && has_penalty(row);

	if (row->n_bias == 0 && !bans && !penalty && row->mask == 0)
		return logits;
	memcpy(changed, logits, op->n_valid * sizeof(*changed));
	for (uint32_t i = 0; i < row->n_bias; i++)
		changed[edits[i].id] += edits[i].add;
	for (uint32_t i = row->n_bias; bans && i < row->n_bias + row->n_bans; i++)
		changed[edits[i].id] = -INFINITY;
	if (penalty) {
		const uint16_t *seen = op->counts + (uint64_t)(row->line - 1) * op->vocab;

		for (uint32_t v = 0; v < op->n_valid; v++)
			changed[v] = penalise(row, seen[v], changed[v]);
	}
	if (row->mask > 0)
		cover(op, row, changed);
	return changed;
}

static void count(
	const struct op_sample *op, const struct sample_row *row, uint32_t token)
{
	uint16_t *seen;

	if (row->line == 0 || !(row->ask & SAMPLE_COUNT))
		return;
	seen = op->counts + (uint64_t)(row->line - 1) * op->vocab + token;
	if ((*seen & SAMPLE_TIMES) < SAMPLE_TIMES)
		(*seen)++;
}

/* ---- rows ---- */

static uint32_t best_of(const float *logits, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < n; i++)
		if (logits[i] > logits[best])
			best = i;
	return best;
}

static uint32_t choose(const struct op_sample *op, const struct sample_row *row,
	const float *logits, uint32_t best)
{
	float *changed = (float *)op->work + op->n_valid;
	const float *x;

	if (row->ask & SAMPLE_GIVEN)
		return row->given;
	x = change(op, row, logits, changed);
	if (x != logits)
		best = best_of(x, op->n_valid);
	return row->temperature > 0.0f ? draw(row, x, op->n_valid, best, op->work) : best;
}

static float logprob_of(const float *logits, uint32_t token, const struct row_facts *f)
{
	return (float)((double)logits[token] - (double)logits[f->best] - log(f->total));
}

static void list_top(const struct op_sample *op, uint32_t i, const float *logits,
	const struct row_facts *f)
{
	uint32_t n = MIN(op->rows[i].n_top, op->n_valid);
	struct token_heap h = {logits, op->work, op->n_valid};
	uint32_t *id = op->top_id + (uint64_t)i * SAMPLE_TOP_MAX;
	float *logprob = op->top_logprob + (uint64_t)i * SAMPLE_TOP_MAX;

	if (n > 0 && !f->bad)
		heap_build(&h);
	for (uint32_t k = 0; k < op->rows[i].n_top; k++) {
		id[k] = k < n && !f->bad ? heap_take(&h) : 0;
		logprob[k] = f->bad ? 0.0f : logprob_of(logits, id[k], f);
	}
}

CPU_KERNEL(sample, plain)
{
	uint64_t need = (uint64_t)op->n_valid * (sizeof(uint32_t) + sizeof(float));

	if (op->n_valid == 0 || op->n_valid > op->vocab)
		return err_set(err, ST_INVALID,
			"sample: %u valid tokens of a vocabulary of %u", op->n_valid,
			op->vocab);
	if (op->work_bytes < need)
		return err_set(err, ST_LIMIT,
			"sample/plain: %llu bytes of scratch, %llu needed",
			(unsigned long long)op->work_bytes, (unsigned long long)need);
	for (uint32_t i = 0; i < op->n; i++) {
		const float *logits = op->logits + (uint64_t)i * op->vocab;
		const struct sample_row *row = &op->rows[i];
		struct row_facts f = survey(logits, op->n_valid);
		uint32_t token = f.bad ? 0 : choose(op, row, logits, f.best);

		op->flags[i] = f.bad ? SAMPLE_NAN : 0;
		op->token[i] = token;
		op->logprob[i] = f.bad ? 0.0f : logprob_of(logits, token, &f);
		if (row->n_top > 0)
			list_top(op, i, logits, &f);
		if (!f.bad)
			count(op, row, token);
	}
	return ST_OK;
}
