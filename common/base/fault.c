/* Fault points; a build without BATON_FAULTS has none and says so. */
#include "common/base/fault.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const phase_names[FAULT__COUNT] = {
#define X(name) [FAULT_##name] = #name,
	FAULT_PHASE_MAP(X)
#undef X
};

const char *fault_phase_name(enum fault_phase phase)
{
	return (unsigned)phase < FAULT__COUNT ? phase_names[phase] : "?";
}

#ifdef BATON_FAULTS

#define STEP_DELAY_MS_MAX 60000

/* Written at start by fault_configure; the rest is atomic because engine threads and
 * the control thread both ask. */
static char go_dir[PATH_MAX];
static atomic_bool holding[FAULT__COUNT]; /* configured, go file not seen yet */
static atomic_bool counted[FAULT__COUNT];
static _Atomic uint64_t hits[FAULT__COUNT];
static _Atomic uint32_t step_delay_ms;

static status set_one(const char *at, size_t len, struct err *err)
{
	static const char pause[] = "pause@";
	static const char delay[] = "step_delay_ms=";

	if (len > strlen(pause) && memcmp(at, pause, strlen(pause)) == 0) {
		for (unsigned i = 0; i < FAULT__COUNT; i++)
			if (strlen(phase_names[i]) == len - strlen(pause) &&
				memcmp(phase_names[i], at + strlen(pause),
					len - strlen(pause)) == 0) {
				atomic_store(&counted[i], false);
				atomic_store(&holding[i], true);
				return ST_OK;
			}
	} else if (len > strlen(delay) && memcmp(at, delay, strlen(delay)) == 0) {
		uint32_t ms = 0;
		size_t i = strlen(delay);

		while (i < len && at[i] >= '0' && at[i] <= '9' && ms <= STEP_DELAY_MS_MAX)
			ms = ms * 10 + (uint32_t)(at[i++] - '0');
		if (i == len && ms <= STEP_DELAY_MS_MAX) {
			atomic_store(&step_delay_ms, ms);
			return ST_OK;
		}
	}
	return err_set(err, ST_INVALID,
		"fault '%.*s' is neither pause@PHASE nor step_delay_ms=0..%d", (int)len,
		at, STEP_DELAY_MS_MAX);
}

status fault_configure(const char *text, const char *runtime_dir, struct err *err)
{
	int n = snprintf(go_dir, sizeof(go_dir), "%s", runtime_dir);

	if (n < 0 || (size_t)n >= sizeof(go_dir))
		return err_set(err, ST_INVALID, "runtime directory of %d bytes", n);
	for (unsigned i = 0; i < FAULT__COUNT; i++)
		atomic_store(&holding[i], false);
	atomic_store(&step_delay_ms, 0);
	while (*text != 0) {
		size_t len = strcspn(text, ",");
		status st = set_one(text, len, err);

		if (st != ST_OK)
			return st;
		text += len;
		if (*text == ',')
			text++;
	}
	return ST_OK;
}

bool fault_paused(enum fault_phase phase)
{
	char path[PATH_MAX + 64];

	if (!atomic_load_explicit(&holding[phase], memory_order_relaxed))
		return false;
	if (!atomic_exchange(&counted[phase], true))
		atomic_fetch_add(&hits[phase], 1);
	snprintf(path, sizeof(path), "%s/fault.%s.go", go_dir, phase_names[phase]);
	if (access(path, F_OK) != 0)
		return true;
	atomic_store(&holding[phase], false);
	return false;
}

uint32_t fault_step_delay_ms(void)
{
	return atomic_load_explicit(&step_delay_ms, memory_order_relaxed);
}

uint64_t fault_hits(enum fault_phase phase)
{
	return atomic_load(&hits[phase]);
}

#else

status fault_configure(const char *text, const char *runtime_dir, struct err *err)
{
	(void)runtime_dir;
	if (*text != 0)
		return err_set(err, ST_INVALID,
			"fault '%s': this build has no fault points (WITH_FAULTS=OFF)",
			text);
	return ST_OK;
}

bool fault_paused(enum fault_phase phase)
{
	(void)phase;
	return false;
}

uint32_t fault_step_delay_ms(void)
{
	return 0;
}

uint64_t fault_hits(enum fault_phase phase)
{
	(void)phase;
	return 0;
}

#endif
