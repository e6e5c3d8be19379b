/* One value of a configuration table: from text, to text, and its line of --help.
 * Private to common/base/conf.c. */
#ifndef COMMON_BASE_CONF_VALUE_H
#define COMMON_BASE_CONF_VALUE_H
#include "common/base/conf.h"

/* A string that *member holds already (NULL: none) is freed, or with join kept, with the
 * new one behind it and '\n' between. */
MUST_CHECK status conf_value_set(const struct conf_key *k, void *member, const char *text,
	bool join, struct err *err);
void conf_value_help(const struct conf_table *table);

#endif
