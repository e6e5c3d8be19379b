/* Values of a configuration table as text. */
#include "common/base/conf_value.h"

#include "common/base/log.h"
#include "common/base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits alone: strtoull would take signs, blanks and wrap negative numbers. */
static bool parse_u64(const char *text, uint64_t *v)
{
	*v = 0;
	if (*text == 0)
		return false;
	for (; *text != 0; text++)
		if (*text < '0' || *text > '9' || __builtin_mul_overflow(*v, 10u, v) ||
			__builtin_add_overflow(*v, (uint64_t)(*text - '0'), v))
			return false;
	return true;
}

static bool parse_f64(const char *text, double *v)
{
	char *end;

	if (*text == 0 || strspn(text, "+-.0123456789eE") != strlen(text))
		return false;
	errno = 0;
	*v = strtod(text, &end);
	return *end == 0 && errno == 0 && isfinite(*v);
}

static bool parse_bool(const char *text, bool *v)
{
	static const struct {
		const char *word;
		bool v;
	} words[] = {{"true", true}, {"false", false}, {"on", true}, {"off", false},
		{"yes", true}, {"no", false}, {"1", true}, {"0", false}};

	for (size_t i = 0; i < COUNT(words); i++)
		if (strcmp(words[i].word, text) == 0) {
			*v = words[i].v;
			return true;
		}
	return false;
}

/* Takes old, which may be NULL. */
static char *replace_text(char *old, const char *text, bool join)
{
	size_t kept = join && old != NULL ? strlen(old) + 1 : 0;
	size_t len = strlen(text);
	char *both = mem_alloc(kept + len + 1, 1);

	if (kept > 0) {
		memcpy(both, old, kept);
		both[kept - 1] = '\n';
	}
	memcpy(both + kept, text, len);
	mem_free(old);
	return both;
}

static status refuse(
	const struct conf_key *k, const char *text, const char *what, struct err *err)
{
	return err_set(err, ST_INVALID, "%s='%s': %s expected", k->name, text, what);
}

static bool is_one_of(const char *words, const char *text)
{
	size_t len = strlen(text);

	for (const char *at = words;; at += strcspn(at, "|") + 1) {
		size_t n = strcspn(at, "|");

		if (n == len && memcmp(at, text, n) == 0)
			return true;
		if (at[n] == 0)
			return false;
	}
}

/* "error|warn|info" as "error, warn or info". */
static void put_words(struct sink *out, const char *words)
{
	const char *last = strrchr(words, '|');

	for (const char *c = words; *c != 0; c++)
		if (*c != '|')
			sink_put(out, c, 1);
		else
			sink_str(out, c == last ? " or " : ", ");
}

static status refuse_word(const struct conf_key *k, const char *text, struct err *err)
{
	struct sink words;

	sink_init(&words, 1024);
	put_words(&words, k->words);
	err_set(err, ST_INVALID, "%s '%s': %s", k->name, text, sink_cstr(&words));
	sink_release(&words);
	return err->code;
}

static status refuse_range(const struct conf_key *k, const char *text, struct err *err)
{
	return err_set(err, ST_INVALID, "%s=%s is outside %.15g to %.15g", k->name, text,
		k->min, k->max);
}

status conf_value_set(const struct conf_key *k, void *member, const char *text, bool join,
	struct err *err)
{
	char *s;
	uint64_t u;
	double d;
	bool b;

	switch (k->kind) {
	case CONF_U64:
		if (!parse_u64(text, &u))
			return refuse(k, text, "a whole number below 2^64", err);
		if ((double)u < k->min || (double)u > k->max)
			return refuse_range(k, text, err);
		memcpy(member, &u, sizeof(u));
		return ST_OK;
	case CONF_F64:
		if (!parse_f64(text, &d))
			return refuse(k, text, "a finite number", err);
		if (d < k->min || d > k->max)
			return refuse_range(k, text, err);
		memcpy(member, &d, sizeof(d));
		return ST_OK;
	case CONF_STR:
	case CONF_WORD:
		if (k->kind == CONF_WORD && !is_one_of(k->words, text))
			return refuse_word(k, text, err);
		memcpy(&s, member, sizeof(s));
		s = replace_text(s, text, join);
		memcpy(member, &s, sizeof(s));
		return ST_OK;
	case CONF_BOOL:
		if (!parse_bool(text, &b))
			return refuse(k, text, "true or false", err);
		memcpy(member, &b, sizeof(b));
		return ST_OK;
	}
	return refuse(k, text, "a known kind of key", err);
}

