/* batonctl's side of the bus: the routers of a runtime directory, one DEALER each, and
 * what they reply. Every call returns when each router has replied, or too much time has
 * passed, or a signal came; it runs the loop meanwhile. */
#ifndef DEPLOY_CTL_TALK_H
#define DEPLOY_CTL_TALK_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include "common/base/json.h"
#include "common/wire/wire.h"

#include <stdbool.h>
#include <stdint.h>

#define TALK_ROUTERS_MAX 16u
#define TALK_ALL         UINT32_MAX

/* What a router replied last. */
struct talk_reply {
	bool came;
	enum wire_ordered code; /* of an order; of a question that has no answer */
	const char *text;       /* why not */
	/* an answer, read and as it came; NULL and empty: none */
	const struct json *json;
	struct bytes raw;
};

struct talk;
/* only: the name of one router; NULL: each whose socket somebody listens on, in the order
 * of their names. ST_INVALID: no such directory can be; ST_PEER: no router answers. */
MUST_CHECK status talk_open(
	struct talk **out, const char *runtime_dir, const char *only, struct err *err);
void talk_close(struct talk *t); /* NULL is allowed */

uint32_t talk_count(const struct talk *t);
const char *talk_name(const struct talk *t, uint32_t i);
/* Valid until the next talk_ask or talk_order. */
const struct talk_reply *talk_reply(const struct talk *t, uint32_t i);

/* which: one router, or TALK_ALL. id NULL: about the router itself. */
void talk_ask(struct talk *t, uint32_t which, const char *what, const char *id);
void talk_order(struct talk *t, uint32_t which, const char *verb, const char *id,
	const char *args);
void talk_pause(struct talk *t, uint64_t ms);
/* SIGINT or SIGTERM came: nothing is waited for any more. */
bool talk_stopped(const struct talk *t);

#endif
