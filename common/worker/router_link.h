/* One connection to a router: private to routers.c and router_link.c. */
#ifndef COMMON_WORKER_ROUTER_LINK_H
#define COMMON_WORKER_ROUTER_LINK_H
#include "common/base/bytes.h"
#include "common/loop/bus.h"
#include "common/loop/loop.h"
#include "common/worker/routers.h"

enum link_state { LINK_DOWN, LINK_HELLO, LINK_LIVE, LINK_BARRED };

struct router_link {
	struct routers *set;
	struct bus *bus; /* NULL: this place is free */
	char name[64];   /* of the socket file */
	enum link_state state;
	uint64_t incarnation; /* LIVE: of the router */
	uint64_t heard_ns;    /* last message; clock_ran_ns, as the next */
	uint64_t renewed_ns;  /* leases of this router count from here */
	uint64_t seen;        /* our last beat that its last one answers; 0: none */
	uint64_t placed;      /* what it will still send here, at that time */
	bool says_placed;
	uint64_t hello_due_ns;
	uint64_t barred_ns; /* first "id in use" since the last LIVE; 0: none */
	bool full;          /* a message found no room */
};

struct routers {
	struct worker *w;
	struct bus_net *net;
	struct loop_dir *dir;
	struct loop_timer beat, again;
	bool refused; /* nobody listened on a file of the last look */
	struct router_link link[ROUTERS_MAX];
	uint64_t beats;      /* sent so far: the number of the last one */
	uint64_t drain_beat; /* the first one that says that this worker drains */
	struct sink out;     /* the message being encoded */
	void *msg;           /* the message being handled */
};

/* endpoint: of the socket called name. */
MUST_CHECK status router_link_open(
	struct routers *s, const char *name, const char *endpoint, struct err *err);
void router_link_close(struct router_link *l);
bool router_link_send(struct router_link *l, uint8_t type, const void *msg);
void router_link_turn(struct router_link *l, uint64_t now_ns);
/* What it placed here is still to come, or it may not know yet that this worker drains.
 */
bool router_link_owes(const struct router_link *l);

#endif
