/* Markdown, as far as it says that a text only shows what stands in it: fenced blocks,
 * and spans between backticks within one line. */
#include "router/tool_text_impl.h"

#define FENCE_MIN 3u

static void end_run(struct tool_code *c)
{
	uint32_t n = c->run;

	c->run = 0;
	if (n == 0)
		return;
	if (c->fence > 0 && !c->opening) {
		c->closing = c->leads && c->run_byte == c->fence_byte && n >= c->fence;
	} else if (c->fence > 0) {
		/* A span that begins the line: backticks follow in it. */
		if (c->run_byte == '`' && c->fence_byte == '`') {
			c->span = n == c->fence ? 0 : c->fence;
			c->fence = 0;
		}
	} else if (c->leads && n >= FENCE_MIN) {
		c->fence = n;
		c->fence_byte = c->run_byte;
		c->opening = true;
	} else if (c->run_byte == '`' && (c->span == 0 || c->span == n)) {
		c->span = c->span == 0 ? n : 0;
	}
}

static void end_line(struct tool_code *c)
{
	if (c->closing)
		c->fence = 0;
	c->closing = c->opening = c->started = false;
	c->span = 0;
}

/* What may stand before a fence: spaces, quotes, marks of lists. */
static bool is_margin(uint8_t b)
{
	return b == ' ' || b == '\t' || b == '>' || b == '-' || b == '*' || b == '+' ||
	       b == '.' || (b >= '0' && b <= '9');
}

void tool_code_follow(struct tool_code *c, struct bytes text)
{
	for (size_t i = 0; i < text.len; i++) {
		uint8_t b = text.at[i];

		if (c->run > 0 && b == c->run_byte) {
			c->run++;
			continue;
		}
		end_run(c);
		if (b == '\n') {
			end_line(c);
		} else if (b == '`' || b == '~') {
			c->run = 1;
			c->run_byte = b;
			c->leads = !c->started;
			c->started = true;
			c->closing = false;
		} else if (!is_margin(b)) {
			c->started = true;
			c->closing = false;
		}
	}
}

bool tool_code_shows(struct tool_code c, struct bytes spaces)
{
	tool_code_follow(&c, spaces);
	end_run(&c);
	return c.fence > 0 || c.span > 0;
}
