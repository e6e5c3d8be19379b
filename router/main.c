/* baton-router. */
#include "common/base/log.h"
#include "common/base/process.h"
#include "router/serve.h"

#include <signal.h>
#include <stdio.h>

static int run(int argc, char **argv)
{
	static struct router_conf conf; /* its strings live until exit */
	char name[80];
	struct sink line;
	struct err err;
	bool done = false;
	status st = process_begin(&err);

	if (st == ST_OK)
		st = conf_load(&router_conf_table, argc, argv, &conf, &done, &err);
	if (st != ST_OK) {
		log_error("%s", err.text);
		return EXIT_USAGE;
	}
	if (done)
		return EXIT_CLEAN;
	signal(SIGPIPE, SIG_IGN);
	snprintf(name, sizeof(name), "router/%s", conf.id);
	log_name_set(name);
	sink_init(&line, 1u << 16);
	conf_print(&router_conf_table, &conf, &line);
	log_info("%s %s", BATON_VERSION, sink_cstr(&line));
	sink_release(&line);
	return serve(&conf);
}

int main(int argc, char **argv)
{
	return process_end(run(argc, argv));
}
