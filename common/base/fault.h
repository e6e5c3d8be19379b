/* Fault points for tests: named places where a test build can pause, slow down or fail.
 * `--debug.fault=pause@adopt,step_delay_ms=20,fail_step=7` sets them; release builds have
 * none (WITH_FAULTS=OFF) and refuse the key. A pause ends when the file
 * RUNTIME/fault.PHASE.go appears. A blow falls on the N-th time, once: it leaves the file
 * RUNTIME/fault.NAME.done, and where that stands nothing happens, so that a process which
 * is started again works. */
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
	X(offer)                                                                         \
	X(done)

/* fail: as if the device had said so; hang: it never ends. step: a pass or step of the
 * engine; copy: an item of a pull. */
#define FAULT_BLOW_MAP(X)                                                                \
	X(fail_step)                                                                     \
	X(hang_step)                                                                     \
	X(fail_copy)

enum fault_blow {
#define X(name) FAULT_##name,
	FAULT_BLOW_MAP(X)
#undef X
		FAULT_BLOWS
};

enum fault_phase {
#define X(name) FAULT_##name,
	FAULT_PHASE_MAP(X)
#undef X
		FAULT__COUNT
};

/* What fault_configure would say of the text. */
MUST_CHECK status fault_check(const char *text, struct err *err);
/* text: "pause@adopt,step_delay_ms=20"; runtime_dir: where the go files appear. */
MUST_CHECK status fault_configure(
	const char *text, const char *runtime_dir, struct err *err);
/* true while the phase must hold; non-blocking, counts a hit the first time. The
 * caller keeps the request where it is and asks again on a timer. */
bool fault_paused(enum fault_phase phase);
uint32_t fault_step_delay_ms(void);
/* true on the time that was asked for. Any thread. */
bool fault_strikes(enum fault_blow blow);
uint64_t fault_hits(enum fault_phase phase);

#endif
