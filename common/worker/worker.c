/* From configuration to exit code: the parts of a worker are made in one order, served
 * by one loop, and taken down in the reverse order. */
#include "common/worker/worker.h"

#include "common/base/clock.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/process.h"
#include "common/base/rng.h"
#include "common/loop/notify.h"
#include "common/loop/runtime.h"
#include "common/worker/guides.h"
#include "common/worker/report.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TICK_MS          20
#define TOMBS            65536
#define TOMB_NS          (60 * NS_PER_S)
#define RESULTS_PER_TURN 256
#define LEASES_MORE      (4 * ENG_CHOICES_MAX)
/* Longer than a step takes; at the end of the process nobody waits for more. */
#define LAST_STEP_NS     (2 * NS_PER_S)

void worker_end(struct worker *w, int exit_code)
{
	if (w->exit_code < 0) {
		w->exit_code = exit_code;
		loop_stop(w->loop);
	}
}

void worker_note_nan(struct worker *w, bool bad)
{
	char reason[120];

	w->nan_in_a_row = bad ? w->nan_in_a_row + 1 : 0;
	if (!bad || w->nan_in_a_row < w->conf->nan_limit)
		return;
	snprintf(reason, sizeof(reason),
		"%u requests in a row had NaN or infinite logits (nan_limit)",
		w->nan_in_a_row);
	service_condemn(w, EXIT_DEVICE, reason);
}

/* ---- one turn ---- */

/* The routers begin its requests again elsewhere; nothing here can be used any more. */
static void device_failed(void *ctx, const struct err *err)
{
	struct worker *w = ctx;
	struct msg_failed m = {.text = bytes_of_str(err->text)};

	if (w->device_failed)
		return;
	log_error("device failed: %s (%s:%d)", err->text, err->file, err->line);
	w->device_failed = true;
	if (w->routers != NULL)
		routers_broadcast(w->routers, MSG_failed, &m);
	worker_end(w, EXIT_DEVICE);
}

static void on_results(void *ctx, int fd, unsigned events)
{
	struct worker *w = ctx;
	const struct eng_result *r;

	(void)fd;
	(void)events;
	for (int i = 0; i < RESULTS_PER_TURN && !w->device_failed; i++) {
		r = engine_poll(w->engine);
		if (r == NULL)
			return;
		if (r->kind == ENG_FAILED)
			device_failed(w, &r->err);
		else
			w->role->on_result(w->self, r);
	}
}

static void turn(void *ctx)
{
	struct worker *w = ctx;
	uint64_t now;

	clock_look();
	now = clock_ns();
	routers_turn(w->routers, now);
	w->stats.v[STAT_lease_expired] += lease_expire(w->leases, clock_ran_of(now));
	tombs_sweep(w->tombs, now);
	if (!w->device_failed)
		w->role->turn(w->self);
	service_turn(w, now);
#ifdef BATON_FAULTS
	pool_check(w->pages);
	pool_check(w->slots);
	jobs_check(w->jobs);
#endif
}

static uint64_t device_timeout_ns(const struct worker *w)
{
	return w->conf->device_timeout_s * NS_PER_S;
}

static void check_device(struct worker *w)
{
	struct err err;

	if (engine_stuck_ns(w->engine) <= device_timeout_ns(w))
		return;
	(void)err_set(&err, ST_DEVICE,
		"a layer of a step has not ended for %" PRIu64 " s (device_timeout_s)",
		w->conf->device_timeout_s);
	device_failed(w, &err);
}

/* The timer makes sure that turns come and that a device which hangs is seen; and the
 * watchdog is fed from here, so that it dies with the loop. */
static void tick(void *ctx)
{
	struct worker *w = ctx;
	uint64_t every = notify_watchdog_ms();
	uint64_t now = clock_ns();
	uint64_t slept = clock_slept(&w->slept_ns);

	if (slept > 0)
		log_warn("this process did not run for %llu ms",
			(unsigned long long)(slept / NS_PER_MS));
	check_device(w);
	if (every == 0 || now < w->notify_due_ns || w->device_failed)
		return;
	w->notify_due_ns = now + every * NS_PER_MS;
	notify_watchdog();
}

/* ---- start ---- */

static status start_host(struct worker *w, struct err *err)
{
	status st = runtime_open(&w->runtime, w->conf->runtime_dir, err);

	if (st == ST_OK)
		st = fault_configure(w->conf->debug_fault, w->runtime.dir, err);
	if (st == ST_OK)
		st = runtime_boot_id(w->boot_id, sizeof(w->boot_id), err);
	w->incarnation = rng_entropy64();
	return st;
}

static status start_devices(struct worker *w, struct err *err)
{
	return worker_conf_devices(w->conf, err);
}

static status start_tokenizer(struct worker *w, struct err *err)
{
	status st = tokenizer_load(&w->tokenizer, w->conf->model, err);

	if (st == ST_OK)
		w->n_valid = tokenizer_n_tokens(w->tokenizer);
	/* Beyond what its reader takes: a bad file, not a plan that does not fit. */
	return st == ST_LIMIT ? ST_INVALID : st;
}

