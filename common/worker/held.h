/* What a router's beat says it holds here, against what is held here for it. A router's
 * messages keep their order, so whoever reads its beat has read every message that came
 * before: what the beat names and is not here has ended, and what is here and not named
 * is wanted by nobody. */
#ifndef COMMON_WORKER_HELD_H
#define COMMON_WORKER_HELD_H
#include "common/wire/wire.h"
#include <stdint.h>

struct worker;
/* Of a live router. A beat that does not say what is held changes nothing. */
void held_compare(struct worker *w, uint64_t router, const struct msg_beat *m);

#endif
