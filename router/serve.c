/* Start, turns, stop. */
#include "router/serve.h"

#include "common/base/clock.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/process.h"
#include "common/base/rng.h"
#include "common/loop/notify.h"
#include "common/loop/runtime.h"
#include "common/model/model_config.h"
#include "router/call.h"
#include "router/control.h"
#include "router/dispatch.h"
#include "router/entry.h"
#include "router/info.h"
#include "router/link.h"
#include "router/prepare.h"
#include "router/routes.h"

#include <assert.h>
#include <fcntl.h>
#include <string.h>

#define TICK_MS          20
/* Besides those that wait: as many as workers may hold. */
#define RUNNING_MAX      16384u
/* Of this router at one prefill worker; its slots are the real bound. */
#define WORKER_QUEUE_MAX 4096u
#define PROBE_STUCK_MS   5000u
/* This part of the request memory is not for bodies. */
#define BODY_RESERVE     16u
/* Descriptors that are not for connections: 64 workers, each with an old connection
 * beside the new one, 64 probes on their own port, template children, and some 50. */
#define DESCRIPTORS_KEPT 256u
static_assert(DESCRIPTORS_KEPT < PROCESS_DESCRIPTORS_MIN, "some are for connections");

/* ---- what the parts share ---- */

static uint32_t role_len_max(const struct router *rt, uint8_t role)
{
	uint32_t len = 0;

	for (uint32_t i = 0; i < fleet_count(rt->fleet); i++) {
		const struct worker_view *w = fleet_at(rt->fleet, i);

		if (w->role == role)
			len = MAX(len, w->len_max);
	}
	return len;
}

uint32_t router_len_max(const struct router *rt)
{
	uint32_t p = role_len_max(rt, WIRE_PREFILL);
	uint32_t d = role_len_max(rt, WIRE_DECODE);

	return MIN(rt->model_len, MIN(p > 0 ? p : UINT32_MAX, d > 0 ? d : UINT32_MAX));
}

enum probe_state router_readiness(const struct router *rt)
{
	if (rt->draining)
		return PROBE_DRAINING;
	return dispatch_missing(rt) == NULL ? PROBE_READY : PROBE_NO_WORKERS;
}

const char *router_model_name(const struct router *rt, const char *asked)
{
	for (uint32_t i = 0; i < rt->n_names; i++)
		if (asked == NULL || strcmp(asked, rt->name[i]) == 0)
			return rt->name[i];
	return NULL;
}

void router_wake(struct router *rt)
{
	rt->dispatch_due = true;
}

/* ---- one turn ---- */

static void turn(void *ctx)
{
	struct router *rt = ctx;
	uint64_t now = clock_ns();

	clock_look();
	dispatch_losses(rt, now);
	if (rt->dispatch_due) {
		rt->dispatch_due = false;
		dispatch_turn(rt, now);
	}
	if (rt->draining)
		serve_end_turn(rt, now);
}

/* The last hook of a turn. What HTTP has just read waits for workers: dispatch comes
 * again before the loop sleeps. */
static void turn_again(void *ctx)
{
	struct router *rt = ctx;

	if (rt->dispatch_due)
		loop_keep_awake(rt->loop);
}

static void feed_watchdog(struct router *rt, uint64_t now)
{
	uint64_t every = notify_watchdog_ms();

	if (every == 0 || now < rt->notify_due_ns)
		return;
	rt->notify_due_ns = now + every * NS_PER_MS;
	notify_watchdog();
}

/* What time alone changes. */
static void on_tick(void *ctx)
{
	struct router *rt = ctx;
	uint64_t now = clock_ns();
	uint64_t slept = clock_slept(&rt->slept_ns);

	if (slept > 0)
		log_warn("this process did not run for %llu ms",
			(unsigned long long)(slept / NS_PER_MS));
	router_wake(rt);
	call_keepalive(rt, now);
	control_turn(rt, now);
	link_check(rt, now);
	if (rt->probe != NULL) {
		probe_set(rt->probe, router_readiness(rt));
		probe_beat(rt->probe);
	}
	feed_watchdog(rt, now);
}

static void on_beat(void *ctx)
{
	link_beat_all(ctx);
}

static const struct request_ops ops = {
	.send_prefill = link_send_prefill,
	.send_adopt = link_send_adopt,
	.send_cancel = link_send_cancel,
	.send_release = link_send_release,
	.stop_prepare = prepare_stop,
	.deliver = call_deliver,
	.score = call_score,
	.end = call_request_ended,
};

/* ---- start ---- */

/* The last part of the model's path, or each line of the key; there is one, and not too
 * many (router_conf.c). */
