/* Fault points; a build without BATON_FAULTS has none and says so. */
#include "common/base/fault.h"

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef BATON_FAULTS

#define STEP_DELAY_MS_MAX 60000
#define BLOW_AT_MAX       1000000

static const char *const phase_names[FAULT__COUNT] = {
#define X(name) [FAULT_##name] = #name,
	FAULT_PHASE_MAP(X)
#undef X
};

static const char *const blow_names[FAULT_BLOWS] = {
#define X(name) [FAULT_##name] = #name,
	FAULT_BLOW_MAP(X)
#undef X
};

/* Written at start by fault_configure; the rest is atomic because engine threads and
 * the control thread both ask. */
static char go_dir[PATH_MAX];
static atomic_bool holding[FAULT__COUNT]; /* configured, go file not seen yet */
static atomic_bool counted[FAULT__COUNT];
static _Atomic uint64_t hits[FAULT__COUNT];
static _Atomic uint32_t step_delay_ms;
static _Atomic uint32_t blow_left[FAULT_BLOWS]; /* 0: none */

/* One word of the text. */
struct fault {
	enum { IS_PAUSE, IS_DELAY, IS_BLOW } kind;
	unsigned which;  /* phase or blow */
	uint32_t number; /* milliseconds, or the time a blow falls on */
};

/* name=N with N up to max. */
static bool parse_number(
	const char *at, size_t len, const char *name, uint32_t max, uint32_t *out)
{
	size_t i = strlen(name);
	uint32_t n = 0;

	if (len <= i + 1 || memcmp(at, name, i) != 0 || at[i++] != '=')
		return false;
	while (i < len && at[i] >= '0' && at[i] <= '9' && n <= max)
		n = n * 10 + (uint32_t)(at[i++] - '0');
	*out = n;
	return i == len && n <= max;
}

static bool parse_pause(const char *at, size_t len, struct fault *f)
{
	static const char pause[] = "pause@";
	size_t skip = strlen(pause);

	if (len <= skip || memcmp(at, pause, skip) != 0)
		return false;
	f->kind = IS_PAUSE;
	for (f->which = 0; f->which < FAULT__COUNT; f->which++)
		if (strlen(phase_names[f->which]) == len - skip &&
			memcmp(phase_names[f->which], at + skip, len - skip) == 0)
			return true;
	return false;
}

static bool parse_blow(const char *at, size_t len, struct fault *f)
{
	f->kind = IS_BLOW;
	for (f->which = 0; f->which < FAULT_BLOWS; f->which++)
		if (parse_number(at, len, blow_names[f->which], BLOW_AT_MAX, &f->number))
			return f->number > 0;
	return false;
}

static status parse_one(const char *at, size_t len, struct fault *f, struct err *err)
{
	if (parse_number(at, len, "step_delay_ms", STEP_DELAY_MS_MAX, &f->number)) {
		f->kind = IS_DELAY;
		return ST_OK;
	}
	if (parse_pause(at, len, f) || parse_blow(at, len, f))
		return ST_OK;
	return err_set(err, ST_INVALID,
		"fault '%.*s' is neither pause@PHASE nor step_delay_ms=0..%d nor "
		"fail_step, hang_step or fail_copy=1..%d",
		(int)len, at, STEP_DELAY_MS_MAX, BLOW_AT_MAX);
}

static void set_one(const struct fault *f)
{
	switch (f->kind) {
	case IS_PAUSE:
		atomic_store(&counted[f->which], false);
		atomic_store(&holding[f->which], true);
		break;
	case IS_DELAY:
		atomic_store(&step_delay_ms, f->number);
		break;
	case IS_BLOW:
		atomic_store(&blow_left[f->which], f->number);
		break;
	}
}

static status each(const char *text, bool set, struct err *err)
{
	while (*text != 0) {
		size_t len = strcspn(text, ",");
		struct fault f = {0};
		status st = parse_one(text, len, &f, err);

		if (st != ST_OK)
			return st;
		if (set)
			set_one(&f);
		text += len;
		if (*text == ',')
			text++;
	}
	return ST_OK;
}

status fault_check(const char *text, struct err *err)
{
	return each(text, false, err);
}

status fault_configure(const char *text, const char *runtime_dir, struct err *err)
{
	int n = snprintf(go_dir, sizeof(go_dir), "%s", runtime_dir);

	if (n < 0 || (size_t)n >= sizeof(go_dir))
		return err_set(err, ST_INVALID, "runtime directory of %d bytes", n);
	for (unsigned i = 0; i < FAULT__COUNT; i++)
		atomic_store(&holding[i], false);
	for (unsigned i = 0; i < FAULT_BLOWS; i++)
		atomic_store(&blow_left[i], 0);
	atomic_store(&step_delay_ms, 0);
	return each(text, true, err);
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

bool fault_strikes(enum fault_blow blow)
{
	uint32_t left = atomic_load_explicit(&blow_left[blow], memory_order_relaxed);
	char path[PATH_MAX + 64];
	int fd;

	while (left > 0 &&
		!atomic_compare_exchange_weak(&blow_left[blow], &left, left - 1))
		;
	if (left != 1)
		return false;
	snprintf(path, sizeof(path), "%s/fault.%s.done", go_dir, blow_names[blow]);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	if (fd >= 0)
		(void)close(fd);
	return fd >= 0;
}

uint64_t fault_hits(enum fault_phase phase)
{
	return atomic_load(&hits[phase]);
}

#else

status fault_check(const char *text, struct err *err)
{
	if (*text != 0)
		return err_set(err, ST_INVALID,
			"fault '%s': this build has no fault points (WITH_FAULTS=OFF)",
			text);
	return ST_OK;
}

status fault_configure(const char *text, const char *runtime_dir, struct err *err)
{
	(void)runtime_dir;
	return fault_check(text, err);
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

bool fault_strikes(enum fault_blow blow)
{
	(void)blow;
	return false;
}

uint64_t fault_hits(enum fault_phase phase)
{
	(void)phase;
	return 0;
}

#endif