static void help_key(const struct conf_key *k)
{
	static const char *const kinds[] = {[CONF_U64] = "N",
		[CONF_F64] = "X",
		[CONF_STR] = "TEXT",
		[CONF_WORD] = "WORD",
		[CONF_BOOL] = ""};
	char flag[96];
	int n = snprintf(flag, sizeof(flag), "--%s", k->name);

	for (char *c = flag + 2; *c != 0; c++)
		if (*c == '_')
			*c = '-';
	if (n > 0 && (size_t)n < sizeof(flag) && kinds[k->kind][0] != 0)
		snprintf(flag + n, sizeof(flag) - (size_t)n, " %s", kinds[k->kind]);
	out_print("  %-30s ", flag);
	if (k->kind == CONF_WORD) {
		struct sink words;

		sink_init(&words, 1024);
		put_words(&words, k->words);
		out_print("%s%s", sink_cstr(&words), k->help[0] != 0 ? "; " : "");
		sink_release(&words);
	}
	out_print("%s", k->help);
	if (k->initial == NULL)
		out_print(" (required");
	else
		out_print(" (default: %s", k->initial[0] != 0 ? k->initial : "none");
	if (k->kind == CONF_U64 || k->kind == CONF_F64)
		out_print("; %.15g to %.15g", k->min, k->max);
	out_print(k->repeat ? "; may be repeated)\n" : ")\n");
}

void conf_value_help(const struct conf_table *table)
{
	out_print(
		"%s: %s\n\nusage: %s [--config FILE] [--KEY VALUE | --KEY=VALUE]...\n\n",
		table->program, table->purpose, table->program);
	for (size_t i = 0; i < table->n_keys; i++)
		help_key(&table->keys[i]);
	out_print("  %-30s %s\n  %-30s %s\n  %-30s %s\n  %-30s %s\n", "--config FILE",
		"read key=value lines first; flags override them", "--check-config",
		"check the configuration, print ok, and exit", "--version",
		"print the version and exit", "--help", "print this text and exit");
}

static void print_text(const char *text, struct sink *out)
{
	bool quote = text[0] == 0 || strpbrk(text, " \t\n\"") != NULL;

	if (quote)
		sink_str(out, "\"");
	for (; *text != 0; text++) {
		if (*text == '"' || *text == '\\')
			sink_str(out, "\\");
		if (*text == '\n')
			sink_str(out, "\\n");
		else
			sink_put(out, text, 1);
	}
	if (quote)
		sink_str(out, "\"");
}

void conf_print(const struct conf_table *table, const void *values, struct sink *out)
{
	for (size_t i = 0; i < table->n_keys; i++) {
		const struct conf_key *k = &table->keys[i];
		const uint8_t *member = (const uint8_t *)values + k->offset;
		const char *s;
		uint64_t u;
		double d;
		bool b;

		sink_fmt(out, "%s%s=", i > 0 ? " " : "", k->name);
		switch (k->kind) {
		case CONF_U64:
			memcpy(&u, member, sizeof(u));
			sink_fmt(out, "%llu", (unsigned long long)u);
			break;
		case CONF_F64:
			memcpy(&d, member, sizeof(d));
			sink_fmt(out, "%.15g", d);
			break;
		case CONF_STR:
		case CONF_WORD:
			memcpy(&s, member, sizeof(s));
			print_text(s, out);
			break;
		case CONF_BOOL:
			memcpy(&b, member, sizeof(b));
			sink_str(out, b ? "true" : "false");
			break;
		}
	}
}
