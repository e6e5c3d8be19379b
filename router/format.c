/* The dialects. */
#include "router/format.h"

#include <string.h>

static const struct answer_format *const formats[] = {
#define X(name) &format_##name,
	FORMATS(X)
#undef X
};

const struct answer_format *format_at(size_t i)
{
	return i < COUNT(formats) ? formats[i] : NULL;
}

const struct answer_format *format_of(const char *path)
{
	for (size_t i = 0; i < COUNT(formats); i++)
		if (strcmp(path, formats[i]->path) == 0)
			return formats[i];
	return NULL;
}

/* The dialect whose path this is, or begins. */
static const struct answer_format *family_of(const char *path)
{
	for (size_t i = 0; i < COUNT(formats); i++) {
		size_t n = strlen(formats[i]->path);

		if (strncmp(path, formats[i]->path, n) == 0 &&
			(path[n] == 0 || path[n] == '/'))
			return formats[i];
	}
	return NULL;
}

void format_error(struct sink *out, const char *path, const struct api_error *e)
{
	const struct answer_format *format = path != NULL ? family_of(path) : NULL;

	if (format != NULL)
		format->error(out, e);
	else
		out_error(out, e);
}
