/* A checkpoint in memory that a test changes and writes to a folder of its own. */
#ifndef TESTS_UNIT_MODEL_EDIT_H
#define TESTS_UNIT_MODEL_EDIT_H
#include "common/model/weights.h"

#include "unit/model/checkpoint.h"

#include <string.h>

#define DEMO     BATON_SOURCE_DIR "/deploy/demo-model"
#define EDIT_MAX 4096

struct edit {
	struct folder folder;
	struct model_config config;
	struct st_out_tensor t[EDIT_MAX];
	uint32_t n;
};

static inline struct st_out_tensor *edit_find(struct edit *e, const char *name)
{
	for (uint32_t i = 0; i < e->n; i++) {
		if (strcmp(e->t[i].name, name) == 0)
			return &e->t[i];
	}
	fail_msg("the test names %s, which the checkpoint has not", name);
	return NULL;
}

static inline uint8_t *edit_data(struct edit *e, const char *name)
{
	return (uint8_t *)(uintptr_t)edit_find(e, name)->data;
}

/* data: copied; n_dims dimensions. */
static inline void edit_add(struct edit *e, const char *name, enum st_dtype dtype,
	const uint64_t *dim, uint32_t n_dims, const void *data, size_t bytes)
{
	struct st_out_tensor *t = &e->t[e->n++];
	void *copy = malloc(bytes + (bytes == 0));

	assert_true(e->n <= EDIT_MAX);
	memcpy(copy, data, bytes);
	*t = (struct st_out_tensor){
		.name = strdup(name), .dtype = dtype, .n_dims = n_dims, .data = copy};
	if (n_dims > 0)
		memcpy(t->dim, dim, n_dims * sizeof(*dim));
}

static inline void edit_drop(struct edit *e, const char *name)
{
	struct st_out_tensor *t = edit_find(e, name);

	free((void *)(uintptr_t)t->name);
	free((void *)(uintptr_t)t->data);
	*t = e->t[--e->n];
}

static inline void edit_rename(struct edit *e, const char *from, const char *to)
{
	struct st_out_tensor *t = edit_find(e, from);

	free((void *)(uintptr_t)t->name);
	t->name = strdup(to);
}

static inline struct edit *edit_open(const char *dir)
{
	struct edit *e = calloc(1, sizeof(*e));
	struct st_index *ix = NULL;

	folder_create(&e->folder);
	CHECK_OK(model_config_load(&e->config, dir, &err));
	CHECK_OK(st_open(&ix, dir, &err));
	for (uint32_t i = 0; i < st_count(ix); i++) {
		const struct st_tensor *t = st_at(ix, i);
		void *data = malloc(t->bytes + (t->bytes == 0));

		CHECK_OK(st_read(ix, t, 0, data, t->bytes, &err));
		edit_add(e, t->name, t->dtype, t->dim, t->n_dims, data, t->bytes);
		free(data);
	}
	st_close(ix);
	return e;
}

static inline void edit_save(struct edit *e)
{
	CHECK_OK(
		st_write(folder_file(&e->folder, "model.safetensors"), e->t, e->n, &err));
}

static inline void edit_close(struct edit *e)
{
	for (uint32_t i = 0; i < e->n; i++) {
		free((void *)(uintptr_t)e->t[i].name);
		free((void *)(uintptr_t)e->t[i].data);
	}
	folder_remove(&e->folder);
	free(e);
}

/* What weights_read gives of a role. */
struct role_data {
	struct weight_info info;
	uint8_t *data, *scale;
	float *scale2;
};

static inline struct role_data role_read(
	const struct weights *w, enum weight_role role, uint32_t layer)
{
	struct role_data r = {.info = weights_info(w, role, layer)};

	assert_true(r.info.present);
	/* Exactly as large as stated, so that a sanitizer sees one byte over. */
	r.data = malloc(r.info.data_bytes);
	r.scale = r.info.scale_bytes > 0 ? malloc(r.info.scale_bytes) : NULL;
	r.scale2 = r.info.scale2_bytes > 0 ? malloc(r.info.scale2_bytes) : NULL;
	CHECK_OK(weights_read(w, role, layer, r.data, r.scale, r.scale2, &err));
	return r;
}

static inline void role_release(struct role_data *r)
{
	free(r->data);
	free(r->scale);
	free(r->scale2);
}

static inline void check_same(const struct role_data *a, const struct role_data *b)
{
	assert_int_equal(a->info.format, b->info.format);
	assert_int_equal(a->info.count, b->info.count);
	assert_int_equal(a->info.n, b->info.n);
	assert_int_equal(a->info.k, b->info.k);
	assert_int_equal(a->info.data_bytes, b->info.data_bytes);
	assert_int_equal(a->info.scale_bytes, b->info.scale_bytes);
	assert_int_equal(a->info.scale2_bytes, b->info.scale2_bytes);
	assert_memory_equal(a->data, b->data, a->info.data_bytes);
	if (a->scale != NULL)
		assert_memory_equal(a->scale, b->scale, a->info.scale_bytes);
	if (a->scale2 != NULL)
		assert_memory_equal(a->scale2, b->scale2, a->info.scale2_bytes);
}

#endif
