/* Health probes on a port and a thread of their own, which serving load cannot starve:
 * /live and /livez say the process runs, /ready and /readyz that requests can be
 * served, /health the same as ready. Answers come from atomics alone. */
#ifndef ROUTER_PROBE_H
#define ROUTER_PROBE_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include <stdbool.h>
#include <stdint.h>

enum probe_state {
	PROBE_LOADING,    /* 503 loading */
	PROBE_NO_WORKERS, /* 503 no_workers */
	PROBE_READY,      /* 200 */
	PROBE_DRAINING,   /* 503 draining */
};

struct probe;
/* port 0: any free one, see probe_port. */
MUST_CHECK status probe_create(
	struct probe **out, const char *host, uint16_t port, struct err *err);
uint16_t probe_port(const struct probe *p);
void probe_destroy(struct probe *p);

/* From the serving thread. beat must come at least each second: after stuck_ms without
 * one, /live answers 503 too (the loop hangs). 0: never. */
void probe_set(struct probe *p, enum probe_state state);
void probe_beat(struct probe *p);
void probe_stuck_after(struct probe *p, uint32_t stuck_ms);

/* Paths of probes, one after the other; NULL behind the last. */
const char *probe_path(size_t i);
/* The answer to a probe path, for the main port too: false when path is none. *http_code
 * and *body (static JSON) are set. live: whether the serving loop runs. */
bool probe_answer(const char *path, enum probe_state state, bool live,
	unsigned *http_code, struct bytes *body);

#endif
