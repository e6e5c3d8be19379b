/* The link between two devices, tried with data before it is relied on: drivers have
 * been seen that promise peer access and then deliver zeros. The end of the dead page 0
 * of an exporting arena holds a mark that its owner wrote; an importer reads it, writes a
 * number of its own beside it, and reads that back. */
#ifndef COMMON_XFER_PROBE_H
#define COMMON_XFER_PROBE_H
#include "common/xfer/xfer.h"

/* Owner, at start: the mark of each rank's arena. */
MUST_CHECK status probe_mark(const struct xfer_side *side, struct err *err);
/* Importer: arena is the peer's, mapped for our rank's device. ST_PEER: what came is not
 * what was sent. */
MUST_CHECK status probe_peer(const struct xfer_side *side, uint32_t rank,
	const void *arena, const struct layout *peer, struct err *err);

#endif
