/* The `status` answers of all routers as one picture. A worker that several routers know
 * is one row; its state is what each says, once. */
#ifndef DEPLOY_CTL_VIEW_H
#define DEPLOY_CTL_VIEW_H
#include "deploy/ctl/talk.h"

#define VIEW_WORKERS_MAX 64u

struct view_worker {
	char id[49], incarnation[17], role[8], state[48];
	char transport[65], gpus[65], version[65];
	uint64_t running, queued, pages, pages_free, slots, slots_free;
	uint64_t tokens; /* computed and sampled since it began */
	double up_s;
};

struct view_router {
	char id[65], state[16], model[65], version[65];
	uint64_t port, connections, calls;
	bool answers;
};

struct view {
	struct view_router router[TALK_ROUTERS_MAX];
	struct view_worker worker[VIEW_WORKERS_MAX];
	uint32_t n_routers, n_workers;
};

/* Of the replies to the last question, which was `status` to all. */
void view_read(struct view *v, const struct talk *t);

/* The worker of that id in one router's answer, or NULL. */
const struct json *view_worker_of(const struct json *answer, const char *id);
/* A member that is text; "?" when there is none. */
const char *view_text(const struct json *v, const char *name);
uint64_t view_u64(const struct json *v, const char *name);

#endif
