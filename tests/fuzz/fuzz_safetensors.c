// layers: base model
/* Any bytes as the beginning of a safetensors file. What is accepted keeps its promises:
 * every tensor lies in the file and is found by its name. */
#include "common/model/safetensors.h"
#include "common/model/weights_impl.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(const uint8_t *data, size_t size, uint64_t file_bytes)
{
	struct st_index *ix = NULL;
	struct err err;
	uint64_t sum = 0;

	if (st_parse(&ix, (struct bytes){data, size}, file_bytes, &err) != ST_OK) {
		assert(err.text[0] != 0);
		return;
	}
	for (uint32_t i = 0; i < st_count(ix); i++) {
		const struct st_tensor *t = st_at(ix, i);

		assert(t->begin <= file_bytes && t->bytes <= file_bytes - t->begin);
		assert(st_find(ix, t->name) == t);
		sum += t->bytes;
		weight_name_read(t->name);
	}
	assert(sum <= file_bytes);
	st_close(ix);
}

/* Twice: as a whole file, and as the header of a file with data after it, whose size
 * is what the last tensor most often needs. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	parse(data, size, size);
	parse(data, size, (uint64_t)size + 64);
	return 0;
}
