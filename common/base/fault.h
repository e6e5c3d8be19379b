/* Fault points for tests: named places where a test build can pause or slow down.
 * `--debug.fault=pause@adopt,step_delay_ms=20` sets them; release builds have none
 * (WITH_FAULTS=OFF) and refuse the key. A pause ends when the file
 * RUNTIME/fault.PHASE.go appears. */
#ifndef COMMON_BASE_FAULT_H
#define COMMON_BASE_FAULT_H
#include "common/base/err.h"
#include <stdbool.h>
#include <stdint.h>

/* Phases at which a process can pause. */
#define FAULT_PHASE_MAP(X)                                                               \
	X(queued)                                                                        \
	X(prefill)                                                                       \
	X(prefilled)                                                                     \
	X(adopt)                                                                         \
	X(claim)                                                                         \
	X(pull)                                                                          \
	X(adopted)                                                                       \
	X(decode)                                                                        \
	X(done)

enum fault_phase {
#define X(name) FAULT_##name,
	FAULT_PHASE_MAP(X)
#undef X
		FAULT__COUNT
};

/* text: "pause@adopt,step_delay_ms=20"; runtime_dir: where the go files appear. */
MUST_CHECK status fault_configure(
	const char *text, const char *runtime_dir, struct err *err);
/* true while the phase must hold; non-blocking, counts a hit the first time. The
 * caller keeps the request where it is and asks again on a timer. */
bool fault_paused(enum fault_phase phase);
uint32_t fault_step_delay_ms(void);
uint64_t fault_hits(enum fault_phase phase);
const char *fault_phase_name(enum fault_phase phase);

#endif
