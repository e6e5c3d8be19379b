/* A list of copies at work: grouped by the rank whose device copies, enqueued on one
 * lane, waited for. Everything that moves a plan's bytes on this host goes through it. */
#ifndef COMMON_XFER_COPIER_H
#define COMMON_XFER_COPIER_H
#include "common/xfer/lanes.h"

#define COPIER_PIECES 128u

struct copier {
	const struct xfer_side *side;
	struct lane *lane;
	struct err *err;
	status st; /* the first failure; later pieces are passed over */
	uint32_t rank, n;
	const struct copy_method *how;
	bool used[RANKS_MAX];
	struct copy_piece pieces[COPIER_PIECES];
};

/* Any thread. err is written by the first failure, at the latest in copier_end. */
void copier_begin(struct copier *c, const struct xfer_side *side, struct lanes *lanes,
	struct err *err);
/* how: one for all pieces of a rank; NULL: the only way that its backend has. */
void copier_add(struct copier *c, uint32_t rank, const struct copy_method *how,
	struct copy_piece piece);
/* Nothing is read or written any more at return, also after a failure: its memory may be
 * freed. */
MUST_CHECK status copier_end(struct copier *c);

#endif