static void set_names(struct router *rt)
{
	const char *given = rt->conf->served_model_name;
	char *text = mem_alloc(1, strlen(given) + strlen(rt->conf->model) + 1);
	char *end;

	rt->names_text = text;
	memcpy(text, *given != 0 ? given : rt->conf->model,
		strlen(*given != 0 ? given : rt->conf->model));
	for (end = text + strlen(text); *given == 0 && end > text && end[-1] == '/';)
		*--end = 0;
	if (*given == 0 && strrchr(text, '/') != NULL)
		text = strrchr(text, '/') + 1;
	while (text != NULL) {
		char *next = strchr(text, '\n');

		if (next != NULL)
			*next++ = 0;
		assert(rt->n_names < ROUTER_NAMES_MAX && *text != 0);
		rt->name[rt->n_names++] = text;
		text = next;
	}
}

static status start_host(struct router *rt, struct err *err)
{
	status st = runtime_open(&rt->runtime, rt->conf->runtime_dir, err);

	if (st == ST_OK)
		st = fault_configure(rt->conf->debug_fault, rt->runtime.dir, err);
	if (st == ST_OK)
		st = runtime_boot_id(rt->boot_id, sizeof(rt->boot_id), err);
	set_names(rt);
	rt->incarnation = rng_entropy64();
	rt->begun_unix_s = clock_unix_s();
	return st;
}

static status start_model(struct router *rt, struct err *err)
{
	struct model_config *config = mem_take(1, sizeof(*config));
	status st;

	if (config == NULL)
		return err_set(err, ST_NOMEM, "no memory for the model's configuration");
	st = model_config_load(config, rt->conf->model, err);
	rt->model_len = config->max_position;
	mem_give(config);
	if (st == ST_OK)
		st = tokenizer_load(&rt->tokenizer, rt->conf->model, err);
	if (st != ST_OK)
		return st;
	rt->eos = tokenizer_eos(rt->tokenizer, &rt->n_eos);
	st = info_tokenizer_open(rt, err);
	if (st != ST_OK)
		return st;
	api_defaults_plain(&rt->defaults);
	if (strcmp(rt->conf->generation_config, "none") == 0)
		return ST_OK;
	st = api_defaults_load(
		&rt->defaults, rt->conf->model, tokenizer_n_tokens(rt->tokenizer), err);
	if (st == ST_OK && rt->defaults.unheard[0] != 0)
		log_warn("generation_config.json asks for what is not done here: %s",
			rt->defaults.unheard);
	return st;
}

static status start_template(struct router *rt, struct err *err)
{
	struct template_options o = {
		.loop = rt->loop,
		.python = rt->conf->python,
		.model_dir = rt->conf->model,
		.template_path = rt->conf->chat_template,
		.queue_max = (uint32_t)rt->conf->max_queued,
	};

	o.added = tokenizer_added(rt->tokenizer, &o.n_added);
	return template_create(&rt->template, &o, err);
}

static void make_tables(struct router *rt)
{
	const struct router_conf *conf = rt->conf;
	struct fleet_options fleet = {
		.silent_ns = conf->silent_ms * NS_PER_MS,
		.lost_ns = conf->lost_ms * NS_PER_MS,
		.tokenizer_hash = tokenizer_hash(rt->tokenizer),
		.queue_max = WORKER_QUEUE_MAX,
	};

	rt->fleet = fleet_create(&fleet);
	requests_init(&rt->requests, (uint32_t)conf->max_queued + RUNNING_MAX, &ops, rt);
	rt->requests.max_replays = (uint32_t)conf->max_replays;
	rt->requests.n_vocab = tokenizer_n_tokens(rt->tokenizer);
	rt->requests.salt = rt->incarnation;
	rt->msg = mem_alloc(1, wire_size_max());
	sink_init(&rt->out, WIRE_MAX_BYTES);
	sink_init(&rt->held, WIRE_MAX_BYTES);
	rt->role_since_ns[0] = rt->role_since_ns[1] = clock_ran_ns();
}

/* Connections to the bus are libzmq's, which ends the process when it finds no descriptor
 * for one: clients never take those. */
static uint32_t connections_max(const struct router_conf *conf)
{
	uint64_t room = process_descriptors() - DESCRIPTORS_KEPT;

	if (room >= conf->connections_max)
		return (uint32_t)conf->connections_max;
	log_warn("connections_max is %llu, not %llu: this process may open %llu "
		 "descriptors (ulimit -Hn) and keeps %u for workers and itself",
		(unsigned long long)room, (unsigned long long)conf->connections_max,
		(unsigned long long)process_descriptors(), DESCRIPTORS_KEPT);
	return (uint32_t)room;
}

