/* Status names and error texts. */
#include "common/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *status_name(status code)
{
	static const char *const names[ST__COUNT] = {
#define X(name, text) [ST_##name] = #name,
		STATUS_MAP(X)
#undef X
	};
	return (unsigned)code < ST__COUNT ? names[code] : "?";
}

status err_set_at(
	struct err *err, const char *file, int line, status code, const char *fmt, ...)
{
	va_list ap;

	err->code = code;
	err->file = file;
	err->line = line;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return code;
}

status err_wrap(struct err *err, const char *fmt, ...)
{
	char inner[sizeof(err->text)];
	va_list ap;
	int used;

	memcpy(inner, err->text, sizeof(inner));
	va_start(ap, fmt);
	used = vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	if (used > 0 && (size_t)used < sizeof(err->text))
		snprintf(err->text + used, sizeof(err->text) - (size_t)used, ": %.*s",
			(int)(sizeof(err->text) - (size_t)used), inner);
	return err->code;
}
