/* Sampling defaults of a model: what its generation_config.json says, for what a request
 * leaves open. */
#ifndef ROUTER_API_DEFAULTS_H
#define ROUTER_API_DEFAULTS_H
#include "common/base/err.h"
#include "router/api.h"

struct api_defaults {
	double temperature, top_p, min_p;
	uint32_t top_k; /* 0: off */
};

/* OpenAI's: temperature 1, nothing cut off. */
void api_defaults_plain(struct api_defaults *d);
/* The model's file over the plain ones; a model without the file leaves them. A value
 * that a request could not have is refused by name. */
MUST_CHECK status api_defaults_load(
	struct api_defaults *d, const char *model_dir, struct err *err);
/* Fills what the request left open. */
void api_defaults_apply(const struct api_defaults *d, struct gen_request *req);

#endif
