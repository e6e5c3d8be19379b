/* A program keeps its configuration until it ends; a test that loads many gives the texts
 * back. */
#ifndef TESTS_UNIT_BASE_CONF_TEXTS_H
#define TESTS_UNIT_BASE_CONF_TEXTS_H

#include "common/base/conf.h"
#include "common/base/mem.h"

#include <string.h>

static inline void conf_texts_free(const struct conf_table *table, void *values)
{
	for (size_t i = 0; i < table->n_keys; i++) {
		char *text = NULL;
		char *member = (char *)values + table->keys[i].offset;

		if (!conf_is_text(&table->keys[i]))
			continue;
		memcpy(&text, member, sizeof(text));
		mem_free(text);
		text = NULL;
		memcpy(member, &text, sizeof(text));
	}
}

#endif
