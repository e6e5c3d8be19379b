/* generation_config.json. */
#include "router/api_defaults.h"

#include "common/model/json_field.h"
#include "common/model/json_file.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define FILE_BYTES_MAX (1u << 20)

void api_defaults_plain(struct api_defaults *d)
{
	*d = (struct api_defaults){.temperature = 1, .top_p = 1};
}

static status take_number(const struct json *object, const char *field, double min,
	double max, double *out, struct err *err)
{
	const struct json *v = json_given(object, field);
	double x;

	if (v == NULL)
		return ST_OK;
	if (!json_f64(v, &x) || !(x >= min) || !(x <= max))
		return json_field_refuse(err, field, v, "out of range");
	*out = x;
	return ST_OK;
}

static status take_all(struct api_defaults *d, const struct json *object, struct err *err)
{
	double top_k = d->top_k;
	status st;

	st = take_number(object, "temperature", 0, 2, &d->temperature, err);
	if (st == ST_OK)
		st = take_number(object, "top_p", 1e-6, 1, &d->top_p, err);
	if (st == ST_OK)
		st = take_number(object, "min_p", 0, 1, &d->min_p, err);
	if (st == ST_OK)
		st = take_number(object, "top_k", -1, INT32_MAX, &top_k, err);
	d->top_k = top_k > 0 ? (uint32_t)top_k : 0;
	/* A file that turns sampling off means greedy, whatever else it says. */
	if (st == ST_OK && json_is(json_given(object, "do_sample"), JSON_FALSE))
		d->temperature = 0;
	return st;
}

status api_defaults_load(struct api_defaults *d, const char *model_dir, struct err *err)
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
		st = take_all(&made, file.doc.values, err);
		json_file_release(&file);
		if (st != ST_OK)
			return err_wrap(err, "%s", path);
	} else if (errno != ENOENT) {
		return err_set(err, ST_IO, "%s cannot be read", path);
	}
	*d = made;
	return ST_OK;
}

void api_defaults_apply(const struct api_defaults *d, struct gen_request *req)
{
	if (!req->has_temperature)
		req->temperature = d->temperature;
	if (!req->has_top_p)
		req->top_p = d->top_p;
	if (!req->has_min_p)
		req->min_p = d->min_p;
	if (!req->has_top_k)
		req->top_k = d->top_k;
}
