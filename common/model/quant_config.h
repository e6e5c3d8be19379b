/* What a checkpoint says about its own quantisation: quantization_config of config.json
 * and hf_quant_config.json. Formats are decided by the tensors; here what would change
 * the arithmetic and is not done, or contradicts every format that is read, is refused by
 * member, and what is harmless and not done is named once. */
#ifndef COMMON_MODEL_QUANT_CONFIG_H
#define COMMON_MODEL_QUANT_CONFIG_H
#include "common/base/err.h"
#include <stdbool.h>

struct json;
struct weights;

/* Members of one object: quantization_config, or quantization of the other file. */
MUST_CHECK status quant_config_check(const struct json *q, struct err *err);
/* Both files of a folder, where they are; tell: with the notices. */
MUST_CHECK status quant_config_check_dir(const char *dir, bool tell, struct err *err);
/* Both files beside the tensors of w, which are resolved: groups of another size than the
 * tensors' are refused, algorithms of other formats named once (tell). */
MUST_CHECK status quant_config_match(
	const struct weights *w, const char *dir, bool tell, struct err *err);

#endif
