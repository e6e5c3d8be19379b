/* Words and flags. */
#include "deploy/ctl/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MAX_S 86400.0
#define ROUNDS_MAX    1000000u

/* Which flags a command takes. */
enum flag {
	RUNTIME_DIR = 1,
	ROUTER = 2,
	OUTPUT = 4,
	TIMEOUT = 8,
	FORCE = 16,
	ROUNDS = 32,
	MIGRATE = 64
};
#define WHERE (RUNTIME_DIR | ROUTER)

static const struct command {
	const char *name, *words, *help;
	enum ctl_command command;
	unsigned flags;
	unsigned n_words;
} commands[] = {
	{"status", "", "the routers and their workers", CTL_STATUS, WHERE | OUTPUT, 0},
	{"top", "", "the same each second, with tokens per second, until Ctrl-C", CTL_TOP,
		WHERE | ROUNDS, 0},
	{"drain", "ID", "no new work for this worker; waits until it holds none",
		CTL_DRAIN, WHERE | TIMEOUT | FORCE | MIGRATE, 1},
	{"undrain", "ID", "a drained worker takes work again", CTL_UNDRAIN,
		WHERE | TIMEOUT, 1},
	{"ask", "ID status|pools|doctor", "what a worker says, as JSON", CTL_ASK, WHERE,
		2},
	{"version", "", "the version of batonctl", CTL_VERSION, 0, 0},
	{"help", "", "this text", CTL_HELP, 0, 0},
};

static const struct option {
	const char *name, *value, *help; /* value NULL: takes none */
	unsigned flag;
} options[] = {
	{"--runtime-dir", "DIR",
		"where the routers' sockets are (as --runtime-dir of a router)",
		RUNTIME_DIR},
	{"--router", "NAME", "only this one; otherwise all of DIR/routers", ROUTER},
	{"-o", "json|table", "form of the output", OUTPUT},
	{"--timeout", "S", "seconds to watch; a drain goes on after it", TIMEOUT},
	{"--force", NULL, "also the last worker of its role", FORCE},
	{"--migrate", NULL, "a decode worker's sequences go on at others", MIGRATE},
	{"-n", "N", "end after N tables", ROUNDS},
};

static status take_timeout(struct ctl_options *o, const char *text, struct err *err)
{
	char *end;
	double v = strtod(text, &end);

	if (end == text || *end != 0 || !(v >= 0 && v <= TIMEOUT_MAX_S))
		return err_set(err, ST_INVALID, "--timeout '%s': seconds, 0 to %.0f",
			text, TIMEOUT_MAX_S);
	o->timeout_s = v;
	return ST_OK;
}

static status take_rounds(struct ctl_options *o, const char *text, struct err *err)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (text[0] < '0' || text[0] > '9' || *end != 0 || v == 0 || v > ROUNDS_MAX)
		return err_set(
			err, ST_INVALID, "-n '%s': a number, 1 to %u", text, ROUNDS_MAX);
	o->rounds = v;
	return ST_OK;
}

static status take(struct ctl_options *o, const struct option *opt, const char *value,
	struct err *err)
{
	switch (opt->flag) {
	case RUNTIME_DIR:
		o->runtime_dir = value;
		return ST_OK;
	case ROUTER:
		o->router = value;
		return ST_OK;
	case OUTPUT:
		o->json = strcmp(value, "json") == 0;
		if (!o->json && strcmp(value, "table") != 0)
			return err_set(err, ST_INVALID, "-o '%s': json or table", value);
		return ST_OK;
	case TIMEOUT:
		return take_timeout(o, value, err);
	case ROUNDS:
		return take_rounds(o, value, err);
	case MIGRATE:
		o->migrate = true;
		return ST_OK;
	default:
		o->force = true;
		return ST_OK;
	}
}

/* "--router=r0" and "--router r0". *at is moved behind what was read. */
static status flag_at(
	struct ctl_options *o, unsigned *seen, char **argv, int *at, struct err *err)
{
	const char *word = argv[*at];
	size_t n = strcspn(word, "=");

