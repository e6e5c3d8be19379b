/* A choice whose answer may call tools: its text goes through the reader of calls
 * (tool_text.h) into its parts.
 *
 * A model may call while it still thinks. What looks like a call waits there: it is one
 * when nothing follows and the thinking never ends; else it is a thought. */
#include "common/base/mem.h"
#include "router/call.h"
#include "router/tool_text.h"

#include <string.h>

#define WRAPPER     "<tool_call>"
#define WRAPPER_END "</tool_call>"

struct choice_tools {
	struct tool_text text;
	struct sink held; /* of the thoughts: may be calls */
};

static void on_text(void *ctx, struct bytes text)
{
	parts_text(ctx, PART_CONTENT, text);
}

static void on_begin(void *ctx, const struct tool *tool)
{
	parts_call(ctx, (struct bytes){(const uint8_t *)tool->name, strlen(tool->name)});
}

static void on_arguments(void *ctx, struct bytes json)
{
	parts_arguments(ctx, json);
}

static void on_end(void *ctx)
{
	parts_call_end(ctx);
}

static const struct tool_events events = {on_text, on_begin, on_arguments, on_end};

bool call_tools_begin(struct choice *c, size_t text_max)
{
	const struct tool_set *set = c->call->gen.tools;

	if (set == NULL || set->n == 0)
		return true;
	c->tools = mem_take(1, sizeof(*c->tools));
	if (c->tools == NULL)
		return false;
	tool_text_init(&c->tools->text, set, &events, &c->parts, text_max);
	sink_init(&c->tools->held, text_max);
	return true;
}

void call_tools_release(struct choice *c)
{
	if (c->tools == NULL)
		return;
	tool_text_release(&c->tools->text);
	sink_release(&c->tools->held);
	mem_give(c->tools);
	c->tools = NULL;
}

/* ---- thoughts ---- */

/* How much of the held text is no call for sure. */
static size_t sure_thought(const struct sink *held)
{
	size_t n = strlen(WRAPPER);

	for (size_t i = 0; i < held->len; i++) {
		const uint8_t *at = memchr(held->at + i, '<', held->len - i);

		if (at == NULL)
			return held->len;
		i = (size_t)(at - held->at);
		if (memcmp(at, WRAPPER, MIN(n, held->len - i)) == 0)
			return i;
	}
	return held->len;
}

static const uint8_t *last_end(const struct sink *held)
{
	const uint8_t *last = NULL, *at = held->at;
	size_t n = strlen(WRAPPER_END);

	while (held->len > 0 && (at = memmem(at, held->len - (size_t)(at - held->at),
					 WRAPPER_END, n)) != NULL)
		last = at += n;
	return last;
}

/* Behind the last end of a wrapper nothing but spaces and the beginning of another. */
static bool ends_with_calls(const struct sink *held)
{
	const uint8_t *at = last_end(held);
	size_t left;

	if (at == NULL)
		return true;
	for (left = held->len - (size_t)(at - held->at);
		left > 0 && (*at == '\n' || *at == ' '); left--)
		at++;
	return memcmp(at, WRAPPER, MIN(strlen(WRAPPER), left)) == 0;
}

static void tell_thoughts(struct choice *c, size_t n)
{
	struct sink *held = &c->tools->held;

	parts_text(&c->parts, PART_REASONING, (struct bytes){held->at, n});
	sink_consume(held, n);
}

static void read_thoughts(struct choice *c)
{
	struct sink *held = &c->tools->held;
	struct output *o = &c->out;

	sink_put(held, o->reasoning.at, o->reasoning.len);
	sink_reset(&o->reasoning);
	tell_thoughts(c, o->thinking ? sure_thought(held) : held->len);
	if (!ends_with_calls(held))
		tell_thoughts(c, held->len);
}

/* ---- turns ---- */

static void mark(struct choice *c)
{
	c->parts.full |= c->tools->held.full || tool_text_is_full(&c->tools->text);
}

void call_tools_take(struct choice *c)
{
	c->parts.full |= c->out.reasoning.full || c->out.content.full;
	if (c->parts.full)
		return;
	read_thoughts(c);
	if (c->out.content.len > 0)
		tool_text_feed(&c->tools->text, sink_bytes(&c->out.content));
	sink_reset(&c->out.content);
	mark(c);
}

void call_tools_finish(struct choice *c)
{
	struct sink *held = &c->tools->held;
	bool cut = c->finish == REQUEST_LENGTH || c->hit >= 0;

	call_tools_take(c);
	if (!cut && last_end(held) != NULL)
		tool_text_feed(&c->tools->text, sink_bytes(held));
	else
		tell_thoughts(c, held->len);
	tool_text_finish(&c->tools->text, cut);
	mark(c);
}
