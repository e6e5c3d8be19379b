/* Cells in rows. */
#include "deploy/ctl/table.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

void table_begin(struct table *t, uint32_t n_columns)
{
	assert(n_columns > 0 && n_columns <= TABLE_COLUMNS_MAX);
	t->n_columns = n_columns;
	t->n_cells = 0;
}

void table_cell(struct table *t, const char *fmt, ...)
{
	va_list args;

	if (t->n_cells == TABLE_ROWS_MAX * t->n_columns)
		return;
	va_start(args, fmt);
	vsnprintf(t->cell[t->n_cells++], TABLE_CELL_BYTES, fmt, args);
	va_end(args);
}

void table_print(const struct table *t, FILE *to)
{
	int width[TABLE_COLUMNS_MAX] = {0};

	for (uint32_t i = 0; i < t->n_cells; i++)
		width[i % t->n_columns] =
			MAX(width[i % t->n_columns], (int)strlen(t->cell[i]));
	for (uint32_t i = 0; i < t->n_cells; i++) {
		if (i % t->n_columns == t->n_columns - 1)
			fprintf(to, "%s\n", t->cell[i]);
		else
			fprintf(to, "%-*s  ", width[i % t->n_columns], t->cell[i]);
	}
}
