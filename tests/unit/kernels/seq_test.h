/* Passes over several sequences: who has which rows, shuffled pages and slots. */
#ifndef TESTS_UNIT_KERNELS_SEQ_TEST_H
#define TESTS_UNIT_KERNELS_SEQ_TEST_H
#include "kernel_test.h"

#define TEST_SEQS_MAX  6u
#define TEST_ROWS_MAX  512u
#define TEST_PAGES_MAX 64u

struct test_seqs {
	uint32_t n_seqs, page_tokens;
	uint32_t past[TEST_SEQS_MAX], rows[TEST_SEQS_MAX];
	uint32_t pos[TEST_ROWS_MAX], seq[TEST_ROWS_MAX], first[TEST_SEQS_MAX + 1];
	uint32_t pages[TEST_SEQS_MAX * TEST_PAGES_MAX], slot[TEST_SEQS_MAX];
};

/* Pages 1..TEST_SEQS_MAX * TEST_PAGES_MAX and slots 1..TEST_SEQS_MAX, dealt out at
 * random once; page 0 and slot 0 belong to nobody. */
static inline void seqs_init(struct test_seqs *s, uint32_t n_seqs, uint32_t page_tokens)
{
	*s = (struct test_seqs){.n_seqs = n_seqs, .page_tokens = page_tokens};
	for (uint32_t i = 0; i < COUNT(s->pages); i++)
		s->pages[i] = i + 1;
	for (uint32_t i = COUNT(s->pages); i > 1; i--) {
		uint32_t j = random_below(i), swap = s->pages[i - 1];

		s->pages[i - 1] = s->pages[j];
		s->pages[j] = swap;
	}
	for (uint32_t i = 0; i < TEST_SEQS_MAX; i++)
		s->slot[i] = TEST_SEQS_MAX - i;
}

/* The rows of the next pass, after past[] tokens of each sequence. */
static inline struct op_rows seqs_pass(struct test_seqs *s)
{
	struct op_rows r = {.n_seqs = s->n_seqs,
		.pos = s->pos,
		.seq = s->seq,
		.first = s->first,
		.pages = s->pages,
		.pages_stride = TEST_PAGES_MAX,
		.slot = s->slot};

	for (uint32_t q = 0; q < s->n_seqs; q++) {
		s->first[q] = r.n_rows;
		for (uint32_t i = 0; i < s->rows[q]; i++) {
			assert_true(r.n_rows < TEST_ROWS_MAX);
			s->seq[r.n_rows] = q;
			s->pos[r.n_rows++] = s->past[q] + i;
		}
		r.max_seq_rows = MAX(r.max_seq_rows, s->rows[q]);
		r.max_len = MAX(r.max_len, s->past[q] + s->rows[q]);
	}
	s->first[s->n_seqs] = r.n_rows;
	return r;
}

#endif
