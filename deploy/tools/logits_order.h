/* What the two processes of a hand-over say to each other. Both are the same binary on
 * one machine, so a message is a plain structure. */
#ifndef DEPLOY_TOOLS_LOGITS_ORDER_H
#define DEPLOY_TOOLS_LOGITS_ORDER_H
#include "common/base/err.h"
#include "common/engine/engine.h"
#include "common/loop/runtime.h"
#include "common/xfer/xfer.h"

/* Tokens of one order. It goes out in parts, since a message has to fit into a socket's
 * buffer. */
#define ORDER_IDS_MAX   131072u
#define ORDER_PART_IDS  16384u
#define ORDER_PAGES_MAX (ORDER_IDS_MAX / PAGE_TOKENS)

struct order {
	uint32_t n;
	uint32_t ids[ORDER_IDS_MAX];
};

struct offer {
	status code; /* not ST_OK: text says why, the rest is empty */
	char text[256];
	char path[RUNTIME_PATH_BYTES];
	char worker_id[16];
	uint64_t incarnation, lease;
	uint32_t n_tokens, n_pages, slot;
	uint32_t pages[ORDER_PAGES_MAX];
};

MUST_CHECK status order_send(int fd, const uint32_t *ids, uint32_t n, struct err *err);
/* ST_PEER: the other side has ended. */
MUST_CHECK status order_receive(int fd, struct order *order, struct err *err);
MUST_CHECK status offer_send(int fd, const struct offer *offer, struct err *err);
MUST_CHECK status offer_receive(int fd, struct offer *offer, struct err *err);
/* What a link needs to know of an engine. */
void order_side(struct xfer_side *side, struct engine *e);

#endif
