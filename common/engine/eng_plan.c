/* Memory of an engine, planned. */
#include "common/engine/eng_plan.h"

#include <string.h>

/* Host memory belongs to everybody: without a word from the operator a CPU rank takes
 * at most this much, whatever is free. */
#define HOST_DEFAULT_BYTES (UINT64_C(2) << 30)

uint64_t eng_plan_budget(
	const struct engine_options *o, const struct backend *b, uint32_t sharers)
{
	uint64_t share = b->mem_free / 5 * 4 / sharers;

	if (o->memory_bytes != 0)
		return o->memory_bytes;
	return strcmp(b->name, "cpu") == 0 ? MIN(share, HOST_DEFAULT_BYTES) : share;
}

static status pages_from_budget(struct eng_plan *p, const struct engine_options *o,
	const struct layout *l, uint32_t len_max, struct err *err)
{
	uint64_t fixed =
		p->weights_bytes + p->workspace_bytes + p->n_slots * l->slot_bytes;
	uint64_t useful = (uint64_t)o->seqs_max * CEIL_DIV(len_max, PAGE_TOKENS) + 1;

	if (fixed + 2 * l->page_bytes > p->budget_bytes)
		return err_set(err, ST_LIMIT,
			"memory: weights %llu, workspace %llu, %llu slots of %llu and "
			"two "
			"pages of %llu bytes do not fit in %llu bytes",
			(unsigned long long)p->weights_bytes,
			(unsigned long long)p->workspace_bytes,
			(unsigned long long)p->n_slots, (unsigned long long)l->slot_bytes,
			(unsigned long long)l->page_bytes,
			(unsigned long long)p->budget_bytes);
	/* A model without attention layers has pages of no bytes. */
	p->n_pages = l->page_bytes == 0
			     ? useful
			     : MIN((p->budget_bytes - fixed) / l->page_bytes, useful);
	return ST_OK;
}

status eng_plan_arena(struct eng_plan *p, const struct engine_options *o,
	const struct layout *l, uint32_t len_max, struct err *err)
{
	status st = ST_OK;

	p->n_slots = o->n_slots != 0 ? o->n_slots : (uint64_t)o->seqs_max + 1;
	p->n_pages = o->n_pages;
	if (p->n_pages == 0)
		st = pages_from_budget(p, o, l, len_max, err);
	if (st != ST_OK)
		return st;
	if (p->n_pages < 2 || p->n_slots < 2 || p->n_pages > UINT32_MAX ||
		p->n_slots > UINT32_MAX)
		return err_set(err, ST_INVALID,
			"%llu pages and %llu slots: one of each is dead, so 2 to %u are "
			"possible",
			(unsigned long long)p->n_pages, (unsigned long long)p->n_slots,
			UINT32_MAX);
	p->len_max = (uint32_t)MIN((uint64_t)len_max, (p->n_pages - 1) * PAGE_TOKENS);
	p->arena_bytes = layout_arena_bytes(l, p->n_pages, p->n_slots);
	if (o->memory_bytes != 0 &&
		p->weights_bytes + p->workspace_bytes + p->arena_bytes > o->memory_bytes)
		return err_set(err, ST_LIMIT,
			"memory: weights %llu, workspace %llu and arena %llu bytes do "
			"not "
			"fit in %llu bytes",
			(unsigned long long)p->weights_bytes,
			(unsigned long long)p->workspace_bytes,
			(unsigned long long)p->arena_bytes,
			(unsigned long long)o->memory_bytes);
	return ST_OK;
}

/* What the numbers of GPUs that are not here do not say. */
static void described_text(const struct layout *l, struct sink *out)
{
	sink_fmt(out, "of %u GPU%s not here, as memory_bytes says: no kernel was run%s\n",
		l->ranks, l->ranks == 1 ? "" : "s",
		backend_gpus_built()
			? "; scratch is that of the kernel that needs most"
			: "; without scratch of kernels, which this build has none of");
	if (l->ranks > 1)
		sink_fmt(out, "this version does not serve a model on %u GPUs\n",
			l->ranks);
}

void eng_plan_text(const struct eng_plan *p, const struct layout *l, struct sink *out)
{
	uint64_t tokens = (p->n_pages - 1) * PAGE_TOKENS;
	uint64_t each = CEIL_DIV(p->len_max, PAGE_TOKENS);

	sink_fmt(out, "memory per rank, %u rank%s\n", l->ranks, l->ranks == 1 ? "" : "s");
	sink_fmt(
		out, "  weights    %15llu bytes\n", (unsigned long long)p->weights_bytes);
	sink_fmt(out, "  workspace  %15llu bytes\n",
		(unsigned long long)p->workspace_bytes);
	sink_fmt(out, "  pinned     %15llu bytes of host memory\n",
		(unsigned long long)p->pinned_bytes);
	sink_fmt(out, "  pages      %15llu bytes: %llu of %llu\n",
		(unsigned long long)(p->n_pages * l->page_bytes),
		(unsigned long long)p->n_pages, (unsigned long long)l->page_bytes);
	sink_fmt(out, "  slots      %15llu bytes: %llu of %llu\n",
		(unsigned long long)(p->n_slots * l->slot_bytes),
		(unsigned long long)p->n_slots, (unsigned long long)l->slot_bytes);
	sink_fmt(out, "  total      %15llu bytes of %llu allowed\n",
		(unsigned long long)(p->weights_bytes + p->workspace_bytes +
				     p->arena_bytes),
		(unsigned long long)p->budget_bytes);
	sink_fmt(out, "%llu tokens, at most %llu requests of %u tokens\n",
		(unsigned long long)tokens,
		(unsigned long long)MIN(p->n_slots - 1, (p->n_pages - 1) / each),
		p->len_max);
	if (p->described)
		described_text(l, out);
}
