/* generation_config.json. */
#include "router/api_defaults.h"

#include "common/base/mem.h"
#include "common/model/json_field.h"
#include "common/model/json_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES_MAX (1u << 20)
/* What OpenAI's logit_bias calls a ban. */

void api_defaults_plain(struct api_defaults *d)
{
	*d = (struct api_defaults){.temperature = 1, .top_p = 1};
}

/* ---- members that are applied ---- */

/* What the member means, or why not; for a member of its own. */
typedef status take_fn(struct api_defaults *d, const struct json *v, const char *field,
	uint32_t n_vocab, struct err *err);

static status take_top_k(struct api_defaults *d, const struct json *v, const char *field,
	uint32_t n_vocab, struct err *err)
{
	int64_t k;

	(void)n_vocab;
	if (!json_i64(v, &k) || k < -1 || k > INT32_MAX)
		return json_field_refuse(err, field, v, "out of range");
	d->top_k = k > 0 ? (uint32_t)k : 0;
	return ST_OK;
}

static status take_length(const struct json *v, const char *field, int64_t min,
	uint64_t *out, struct err *err)
{
	int64_t n;

	if (!json_i64(v, &n) || n < min || n > UINT32_MAX)
		return json_field_refuse(err, field, v, "out of range");
	*out = (uint64_t)n;
	return ST_OK;
}

static status take_max_tokens(struct api_defaults *d, const struct json *v,
	const char *field, uint32_t n_vocab, struct err *err)
{
	(void)n_vocab;
	return take_length(v, field, 1, &d->max_tokens, err);
}

static status take_min_tokens(struct api_defaults *d, const struct json *v,
	const char *field, uint32_t n_vocab, struct err *err)
{
	(void)n_vocab;
	return take_length(v, field, 0, &d->min_tokens, err);
}

/* A file that turns sampling off means greedy, whatever else it says; read last. */
static status take_do_sample(struct api_defaults *d, const struct json *v,
	const char *field, uint32_t n_vocab, struct err *err)
{
	(void)n_vocab;
	if (!json_is_bool(v))
		return json_field_refuse(err, field, v, "must be true or false");
	if (json_is(v, JSON_FALSE))
		d->temperature = 0;
	return ST_OK;
}

static status take_suppress(struct api_defaults *d, const struct json *v,
	const char *field, uint32_t n_vocab, struct err *err)
{
	if (!json_is(v, JSON_ARRAY) || json_count(v) > API_SUPPRESS_MAX)
		return json_field_refuse(
			err, field, v, "must be a list of at most 64 token ids");
	json_each(item, v)
	{
		int64_t id;

		if (!json_i64(item, &id) || id < 0 || id >= n_vocab)
			return json_field_refuse(
				err, field, item, "is no token of this model");
		d->suppress[d->n_suppress++] = (uint32_t)id;
	}
	return ST_OK;
}

/* ---- members that are not done here: the values that ask for nothing ---- */

static bool anything(const struct json *v)
{
	(void)v;
	return true;
}

static bool is_number(const struct json *v, double want)
{
	double d;

	return json_f64(v, &d) && d == want;
}

static bool is_zero(const struct json *v)
{
	return is_number(v, 0);
}

static bool is_one(const struct json *v)
{
	return is_number(v, 1);
}

static bool is_false(const struct json *v)
{
	return json_is(v, JSON_FALSE);
}

static bool is_empty(const struct json *v)
{
	return (json_is(v, JSON_ARRAY) || json_is(v, JSON_OBJECT)) && json_count(v) == 0;
}

/* One row for each member: a number with its bounds, or a taker, or when it asks for
 * nothing. */
#define AT(field) offsetof(struct api_defaults, field)

