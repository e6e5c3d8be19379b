/* The router as one thing: its parts, and what its files share. Private to this folder's
 * inner half (workers, requests, calls); the outer half (http, api, template, probe)
 * does not know it. Everything runs on the loop thread. */
#ifndef ROUTER_ROUTER_H
#define ROUTER_ROUTER_H
#include "common/loop/bus.h"
#include "common/loop/loop.h"
#include "common/loop/runtime.h"
#include "common/model/tokenizer.h"
#include "router/api_defaults.h"
#include "router/fleet.h"
#include "router/http.h"
#include "router/keys.h"
#include "router/metrics.h"
#include "router/pace.h"
#include "router/pairs.h"
#include "router/probe.h"
#include "router/requests.h"
#include "router/router_conf.h"
#include "router/template.h"

#define ROUTER_ASKS_MAX 32u
/* Ids that end an answer, the model's and a client's (adopt.stop_ids). */
#define STOP_IDS_MAX    64u

enum router_exit {
	EXIT_CLEAN = 0,
	EXIT_INTERNAL = 1,
	EXIT_USAGE = 2,
	EXIT_MODEL = 3,
	EXIT_CUT = 6,
};

/* A question of batonctl that a worker is to answer. */
struct router_ask {
	uint64_t tag; /* ours; 0: free */
	uint64_t ctl_tag;
	uint64_t asked_ns;
	char peer[BUS_PEER_ID_MAX];
	uint32_t n_peer;
};

struct call;
struct router {
	const struct router_conf *conf;
	const char *name[ROUTER_NAMES_MAX]; /* served names, the first is answered */
	char *names_text;                   /* that they point into */
	uint32_t n_names;
	struct api_defaults defaults;
	uint32_t model_len; /* what config.json allows */
	uint64_t incarnation;
	uint64_t begun_unix_s;
	char boot_id[64];

	struct loop *loop;
	struct runtime runtime;
	struct bus_net *net;
	struct bus *bus;
	struct http *http;
	struct probe *probe;       /* NULL: off */
	struct template *template; /* NULL: the model has none */
	struct tokenizer *tokenizer;
	char *tokenizer_info; /* the answer of /tokenizer_info */
	const uint32_t *eos;
	size_t n_eos;

	struct keys keys; /* none: everybody may ask */
	struct fleet *fleet;
	struct requests requests;
	struct metrics metrics;
	struct list calls; /* all that were not ended */

	void *msg;        /* any decoded message */
	struct sink out;  /* any encoded message */
	struct sink held; /* of a beat */
	struct router_ask ask[ROUTER_ASKS_MAX];
	uint64_t last_ask;
	uint64_t peers_gone; /* acknowledgements of peer_down */

	struct sched_fair fair; /* of the queue */
	struct pace pace;
	struct pairs pairs; /* that fail */

	struct loop_timer beat, tick;
	bool dispatch_due;        /* something changed for those that wait */
	bool turns_again;         /* a hook sees to it before the loop sleeps */
	uint64_t ignored_set[64]; /* hashes of sets of names that were logged */
	uint32_t n_ignored_sets;
	uint64_t stall_check_ns;   /* when stalled requests are looked for again */
	uint64_t role_since_ns[2]; /* prefill, decode: since when (clock_ran_ns) none is
				      usable; 0: one is */
	uint64_t notify_due_ns;
	uint64_t slept_ns;        /* that was said */
	uint64_t socket_check_ns; /* when its file is looked at again */
	bool socket_lost;         /* no worker can join */

	/* the end */
	bool draining;
	bool cut;
	uint64_t drain_ns, cut_ns;
	uint64_t idle_ns; /* of a drain: since when nobody waits for an answer; 0:
			     somebody */
	int exit_code;    /* -1: serving */
};

/* Tokens of one sequence that the workers serve; the model's length before any came. */
uint32_t router_len_max(const struct router *rt);
enum probe_state router_readiness(const struct router *rt);
/* It ends, and takes no new request any more: drain_delay_s after its readiness fell. */
bool router_refuses(const struct router *rt);
/* Whether the name is served; NULL is the first. The served name, or NULL. */
const char *router_model_name(const struct router *rt, const char *asked);
/* Requests in tokenizer jobs and calls are looked at in this turn. */
void router_wake(struct router *rt);

#endif
