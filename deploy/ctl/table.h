/* A table of text: columns as wide as their widest cell. */
#ifndef DEPLOY_CTL_TABLE_H
#define DEPLOY_CTL_TABLE_H
#include "common/base/attr.h"

#include <stdint.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 12u
#define TABLE_ROWS_MAX    65u /* the heads, and the workers of a router */
#define TABLE_CELL_BYTES  68u

struct table {
	uint32_t n_columns, n_cells;
	char cell[TABLE_ROWS_MAX * TABLE_COLUMNS_MAX][TABLE_CELL_BYTES];
};

void table_begin(struct table *t, uint32_t n_columns);
/* The next cell, row by row. What does not fit into a cell is cut, a row too many left
 * out. */
void table_cell(struct table *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void table_print(const struct table *t, FILE *to);

#endif
