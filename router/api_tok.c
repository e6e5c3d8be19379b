/* Bodies of /tokenize and /detokenize. vLLM's and llama.cpp's shapes are told apart by
 * their members. */
#include "common/base/mem.h"
#include "router/api_json.h"
#include "router/tools.h"

void tok_request_release(struct tok_request *req)
{
	mem_give(req->model);
	mem_give(req->text);
	mem_give(req->render);
	*req = (struct tok_request){0};
}

void detok_request_release(struct detok_request *req)
{
	mem_give(req->model);
	mem_give(req->ids);
	*req = (struct detok_request){0};
}

static bool parse_messages(const struct json *object, const struct api_options *options,
	struct tok_request *req, struct api_error *e)
{
	struct api_render render = {0};
	enum api_prompt_end end;
	struct tool_set tools;
	bool ok;

	ok = tools_parse(object, &tools_chat_form, &tools, e);
	tools_release(&tools);
	if (!ok || !api_chat_end(object, &end, e) ||
		!api_chat_render(object, options, end, &render, e))
		return false;
	req->render = render.text;
	req->render_len = render.len;
	return true;
}

static bool parse_tokenize(const struct json *object, const struct api_options *options,
	struct tok_request *req, struct api_error *e)
{
	const struct json *content = json_given(object, "content");
	const struct json *prompt = json_given(object, "prompt");
	const struct json *messages = json_given(object, "messages");

	if ((content != NULL) + (prompt != NULL) + (messages != NULL) != 1) {
		api_error_set(e, 400, "missing_required_parameter", NULL,
			"Exactly one of prompt, messages, content is required.");
		return false;
	}
	req->parse_special = true;
	if (!api_json_name(object, "model", &req->model, e))
		return false;
	if (content != NULL) {
		req->shape = TOK_SHAPE_LLAMA;
		return api_json_text(object, "content", &req->text, &req->len, e) &&
		       api_json_bool(object, "with_pieces", &req->with_pieces, NULL, e) &&
		       api_json_bool(
			       object, "parse_special", &req->parse_special, NULL, e);
	}
	req->shape = TOK_SHAPE_VLLM;
	if (!api_json_bool(object, "return_token_strs", &req->with_pieces, NULL, e))
		return false;
	if (prompt != NULL)
		return api_json_text(object, "prompt", &req->text, &req->len, e);
	return parse_messages(object, options, req, e);
}

bool api_parse_tokenize(struct tok_request *req, struct sink *body,
	const struct api_options *options, struct api_error *e)
{
	struct json_doc doc;
	const struct json *object = api_json_body(&doc, body, e);
	bool ok;

	*req = (struct tok_request){0};
	ok = object != NULL && parse_tokenize(object, options, req, e);
	if (!ok)
		tok_request_release(req);
	json_release(&doc);
	return ok;
}

static bool parse_detokenize(
	const struct json *object, struct detok_request *req, struct api_error *e)
{
	const struct json *tokens = json_given(object, "tokens");

	if (!api_json_name(object, "model", &req->model, e))
		return false;
	if (!json_is(tokens, JSON_ARRAY))
		return api_json_refuse(e, "tokens", tokens, "a list of token ids");
	/* No tokens are a text too: the empty one. */
	return json_count(tokens) == 0 ||
	       api_json_ids(tokens, "tokens", &req->ids, &req->n_ids, e);
}

bool api_parse_detokenize(
	struct detok_request *req, struct sink *body, struct api_error *e)
{
	struct json_doc doc;
	const struct json *object = api_json_body(&doc, body, e);
	bool ok;

	*req = (struct detok_request){0};
	ok = object != NULL && parse_detokenize(object, req, e);
	if (!ok)
		detok_request_release(req);
	json_release(&doc);
	return ok;
}
