/* The table of members of generation requests: which we know, from whom, what becomes of
 * them. api_fields.c checks bodies against it, api_openapi.c and FIELDS.md show it. */
#ifndef ROUTER_API_FIELDS_H
#define ROUTER_API_FIELDS_H
#include "router/api_json.h"

/* Whose documentation has the member. */
enum api_origin {
	FROM_OPENAI = 1,
	FROM_VLLM = 2,
	FROM_SGLANG = 4,
	FROM_LLAMA = 8, /* llama.cpp's server */
	FROM_ANTHROPIC = 16,
};

enum api_fate {
	FIELD_DONE,    /* acted on */
	FIELD_REFUSED, /* unless it has a value without effect: `harmless` */
	FIELD_IGNORED, /* changes nothing of an answer; named in the log */
};

struct api_field {
	const char *name;
	unsigned where; /* or of api_where */
	unsigned from;  /* or of api_origin */
	enum api_fate fate;
	/* FIELD_DONE: what it takes, one of the three; schema is members of a JSON
	 * Schema without the braces. */
	const struct api_int_range *integer;
	const struct api_range *number;
	const char *schema;
	/* number: where in struct gen_request it goes, and whether it was there (0: who
	 * wants to know?). */
	size_t at, has_at;
	/* FIELD_REFUSED: the values that ask for nothing, and what they are in words. */
	bool (*harmless)(const struct json *v);
	const char *only;
};

const struct api_field *api_fields(size_t *n);
/* Reads every number of the table into *req. */
MUST_CHECK bool api_fields_numbers(const struct json *object, enum api_where where,
	struct gen_request *req, struct api_error *e);

/* What integers take, for their parsers and for the table. */
extern const struct api_int_range api_max_tokens_range, api_top_k_range, api_any_range,
	api_choices_range, api_logprobs_range, api_min_tokens_range, api_truncate_range;

#endif
