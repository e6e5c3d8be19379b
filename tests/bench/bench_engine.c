// layers: engine
/* Speed of prefill and decode through the engine's own interface, beside the floors
 * that this machine's memory and arithmetic set:  bench_engine MODEL_DIR [GPUS] */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/engine/engine_impl.h"

#include <immintrin.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define ROWS_MAX      512u
#define STREAMS       8u
#define CONTEXT       256u
#define STEPS         64u
#define READ_BYTES    ((uint64_t)256 << 20)
/* Of several runs the best: others use the machine too. */
#define RUNS          5u
/* Tokens of one stream: one step more per run, since a run may end inside a step. */
#define STREAM_TOKENS (RUNS * (STEPS + 1))

static void fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static const struct eng_result *next_result(struct engine *e)
{
	struct pollfd p = {.fd = engine_fd(e), .events = POLLIN};
	const struct eng_result *r;

	while ((r = engine_poll(e)) == NULL)
		(void)poll(&p, 1, -1);
	if (r->kind == ENG_FAILED)
		fail(r->err.text);
	return r;
}

static const struct eng_result *wait_for(struct engine *e, enum eng_kind kind)
{
	const struct eng_result *r = next_result(e);

	if (r->kind != kind)
		fail("a result of another kind");
	return r;
}

/* Bytes per second that one thread reads from memory. */
__attribute__((target("avx2"))) static double read_rate(void)
{
	__m256i *at = mem_alloc(READ_BYTES / 64 + 1, 64);
	double best = 0;

	memset(at, 1, READ_BYTES);
	for (unsigned run = 0; run < RUNS; run++) {
		__m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
		uint64_t start = clock_ns();

		for (uint64_t i = 0; i < READ_BYTES / 32; i += 4) {
			a = _mm256_xor_si256(a, _mm256_loadu_si256(at + i));
			b = _mm256_xor_si256(b, _mm256_loadu_si256(at + i + 1));
			c = _mm256_xor_si256(c, _mm256_loadu_si256(at + i + 2));
			d = _mm256_xor_si256(d, _mm256_loadu_si256(at + i + 3));
		}
		__asm__ volatile("" : "+x"(a), "+x"(b), "+x"(c), "+x"(d));
		best = MAX(best, (double)READ_BYTES * 1e9 / (double)(clock_ns() - start));
	}
	mem_free(at);
	return best;
}

/* Floating-point operations per second of one thread: independent chains of fused
 * multiply-adds on eight floats, as many as latency times units needs. */
#define CHAINS(X)                                                                        \
	X(a)                                                                             \
	X(b)                                                                             \
	X(c)                                                                             \
	X(d)                                                                             \
	X(e)                                                                             \
	X(f)                                                                             \
	X(g)                                                                             \
	X(h)                                                                             \
	X(i)                                                                             \
	X(j)
#define N_CHAINS 10
__attribute__((target("avx2,fma"))) static double fma_rate(void)
{
	enum { ROUNDS = 20000000 };
	__m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(0.001f);
#define X(v) __m256 v = term;
	CHAINS(X)
#undef X
	uint64_t start = clock_ns();

	for (unsigned n = 0; n < ROUNDS; n++) {
#define X(v)                                                                             \
	v = _mm256_fmadd_ps(v, factor, term);                                            \
	__asm__ volatile("" : "+x"(v));
		CHAINS(X)
#undef X
	}
	return (double)ROUNDS * N_CHAINS * 16 * 1e9 / (double)(clock_ns() - start);
}

struct load {
	double weight_bytes; /* read by one decode step of one row */
	double state_bytes;  /* read and written by it */
	double flops;        /* of one row, without attention over the context */
};

static double matrix_bytes(const struct weight *w)
{
	static const double bits[WF__COUNT] = {
		[WF_F32] = 32, [WF_BF16] = 16, [WF_NVFP4] = 4.5, [WF_FP8] = 8};

	return (double)w->n * w->k * bits[w->format] / 8;
}

static void add_matrix(struct load *load, const struct weight *w, double times)
{
	if (w->data == NULL)
		return;
	load->weight_bytes += times * matrix_bytes(w);
	load->flops += times * 2 * (double)w->n * w->k;
}

/* Of rank 0, from what it holds. */
static struct load count_load(const struct engine *e)
{
	const struct rank *r = &e->rank[0];
	const struct layout *l = &e->layout;
	struct load load = {0};

	for (uint32_t i = 0; i < e->config.n_layers; i++)
		for (uint32_t role = WR_Q; role < WR__COUNT; role++)
			add_matrix(&load, &r->layer[i][role],
				role >= WR_EXP_GATE && role <= WR_EXP_DOWN
					? e->config.top_k
					: 1);
	add_matrix(
		&load, &r->global[r->global[WR_LM_HEAD].data ? WR_LM_HEAD : WR_EMBED], 1);
	load.state_bytes = 2.0 * l->n_gdn * (double)l->rec_layer_bytes +
			   (double)CONTEXT / PAGE_TOKENS * (double)l->page_bytes;
	/* S k, S += d k^T, S q, each two operations per element of S. */
	load.flops += 7.0 * l->n_gdn * (double)l->rec_layer_bytes / 4;
	return load;
}

