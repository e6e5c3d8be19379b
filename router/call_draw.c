/* How the tokens of a call are drawn: from the client's members to its requests. */
#include "common/base/mem.h"
#include "router/call.h"

uint32_t call_prompt_of(const struct choice *c)
{
	return c->index / c->call->gen.n;
}

static bool no_memory(struct api_error *e)
{
	api_error_set(
		e, 503, "overloaded", NULL, "The router has no memory for this request.");
	return false;
}

static bool list_stop_ids(struct call *call, struct api_error *e)
{
	const struct gen_request *gen = &call->gen;
	size_t n_eos = gen->ignore_eos ? 0 : call->rt->n_eos;
	size_t n = MIN(n_eos, STOP_IDS_MAX - API_STOP_IDS_MAX);

	call->stop_ids = mem_take(MAX(n + gen->n_stop_token_ids, 1u), sizeof(uint32_t));
	if (call->stop_ids == NULL)
		return no_memory(e);
	for (size_t i = 0; i < n; i++)
		call->stop_ids[call->n_stop_ids++] = call->rt->eos[i];
	for (size_t i = 0; i < gen->n_stop_token_ids; i++)
		call->stop_ids[call->n_stop_ids++] = gen->stop_token_ids[i];
	return true;
}

static bool wants_scores(const struct gen_request *gen)
{
	return gen->prompt_logprobs || (gen->echo && gen->logprobs);
}

bool call_draw_prepare(struct call *call, struct api_error *e)
{
	struct gen_request *gen = &call->gen;

	if (!api_grammar_alone(gen, e) || !list_stop_ids(call, e))
		return false;
	gen->draw.bias = (struct bytes){
		(const uint8_t *)gen->bias, gen->n_bias * sizeof(*gen->bias)};
	/* Until min_tokens have come nothing is drawn that would end the answer. */
	if (gen->draw.min_tokens > 0)
		gen->draw.bans = (struct bytes){(const uint8_t *)call->stop_ids,
			call->n_stop_ids * sizeof(*call->stop_ids)};
	if (!wants_scores(gen))
		return true;
	call->prompts = mem_take(MAX(gen->n_prompts, 1u), sizeof(*call->prompts));
	return call->prompts != NULL || no_memory(e);
}

void call_draw_fill(const struct call *call, const struct choice *c, struct request *r)
{
	const struct gen_request *gen = &call->gen;
	uint32_t k = c->index % gen->n;

	r->draw = gen->draw;
	r->stop_ids = call->stop_ids;
	r->n_stop_ids = call->n_stop_ids;
	r->stop = &gen->stop;
	r->choice = k;
	r->n_choices = k == 0 ? gen->n : 1;
	r->leader = k == 0 ? 0 : r->seq - k;
	r->score = k == 0 && call->prompts != NULL;
	r->score_top = MAX(
		gen->n_prompt_logprobs, gen->echo ? (uint32_t)gen->draw.top_logprobs : 0);
}

void call_draw_release(struct call *call)
{
	for (uint32_t i = 0; call->prompts != NULL && i * call->gen.n < call->n; i++)
		logprobs_release(&call->prompts[i]);
	mem_give(call->prompts);
	mem_give(call->stop_ids);
}
