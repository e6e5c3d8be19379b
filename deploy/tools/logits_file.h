/* The files of baton-logits: given ids in, tensors out. */
#ifndef DEPLOY_TOOLS_LOGITS_FILE_H
#define DEPLOY_TOOLS_LOGITS_FILE_H
#include "common/base/err.h"
#include "common/model/safetensors.h"

/* A 1-d I32 or U32 tensor; *ids from mem_take. ST_INVALID when it is something else or
 * holds negative numbers; *ids = NULL and *n = 0 when there is none of that name. */
MUST_CHECK status ids_read(const struct st_index *ix, const char *name, uint32_t **ids,
	uint32_t *n, struct err *err);

#define OUT_NAME_MAX 64u

/* Tensors that are collected, then written at once. */
struct out_file {
	struct st_out_tensor *tensors;
	char (*names)[OUT_NAME_MAX];
	uint32_t n, cap;
};

/* Room for one more tensor of F32 or I32: its data, to be filled by the caller. */
MUST_CHECK status out_add(struct out_file *out, void **data, enum st_dtype dtype,
	uint32_t n_dims, const uint64_t *dim, const char *name, struct err *err);
MUST_CHECK status out_write(struct out_file *out, const char *path, struct err *err);
void out_release(struct out_file *out);

#endif
