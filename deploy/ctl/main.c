/* batonctl: the operator's view of a cluster, over the routers' sockets. */
#include "common/base/log.h"
#include "common/base/process.h"
#include "deploy/ctl/commands.h"

#include <stdio.h>

static int run(const struct ctl_options *o)
{
	static int (*const commands[])(struct talk * t, const struct ctl_options *o) = {
		[CTL_STATUS] = show_status,
		[CTL_TOP] = show_top,
		[CTL_DRAIN] = order_drain,
		[CTL_UNDRAIN] = order_undrain,
		[CTL_ASK] = show_answer,
	};
	struct talk *t;
	struct err err;
	status st;
	int code;

	if (o->command == CTL_HELP) {
		options_help();
		return CTL_DONE;
	}
	if (o->command == CTL_VERSION) {
		printf("batonctl %s\n", BATON_VERSION);
		return CTL_DONE;
	}
	st = talk_open(&t, o->runtime_dir, o->router, &err);
	if (st != ST_OK) {
		fprintf(stderr, "batonctl: %s\n", err.text);
		return st == ST_INVALID ? CTL_USAGE : CTL_NO_ROUTER;
	}
	code = commands[o->command](t, o);
	talk_close(t);
	return code;
}

int main(int argc, char **argv)
{
	struct ctl_options o;
	struct err err;
	status st = process_begin(&err);
	int code;

	log_name_set("batonctl");
	log_level_set(LOG_ERROR);
	if (st == ST_OK)
		st = options_parse(&o, argc, argv, &err);
	if (st != ST_OK) {
		fprintf(stderr, "batonctl: %s; see batonctl --help\n", err.text);
		return process_end(CTL_USAGE);
	}
	code = run(&o);
	if (fflush(stdout) != 0) {
		perror("batonctl: output");
		code = code == CTL_DONE ? CTL_REFUSED : code;
	}
	return process_end(code);
}
