/* The configuration table of the router and the checks that span several keys. */
#include "router/router_conf.h"

#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/loop/runtime.h"
#include "router/http.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

/* The socket is RUNTIME/routers/ID.sock, whose path has 107 bytes. */
#define ID_BYTES_MAX 48

#define CONF_TYPE struct router_conf
static const struct conf_key keys[] = {
	CONF_KEYS(ROUTER_CONF){
		.name = "served_model_name",
		.help = "name that requests use, repeatable; empty: the directory's",
		.initial = "",
		.kind = CONF_STR,
		.offset = offsetof(struct router_conf, served_model_name),
		.repeat = true,
	},
	{
		.name = "cors_origin",
		.help = "origin whose pages may ask (scheme://host:port or *), "
			"repeatable",
		.initial = "",
		.kind = CONF_STR,
		.offset = offsetof(struct router_conf, cors_origin),
		.repeat = true,
	},
};

static status check_id(const char *id, struct err *err)
{
	size_t n = strlen(id);

	if (n == 0 || n > ID_BYTES_MAX)
		return err_set(
			err, ST_INVALID, "id has %zu bytes (1 to %d)", n, ID_BYTES_MAX);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)id[i]) && strchr("._-", id[i]) == NULL)
			return err_set(err, ST_INVALID,
				"id '%s': only letters, digits, '.', '_' and '-'", id);
	return ST_OK;
}

static status check_addresses(const struct router_conf *c, struct err *err)
{
	char path[RUNTIME_PATH_BYTES];
	struct runtime rt;
	status st;

	if (!http_is_address(c->host))
		return err_set(err, ST_INVALID, "host '%s' is no IP address", c->host);
	if (strlen(c->uds) >= RUNTIME_PATH_BYTES)
		return err_set(err, ST_INVALID,
			"uds '%s': a path of %zu bytes, at most %d", c->uds,
			strlen(c->uds), RUNTIME_PATH_BYTES - 1);
	if (c->probe_port != 0 && c->probe_port == c->port)
		return err_set(err, ST_INVALID, "probe_port and port are both %llu",
			(unsigned long long)c->port);
	st = runtime_name(&rt, c->runtime_dir, err);
	if (st == ST_OK)
		st = runtime_path(&rt, path, err, "routers/%s.sock", c->id);
	return st == ST_OK ? ST_OK : err_wrap(err, "runtime_dir");
}

/* Each line of served_model_name, or the last part of the model's path. */
static status check_names(const struct router_conf *c, struct err *err)
{
	const char *at = c->served_model_name;
	uint32_t n = 0;

	if (*at == 0 && strspn(c->model, "/") == strlen(c->model))
		return err_set(
			err, ST_INVALID, "model '%s' names no directory", c->model);
	while (*at != 0) {
		size_t len = strcspn(at, "\n");

		n++;
		at += len;
		if (len == 0 || (*at == '\n' && at[1] == 0))
			return err_set(
				err, ST_INVALID, "served_model_name: an empty name");
		at += *at == '\n';
	}
	if (n > ROUTER_NAMES_MAX)
		return err_set(err, ST_INVALID, "served_model_name: %u names, at most %u",
			n, ROUTER_NAMES_MAX);
	return ST_OK;
}

/* "*", or scheme://host[:port]. */
static bool is_origin(const char *text, size_t len)
{
	const char *host = memmem(text, len, "://", 3);

	if (len == 1 && text[0] == '*')
		return true;
	if (host == NULL || host == text || host + 3 == text + len || len > 255)
		return false;
	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~' ||
			(text[i] == '/' && &text[i] >= host + 3))
			return false;
	return true;
}

static status check_origins(const struct router_conf *c, struct err *err)
{
	for (const char *at = c->cors_origin; *at != 0; at += *at == '\n') {
		size_t n = strcspn(at, "\n");

		if (!is_origin(at, n))
			return err_set(err, ST_INVALID,
				"cors_origin '%.*s' is neither * nor "
				"scheme://host[:port]",
				(int)MIN(n, 200), at);
		at += n;
	}
	return ST_OK;
}

static status check_all(const void *values, struct err *err)
{
	const struct router_conf *c = values;
	status st = check_id(c->id, err);

	if (st == ST_OK)
		st = check_addresses(c, err);
	if (st == ST_OK)
		st = check_names(c, err);
	if (st == ST_OK)
		st = check_origins(c, err);
	if (st == ST_OK)
		st = conf_shared_apply(c->log_level, c->debug_fault, err);
	if (st != ST_OK)
		return st;
	if (c->silent_ms < 2 * c->beat_ms)
		return err_set(err, ST_INVALID,
			"silent_ms %llu is less than two beats of %llu ms",
			(unsigned long long)c->silent_ms, (unsigned long long)c->beat_ms);
	if (c->request_memory_mb < c->body_max_mb)
		return err_set(err, ST_INVALID,
			"request_memory_mb %llu is less than body_max_mb %llu",
			(unsigned long long)c->request_memory_mb,
			(unsigned long long)c->body_max_mb);
	if (c->lost_ms < c->silent_ms)
		return err_set(err, ST_INVALID,
			"lost_ms %llu is less than silent_ms %llu",
			(unsigned long long)c->lost_ms, (unsigned long long)c->silent_ms);
	return ST_OK;
}

const struct conf_table router_conf_table = {
	.keys = keys,
	.n_keys = COUNT(keys),
	.program = "baton-router",
	.purpose = "takes requests over HTTP and leads them through prefill and decode",
	.check = check_all,
};
