/* Which modules an entry of a quantisation file names. */
#include "common/model/quant_impl.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES 320

/* Bytes of a translated pattern that stand for more than themselves. */
#define ANY_RUN '\1'
#define ANY_ONE '\2'

/* Goes back to the last run alone: at most length times length steps. */
static bool matches(const char *p, const char *text)
{
	const char *run = NULL, *from = text;

	while (*text != 0) {
		if (*p == ANY_RUN) {
			run = ++p;
			from = text;
		} else if (*p != 0 && (*p == ANY_ONE || *p == *text)) {
			p++;
			text++;
		} else if (run != NULL) {
			p = run;
			text = ++from;
		} else {
			return false;
		}
	}
	while (*p == ANY_RUN)
		p++;
	return *p == 0;
}

/* A regular expression that is matched from the start of a name. */
static bool translate_regex(const char *re, char *out)
{
	if (*re == '^')
		re++;
	for (; *re != 0; re++) {
		if (re[0] == '$' && re[1] == 0) {
			*out = 0;
			return true;
		}
		if (re[0] == '.' && re[1] == '*') {
			*out++ = ANY_RUN;
			re++;
		} else if (re[0] == '.') {
			*out++ = ANY_ONE;
		} else if (re[0] == '\\' && re[1] == '.') {
			*out++ = '.';
			re++;
		} else if (strchr("\\()[]{}|+*?^$", *re) != NULL) {
			return false;
		} else {
			*out++ = *re;
		}
		if (*re != 0 && strchr("*+?{", re[1]) != NULL && re[1] != 0)
			return false;
	}
	*out++ = ANY_RUN;
	*out = 0;
	return true;
}

static void translate_glob(const char *glob, char *out)
{
	for (; *glob != 0; glob++)
		*out++ = *glob == '*' ? ANY_RUN : *glob == '?' ? ANY_ONE : *glob;
	*out = 0;
}

/* The name itself, or that of a module above it. */
static bool matches_path(const char *p, const char *module)
{
	char name[NAME_BYTES];

	snprintf(name, sizeof(name), "%s", module);
	for (;;) {
		char *dot = strrchr(name, '.');

		if (matches(p, name))
			return true;
		if (dot == NULL)
			return false;
		*dot = 0;
	}
}

enum quant_covers quant_pattern_covers(const char *pattern, const char *module)
{
	char p[NAME_BYTES], name[NAME_BYTES];

	if (strlen(pattern) + 5 > sizeof(p) || strlen(module) + 3 > sizeof(name) ||
		strpbrk(pattern, "\1\2") != NULL)
		return COVERS_UNSURE;
	if (strncmp(pattern, "re:", 3) == 0) {
		if (!translate_regex(pattern + 3, p))
			return COVERS_UNSURE;
		return matches(p, module) ? COVERS_YES : COVERS_NO;
	}
	if (strpbrk(pattern, "*?") != NULL) {
		translate_glob(pattern, p);
		return matches_path(p, module) ? COVERS_YES : COVERS_NO;
	}
	snprintf(p, sizeof(p), "%c.%s.%c", ANY_RUN, pattern, ANY_RUN);
	snprintf(name, sizeof(name), ".%s.", module);
	return matches(p, name) ? COVERS_YES : COVERS_NO;
}

bool quant_spelling(const char *module, uint32_t n, char *buf, size_t size)
{
	static const char *const prefixes[] = {"model.language_model.",
		"language_model.model.", "language_model.", "model.", ""};
	const char *rest = strstr(module, "layers.");

	if (n == 0) {
		snprintf(buf, size, "%s", module);
		return true;
	}
	if (rest == NULL || n > COUNT(prefixes))
		return false;
	snprintf(buf, size, "%s%s", prefixes[n - 1], rest);
	return true;
}
