/* What the quant_*.c files share: the algorithms by name, and what a file says of one
 * module. */
#ifndef COMMON_MODEL_QUANT_IMPL_H
#define COMMON_MODEL_QUANT_IMPL_H
#include "common/model/quant_config.h"
#include "common/model/weights_impl.h"

struct json;

/* Sets of enum scale_kind, as bits. */
#define KIND_PLAIN (1u << SCALE_NONE)
#define KIND_NVFP4 (1u << SCALE_NVFP4)
#define KIND_FP8   (1u << SCALE_ROW | 1u << SCALE_TENSOR)
#define KIND_BLOCK (1u << SCALE_BLOCK)
#define KIND_ANY   UINT32_MAX

struct quant_algorithm {
	const char *name;
	uint32_t group; /* weights that share a scale; 0: a whole row or tensor */
	uint32_t kinds; /* KIND_ANY: others say it */
};
/* NULL when the name is none that is read. */
const struct quant_algorithm *quant_algorithm_find(const struct json *name);

/* Members of the object that no table knows. */
void quant_config_list_unknown(const struct json *q, struct sink *out);

struct quant_said {
	uint32_t kinds; /* KIND_ANY: nothing that could be judged */
	int64_t group;  /* 0: nothing */
	char word[48];  /* the algorithm's name */
};
/* module: a name as checkpoints spell it, without ".weight". */
struct quant_said quant_said_of(const struct json *q, const char *module);

enum quant_covers { COVERS_NO, COVERS_YES, COVERS_UNSURE };
/* An entry of ignore, exclude_modules or targets, in the three dialects in use: a name
 * (of the module, one above it, or a part of its path), a pattern with * and ?, or "re:"
 * and a regular expression, of which only . .* \. ^ $ and plain characters are judged. */
enum quant_covers quant_pattern_covers(const char *pattern, const char *module);
/* The n-th spelling of a module's name, whose prefix packages choose; false: no more. */
bool quant_spelling(const char *module, uint32_t n, char *buf, size_t size);

/* Every object of the folder that says something about quantisation. */
typedef status quant_visit(void *ctx, const struct json *q, const char *path,
	const char *member, struct err *err);
MUST_CHECK status quant_config_each(
	const char *dir, quant_visit *visit, void *ctx, struct err *err);

#endif
