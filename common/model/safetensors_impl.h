/* What the safetensors_*.c files share. */
#ifndef COMMON_MODEL_SAFETENSORS_IMPL_H
#define COMMON_MODEL_SAFETENSORS_IMPL_H
#include "common/model/safetensors.h"

struct st_file {
	char *name;   /* without its folder */
	char *header; /* the tensors' names point into it */
	int fd;       /* -1: parsed from memory, cannot be read */
};

struct st_index {
	struct st_tensor *tensors;
	uint32_t n_tensors, cap_tensors;
	uint32_t *slots;  /* index + 1 into tensors by hash of the name; 0: free */
	uint32_t n_slots; /* a power of two, at least twice n_tensors */
	struct st_file *files;
	uint32_t n_files;
};

#define SHARD_INDEX_NAME "model.safetensors.index.json"

#define ST_NAME_MAX    200u
#define ST_TENSORS_MAX (UINT32_C(1) << 24)

/* Appends the tensors of a header text (after its 8-byte length) that belongs to file
 * number `file` with data_bytes after the header. Writes into the text. The appended
 * tensors stand in order of their position in the file. */
MUST_CHECK status st_parse_header(struct st_index *ix, uint32_t file, char *text,
	uint64_t text_bytes, uint64_t data_bytes, struct err *err);

/* An index of up to files_max files; then any number of files; then the map. */
struct st_index *st_index_create(uint32_t files_max);
/* Opens path, appends its tensors; the index owns the open file, also on failure. */
MUST_CHECK status st_index_add(
	struct st_index *ix, const char *path, const char *name, struct err *err);
MUST_CHECK status st_index_map(struct st_index *ix, struct err *err);

#endif
