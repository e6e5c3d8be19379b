/* status, top, ask. */
#include "common/base/clock.h"
#include "common/base/json_write.h"
#include "common/base/mem.h"
#include "deploy/ctl/commands.h"
#include "deploy/ctl/table.h"
#include "deploy/ctl/view.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TOP_MS         1000
/* Cursor home, and everything behind it cleared. */
#define TERMINAL_CLEAR "\033[H\033[2J"

static int all_answered(const struct talk *t)
{
	int code = CTL_DONE;

	for (uint32_t i = 0; i < talk_count(t); i++) {
		if (talk_reply(t, i)->json != NULL)
			continue;
		fprintf(stderr, "batonctl: router %s: %s\n", talk_name(t, i),
			talk_reply(t, i)->text);
		code = MAX(code, talk_reply(t, i)->came ? CTL_REFUSED : CTL_NO_ROUTER);
	}
	return code;
}

static void print_json(const struct talk *t)
{
	struct json_out w;
	struct sink out;

	sink_init(&out, WIRE_MAX_BYTES);
	json_out_init(&w, &out);
	json_open(&w, '{');
	json_name(&w, "routers");
	json_open(&w, '[');
	for (uint32_t i = 0; i < talk_count(t); i++) {
		const struct talk_reply *r = talk_reply(t, i);

		json_open(&w, '{');
		json_add_text(&w, "name", talk_name(t, i));
		json_name(&w, r->json != NULL ? "status" : "error");
		if (r->json != NULL)
			json_put_raw(&w, r->raw);
		else
			json_put_text(&w, r->text);
		json_close(&w);
	}
	json_close(&w);
	json_close(&w);
	printf("%s\n", sink_cstr(&out));
	sink_release(&out);
}

static void print_routers(const struct view *v, struct table *table)
{
	static const char *const heads[] = {
		"ROUTER", "STATE", "MODEL", "PORT", "CONNECTIONS", "CALLS", "VERSION"};

	table_begin(table, COUNT(heads));
	for (size_t i = 0; i < COUNT(heads); i++)
		table_cell(table, "%s", heads[i]);
	for (uint32_t i = 0; i < v->n_routers; i++) {
		const struct view_router *r = &v->router[i];

		table_cell(table, "%s", r->id);
		table_cell(table, "%s", r->answers ? r->state : "silent");
		if (!r->answers) {
			for (size_t k = 2; k < COUNT(heads); k++)
				table_cell(table, "-");
			continue;
		}
		table_cell(table, "%s", r->model);
		table_cell(table, "%llu", (unsigned long long)r->port);
		table_cell(table, "%llu", (unsigned long long)r->connections);
		table_cell(table, "%llu", (unsigned long long)r->calls);
		table_cell(table, "%s", r->version);
	}
	table_print(table, stdout);
}

static void put_age(struct table *table, double s)
{
	unsigned long long n = (unsigned long long)s;

	if (n < 60)
		table_cell(table, "%llus", n);
	else if (n < 3600)
		table_cell(table, "%llum%02llus", n / 60, n % 60);
	else
		table_cell(table, "%lluh%02llum", n / 3600, n / 60 % 60);
}

/* Of this worker since the picture before; negative: it has none there. */
static double speed(const struct view_worker *w, const struct view *before, double s)
{
	for (uint32_t i = 0; before != NULL && i < before->n_workers; i++)
		if (strcmp(before->worker[i].id, w->id) == 0 &&
			strcmp(before->worker[i].incarnation, w->incarnation) == 0 &&
			w->tokens >= before->worker[i].tokens && s > 0)
			return (double)(w->tokens - before->worker[i].tokens) / s;
	return -1;
}

