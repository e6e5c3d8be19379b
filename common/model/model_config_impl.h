/* What the model_config*.c files share; text: the object with the text fields. */
#ifndef COMMON_MODEL_MODEL_CONFIG_IMPL_H
#define COMMON_MODEL_MODEL_CONFIG_IMPL_H
#include "common/base/json.h"
#include "common/model/model_config.h"

/* After the sizes: needs n_layers. */
MUST_CHECK status model_config_read_layers(
	struct model_config *c, const struct json *text, struct err *err);
/* After the layers: needs arch and n_layers. */
MUST_CHECK status model_config_read_mlp(
	struct model_config *c, const struct json *text, struct err *err);

/* Members that would change the forward pass and are not built. */
MUST_CHECK status model_config_check_members(const struct json *object, struct err *err);
/* Names in one log line what no table knows, and values that contradict each other. */
void model_config_tell_unknown(const struct json *root, const char *path);

#endif