/* The engine bounds the length by its pages, since a sequence longer than the whole pool
 * could never end. A length that was asked for is not made smaller in silence. */
static status bound_length(struct worker *w, struct err *err)
{
	w->len_max = engine_len_max(w->engine);
	if (w->len_max < w->conf->max_model_len)
		return err_set(err, ST_LIMIT,
			"max_model_len %llu does not fit: the KV cache holds %u tokens",
			(unsigned long long)w->conf->max_model_len, w->len_max);
	return ST_OK;
}

static status start_engine(struct worker *w, struct err *err)
{
	struct engine_options o = worker_conf_engine(w->conf, w->n_valid);
	status st = engine_create(&w->engine, &o, err);

	if (st != ST_OK)
		return st;
	w->layout = engine_layout(w->engine);
	w->n_valid = MIN(w->n_valid, engine_config(w->engine)->vocab);
	guides_start(w);
	return bound_length(w, err);
}

static bool park_engine(void *ctx)
{
	struct worker *w = ctx;

	return engine_park(w->engine, device_timeout_ns(w));
}

static void unpark_engine(void *ctx)
{
	struct worker *w = ctx;

	engine_unpark(w->engine);
}

static struct xfer_side own_side(struct worker *w)
{
	struct xfer_side side = {.loop = w->loop,
		.id = w->conf->id,
		.incarnation = w->incarnation,
		.runtime_dir = w->runtime.dir,
		.layout = *w->layout,
		.arena_pages = engine_pages(w->engine),
		.arena_slots = engine_slots(w->engine),
		.n_ranks = engine_ranks(w->engine),
		.transport = w->conf->transport,
		.park = park_engine,
		.unpark = unpark_engine,
		.park_ctx = w,
		.failed = device_failed,
		.failed_ctx = w,
		.malformed = &w->stats.v[STAT_malformed],
		.arena_bytes = layout_arena_bytes(
			w->layout, engine_pages(w->engine), engine_slots(w->engine))};

	for (uint32_t r = 0; r < side.n_ranks; r++) {
		side.backend[r] = engine_backend(w->engine, r);
		side.arena[r] = engine_arena(w->engine, r);
	}
	return side;
}

static status start_state(struct worker *w, struct err *err)
{
	struct xfer_side side;
	uint32_t n_slots = (uint32_t)engine_slots(w->engine);
	status st;

	w->loop = loop_create();
	w->pages = pool_create("page", (uint32_t)engine_pages(w->engine));
	w->slots = pool_create("slot", n_slots);
	/* Of every slot one lease, and some slots have several readers. */
	w->leases = leases_create(w->pages, w->slots, n_slots + LEASES_MORE,
		CEIL_DIV(w->len_max, PAGE_TOKENS));
	side = own_side(w);
	st = exporter_create(
		&w->exporter, &side, w->leases, w->conf->lease_ms * NS_PER_MS, err);
	return st == ST_OK ? importer_create(&w->importer, &side, err) : st;
}

static status start_role(struct worker *w, struct err *err)
{
	w->tombs = tombs_create(TOMBS, TOMB_NS);
	w->jobs = jobs_create(w, w->role->jobs,
		pool_size(w->slots) + (uint32_t)w->conf->max_queued + 1);
	return w->role->start(w, &w->self, err);
}

static status start_service(struct worker *w, struct err *err)
{
	status st = loop_fd_open(
		&w->results, w->loop, engine_fd(w->engine), on_results, w, err);

	if (st != ST_OK)
		return st;
	loop_fd_start(w->results, LOOP_READABLE);
	loop_timer_start(w->loop, &w->tick, TICK_MS, TICK_MS, tick, w);
	st = loop_on_signals(w->loop, service_signal, w, err);
	if (st != ST_OK)
		return st;
	w->net = bus_net_create(w->loop);
	loop_on_turn(
		w->loop, turn, w); /* after the net's own hook: messages come first */
	return routers_create(&w->routers, w, w->net, err);
}

/* A step's exit code; for the engine it depends on what failed. */
static int exit_code_of(int code, status st)
{
	if (code != EXIT_MODEL)
		return code;
	if (st == ST_LIMIT)
		return EXIT_USAGE; /* the plan asks for more than there is */
	return st == ST_DEVICE || st == ST_NOMEM ? EXIT_DEVICE : EXIT_MODEL;
}

static int start(struct worker *w)
{
	static const struct {
		status (*fn)(struct worker *w, struct err *err);
		const char *what;
		int exit_code;
	} steps[] = {
		{start_host, "host", EXIT_USAGE},
		{start_devices, "devices", EXIT_DEVICE},
		{start_tokenizer, "tokenizer", EXIT_MODEL},
		{start_engine, "engine", EXIT_MODEL},
		{start_state, "state", EXIT_INTERNAL},
		{start_role, "role", EXIT_INTERNAL},
		{start_service, "service", EXIT_INTERNAL},
	};
	struct err err;

	for (size_t i = 0; i < COUNT(steps); i++) {
		status st = steps[i].fn(w, &err);

		if (st == ST_OK)
			continue;
		log_error("start: %s: %s", steps[i].what, err.text);
		return exit_code_of(steps[i].exit_code, st);
	}
	return EXIT_DRAINED;
}

