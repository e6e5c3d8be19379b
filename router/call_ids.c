/* The ids of a choice, its prompt's first, for an answer that shows them. */
#include "common/base/mem.h"
#include "router/call.h"

#include <string.h>

static bool make_room(struct choice_ids *ids, uint32_t more)
{
	uint32_t cap = ids->n + more + MAX(ids->n / 2, 64u);
	uint32_t *grown;

	if (ids->n + more <= ids->cap)
		return true;
	grown = mem_regrow(ids->v, (size_t)cap * sizeof(*grown));
	if (grown == NULL)
		return false;
	ids->v = grown;
	ids->cap = cap;
	return true;
}

bool call_ids_begin(struct choice *c, const struct request *r)
{
	if (!c->call->gen.return_ids)
		return true;
	if (!make_room(&c->ids, r->n_prompt))
		return false;
	memcpy(c->ids.v, r->ids, r->n_prompt * sizeof(*r->ids));
	c->ids.n = c->ids.n_prompt = c->ids.written = r->n_prompt;
	return true;
}

bool call_ids_add(struct choice *c, uint32_t token)
{
	if (!c->call->gen.return_ids)
		return true;
	if (!make_room(&c->ids, 1))
		return false;
	c->ids.v[c->ids.n++] = token;
	return true;
}

void call_ids_next(struct choice *c, struct out_ids *out)
{
	struct choice_ids *ids = &c->ids;

	if (!c->call->gen.return_ids)
		return;
	*out = (struct out_ids){.given = true,
		.token = ids->v + ids->written,
		.n_token = ids->n - ids->written};
	if (!c->began) {
		out->prompt = ids->v;
		out->n_prompt = ids->n_prompt;
	}
	ids->written = ids->n;
}