static status start_http(struct router *rt, struct err *err)
{
	const struct router_conf *conf = rt->conf;
	uint64_t budget = conf->request_memory_mb << 20;
	struct http_options o = {
		.loop = rt->loop,
		.host = conf->host,
		.unix_path = conf->uds,
		.body_max = (size_t)conf->body_max_mb << 20,
		.memory_max = budget - budget / BODY_RESERVE,
		.connections_max = connections_max(conf),
		.idle_s = (uint32_t)conf->idle_timeout_s,
		.drain_s = (uint32_t)conf->stream_drain_s,
		.port = (uint16_t)conf->port,
	};
	struct http_handler handler = routes_handler(rt);
	status st = ST_OK;

	if (conf->probe_port != 0)
		st = probe_create(
			&rt->probe, conf->host, (uint16_t)conf->probe_port, err);
	if (st == ST_OK && rt->probe != NULL) {
		probe_stuck_after(rt->probe, PROBE_STUCK_MS);
		log_info("health probes on http://%s:%u", conf->host,
			probe_port(rt->probe));
	}
	return st == ST_OK ? http_create(&rt->http, &o, &handler, err) : st;
}

static void on_hangup(void *ctx)
{
	entry_read_again(ctx);
}

static status start_service(struct router *rt, struct err *err)
{
	status st = loop_on_signals(rt->loop, serve_signal, rt, err);

	if (st == ST_OK)
		st = entry_open(rt, err);
	if (st == ST_OK && rt->keys.n > 0)
		st = loop_on_hangup(rt->loop, on_hangup, rt, err);
	if (st != ST_OK)
		return st;
	rt->net = bus_net_create(rt->loop);
	loop_on_turn(rt->loop, turn, rt); /* after the net's: messages come first */
	st = link_open(rt, err);
	if (st == ST_OK)
		st = start_http(rt, err);
	if (st != ST_OK)
		return st;
	loop_on_turn(rt->loop, turn_again, rt);
	rt->turns_again = true;
	loop_timer_start(rt->loop, &rt->tick, TICK_MS, TICK_MS, on_tick, rt);
	loop_timer_start(
		rt->loop, &rt->beat, rt->conf->beat_ms, rt->conf->beat_ms, on_beat, rt);
	return ST_OK;
}

/* EXIT_CLEAN: everything is up. */
static int start(struct router *rt)
{
	struct err err;
	int code = EXIT_USAGE;
	status st = start_host(rt, &err);

	if (st == ST_OK) {
		code = EXIT_MODEL;
		st = start_model(rt, &err);
	}
	if (st == ST_OK) {
		rt->loop = loop_create();
		loop_start_pool(rt->loop);
		st = start_template(rt, &err);
		if (st == ST_IO) /* python, not the model */
			code = EXIT_USAGE;
	}
	if (st == ST_OK) {
		code = EXIT_USAGE;
		make_tables(rt);
		st = start_service(rt, &err);
	}
	if (st == ST_OK)
		return EXIT_CLEAN;
	log_error("%s", err.text);
	return code;
}

/* ---- stop ---- */

static void stop(struct router *rt)
{
	if (rt->net != NULL)
		loop_off_turn(rt->loop, turn, rt);
	if (rt->turns_again)
		loop_off_turn(rt->loop, turn_again, rt);
	loop_timer_stop(&rt->tick);
	loop_timer_stop(&rt->beat);
	if (rt->http != NULL)
		http_destroy(rt->http);
	if (rt->probe != NULL)
		probe_destroy(rt->probe);
	link_close(rt);
	if (rt->net != NULL)
		bus_net_destroy(rt->net);
	if (rt->template != NULL)
		template_destroy(rt->template);
	if (rt->loop != NULL)
		loop_destroy(rt->loop);
	if (rt->fleet != NULL) {
		requests_release(&rt->requests);
		fleet_destroy(rt->fleet);
	}
	sink_release(&rt->out);
	sink_release(&rt->held);
	mem_free(rt->msg);
	mem_free(rt->names_text);
	mem_free(rt->tokenizer_info);
	if (rt->tokenizer != NULL)
		tokenizer_destroy(rt->tokenizer);
}

int serve(const struct router_conf *conf)
{
	struct router *rt = mem_alloc(1, sizeof(*rt));
	int code;

	rt->conf = conf;
	rt->exit_code = -1;
	mem_budget(conf->request_memory_mb << 20);
	code = start(rt);
	if (code == EXIT_CLEAN) {
		log_info("serving %s on http://%s:%u len_max=%u incarnation=%016llx",
			rt->name[0], conf->host, http_port(rt->http), rt->model_len,
			(unsigned long long)rt->incarnation);
		mem_seal();
		notify_ready();
		loop_run(rt->loop);
		code = rt->exit_code;
		log_info("exit code=%d", code);
	}
	stop(rt);
	mem_free(rt);
	return code;
}
