/* What makes a worker a prefill or a decode worker: a table of functions and of message
 * handlers. common/worker does everything that both roles share and calls the role
 * through this; both programs link both roles, so that neither folder includes the
 * other. Everything runs on the control thread. */
#ifndef COMMON_WORKER_ROLE_H
#define COMMON_WORKER_ROLE_H
#include "common/base/err.h"
#include "common/engine/engine.h"
#include "common/wire/wire.h"
#include <stdbool.h>
#include <stdint.h>

struct worker;
struct job_kind;

struct role_handler {
	uint8_t type; /* enum msg_type */
	/* The message is decoded, within its bounds, and comes from the router whose
	 * request it names. ST_INVALID: the peer broke the protocol; the caller logs the
	 * text. Messages that crossed on the wire are normal and no error. */
	status (*fn)(void *self, const void *msg, struct err *err);
};

struct role {
	const char *name; /* "prefill" */
	enum wire_party party;
	const struct role_handler *handlers;
	size_t n_handlers;
	const struct job_kind *jobs;
	/* Start-up memory only. *self comes back in every other call. */
	status (*start)(struct worker *w, void **self, struct err *err);
	void (*on_result)(void *self, const struct eng_result *r);
	/* Once per loop turn, after all messages and results of the turn, and every few
	 * milliseconds: admit, schedule, send. */
	void (*turn)(void *self);
	/* Another worker is gone (protocol: peer_down). NULL: of no interest. */
	void (*peer_down)(void *self, struct bytes id, uint64_t incarnation);
	void (*stop)(void *self);
};

extern const struct role role_prefill;
extern const struct role role_decode;

/* The whole program: configuration to exit code. first: the role it starts with. */
int worker_main(int argc, char **argv, const struct role *first);

#endif
