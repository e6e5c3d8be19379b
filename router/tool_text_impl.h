/* What the two halves of the reader of calls share. */
#ifndef ROUTER_TOOL_TEXT_IMPL_H
#define ROUTER_TOOL_TEXT_IMPL_H
#include "router/tool_text.h"

#define TOOL_KEY_BYTES_MAX 256u /* of a name in a tag */

/* MAYBE: more text has to come first; never at the end. */
enum found { FOUND_NOT, FOUND_MAYBE, FOUND };

struct bytes tool_text_rest(const struct tool_text *t, size_t from);
/* Each moves *at behind what it found, and only then. */
enum found tool_text_tag(const struct tool_text *t, size_t *at, const char *tag);
enum found tool_text_named(
	const struct tool_text *t, size_t *at, const char *tag, struct bytes *name);
/* Any number of spaces; NOT: too many. Moves *at in either case. */
enum found tool_text_spaces(const struct tool_text *t, size_t *at);
void tool_text_drop(struct tool_text *t, size_t n);
/* What was made of the arguments goes out. */
void tool_text_tell(struct tool_text *t);

/* tool_text_value.c */
void tool_text_begin_value(struct tool_text *t, struct bytes name);
bool tool_text_step_value(struct tool_text *t);

#endif
