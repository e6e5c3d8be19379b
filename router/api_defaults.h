/* Sampling defaults of a model: what its generation_config.json says, for what a request
 * leaves open. common/model/README.md lists what is done with each member. */
#ifndef ROUTER_API_DEFAULTS_H
#define ROUTER_API_DEFAULTS_H
#include "common/base/err.h"
#include "router/api.h"

#define API_SUPPRESS_MAX 64u

struct api_defaults {
	double temperature, top_p, min_p;
	double presence, frequency, repetition; /* 0: off */
	uint64_t max_tokens;                    /* 0: the dialect's own default */
	uint64_t min_tokens;
	uint32_t top_k; /* 0: off */
	/* Not to be drawn: a bias of -100 each. */
	uint32_t suppress[API_SUPPRESS_MAX];
	uint32_t n_suppress;
	/* Members that are not done here and have a value that asks for something, with
	 * those that are not known, ", " between; cut. For one line at start. */
	char unheard[512];
};

/* OpenAI's: temperature 1, nothing cut off. */
void api_defaults_plain(struct api_defaults *d);
/* The model's file over the plain ones; a model without the file leaves them. A value
 * that a request could not have is refused by name. n_vocab bounds ids. */
MUST_CHECK status api_defaults_load(
	struct api_defaults *d, const char *model_dir, uint32_t n_vocab, struct err *err);
/* Fills what the request left open; of two biases of one token the request's stands.
 * false: *e says why it cannot. */
MUST_CHECK bool api_defaults_apply(
	const struct api_defaults *d, struct gen_request *req, struct api_error *e);

#endif