static const struct member {
	const char *name;
	size_t at; /* of a double; bounds below */
	double min, max;
	take_fn *take;
	bool (*silent)(const struct json *v);
} members[] = {
	{"temperature", AT(temperature), 0, 2, NULL, NULL},
	{"top_p", AT(top_p), 1e-6, 1, NULL, NULL},
	{"min_p", AT(min_p), 0, 1, NULL, NULL},
	{"repetition_penalty", AT(repetition), 1e-6, 1000000, NULL, NULL},
	{"presence_penalty", AT(presence), -2, 2, NULL, NULL},
	{"frequency_penalty", AT(frequency), -2, 2, NULL, NULL},
	{"top_k", 0, 0, 0, take_top_k, NULL},
	{"max_new_tokens", 0, 0, 0, take_max_tokens, NULL},
	{"min_new_tokens", 0, 0, 0, take_min_tokens, NULL},
	{"suppress_tokens", 0, 0, 0, take_suppress, NULL},
	/* after temperature */
	{"do_sample", 0, 0, 0, take_do_sample, NULL},

	/* Read by the tokenizer, or about nothing that is done at generation. */
	{"eos_token_id", 0, 0, 0, NULL, anything},
	{"bos_token_id", 0, 0, 0, NULL, anything},
	{"pad_token_id", 0, 0, 0, NULL, anything},
	{"transformers_version", 0, 0, 0, NULL, anything},
	{"_from_model_config", 0, 0, 0, NULL, anything},
	{"use_cache", 0, 0, 0, NULL, anything},

	/* Change the answer and are not done here. */
	{"max_length", 0, 0, 0, NULL, NULL},
	{"min_length", 0, 0, 0, NULL, is_zero},
	{"no_repeat_ngram_size", 0, 0, 0, NULL, is_zero},
	{"encoder_no_repeat_ngram_size", 0, 0, 0, NULL, is_zero},
	{"bad_words_ids", 0, 0, 0, NULL, is_empty},
	{"force_words_ids", 0, 0, 0, NULL, is_empty},
	{"begin_suppress_tokens", 0, 0, 0, NULL, is_empty},
	{"sequence_bias", 0, 0, 0, NULL, is_empty},
	{"forced_bos_token_id", 0, 0, 0, NULL, NULL},
	{"forced_eos_token_id", 0, 0, 0, NULL, NULL},
	{"forced_decoder_ids", 0, 0, 0, NULL, is_empty},
	{"stop_strings", 0, 0, 0, NULL, is_empty},
	{"num_beams", 0, 0, 0, NULL, is_one},
	{"num_beam_groups", 0, 0, 0, NULL, is_one},
	{"num_return_sequences", 0, 0, 0, NULL, is_one},
	{"length_penalty", 0, 0, 0, NULL, is_one},
	{"diversity_penalty", 0, 0, 0, NULL, is_zero},
	{"penalty_alpha", 0, 0, 0, NULL, is_zero},
	{"guidance_scale", 0, 0, 0, NULL, is_one},
	{"typical_p", 0, 0, 0, NULL, is_one},
	{"top_h", 0, 0, 0, NULL, NULL},
	{"epsilon_cutoff", 0, 0, 0, NULL, is_zero},
	{"eta_cutoff", 0, 0, 0, NULL, is_zero},
	{"renormalize_logits", 0, 0, 0, NULL, is_false},
	{"exponential_decay_length_penalty", 0, 0, 0, NULL, NULL},
	{"watermarking_config", 0, 0, 0, NULL, NULL},
};

static const struct member *find_member(const struct json *name)
{
	for (size_t i = 0; i < COUNT(members); i++)
		if (json_equals(name, members[i].name))
			return &members[i];
	return NULL;
}

static status take_member(struct api_defaults *d, const struct member *m,
	const struct json *v, uint32_t n_vocab, struct err *err)
{
	double x;

	if (m->take != NULL)
		return m->take(d, v, m->name, n_vocab, err);
	if (!json_f64(v, &x) || !(x >= m->min) || !(x <= m->max))
		return json_field_refuse(err, m->name, v, "out of range");
	*(double *)((char *)d + m->at) = x;
	return ST_OK;
}

static bool is_applied(const struct member *m)
{
	return m->take != NULL || m->max > 0;
}

static void note_unheard(struct api_defaults *d, const struct json *name)
{
	char text[160], shown[64], value[64];
	size_t used = strlen(d->unheard);

	snprintf(text, sizeof(text), "%s%s %s", used > 0 ? ", " : "",
		json_show(name, shown, sizeof(shown)),
		json_show(name + 1, value, sizeof(value)));
	if (used + strlen(text) < sizeof(d->unheard))
		memcpy(d->unheard + used, text, strlen(text) + 1);
}