	for (size_t i = 0; i < COUNT(options); i++) {
		const struct option *opt = &options[i];
		const char *value = word[n] == '=' ? word + n + 1 : NULL;

		if (strlen(opt->name) != n || strncmp(opt->name, word, n) != 0)
			continue;
		if (*seen & opt->flag)
			return err_set(err, ST_INVALID, "%s is given twice", opt->name);
		if (opt->value == NULL && value != NULL)
			return err_set(err, ST_INVALID, "%s takes no value", opt->name);
		if (opt->value != NULL && value == NULL)
			value = argv[++*at];
		if (opt->value != NULL && value == NULL)
			return err_set(err, ST_INVALID, "%s needs a value: %s", opt->name,
				opt->value);
		*seen |= opt->flag;
		++*at;
		return take(o, opt, value, err);
	}
	return err_set(err, ST_INVALID, "there is no option %s", word);
}

static status check_ask(const struct ctl_options *o, struct err *err)
{
	static const char *const known[] = {"status", "pools", "doctor"};

	for (size_t i = 0; i < COUNT(known); i++)
		if (strcmp(o->what, known[i]) == 0)
			return ST_OK;
	return err_set(err, ST_INVALID, "ask '%s': status, pools or doctor", o->what);
}

static status check_id(const char *id, struct err *err)
{
	/* schema.def, ask.id and order.id */
	if (*id == 0 || strlen(id) > 48)
		return err_set(err, ST_INVALID, "'%s' is no id of a worker", id);
	return ST_OK;
}

static status finish(struct ctl_options *o, const char *const *word, unsigned n_words,
	unsigned seen, struct err *err)
{
	for (size_t i = 0; i < COUNT(commands); i++) {
		const struct command *c = &commands[i];

		if (strcmp(c->name, word[0]) != 0)
			continue;
		if (n_words - 1 != c->n_words)
			return err_set(err, ST_INVALID, "usage: batonctl %s %s", c->name,
				c->words);
		for (size_t k = 0; k < COUNT(options); k++)
			if (seen & options[k].flag & ~c->flags)
				return err_set(err, ST_INVALID, "%s does not take %s",
					c->name, options[k].name);
		o->command = c->command;
		o->id = c->n_words > 0 ? word[1] : NULL;
		o->what = c->n_words > 1 ? word[2] : NULL;
		if (o->id != NULL && check_id(o->id, err) != ST_OK)
			return ST_INVALID;
		return o->what != NULL ? check_ask(o, err) : ST_OK;
	}
	return err_set(err, ST_INVALID, "there is no command '%s'", word[0]);
}

status options_parse(struct ctl_options *out, int argc, char **argv, struct err *err)
{
	const char *word[4] = {NULL};
	unsigned n_words = 0, seen = 0;
	struct ctl_options o = {.timeout_s = -1};
	status st = ST_OK;
	int at = 1;

	while (at < argc && st == ST_OK) {
		if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
			*out = (struct ctl_options){.command = CTL_HELP};
			return ST_OK;
		}
		if (strcmp(argv[at], "--version") == 0) {
			*out = (struct ctl_options){.command = CTL_VERSION};
			return ST_OK;
		}
		if (argv[at][0] == '-')
			st = flag_at(&o, &seen, argv, &at, err);
		else if (n_words < COUNT(word))
			word[n_words++] = argv[at++];
		else
			st = err_set(
				err, ST_INVALID, "'%s' is one word too many", argv[at]);
	}
	if (st == ST_OK && n_words == 0)
		st = err_set(err, ST_INVALID, "a command is missing");
	if (st == ST_OK)
		st = finish(&o, word, n_words, seen, err);
	if (st == ST_OK)
		*out = o;
	return st;
}

void options_help(void)
{
	printf("batonctl COMMAND [OPTION...]: looks at a cluster and drains its "
	       "workers\n\n");
	for (size_t i = 0; i < COUNT(commands); i++)
		printf("  %-8s%-24s%s\n", commands[i].name, commands[i].words,
			commands[i].help);
	printf("\n");
	for (size_t i = 0; i < COUNT(options); i++)
		printf("  %-14s%-12s%s\n", options[i].name,
			options[i].value != NULL ? options[i].value : "",
			options[i].help);
	printf("\nExit status: 0 done, 1 refused or failed, 2 usage, 3 no such worker, "
	       "4 time is up\nwhile a drain goes on, 5 a router does not answer, 130 "
	       "stopped by a signal.\nWith several routers the largest counts.\n");
}
