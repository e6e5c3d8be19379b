/* How every program begins and ends. */
#ifndef COMMON_BASE_PROCESS_H
#define COMMON_BASE_PROCESS_H
#include "common/base/err.h"

#include <stdint.h>

/* Fewer descriptors than this and nothing starts. The most that a worker can need: 16
 * routers with 5 each, 64 links in and 64 out with a handle to memory each, and some 50
 * of its own. A router counts its connections beyond what it keeps for the rest. */
#define PROCESS_DESCRIPTORS_MIN 512u

/* The first statement of a program's main. Descriptors 0 to 2 stand for something
 * afterwards, /dev/null if need be, so that nothing else ever gets such a number; the log
 * waits for no reader; the limit of descriptors is as high as it may be. */
MUST_CHECK status process_begin(struct err *err);
/* Descriptors that this process may have open. */
uint64_t process_descriptors(void);
/* The last statement of main: what was logged is written out. Returns code. */
MUST_CHECK int process_end(int code);
/* Ends at once, destroying nothing, but for what was logged. */
_Noreturn void process_leave(int code);

#endif