static status take_all(struct api_defaults *d, const struct json *object,
	uint32_t n_vocab, struct err *err)
{
	status st = ST_OK;

	if (!json_is(object, JSON_OBJECT))
		return err_set(err, ST_INVALID, "not a JSON object");
	for (size_t i = 0; st == ST_OK && i < COUNT(members); i++) {
		const struct json *v = json_given(object, members[i].name);

		if (v != NULL && is_applied(&members[i]))
			st = take_member(d, &members[i], v, n_vocab, err);
	}
	if (st == ST_OK && d->max_tokens > 0 && d->min_tokens > d->max_tokens)
		return err_set(
			err, ST_INVALID, "min_new_tokens is larger than max_new_tokens");
	json_each_member(name, object)
	{
		const struct member *m = find_member(name);

		if (json_is(name + 1, JSON_NULL) || (m != NULL && is_applied(m)))
			continue;
		if (m == NULL || m->silent == NULL || !m->silent(name + 1))
			note_unheard(d, name);
	}
	return st;
}

status api_defaults_load(
	struct api_defaults *d, const char *model_dir, uint32_t n_vocab, struct err *err)
{
	struct api_defaults made;
	struct json_file file;
	char path[4096];
	status st;

	api_defaults_plain(&made);
	if (snprintf(path, sizeof(path), "%s/generation_config.json", model_dir) >=
		(int)sizeof(path))
		return err_set(err, ST_INVALID, "model: the path is too long");
	if (access(path, F_OK) == 0) {
		st = json_file_read(&file, path, FILE_BYTES_MAX, err);
		if (st != ST_OK)
			return st;
		st = take_all(&made, file.doc.values, n_vocab, err);
		json_file_release(&file);
		if (st != ST_OK)
			return err_wrap(err, "%s", path);
	} else if (errno != ENOENT) {
		return err_set(err, ST_IO, "%s cannot be read", path);
	}
	*d = made;
	return ST_OK;
}

/* ---- to requests ---- */

static bool has_bias(const struct gen_request *req, uint32_t id)
{
	for (size_t i = 0; i < req->n_bias; i++)
		if (req->bias[i].token == id)
			return true;
	return false;
}

static bool apply_suppress(
	const struct api_defaults *d, struct gen_request *req, struct api_error *e)
{
	struct wire_bias *grown;

	if (d->n_suppress == 0)
		return true;
	if (req->n_bias + d->n_suppress > API_BIAS_MAX) {
		api_error_set(e, 400, "invalid_value", "logit_bias",
			"logit_bias has %zu members; with the %u tokens that this model "
			"suppresses they are more than %u.",
			req->n_bias, d->n_suppress, API_BIAS_MAX);
		return false;
	}
	grown = mem_regrow(req->bias, (req->n_bias + d->n_suppress) * sizeof(*req->bias));
	if (grown == NULL) {
		api_error_set(e, 503, "overloaded", NULL,
			"The server has no memory for this request now.");
		return false;
	}
	req->bias = grown;
	for (uint32_t i = 0; i < d->n_suppress; i++)
		if (!has_bias(req, d->suppress[i]))
			req->bias[req->n_bias++] =
				(struct wire_bias){d->suppress[i], API_BIAS_BAN};
	return true;
}

bool api_defaults_apply(
	const struct api_defaults *d, struct gen_request *req, struct api_error *e)
{
	if (!req->has_temperature)
		req->draw.temperature = d->temperature;
	if (!req->has_top_p)
		req->draw.top_p = d->top_p;
	if (!req->has_min_p)
		req->draw.min_p = d->min_p;
	if (!req->has_top_k)
		req->draw.top_k = d->top_k;
	if (!req->has_presence)
		req->draw.presence = d->presence;
	if (!req->has_frequency)
		req->draw.frequency = d->frequency;
	if (!req->has_repetition)
		req->draw.repetition = d->repetition;
	if (!req->has_max_tokens)
		req->max_tokens = d->max_tokens;
	/* A short answer was asked for: that stands. */
	if (!req->has_min_tokens)
		req->draw.min_tokens = req->max_tokens > 0 || req->has_max_tokens
					       ? MIN(d->min_tokens, req->max_tokens)
					       : d->min_tokens;
	return apply_suppress(d, req, e);
}
