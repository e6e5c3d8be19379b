/* Names of the statistics table. */
#include "common/base/stats.h"

#include "common/base/attr.h"

static const struct {
	const char *name;
	const char *kind;
	const char *help;
} table[STAT__COUNT] = {
#define X(n, k, h) [STAT_##n] = {.name = #n, .kind = #k, .help = (h)},
	STATS_MAP(X)
#undef X
};

const char *stats_name(enum stat_id id)
{
	return (unsigned)id < STAT__COUNT ? table[id].name : "?";
}

const char *stats_kind(enum stat_id id)
{
	return (unsigned)id < STAT__COUNT ? table[id].kind : "?";
}

const char *stats_help(enum stat_id id)
{
	return (unsigned)id < STAT__COUNT ? table[id].help : "?";
}
