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
/* Members of the root and of its text_config that no table knows. */
void model_config_list_unknown(const struct json *root, struct sink *out);
/* Names them in one log line. */
void model_config_tell_unknown(const struct json *root, const char *path);

#endif
