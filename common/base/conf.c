/* Reads a program's configuration: defaults, then the file, then flags, against one
 * table. Later sources win; a key twice within one source is a mistake and refused. */
#include "common/base/conf.h"

#include "common/base/conf_value.h"
#include "common/base/fault.h"
#include "common/base/log.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FILE_LINE_MAX  4096
#define KEYS_MAX       256
#define NAME_MAX_BYTES 64

/* Where the value of each key came from last; "twice" means twice in one source. */
enum source { FROM_NOWHERE, FROM_DEFAULT, FROM_FILE, FROM_FLAG };

struct load {
	const struct conf_table *table;
	uint8_t *values;
	enum source from[KEYS_MAX];
	const char *config_path;
	bool check_only;
};

/* Dashes and dots of a flag are underscores of the table ("--debug.fault"). */
static bool name_equals(const char *name, const char *given, size_t len)
{
	if (strlen(name) != len)
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = given[i] == '-' || given[i] == '.' ? '_' : given[i];

		if (c != name[i])
			return false;
	}
	return true;
}

static const struct conf_key *key_of(
	const struct conf_table *t, const char *given, size_t len)
{
	for (size_t i = 0; i < t->n_keys; i++)
		if (name_equals(t->keys[i].name, given, len))
			return &t->keys[i];
	return NULL;
}

/* Levenshtein distance, with one row; names longer than the row are far away. */
static size_t distance(const char *a, size_t a_len, const char *b)
{
	size_t row[NAME_MAX_BYTES + 1];
	size_t b_len = strlen(b);

	if (a_len > NAME_MAX_BYTES || b_len > NAME_MAX_BYTES)
		return NAME_MAX_BYTES;
	for (size_t j = 0; j <= b_len; j++)
		row[j] = j;
	for (size_t i = 1; i <= a_len; i++) {
		size_t diagonal = row[0];
		char c = a[i - 1] == '-' || a[i - 1] == '.' ? '_' : a[i - 1];

		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			size_t replace = diagonal + (c == b[j - 1] ? 0 : 1);

			diagonal = row[j];
			row[j] = MIN(replace, MIN(row[j], row[j - 1]) + 1);
		}
	}
	return row[b_len];
}

static status unknown_key(
	const struct conf_table *t, const char *given, size_t len, struct err *err)
{
	static const char *const own[] = {"config", "help", "version", "check_config"};
	const char *nearest = own[0];
	size_t best = distance(given, len, own[0]);

	for (size_t i = 0; i < COUNT(own) + t->n_keys; i++) {
		const char *name = i < COUNT(own) ? own[i] : t->keys[i - COUNT(own)].name;
		size_t d = distance(given, len, name);

		if (d < best) {
			best = d;
			nearest = name;
		}
	}
	return err_set(err, ST_INVALID, "unknown key '%.*s' (nearest: %s)", (int)len,
		given, nearest);
}

static status set_key(struct load *l, const struct conf_key *k, const char *text,
	enum source from, struct err *err)
{
	size_t i = (size_t)(k - l->table->keys);
	bool join = k->repeat && l->from[i] == from;
	status st;

	if (l->from[i] == from && !k->repeat)
		return err_set(err, ST_INVALID, "%s is given twice (second: '%s')",
			k->name, text);
	st = conf_value_set(k, l->values + k->offset, text, join, err);
	if (st == ST_OK)
		l->from[i] = from;
	return st;
}

static status set_defaults(struct load *l, struct err *err)
{
	for (size_t i = 0; i < l->table->n_keys; i++) {
		const struct conf_key *k = &l->table->keys[i];
		status st = ST_OK;

		if (conf_is_text(k))
			memset(l->values + k->offset, 0, sizeof(char *));
		if (k->initial != NULL)
			st = set_key(l, k, k->initial, FROM_DEFAULT, err);
		if (st != ST_OK)
			return err_wrap(err, "default");
	}
	return ST_OK;
}

static char *trim(char *s)
{
	size_t n;

	while (isspace((unsigned char)*s))
		s++;
	for (n = strlen(s); n > 0 && isspace((unsigned char)s[n - 1]); n--)
		s[n - 1] = 0;
	return s;
}

/* "key = value"; empty lines and lines that begin with # are skipped. A # later in a
 * line belongs to the value. */
static status file_line(struct load *l, char *line, struct err *err)
{
	const struct conf_key *k;
	char *text = trim(line);
	char *value;

	if (*text == 0 || *text == '#')
		return ST_OK;
	value = strchr(text, '=');
	if (value == NULL)
		return err_set(err, ST_INVALID, "'%s' is not key=value", text);
	*value++ = 0;
	text = trim(text);
	k = key_of(l->table, text, strlen(text));
	if (k == NULL)
		return unknown_key(l->table, text, strlen(text), err);
	return set_key(l, k, trim(value), FROM_FILE, err);
}