static double prefill_rate(struct engine *e, uint32_t tokens)
{
	static uint32_t ids[ROWS_MAX], pages[ROWS_MAX / PAGE_TOKENS];
	double best = 0;

	for (uint32_t i = 0; i < tokens; i++)
		ids[i] = (i * 7919u + 13u) % (e->config.vocab - 80);
	for (uint32_t i = 0; i < COUNT(pages); i++)
		pages[i] = i + 1;
	for (unsigned run = 0; run < RUNS; run++) {
		struct eng_chunk c = {.tag = 1,
			.ids = ids,
			.n_tokens = tokens,
			.pages = pages,
			.n_pages = CEIL_DIV(tokens, PAGE_TOKENS),
			.slot = 1,
			.sample = true};
		uint64_t epoch, start = clock_ns();

		if (engine_prefill(e, &c, 1, &epoch) != ST_OK)
			fail("prefill refused");
		(void)wait_for(e, ENG_PREFILLED);
		best = MAX(best, tokens * 1e9 / (double)(clock_ns() - start));
	}
	return best;
}

/* Tokens per second of all streams together. Their state is whatever the arena holds:
 * the time of a step does not depend on it. */
static double decode_rate(struct engine *e, uint32_t streams)
{
	uint32_t per_stream = (CONTEXT + STREAM_TOKENS) / PAGE_TOKENS + 1;
	uint32_t pages[(CONTEXT + STREAM_TOKENS) / PAGE_TOKENS + 1];
	double best = 0;

	for (uint32_t s = 0; s < streams; s++) {
		struct eng_join j = {.tag = 1 + s,
			.pages = pages,
			.n_pages = per_stream,
			.slot = 1 + s,
			.n_tokens = CONTEXT,
			.input = 5,
			.steps_max = STREAM_TOKENS};

		for (uint32_t i = 0; i < per_stream; i++)
			pages[i] = 1 + s * per_stream + i;
		if (engine_join(e, &j) != ST_OK)
			fail("join refused");
	}
	for (unsigned run = 0; run < RUNS; run++) {
		uint64_t start = clock_ns();
		double tokens = 0;

		while (tokens < streams * STEPS)
			tokens += wait_for(e, ENG_STEP)->n;
		best = MAX(best, tokens * 1e9 / (double)(clock_ns() - start));
	}
	for (uint32_t s = 0; s < streams; s++)
		if (engine_leave(e, 1 + s) != ST_OK)
			fail("leave refused");
	for (uint32_t left = 0; left < streams;)
		left += next_result(e)->kind == ENG_LEFT;
	return best;
}

static void line(const char *what, uint32_t n, double rate, double floor_s)
{
	printf("%-8s %5u %12.0f tok/s  %9.1f us/tok  floor %9.1f us  ratio %.1f\n", what,
		n, rate, 1e6 / rate, floor_s * 1e6, 1 / rate / floor_s);
}

int main(int argc, char **argv)
{
	struct engine_options o = {.kernels = "",
		.rows_max = ROWS_MAX,
		.seqs_max = STREAMS,
		.len_max = 1024};
	static const uint32_t prompts[] = {16, 64, 512}, streams[] = {1, 2, 4, 8};
	double bytes_rate = read_rate(), flop_rate = fma_rate();
	struct engine *e;
	struct load load;
	struct err err;

	if (argc < 2)
		fail("usage: bench_engine MODEL_DIR [GPUS]");
	log_level_set(LOG_WARN);
	o.model_dir = argv[1];
	o.gpus = argc > 2 ? argv[2] : "cpu:0";
	if (engine_create(&e, &o, &err) != ST_OK)
		fail(err.text);
	load = count_load(e);
	printf("one thread reads %.1f GB/s and computes %.1f GFLOP/s (FMA on 8 floats)\n",
		bytes_rate / 1e9, flop_rate / 1e9);
	printf("a row: %.2f MB of weights, %.2f MB of state, %.2f MFLOP\n",
		load.weight_bytes / 1e6, load.state_bytes / 1e6, load.flops / 1e6);
	for (size_t i = 0; i < COUNT(prompts); i++)
		line("prefill", prompts[i], prefill_rate(e, prompts[i]),
			load.flops / flop_rate);
	for (size_t i = 0; i < COUNT(streams); i++)
		line("decode", streams[i], decode_rate(e, streams[i]),
			MAX((load.weight_bytes / streams[i] + load.state_bytes) /
					bytes_rate,
				load.flops / flop_rate));
	engine_destroy(e);
	return 0;
}
