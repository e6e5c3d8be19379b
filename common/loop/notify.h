/* Readiness and liveness for systemd (sd_notify protocol), and the only reader of the
 * environment. Without NOTIFY_SOCKET every call does nothing. */
#ifndef COMMON_LOOP_NOTIFY_H
#define COMMON_LOOP_NOTIFY_H
#include "common/base/attr.h"

#include <stdbool.h>
#include <stdint.h>

/* false: nobody asked to be notified, or the datagram could not be sent. */
bool notify_ready(void);
bool notify_stopping(void);
bool notify_status(const char *fmt, ...) PRINTF_LIKE(1, 2);
bool notify_watchdog(void);
/* How often to call notify_watchdog: half of what systemd demands; 0: never. */
uint64_t notify_watchdog_ms(void);

#endif
