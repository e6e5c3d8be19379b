/* safetensors files: one file, or shards named by model.safetensors.index.json.
 * A file's header is foreign bytes: every length, range, shape and key is checked
 * before it is used; unknown dtypes, duplicate keys, overlaps, gaps past the end
 * and trailing bytes are refused with file, tensor and reason. */
#ifndef COMMON_MODEL_SAFETENSORS_H
#define COMMON_MODEL_SAFETENSORS_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include <stdbool.h>
#include <stdint.h>

/* name in the file, bits per element */
#define ST_DTYPE_MAP(X)                                                                  \
	X(BOOL, 8)                                                                       \
	X(U8, 8)                                                                         \
	X(I8, 8)                                                                         \
	X(F8_E4M3, 8)                                                                    \
	X(F8_E5M2, 8)                                                                    \
	X(F8_E8M0, 8)                                                                    \
	X(I16, 16)                                                                       \
	X(U16, 16)                                                                       \
	X(F16, 16)                                                                       \
	X(BF16, 16)                                                                      \
	X(I32, 32)                                                                       \
	X(U32, 32)                                                                       \
	X(F32, 32)                                                                       \
	X(I64, 64)                                                                       \
	X(U64, 64)                                                                       \
	X(F64, 64)                                                                       \
	X(F4, 4)

enum st_dtype {
#define X(name, bits) STD_##name,
	ST_DTYPE_MAP(X)
#undef X
		STD__COUNT
};

#define ST_DIMS_MAX   6u
#define ST_HEADER_MAX ((uint64_t)256 << 20)

struct st_tensor {
	const char *name; /* owned by the index, zero-terminated */
	enum st_dtype dtype;
	uint32_t n_dims; /* 0: scalar */
	uint64_t dim[ST_DIMS_MAX];
	uint64_t begin; /* byte offset in the file (not in the data section) */
	uint64_t bytes;
	uint32_t file; /* index of the shard */
};

/* All tensors of a checkpoint, with a hash map by name. */
struct st_index;

/* Opens DIR/model.safetensors, the shards of DIR/model.safetensors.index.json, or without
 * both a whole set of model-00001-of-0000N.safetensors, with a notice (the
 * index says which file each tensor is read from; other files are ignored with one
 * notice; a named file that is missing is fatal). */
MUST_CHECK status st_open(struct st_index **out, const char *dir, struct err *err);
/* One file of any name, e.g. golden data. */
MUST_CHECK status st_open_file(struct st_index **out, const char *path, struct err *err);
/* The header alone, for tests and fuzzing: file_bytes is the claimed size of the file. */
MUST_CHECK status st_parse(
	struct st_index **out, struct bytes head, uint64_t file_bytes, struct err *err);
void st_close(struct st_index *ix);

uint32_t st_count(const struct st_index *ix);
const struct st_tensor *st_at(const struct st_index *ix, uint32_t i);
const struct st_tensor *st_find(
	const struct st_index *ix, const char *name); /* or NULL */
const char *st_file_name(const struct st_index *ix, uint32_t file);
/* The only file, or the index file of several. */
const char *st_name(const struct st_index *ix);
const char *st_dtype_name(enum st_dtype dtype);

/* pread of bytes [at, at + len) of a tensor, 0 <= at, at + len <= t->bytes; large
 * sequential reads, safe from several threads. */
MUST_CHECK status st_read(const struct st_index *ix, const struct st_tensor *t,
	uint64_t at, void *dst, uint64_t len, struct err *err);

/* Writer, for tools and tests: tensors in order, then one file. */
struct st_out_tensor {
	const char *name;
	enum st_dtype dtype;
	uint32_t n_dims;
	uint64_t dim[ST_DIMS_MAX];
	const void *data;
};
MUST_CHECK status st_write(const char *path, const struct st_out_tensor *tensors,
	uint32_t n_tensors, struct err *err);

#endif
