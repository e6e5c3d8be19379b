/* The identity of the weights: the same for any number of ranks, another one when a
 * matrix or any expert is another one. */
#include "common/model/weights_impl.h"

#include "unit/model/checkpoint.h"

#include <fcntl.h>
#include <string.h>

#define MODEL BATON_SOURCE_DIR "/deploy/demo-model/"
#define L     "model.language_model.layers."

static void copy_file(const struct folder *f, const char *name)
{
	static uint8_t buf[1 << 16];
	FILE *in = fopen(strcmp(name, "config.json") == 0 ? MODEL "config.json"
							  : MODEL "model.safetensors",
		"rb");
	FILE *out = fopen(folder_file(f, name), "wb");
	size_t n;

	assert_non_null(in);
	assert_non_null(out);
	while ((n = fread(buf, 1, sizeof(buf), in)) > 0)
		assert_int_equal(n, fwrite(buf, 1, n, out));
	assert_int_equal(0, fclose(in));
	assert_int_equal(0, fclose(out));
}

/* The sum over the ranks. */
static uint64_t digest(const struct folder *f, uint32_t n_ranks)
{
	struct model_config c;
	uint64_t sum = 0;

	CHECK_OK(model_config_load(&c, f->path, &err));
	for (uint32_t rank = 0; rank < n_ranks; rank++) {
		struct weights *w;
		uint64_t one = 0;

		CHECK_OK(weights_open(&w, &c, f->path, rank, n_ranks, &err));
		CHECK_OK(weights_digest(w, &one, &err));
		weights_close(w);
		sum += one;
	}
	return sum;
}

/* Every bit of a tensor turned over, and again with the second call. */
static void invert(const struct folder *f, const char *name)
{
	static uint8_t buf[1 << 20];
	struct st_index *st;
	const struct st_tensor *t;
	struct err err;
	uint64_t begin, len;
	int fd;

	assert_int_equal(ST_OK, st_open(&st, f->path, &err));
	t = st_find(st, name);
	assert_non_null(t);
	begin = t->begin;
	len = t->bytes;
	st_close(st);
	assert_true(len <= sizeof(buf));
	fd = open(folder_file(f, "model.safetensors"), O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(len, pread(fd, buf, len, (off_t)begin));
	for (uint64_t i = 0; i < len; i++)
		buf[i] = (uint8_t)~buf[i];
	assert_int_equal(len, pwrite(fd, buf, len, (off_t)begin));
	assert_int_equal(0, close(fd));
}

static void another_matrix_or_another_expert_is_another_model(void **state)
{
	static const char *const large[] = {"lm_head.weight",
		L "3.self_attn.q_proj.weight", L "0.input_layernorm.weight",
		L "5.linear_attn.A_log"};
	static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
	uint64_t before, after;
	struct folder f;
	char name[128];

	(void)state;
	folder_create(&f);
	copy_file(&f, "config.json");
	copy_file(&f, "model.safetensors");
	before = digest(&f, 1);
	assert_int_equal(before, digest(&f, 2));
	for (size_t i = 0; i < COUNT(large); i++) {
		invert(&f, large[i]);
		assert_int_not_equal(before, digest(&f, 1));
		invert(&f, large[i]);
	}
	for (uint32_t i = 0; i < 16; i++) {
		for (uint32_t p = 0; p < 6; p++) {
			snprintf(name, sizeof(name), L "%u.mlp.experts.%u.%s.weight",
				i % 8, i, parts[p % 3]);
			invert(&f, name);
			if (p == 2) {
				after = digest(&f, 1);
				assert_int_not_equal(before, after);
			}
		}
	}
	assert_int_equal(before, digest(&f, 1));
	folder_remove(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_matrix_or_another_expert_is_another_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
