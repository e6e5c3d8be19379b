/* The command line of batonctl: one table of commands, one of options. */
#ifndef DEPLOY_CTL_OPTIONS_H
#define DEPLOY_CTL_OPTIONS_H
#include "common/base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* With several routers: the largest of what each gave. */
enum ctl_exit {
	CTL_DONE = 0,
	CTL_REFUSED = 1, /* or it failed */
	CTL_USAGE = 2,
	CTL_UNKNOWN = 3,   /* no worker of that id */
	CTL_TIMEOUT = 4,   /* what was ordered goes on */
	CTL_NO_ROUTER = 5, /* or one does not answer */
	CTL_STOPPED = 130, /* by a signal: nothing is watched any more, what was ordered
			      goes on */
};

enum ctl_command {
	CTL_STATUS,
	CTL_TOP,
	CTL_DRAIN,
	CTL_UNDRAIN,
	CTL_ASK,
	CTL_VERSION,
	CTL_HELP
};

struct ctl_options {
	enum ctl_command command;
	const char *id, *what;   /* words of the command */
	const char *runtime_dir; /* NULL: the default */
	const char *router;      /* NULL: all */
	double timeout_s;        /* negative: none was given */
	uint64_t rounds;         /* of top; 0: without end */
	bool json, force, migrate;
};

/* Strings point into argv. ST_INVALID: a sentence for the user. */
MUST_CHECK status options_parse(
	struct ctl_options *out, int argc, char **argv, struct err *err);
/* To stdout. */
void options_help(void);

#endif
