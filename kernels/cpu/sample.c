/* Drawing one token per row. Every restriction (top-k, top-p, min-p) keeps a prefix of
 * the tokens in descending order of logit, ties in ascending order of id; a heap gives
 * that order as far as it is needed, so a draw from a peaked distribution over 250,000
 * tokens pops a handful. Sums are F64: their error stays far below the spacing of the
 * 24-bit uniform number. Scratch: the heap. */
#include "kernels/cpu/cpu.h"

#include "common/base/rng.h"

struct token_heap {
	const float *logits;
	uint32_t *ids;
	uint32_t n;
};

uint64_t sample_work_plain(const struct kernel_shapes *shapes)
{
	return (uint64_t)shapes->vocab * sizeof(uint32_t);
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
	uint32_t kept = 0;

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
	for (uint32_t i = 0; i + 1 < most; i++) {
		uint32_t id = nth(&h, n, i);

		sum += relative(logits, id, best, temperature);
		if (sum >= u * total)
			return id;
	}
	return nth(&h, n, most - 1);
}

CPU_KERNEL(sample, plain)
{
	uint64_t need = (uint64_t)op->n_valid * sizeof(uint32_t);

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
		uint32_t token = 0;

		if (!f.bad)
			token = row->temperature > 0.0f
					? draw(row, logits, op->n_valid, f.best, op->work)
					: f.best;
		op->flags[i] = f.bad ? SAMPLE_NAN : 0;
		op->token[i] = token;
		op->logprob[i] = f.bad ? 0.0f
				       : (float)((double)logits[token] -
						 (double)logits[f.best] - log(f.total));
	}
	return ST_OK;
}
