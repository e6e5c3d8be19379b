/* Streams for copies on the pool: a copy takes a lane, which is a stream on every rank's
 * device, and waits on it alone. Making a stream at request time may wait for a device.
 */
#ifndef COMMON_XFER_LANES_H
#define COMMON_XFER_LANES_H
#include "common/xfer/xfer.h"

struct lanes;
struct lane;

MUST_CHECK status lanes_create(
	struct lanes **out, const struct xfer_side *side, struct err *err);
void lanes_destroy(struct lanes *l); /* no lane is taken */

/* Any thread. There are more lanes than pool threads, so hardly ever a wait. */
struct lane *lanes_take(struct lanes *l);
void lanes_give(struct lane *l);
struct stream *lane_stream(const struct lane *l, uint32_t rank);

#endif
