/* What the engine's tests share: an engine on a small checkpoint, golden data, waiting
 * for results. */
#ifndef TESTS_UNIT_ENGINE_ENGINE_FIXTURE_H
#define TESTS_UNIT_ENGINE_ENGINE_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/engine/engine_impl.h"
#include "common/model/safetensors.h"
#include <math.h>
#include <poll.h>

#define TINY        "tests/golden/tiny-moe"
/* Nothing in these tests takes a second; a test that would hang fails instead. */
#define PATIENCE_MS 20000

#define CHECK_OK(call)                                                                   \
	do {                                                                             \
		status got_ = (call);                                                    \
		if (got_ != ST_OK)                                                       \
			fail_msg("%s: %s: %s", #call, status_name(got_), err.text);      \
	} while (0)

static inline struct engine_options tiny_options(void)
{
	return (struct engine_options){.model_dir = TINY,
		.gpus = "cpu:0",
		.kernels = "",
		.rows_max = 128,
		.seqs_max = 4,
		.len_max = 512,
		.n_pages = 33,
		.logits = true};
}

static inline struct engine *engine_with(const struct engine_options *o)
{
	struct engine *e = NULL;
	struct err err;

	log_level_set(LOG_WARN);
	CHECK_OK(engine_create(&e, o, &err));
	return e;
}

/* The next result; the test fails when there is none in time. */
static inline const struct eng_result *next_result(struct engine *e)
{
	struct pollfd p = {.fd = engine_fd(e), .events = POLLIN};
	const struct eng_result *r;

	while ((r = engine_poll(e)) == NULL)
		if (poll(&p, 1, PATIENCE_MS) == 0)
			fail_msg("no result in %d ms", PATIENCE_MS);
	return r;
}

static inline const struct eng_result *next_of(struct engine *e, enum eng_kind kind)
{
	const struct eng_result *r = next_result(e);

	if (r->kind == ENG_FAILED && kind != ENG_FAILED)
		fail_msg("the engine failed: %s", r->err.text);
	assert_int_equal(kind, r->kind);
	return r;
}

/* Numbers of a golden file's tensor; freed with mem_give. */
static inline void *golden(const char *dir, const char *name, uint64_t *n)
{
	struct st_index *ix = NULL;
	const struct st_tensor *t;
	char path[256];
	void *data;
	struct err err;

	(void)snprintf(path, sizeof(path), "%s/golden.safetensors", dir);
	CHECK_OK(st_open_file(&ix, path, &err));
	t = st_find(ix, name);
	assert_non_null(t);
	data = mem_take(1, t->bytes);
	assert_non_null(data);
	CHECK_OK(st_read(ix, t, 0, data, t->bytes, &err));
	*n = t->bytes / 4;
	st_close(ix);
	return data;
}

static inline double relative_error(const float *a, const float *b, uint64_t n)
{
	double difference = 0, size = 0;

	for (uint64_t i = 0; i < n; i++) {
		difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
		size += (double)b[i] * b[i];
	}
	return sqrt(difference / size);
}

/* FP32 in another order of summation; the golden data itself is good to 4e-6. */
#define CLOSE 2e-5
static inline void check_close(const float *got, const float *want, uint64_t n)
{
	double error = relative_error(got, want, n);

	if (!(error <= CLOSE))
		fail_msg("relative error %g", error);
}

static const uint32_t pages_1_to_32[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
	15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};

/* A whole sequence as one chunk, its pages from `first` on. */
static inline struct eng_chunk chunk_of(
	const uint32_t *ids, uint32_t n, uint32_t first, uint32_t slot)
{
	return (struct eng_chunk){.tag = slot,
		.ids = ids,
		.n_tokens = n,
		.pages = pages_1_to_32 + first - 1,
		.n_pages = CEIL_DIV(n, PAGE_TOKENS),
		.slot = slot,
		.sample = true};
}

#endif
