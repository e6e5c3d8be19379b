/* The CPU as a device. */
#ifndef KERNELS_CPU_BACKEND_CPU_H
#define KERNELS_CPU_BACKEND_CPU_H
#include "kernels/backend.h"

/* index: one process may act as several devices ("cpu:0", "cpu:1"), which have uuids of
 * their own. */
MUST_CHECK status backend_cpu_open(struct backend **out, uint32_t index, struct err *err);

#endif
