/* The functions of the transport through host memory; its test runs them on the CPU. */
#ifndef COMMON_XFER_TRANSPORT_HOST_H
#define COMMON_XFER_TRANSPORT_HOST_H
#include "common/xfer/xfer_transport.h"

MUST_CHECK status transport_host_open(struct xfer_map **out, const struct xfer_side *side,
	const struct peer_arenas *peer, struct err *err);
struct stage_room transport_host_room(const struct xfer_map *map);
MUST_CHECK status transport_host_copy(struct xfer_map *map,
	const struct plan_copy *copies, uint32_t n, struct err *err);
void transport_host_close(struct xfer_map *map);

#endif
