/* Keys and origins. */
#include "router/entry.h"

#include "common/base/log.h"
#include "router/reply.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Of a list of names that a browser asks for. */
#define ASKED_BYTES_MAX 2048u
/* How long a browser may keep our word. */
#define PREFLIGHT_AGE_S "600"

status entry_open(struct router *rt, struct err *err)
{
	status st;

	if (rt->conf->api_key_file[0] == 0)
		return ST_OK;
	st = keys_read(&rt->keys, rt->conf->api_key_file, err);
	if (st == ST_OK)
		log_info("clients show one of %u keys", rt->keys.n);
	return st;
}

void entry_read_again(struct router *rt)
{
	struct err err;

	if (keys_read(&rt->keys, rt->conf->api_key_file, &err) == ST_OK)
		log_info("read again: clients show one of %u keys", rt->keys.n);
	else
		log_error("%s; the %u keys from before stand", err.text, rt->keys.n);
}

/* The origin that an answer names; NULL: the page's own is not one of ours. */
static const char *origin_of(const struct router *rt, const char *asked)
{
	const char *at = rt->conf->cors_origin;

	if (asked == NULL)
		return NULL;
	while (*at != 0) {
		size_t n = strcspn(at, "\n");

		if (n == 1 && *at == '*')
			return "*";
		if (n == strlen(asked) && strncmp(at, asked, n) == 0)
			return asked;
		at += n + (at[n] == '\n');
	}
	return NULL;
}

static void add_cors(const struct router *rt, struct http_req *req)
{
	const char *origin = origin_of(rt, http_header(req, "Origin"));

	if (rt->conf->cors_origin[0] == 0)
		return;
	http_header_add(req, "Vary", "Origin");
	if (origin == NULL)
		return;
	http_header_add(req, "Access-Control-Allow-Origin", origin);
	http_header_add(
		req, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
}

static bool is_preflight(const struct router *rt, const struct http_req *req)
{
	return rt->conf->cors_origin[0] != 0 &&
	       strcmp(http_method(req), "OPTIONS") == 0 &&
	       http_header(req, "Origin") != NULL &&
	       http_header(req, "Access-Control-Request-Method") != NULL;
}

bool entry_check(struct router *rt, struct http_req *req, bool open, struct http_fault *f)
{
	add_cors(rt, req);
	if (rt->keys.n == 0 || open || is_preflight(rt, req) ||
		keys_allow(&rt->keys, http_header(req, "Authorization"),
			http_header(req, "x-api-key")))
		return true;
	http_header_add(req, "WWW-Authenticate", "Bearer");
	*f = (struct http_fault){401, "invalid_api_key",
		"No valid key was shown: send it as Authorization: Bearer KEY, or as "
		"x-api-key."};
	return false;
}

/* n digits of lower case, not all of them zero unless that is allowed. */
static bool is_hex(const char *text, size_t n, bool zero)
{
	bool other = false;

	for (size_t i = 0; i < n; i++) {
		if (!isdigit((unsigned char)text[i]) &&
			!(text[i] >= 'a' && text[i] <= 'f'))
			return false;
		other |= text[i] != '0';
	}
	return other || zero;
}

/* 00-TRACE-PARENT-FLAGS; later versions may say more behind it. */
void entry_trace(const struct http_req *req, char id[TRACE_BYTES])
{
	const char *text = http_header(req, "traceparent");
	size_t n = text != NULL ? strlen(text) : 0;

	id[0] = 0;
	if (n < 55 || (n > 55 && (text[55] != '-' || strncmp(text, "00", 2) == 0)) ||
		strncmp(text, "ff", 2) == 0 || text[2] != '-' || text[35] != '-' ||
		text[52] != '-')
		return;
	if (!is_hex(text, 2, true) || !is_hex(text + 3, 32, false) ||
		!is_hex(text + 36, 16, false) || !is_hex(text + 53, 2, true))
		return;
	snprintf(id, TRACE_BYTES, "%.32s", text + 3);
}

/* Names of headers, and what stands between them. */
static bool is_list(const char *text)
{
	size_t n = strlen(text);

	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)text[i]) && strchr("-_, ", text[i]) == NULL)
			return false;
	return n <= ASKED_BYTES_MAX;
}

bool entry_preflight(struct router *rt, struct http_req *req)
{
	const char *asked = http_header(req, "Access-Control-Request-Headers");
	struct api_error e;

	if (!is_preflight(rt, req))
		return false;
	if (origin_of(rt, http_header(req, "Origin")) == NULL ||
		(asked != NULL && !is_list(asked))) {
		api_error_set(&e, 403, "origin_not_allowed", NULL,
			"Pages of this origin may not ask here.");
		reply_error(rt, req, &e, false);
		return true;
	}
	http_header_add(req, "Access-Control-Allow-Methods", "GET, HEAD, POST");
	if (asked != NULL)
		http_header_add(req, "Access-Control-Allow-Headers", asked);
	http_header_add(req, "Access-Control-Max-Age", PREFLIGHT_AGE_S);
	http_respond(req, 204, NULL, (struct bytes){NULL, 0});
	return true;
}
