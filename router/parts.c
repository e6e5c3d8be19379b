/* The parts of an answer. */
#include "router/parts.h"

#include "common/base/mem.h"
#include "common/base/rng.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

void parts_init(struct parts *p, size_t text_max)
{
	*p = (struct parts){.text_max = text_max};
	sink_init(&p->reasoning, text_max);
	sink_init(&p->content, text_max);
}

void parts_release(struct parts *p)
{
	for (uint32_t i = 0; i < p->n_calls; i++)
		sink_release(&p->calls[i].arguments);
	mem_give(p->calls);
	mem_give(p->v);
	sink_release(&p->reasoning);
	sink_release(&p->content);
	*p = (struct parts){0};
}

bool parts_full(const struct parts *p)
{
	return p->full || p->reasoning.full || p->content.full ||
	       (p->n_calls > 0 && p->calls[p->n_calls - 1].arguments.full);
}

static void add(struct parts *p, struct part part)
{
	struct part *last = p->n > 0 ? &p->v[p->n - 1] : NULL;

	if (last != NULL && part.len > 0 && last->kind == part.kind &&
		last->call == part.call) {
		last->len += part.len;
		return;
	}
	if (p->n == p->cap) {
		uint32_t cap = MAX(8u, 2 * p->cap);
		struct part *grown = mem_regrow(p->v, cap * sizeof(*grown));

		if (grown == NULL) {
			p->full = true;
			return;
		}
		p->v = grown;
		p->cap = cap;
	}
	p->v[p->n++] = part;
}

static struct sink *text_of(struct parts *p, enum part_kind kind)
{
	return kind == PART_REASONING ? &p->reasoning : &p->content;
}

void parts_text(struct parts *p, enum part_kind kind, struct bytes text)
{
	struct sink *s = text_of(p, kind);
	size_t at = s->len;

	if (text.len == 0)
		return;
	sink_put(s, text.at, text.len);
	if (!s->full)
		add(p, (struct part){.kind = kind, .at = at, .len = text.len});
}

void parts_call(struct parts *p, struct bytes name)
{
	struct out_call *call;

	if (p->n_calls == p->cap_calls) {
		uint32_t cap = MAX(4u, 2 * p->cap_calls);
		struct out_call *grown = mem_regrow(p->calls, cap * sizeof(*grown));

		if (grown == NULL) {
			p->full = true;
			return;
		}
		p->calls = grown;
		p->cap_calls = cap;
	}
	call = &p->calls[p->n_calls];
	*call = (struct out_call){.name = name};
	snprintf(call->id, sizeof(call->id), "call_%016" PRIx64 "%08" PRIx32,
		rng_entropy64(), (uint32_t)rng_entropy64());
	sink_init(&call->arguments, p->text_max);
	add(p, (struct part){.kind = PART_CALL, .call = p->n_calls++});
}

void parts_arguments(struct parts *p, struct bytes json)
{
	struct sink *s;
	size_t at;

	if (p->full || json.len == 0)
		return;
	assert(p->n_calls > 0);
	s = &p->calls[p->n_calls - 1].arguments;
	at = s->len;
	sink_put(s, json.at, json.len);
	if (!s->full)
		add(p, (struct part){.kind = PART_ARGUMENTS,
			       .call = p->n_calls - 1,
			       .at = at,
			       .len = json.len});
}

void parts_call_end(struct parts *p)
{
	if (p->full)
		return;
	assert(p->n_calls > 0);
	p->calls[p->n_calls - 1].complete = true;
	p->n_complete++;
	add(p, (struct part){.kind = PART_CALL_END, .call = p->n_calls - 1});
}

struct out_part parts_get(const struct parts *p, uint32_t i)
{
	const struct part *part = &p->v[i];
	struct out_part out = {.kind = part->kind};
	const struct sink *s;

	if (part->kind == PART_REASONING) {
		s = &p->reasoning;
	} else if (part->kind == PART_CONTENT) {
		s = &p->content;
	} else {
		out.index = part->call;
		out.call = &p->calls[part->call];
		s = &out.call->arguments;
	}
	if (part->len > 0)
		out.text = (struct bytes){s->at + part->at, part->len};
	return out;
}

static bool is_of_block(const struct out_part *part, const struct out_block *block)
{
	return block->kind == PART_CALL
		       ? part->call == block->call && part->kind != PART_CALL
		       : part->kind == block->kind;
}

bool parts_block(const struct parts *p, uint32_t *i, struct out_block *block)
{
	struct out_part part;

	if (*i >= p->n)
		return false;
	part = parts_get(p, (*i)++);
	*block = (struct out_block){part.kind, part.text, part.call};
	/* Texts of one kind stand one behind the other. */
	while (*i < p->n && (part = parts_get(p, *i), is_of_block(&part, block))) {
		block->text.len += part.call == NULL ? part.text.len : 0;
		(*i)++;
	}
	return true;
}

void parts_told(struct parts *p)
{
	p->n = 0;
	sink_reset(&p->reasoning);
	sink_reset(&p->content);
}
