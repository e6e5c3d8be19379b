/* Errors as clients see them: bounded, valid UTF-8 whatever went in. */
#include "common/base/utf8.h"
#include "router/api.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *type_of(unsigned http)
{
	switch (http) {
	case 404:
		return "not_found";
	case 429:
		return "rate_limit_error";
	case 501:
		return "not_implemented";
	case 504:
		return "timeout";
	default:
		return http < 500 ? "invalid_request_error" : "server_error";
	}
}

/* Bytes that begin no character become '?'; a character cut at the end goes. */
static void make_valid(char *text)
{
	struct bytes rest = bytes_of_str(text);

	while (rest.len > 0) {
		struct utf8_step s = utf8_step(rest);
		size_t at = strlen(text) - rest.len;

		if (s.kind == UTF8_PARTIAL) {
			text[at] = '\0';
			return;
		}
		if (s.kind == UTF8_BROKEN)
			memset(text + at, '?', s.len);
		rest.at += s.len;
		rest.len -= s.len;
	}
}

void api_error_set(struct api_error *e, unsigned http, const char *code,
	const char *param, const char *fmt, ...)
{
	va_list ap;

	*e = (struct api_error){.http = http, .type = type_of(http), .code = code};
	if (param != NULL)
		snprintf(e->param, sizeof(e->param), "%s", param);
	va_start(ap, fmt);
	vsnprintf(e->message, sizeof(e->message), fmt, ap);
	va_end(ap);
	make_valid(e->param);
	make_valid(e->message);
}
