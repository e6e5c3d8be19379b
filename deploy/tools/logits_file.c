/* Ids in, tensors out. */
#include "deploy/tools/logits_file.h"

#include "common/base/mem.h"

#include <stdio.h>
#include <string.h>

status ids_read(const struct st_index *ix, const char *name, uint32_t **ids, uint32_t *n,
	struct err *err)
{
	const struct st_tensor *t = st_find(ix, name);
	uint32_t *read;
	status st;

	*ids = NULL;
	*n = 0;
	if (t == NULL)
		return ST_OK;
	if ((t->dtype != STD_I32 && t->dtype != STD_U32) || t->n_dims != 1 ||
		t->dim[0] == 0 || t->dim[0] > UINT32_MAX)
		return err_set(err, ST_INVALID, "%s: not a 1-d tensor of I32", name);
	read = mem_take(t->dim[0], sizeof(*read));
	if (read == NULL)
		return err_set(err, ST_NOMEM, "%s: %llu ids", name,
			(unsigned long long)t->dim[0]);
	st = st_read(ix, t, 0, read, t->bytes, err);
	for (uint64_t i = 0; st == ST_OK && i < t->dim[0]; i++)
		if (read[i] > INT32_MAX)
			st = err_set(err, ST_INVALID, "%s: id %llu is negative", name,
				(unsigned long long)i);
	if (st != ST_OK) {
		mem_give(read);
		return st;
	}
	*ids = read;
	*n = (uint32_t)t->dim[0];
	return ST_OK;
}

/* The names move with their array, so tensors point to them only when written. */
static bool out_grow(struct out_file *out)
{
	uint32_t cap = MAX(16u, 2 * out->cap);
	void *tensors, *names;

	if (out->n < out->cap)
		return true;
	tensors = mem_regrow(out->tensors, cap * sizeof(*out->tensors));
	if (tensors == NULL)
		return false;
	out->tensors = tensors;
	names = mem_regrow(out->names, cap * sizeof(*out->names));
	if (names == NULL)
		return false;
	out->names = names;
	out->cap = cap;
	return true;
}

status out_add(struct out_file *out, void **data, enum st_dtype dtype, uint32_t n_dims,
	const uint64_t *dim, const char *name, struct err *err)
{
	struct st_out_tensor t = {.dtype = dtype, .n_dims = n_dims};
	uint64_t n = 1;

	for (uint32_t i = 0; i < n_dims; i++) {
		t.dim[i] = dim[i];
		n *= dim[i];
	}
	*data = out_grow(out) ? mem_take(n, sizeof(float)) : NULL;
	if (*data == NULL)
		return err_set(err, ST_NOMEM, "%s: no memory for %llu numbers", name,
			(unsigned long long)n);
	t.data = *data;
	(void)snprintf(out->names[out->n], OUT_NAME_MAX, "%s", name);
	out->tensors[out->n++] = t;
	return ST_OK;
}

status out_write(struct out_file *out, const char *path, struct err *err)
{
	for (uint32_t i = 0; i < out->n; i++)
		out->tensors[i].name = out->names[i];
	return st_write(path, out->tensors, out->n, err);
}

static void give(const void *data)
{
	void *p;

	memcpy(&p, &data, sizeof(p));
	mem_give(p);
}

void out_release(struct out_file *out)
{
	for (uint32_t i = 0; i < out->n; i++)
		give(out->tensors[i].data);
	mem_give(out->tensors);
	mem_give(out->names);
	*out = (struct out_file){.n = 0};
}
