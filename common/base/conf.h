/* Configuration: one table per program gives flags, file keys, defaults, bounds and
 * --help. Order: file, then flags. Unknown key, out of range or twice = refused.
 * No environment variables. Underscores and dashes are the same in flags. */
#ifndef COMMON_BASE_CONF_H
#define COMMON_BASE_CONF_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include <stdbool.h>
#include <stdint.h>

enum conf_kind { CONF_U64, CONF_F64, CONF_STR, CONF_BOOL, CONF_WORD };

struct conf_key {
	const char *name;    /* "max_num_seqs" */
	const char *help;    /* one line */
	const char *initial; /* default, as text; NULL: must be given */
	enum conf_kind kind;
	double min, max;   /* U64, F64 */
	const char *words; /* WORD: those that it may be, '|' between */
	size_t offset;     /* of uint64_t, double, const char *, bool in the struct */
	bool repeat;       /* STR only: later values are joined with '\n' */
};

/* Its member is a text that conf_load allocated, or NULL. */
static inline bool conf_is_text(const struct conf_key *k)
{
	return k->kind == CONF_STR || k->kind == CONF_WORD;
}

/* A table is written as an X-macro, expanded into the struct and the keys:
 *   #define ROUTER_CONF(U64, F64, STR, BOOL, WORD) \
 *           U64(port, "8000", 1, 65535, "HTTP port") ...
 * and CONF_STRUCT / CONF_KEYS below. */
#define CONF_F_U64(key, initial, lo, hi, help) uint64_t key;
#define CONF_F_F64(key, initial, lo, hi, help) double key;
#define CONF_F_STR(key, initial, help)         const char *key;
#define CONF_F_BOOL(key, initial, help)        bool key;
#define CONF_F_WORD(key, initial, words, help) const char *key;
#define CONF_STRUCT(table)                                                               \
	table(CONF_F_U64, CONF_F_F64, CONF_F_STR, CONF_F_BOOL, CONF_F_WORD)
/* Use with CONF_TYPE defined as the struct: struct conf_key keys[] = { CONF_KEYS(T) }; */
#define CONF_K_U64(key, init, lo, hi, text)                                              \
	{.name = #key,                                                                   \
		.help = text,                                                            \
		.initial = init,                                                         \
		.kind = CONF_U64,                                                        \
		.min = (double)(lo),                                                     \
		.max = (double)(hi),                                                     \
		.offset = offsetof(CONF_TYPE, key)},
#define CONF_K_F64(key, init, lo, hi, text)                                              \
	{.name = #key,                                                                   \
		.help = text,                                                            \
		.initial = init,                                                         \
		.kind = CONF_F64,                                                        \
		.min = (lo),                                                             \
		.max = (hi),                                                             \
		.offset = offsetof(CONF_TYPE, key)},
#define CONF_K_STR(key, init, text)                                                      \
	{.name = #key,                                                                   \
		.help = text,                                                            \
		.initial = init,                                                         \
		.kind = CONF_STR,                                                        \
		.offset = offsetof(CONF_TYPE, key)},
#define CONF_K_BOOL(key, init, text)                                                     \
	{.name = #key,                                                                   \
		.help = text,                                                            \
		.initial = init,                                                         \
		.kind = CONF_BOOL,                                                       \
		.offset = offsetof(CONF_TYPE, key)},
#define CONF_K_WORD(key, init, all, text)                                                \
	{.name = #key,                                                                   \
		.help = text,                                                            \
		.initial = init,                                                         \
		.kind = CONF_WORD,                                                       \
		.words = all,                                                            \
		.offset = offsetof(CONF_TYPE, key)},
#define CONF_KEYS(table)                                                                 \
	table(CONF_K_U64, CONF_K_F64, CONF_K_STR, CONF_K_BOOL, CONF_K_WORD)

/* Keys that every program of a cluster has; conf_shared_apply is for their values. */
// clang-format off
#define CONF_SHARED(U64, F64, STR, BOOL, WORD)                                               \
STR(runtime_dir, "", "sockets of this host; empty: /run/baton for root, /tmp/baton-UID")     \
U64(beat_ms, "500", 10, 60000, "time between beats to each peer")                            \
U64(lost_ms, "4000", 50, 600000, "silence after which a peer is lost")                       \
F64(shutdown_timeout, "120", 0, 86400, "seconds that a stop may take to finish its work")    \
WORD(log_level, "info", LOG_LEVEL_WORDS, "")                                                 \
STR(debug_fault, "", "test builds: fault points, see common/base/fault.h")
// clang-format on

struct conf_table {
	const struct conf_key *keys;
	size_t n_keys;
	const char *program; /* "baton-router" */
	const char *purpose; /* one line for --help */
	/* What one key alone cannot say: words, addresses, pairs of values. ST_INVALID
	 * with a sentence that names the key. NULL: nothing. */
	status (*check)(const void *values, struct err *err);
};

/* Fill *values (a struct of the table's type) from defaults, then the file named by
 * --config if given, then flags `--key value`, `--key=value`, `--flag` (bool).
 * Strings are start-up memory. *stop is set for --help, --version (text printed) and
 * --check-config (everything was checked, "ok" printed): the caller exits 0. Errors:
 * ST_INVALID with a text
 * that names key and value and, for an unknown flag, the nearest known one; the
 * caller prints it and exits 2. */
MUST_CHECK status conf_load(const struct conf_table *table, int argc, char **argv,
	void *values, bool *stop, struct err *err);
/* Sets the log level; refuses fault points that are none. */
MUST_CHECK status conf_shared_apply(
	const char *log_level, const char *debug_fault, struct err *err);
/* The effective values, "key=value ..." in one line, for the start log. */
void conf_print(const struct conf_table *table, const void *values, struct sink *out);

#endif