/* before NULL: no speeds; else the picture of s seconds ago. */
static void print_workers(
	const struct view *v, struct table *table, const struct view *before, double s)
{
	static const char *const heads[] = {"WORKER", "ROLE", "STATE", "RUNNING",
		"QUEUED", "PAGES", "SLOTS", "UP", "TRANSPORT", "GPUS", "VERSION",
		"TOKENS/S"};
	uint32_t n = before != NULL ? COUNT(heads) : COUNT(heads) - 1;

	table_begin(table, n);
	for (size_t i = 0; i < n; i++)
		table_cell(table, "%s", heads[i]);
	for (uint32_t i = 0; i < v->n_workers; i++) {
		const struct view_worker *w = &v->worker[i];
		double tokens = speed(w, before, s);

		table_cell(table, "%s", w->id);
		table_cell(table, "%s", w->role);
		table_cell(table, "%s", w->state);
		table_cell(table, "%llu", (unsigned long long)w->running);
		table_cell(table, "%llu", (unsigned long long)w->queued);
		table_cell(table, "%llu/%llu",
			(unsigned long long)(w->pages - MIN(w->pages_free, w->pages)),
			(unsigned long long)w->pages);
		table_cell(table, "%llu/%llu",
			(unsigned long long)(w->slots - MIN(w->slots_free, w->slots)),
			(unsigned long long)w->slots);
		put_age(table, w->up_s);
		table_cell(table, "%s", w->transport[0] != 0 ? w->transport : "-");
		table_cell(table, "%s", w->gpus);
		table_cell(table, "%s", w->version);
		if (before != NULL && tokens >= 0)
			table_cell(table, "%.0f", tokens);
		else if (before != NULL)
			table_cell(table, "-");
	}
	table_print(table, stdout);
}

/* Whole sentences, so no columns: a line per router and pair, none where all hand over.
 */
static void print_pairs(const struct talk *t)
{
	const char *gap = "\n";

	for (uint32_t i = 0; i < talk_count(t); i++) {
		json_each(p, json_member(talk_reply(t, i)->json, "pairs_failed"))
		{
			printf("%sPAIR %s -> %s FAILED %llu times (router %s), tried "
			       "again in "
			       "%.1f s: %s\n",
				gap, view_text(p, "prefill"), view_text(p, "decode"),
				(unsigned long long)view_u64(p, "failures"),
				talk_name(t, i), (double)view_u64(p, "pause_ms") / 1000,
				view_text(p, "reason"));
			gap = "";
		}
	}
}

int show_status(struct talk *t, const struct ctl_options *o)
{
	talk_ask(t, TALK_ALL, "status", NULL);
	if (talk_stopped(t))
		return CTL_STOPPED;
	if (o->json) {
		print_json(t);
	} else {
		struct table *table = mem_alloc(1, sizeof(*table));
		struct view *v = mem_alloc(1, sizeof(*v));

		view_read(v, t);
		print_routers(v, table);
		printf("\n");
		print_workers(v, table, NULL, 0);
		print_pairs(t);
		mem_free(v);
		mem_free(table);
	}
	return all_answered(t);
}

int show_top(struct talk *t, const struct ctl_options *o)
{
	struct table *table = mem_alloc(1, sizeof(*table));
	struct view *views = mem_alloc(2, sizeof(*views));
	bool tty = isatty(STDOUT_FILENO) != 0;
	uint64_t was_ns = clock_ns();
	int code = CTL_DONE;

	for (uint64_t i = 0; o->rounds == 0 || i < o->rounds; i++) {
		struct view *now = &views[i % 2], *before = &views[(i + 1) % 2];
		uint64_t ns;

		if (i > 0)
			talk_pause(t, TOP_MS);
		talk_ask(t, TALK_ALL, "status", NULL);
		if (talk_stopped(t))
			break;
		ns = clock_ns();
		view_read(now, t);
		printf("%s", tty ? TERMINAL_CLEAR : i > 0 ? "\n" : "");
		print_routers(now, table);
		printf("\n");
		print_workers(now, table, before, (double)(ns - was_ns) / NS_PER_S);
		print_pairs(t);
		if (fflush(stdout) != 0)
			break;
		was_ns = ns;
	}
	code = talk_stopped(t) ? CTL_DONE : all_answered(t);
	mem_free(views);
	mem_free(table);
	return code;
}

/* Of the first router that knows the worker. */
int show_answer(struct talk *t, const struct ctl_options *o)
{
	int code = CTL_DONE;

	for (uint32_t i = 0; i < talk_count(t); i++) {
		const struct talk_reply *r;

		talk_ask(t, i, o->what, o->id);
		r = talk_reply(t, i);
		if (talk_stopped(t))
			return CTL_STOPPED;
		if (r->json != NULL) {
			printf("%.*s\n", (int)r->raw.len, (const char *)r->raw.at);
			return CTL_DONE;
		}
		fprintf(stderr, "batonctl: router %s: %s\n", talk_name(t, i), r->text);
		code = MAX(code, r->came ? (int)r->code : CTL_NO_ROUTER);
	}
	return code;
}