/* ---- end ---- */

/* After a clean drain everything is back; what is not was lost by us. */
static void check_returned(struct worker *w)
{
	uint32_t pages = pool_size(w->pages) - pool_count(w->pages, POOL_FREE);
	uint32_t slots = pool_size(w->slots) - pool_count(w->slots, POOL_FREE);

	if (w->exit_code != EXIT_DRAINED || (pages == 0 && slots == 0))
		return;
	log_error("%u pages and %u slots were never given back", pages, slots);
	w->exit_code = EXIT_INTERNAL;
}

/* A device that failed may hang whoever touches it: the system takes back what is left.
 * Every router was told. */
static void leave_if_hung(const struct worker *w, int code)
{
	if (w->device_failed ||
		(w->engine != NULL && engine_stuck_ns(w->engine) > LAST_STEP_NS))
		process_leave(code);
}

/* To free an arena that another process still has mapped is undefined in CUDA; the end
 * of its process is not, and gives all of it back. */
static void leave_the_arena(const struct worker *w, int code)
{
	if (w->exporter != NULL && strcmp(engine_backend(w->engine, 0)->name, "cpu") != 0)
		process_leave(code);
}

static void stop(struct worker *w, int code)
{
	if (w->net != NULL)
		loop_off_turn(w->loop, turn, w);
	routers_destroy(w->routers);
	w->routers = NULL;
	bus_net_destroy(w->net);
	leave_if_hung(w, code);
	loop_timer_stop(&w->tick);
	loop_fd_close(w->results, false);
	if (w->importer != NULL)
		importer_destroy(w->importer);
	if (w->exporter != NULL)
		exporter_destroy(w->exporter);
	leave_if_hung(w, code);
	if (w->self != NULL)
		w->role->stop(w->self);
	jobs_destroy(w->jobs);
	leave_the_arena(w, code);
	tombs_destroy(w->tombs);
	if (w->leases != NULL)
		leases_destroy(w->leases);
	if (w->engine != NULL)
		engine_destroy(w->engine);
	pool_destroy(w->slots);
	pool_destroy(w->pages);
	loop_destroy(w->loop);
	guides_stop(w);
	if (w->tokenizer != NULL)
		tokenizer_destroy(w->tokenizer);
}

static int serve(const struct worker_conf *conf, const struct role *role)
{
	struct worker w = {.conf = conf, .role = role, .transport = "", .exit_code = -1};
	int code = start(&w);

	if (code == EXIT_DRAINED) {
		report_start(&w);
		mem_seal();
		notify_ready();
		loop_run(w.loop);
		check_returned(&w);
		code = w.exit_code;
		log_info("exit code=%d", code);
	}
	stop(&w, code);
	return code;
}

/* --plan and --doctor: text on stdout instead of serving. */
static int print_only(const struct worker_conf *conf)
{
	struct engine_options o = worker_conf_engine(conf, 0);
	struct engine *engine = NULL;
	struct sink out;
	struct err err;
	status st;

	sink_init(&out, 1u << 20);
	if (conf->plan)
		st = engine_plan(&o, &out, &err);
	else
		st = engine_create(&engine, &o, &err);
	if (engine != NULL) {
		engine_report(engine, &out);
		engine_destroy(engine);
	}
	out_print("%s", sink_cstr(&out));
	sink_release(&out);
	if (st == ST_OK)
		return EXIT_DRAINED;
	log_error("%s: %s", conf->plan ? "plan" : "doctor", err.text);
	return exit_code_of(EXIT_MODEL, st);
}

static int run(int argc, char **argv, const struct role *first)
{
	const struct conf_table *table =
		first->party == WIRE_PREFILL ? &worker_conf_prefill : &worker_conf_decode;
	static struct worker_conf conf; /* its strings live until the process ends */
	char name[80];
	struct sink line;
	struct err err;
	bool done = false;
	status st = process_begin(&err);

	if (st == ST_OK)
		st = conf_load(table, argc, argv, &conf, &done, &err);
	if (st != ST_OK) {
		log_error("%s", err.text);
		return EXIT_USAGE;
	}
	if (done)
		return EXIT_DRAINED;
	if (conf.plan || conf.doctor)
		return print_only(&conf);
	signal(SIGPIPE, SIG_IGN);
	snprintf(name, sizeof(name), "%s/%s", first->name, conf.id);
	log_name_set(name);
	sink_init(&line, 1u << 16);
	conf_print(table, &conf, &line);
	log_info("%s %s", BATON_VERSION, sink_cstr(&line));
	sink_release(&line);
	return serve(&conf, first);
}

int worker_main(int argc, char **argv, const struct role *first)
{
	return process_end(run(argc, argv, first));
}
