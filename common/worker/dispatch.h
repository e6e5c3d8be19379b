/* A decoded message of a live router, to whoever handles it. */
#ifndef COMMON_WORKER_DISPATCH_H
#define COMMON_WORKER_DISPATCH_H
#include "common/wire/wire.h"
#include <stdint.h>

struct worker;
/* msg: a struct of the type, valid during the call. Whatever is wrong with it is logged
 * and counted here. */
void dispatch_message(
	struct worker *w, uint64_t router, const struct wire_msg *type, const void *msg);

#endif
