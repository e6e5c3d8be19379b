// layers: router
/* Bodies of HTTP requests. The first byte chooses the parser. What is accepted must be
 * whole; what is refused must hold nothing and be said in valid UTF-8; no memory may be
 * left behind. */
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "router/api_out.h"

#include <stdlib.h>
#include <string.h>

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void check_error(const struct api_error *e)
{
	struct sink out;

	check(e->http >= 400 && e->http < 600 && e->type != NULL);
	check(e->message[0] != '\0');
	check(utf8_valid_len(bytes_of_str(e->message)) == strlen(e->message));
	check(utf8_valid_len(bytes_of_str(e->param)) == strlen(e->param));
	sink_init(&out, 8192);
	out_error(&out, e);
	check(!out.full);
	sink_release(&out);
}

static void check_gen(bool ok, struct gen_request *req, const struct api_error *e)
{
	if (!ok) {
		check(req->model == NULL && req->render == NULL && req->prompts == NULL);
		check_error(e);
		return;
	}
	check(req->n >= 1 && req->n <= API_CHOICES_MAX);
	check(req->stop.n <= STOP_STRINGS_MAX);
	check((uint64_t)req->n * MAX(req->n_prompts, 1) <= API_ANSWERS_MAX);
	check(req->n_bias <= API_BIAS_MAX && req->n_stop_token_ids <= API_STOP_IDS_MAX);
	check(req->draw.top_logprobs <= API_LOGPROBS_MAX);
	check(req->n_prompt_logprobs <= API_LOGPROBS_MAX);
	check(req->draw.presence >= -2 && req->draw.presence <= 2);
	check(req->draw.frequency >= -2 && req->draw.frequency <= 2 &&
		req->draw.repetition >= 0);
	check((req->render != NULL) == (req->n_prompts == 0));
	check(!req->has_max_tokens || req->max_tokens > 0 || req->echo);
	check(req->draw.temperature >= 0 && req->draw.temperature <= 2);
	check(req->draw.top_p >= 0 && req->draw.top_p <= 1);
	for (size_t i = 0; i < req->n_prompts; i++) {
		check((req->prompts[i].text == NULL) != (req->prompts[i].ids == NULL));
		check(req->prompts[i].len > 0 || req->prompts[i].n_ids > 0);
	}
	if (req->render != NULL)
		check(utf8_valid_len((struct bytes){(const uint8_t *)req->render,
			      req->render_len}) == req->render_len);
	gen_request_release(req);
}

static void check_tok(bool ok, struct tok_request *req, const struct api_error *e)
{
	if (!ok) {
		check(req->text == NULL && req->render == NULL);
		check_error(e);
		return;
	}
	check((req->text == NULL) != (req->render == NULL));
	tok_request_release(req);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct api_options options = {0};
	struct gen_request gen;
	struct tok_request tok;
	struct detok_request detok;
	struct api_error e;
	struct sink body;
	bool ok;

	if (size == 0)
		return 0;
	sink_init(&body, size);
	sink_put(&body, data + 1, size - 1);
	options.strict_template = data[0] & 4;
	switch (data[0] % 4 + (data[0] & 8 ? 4 : 0)) {
	case 0:
		ok = api_parse_chat(&gen, &body, &options, &e);
		check_gen(ok, &gen, &e);
		break;
	case 1:
		ok = api_parse_completion(&gen, &body, &options, &e);
		check_gen(ok, &gen, &e);
		break;
	case 4:
		ok = api_parse_messages(&gen, &body, &options, &e);
		check_gen(ok, &gen, &e);
		break;
	case 5:
		ok = api_parse_responses(&gen, &body, &options, &e);
		check_gen(ok, &gen, &e);
		break;
	case 6:
		check_tok(api_parse_count(&tok, &body, &options, &e), &tok, &e);
		break;
	case 2:
		check_tok(api_parse_tokenize(&tok, &body, &options, &e), &tok, &e);
		break;
	default:
		if (!api_parse_detokenize(&detok, &body, &e)) {
			check(detok.ids == NULL);
			check_error(&e);
			break;
		}
		detok_request_release(&detok);
		break;
	}
	sink_release(&body);
	check(mem_taken() == 0);
	return 0;
}
