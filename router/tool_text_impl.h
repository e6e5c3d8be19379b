/* What the parts of the reader of calls share. */
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
/* `tag` without its '>', with what models slip in before it. */
enum found tool_text_slip(const struct tool_text *t, size_t *at, const char *tag);
/* No more comes, and what is left at `at` is a beginning of the tag. */
bool tool_text_is_cut_tag(const struct tool_text *t, size_t at, const char *tag);
void tool_text_drop(struct tool_text *t, size_t n);
/* What was made of the arguments goes out. */
void tool_text_tell(struct tool_text *t);

/* The '<' at `at`, with spaces alone before it, begins no call. */
void tool_text_no_call(struct tool_text *t, size_t at);
/* A call of which t->made has the arguments, and that ends at `passed`. */
void tool_text_whole_call(struct tool_text *t, const struct tool *tool, size_t passed);

/* tool_text_code.c */
void tool_code_follow(struct tool_code *c, struct bytes text);
/* Whether what follows the spaces is only shown. */
bool tool_code_shows(struct tool_code c, struct bytes spaces);

/* tool_text_json.c: *at, a '{', stays where it is. */
enum found tool_text_json_head(const struct tool_text *t, size_t *at);
void tool_text_json_begin(struct tool_text *t, size_t call, size_t at);
bool tool_text_step_json(struct tool_text *t);

/* tool_text_value.c */
void tool_text_begin_value(struct tool_text *t, struct bytes name);
bool tool_text_step_value(struct tool_text *t);

#endif