static status read_config_file(struct load *l, struct err *err)
{
	char line[FILE_LINE_MAX];
	status st = ST_OK;
	unsigned n = 0;
	FILE *f = fopen(l->config_path, "re");

	if (f == NULL)
		return err_set(err, ST_INVALID, "config %s: %s", l->config_path,
			strerror(errno));
	while (st == ST_OK && fgets(line, sizeof(line), f) != NULL) {
		n++;
		if (strchr(line, '\n') == NULL && !feof(f))
			st = err_set(err, ST_INVALID,
				"line holds a zero byte or more than %d bytes",
				FILE_LINE_MAX - 2);
		else
			st = file_line(l, line, err);
	}
	if (st != ST_OK)
		err_wrap(err, "config %s line %u", l->config_path, n);
	else if (ferror(f))
		st = err_set(err, ST_INVALID, "config %s: %s", l->config_path,
			strerror(errno));
	fclose(f);
	return st;
}

/* One argument taken apart: "--name", "--name=value" or "--name" "value". */
struct flag {
	const char *name;
	size_t name_len;
	const char *value; /* NULL: none joined by '=' */
};

static bool split_flag(const char *arg, struct flag *f)
{
	const char *eq;

	if (arg[0] != '-' || arg[1] != '-' || arg[2] == 0)
		return false;
	f->name = arg + 2;
	eq = strchr(f->name, '=');
	f->name_len = eq != NULL ? (size_t)(eq - f->name) : strlen(f->name);
	f->value = eq != NULL ? eq + 1 : NULL;
	return true;
}

/* Walks the arguments once per pass: the first finds --config and the like, so that
 * the file is read before the flags of the second pass override it. */
static status walk_flags(
	struct load *l, int argc, char **argv, bool set_values, struct err *err)
{
	for (int i = 1; i < argc; i++) {
		const struct conf_key *k;
		bool own_config;
		struct flag f;
		status st;

		if (!split_flag(argv[i], &f))
			return err_set(
				err, ST_INVALID, "unexpected argument '%s'", argv[i]);
		if (f.value == NULL && name_equals("check_config", f.name, f.name_len)) {
			l->check_only = true;
			continue;
		}
		own_config = name_equals("config", f.name, f.name_len);
		k = own_config ? NULL : key_of(l->table, f.name, f.name_len);
		if (!own_config && k == NULL)
			return unknown_key(l->table, f.name, f.name_len, err);
		if (f.value == NULL && k != NULL && k->kind == CONF_BOOL)
			f.value = "true";
		if (f.value == NULL && i + 1 == argc)
			return err_set(err, ST_INVALID, "--%.*s needs a value",
				(int)f.name_len, f.name);
		if (f.value == NULL)
			f.value = argv[++i];
		if (own_config && !set_values && l->config_path != NULL)
			return err_set(err, ST_INVALID,
				"config is given twice (second: '%s')", f.value);
		if (own_config) {
			l->config_path = f.value;
		} else if (set_values) {
			st = set_key(l, k, f.value, FROM_FLAG, err);
			if (st != ST_OK)
				return st;
		}
	}
	return ST_OK;
}

static bool asks_for_text(const struct conf_table *t, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			conf_value_help(t);
			return true;
		}
		if (strcmp(argv[i], "--version") == 0) {
			out_print("%s %s\n", t->program, BATON_VERSION);
			return true;
		}
	}
	return false;
}

status conf_load(const struct conf_table *table, int argc, char **argv, void *values,
	bool *stop, struct err *err)
{
	struct load l = {.table = table, .values = values};
	status st;

	assert(table->n_keys <= KEYS_MAX);
	*stop = asks_for_text(table, argc, argv);
	if (*stop)
		return ST_OK;
	st = set_defaults(&l, err);
	if (st == ST_OK)
		st = walk_flags(&l, argc, argv, false, err);
	if (st == ST_OK && l.config_path != NULL)
		st = read_config_file(&l, err);
	if (st == ST_OK)
		st = walk_flags(&l, argc, argv, true, err);
	for (size_t i = 0; st == ST_OK && i < table->n_keys; i++)
		if (l.from[i] == FROM_NOWHERE)
			st = err_set(err, ST_INVALID,
				"%s is not given and has no default (%s)",
				table->keys[i].name, table->keys[i].help);
	if (st == ST_OK && table->check != NULL)
		st = table->check(values, err);
	if (st != ST_OK)
		return st;
	if (l.check_only) {
		out_print("ok\n");
		*stop = true;
	}
	return ST_OK;
}

status conf_shared_apply(const char *log_level, const char *debug_fault, struct err *err)
{
	status st = fault_check(debug_fault, err);

	log_level_word(log_level);
	return st == ST_OK ? ST_OK : err_wrap(err, "debug_fault");
}
