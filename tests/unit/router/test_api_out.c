/* Answers: each is parsed back and compared whole with what it must be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/json_write.h"
#include "common/base/mem.h"
#include "router/format.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Single quotes stand for double ones in what is wanted. */
static json_t *wanted(const char *text)
{
	char *copy = strdup(text);
	json_t *v;

	for (char *c = copy; *c != '\0'; c++)
		if (*c == '\'')
			*c = '"';
	v = json_loads(copy, JSON_DECODE_ANY, NULL);
	if (v == NULL)
		fail_msg("not JSON: %s", copy);
	free(copy);
	return v;
}

static void check_json(const char *got, size_t len, const char *want)
{
	json_t *a = json_loadb(got, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
	json_t *b = wanted(want);

	if (a == NULL || !json_equal(a, b))
		fail_msg("%.*s\nis not\n%s", (int)len, got, want);
	json_decref(a);
	json_decref(b);
}

static void check_whole(struct sink *s, const char *want)
{
	assert_false(s->full);
	check_json((const char *)s->at, s->len, want);
	sink_reset(s);
}

/* Exactly one event: "data: ", one line of JSON, an empty line. */
static void check_event(struct sink *s, const char *want)
{
	const char *text = sink_cstr(s);

	assert_false(s->full);
	assert_memory_equal(text, "data: ", 6);
	assert_true(s->len > 8);
	assert_string_equal(text + s->len - 2, "\n\n");
	assert_null(memchr(text, '\n', s->len - 2));
	assert_null(memchr(text, '\r', s->len));
	check_json(text + 6, s->len - 8, want);
	sink_reset(s);
}

static const struct out_head head = {
	.id = "chatcmpl-1", .model = "m\"x", .created = 1700000000};
static const struct out_usage usage = {10, 5, 3, 2};

#define USAGE                                                                            \
	"'usage':{'prompt_tokens':10,'completion_tokens':5,'total_tokens':15,"           \
	"'prompt_tokens_details':{'cached_tokens':3},"                                   \
	"'completion_tokens_details':{'reasoning_tokens':2}}"
#define HEAD(object)                                                                     \
	"'id':'chatcmpl-1','object':'" object "','created':1700000000,"                  \
	"'model':'m\\\"x','system_fingerprint':null"
#define CHUNK(choices)      "{" HEAD("chat.completion.chunk") ",'choices':[" choices "]}"
#define PART(k, t)          (&(struct out_part){.kind = (k), .text = BYTES_STR(t)})
#define TEXT_CHUNK(choices) "{" HEAD("text_completion") ",'choices':[" choices "]}"

static void a_chat_answer_has_its_members(void **state)
{
	const struct out_choice choices[] = {
		{.index = 0,
			.content = BYTES_STR("hi"),
			.reasoning = BYTES_STR("why"),
			.finish = ANSWER_STOP,
			.stop = OUT_STOP_NONE},
		{.index = 1, .finish = ANSWER_LENGTH, .stop = {{NULL, 0}, 77}},
	};
	struct sink s;

	(void)state;
	sink_init(&s, 1 << 16);
	format_chat.whole(&s, &head, choices, 2, &usage);
	check_whole(&s,
		"{" HEAD("chat.completion") ",'choices':[{'index':0,'message':"
					    "{'role':'assistant','content':'hi','"
					    "reasoning':'why',"
					    "'reasoning_content':'why'},'logprobs':null,'"
					    "finish_reason':'stop',"
					    "'stop_reason':null},{'index':1,'message':{'"
					    "role':'assistant',"
					    "'content':null},'logprobs':null,'finish_"
					    "reason':'length',"
					    "'stop_reason':77}]," USAGE "}");
	sink_release(&s);
}

static void a_chat_stream_has_its_chunks(void **state)
{
	struct out_head each = head;
	struct sink s;

	(void)state;
	sink_init(&s, 1 << 16);
	format_chat.first(&s, &head, 0);
	check_event(&s, CHUNK("{'index':0,'delta':{'role':'assistant','content':''},"
			      "'logprobs':null,'finish_reason':null}"));
	format_chat.delta(&s, &head, 0, PART(PART_REASONING, "th\nink"));
	check_event(&s, CHUNK("{'index':0,'delta':{'reasoning':'th\\nink',"
			      "'reasoning_content':'th\\nink'},'logprobs':null,"
			      "'finish_reason':null}"));
	format_chat.delta(&s, &head, 3, PART(PART_CONTENT, "x"));
	check_event(&s, CHUNK("{'index':3,'delta':{'content':'x'},'logprobs':null,"
			      "'finish_reason':null}"));
	format_chat.finish(
		&s, &head, 0, ANSWER_STOP, (struct out_stop){BYTES_STR("END"), -1});
	check_event(&s, CHUNK("{'index':0,'delta':{},'logprobs':null,"
			      "'finish_reason':'stop','stop_reason':'END'}"));
	format_chat.usage(&s, &head, &usage);
	check_event(&s, "{" HEAD("chat.completion.chunk") ",'choices':[]," USAGE "}");
	each.usage = &usage;
	format_chat.delta(&s, &each, 0, PART(PART_CONTENT, "x"));
	check_event(&s,
		"{" HEAD("chat.completion.chunk") ",'choices':[{'index':0,'delta':"
						  "{'content':'x'},'logprobs':null,'"
						  "finish_reason':null}]," USAGE "}");
	format_chat.done(&s, &head);
	assert_string_equal(sink_cstr(&s), "data: [DONE]\n\n");
	sink_reset(&s);
	out_sse_keepalive(&s);
	assert_string_equal(sink_cstr(&s), ":\n\n");
	sink_release(&s);
}

/* A call's id, type and name stand in its first chunk alone; its end is no chunk. */
static void a_call_is_told_in_pieces_and_whole(void **state)
{
	struct parts p;
	struct sink s;
	char want[1024];

	(void)state;
	sink_init(&s, 1 << 16);
	parts_init(&p, 1 << 10);
	parts_text(&p, PART_CONTENT, BYTES_STR("so:"));
	parts_call(&p, BYTES_STR("f"));
	parts_arguments(&p, BYTES_STR("{\"a\":"));
	parts_arguments(&p, BYTES_STR("12"));
	parts_told(&p);
	parts_arguments(&p, BYTES_STR("3}"));
	parts_call_end(&p);
	parts_call(&p, BYTES_STR("g"));
	assert_int_equal(p.n, 3);
	assert_int_equal(p.n_complete, 1);
	assert_false(parts_full(&p));
	for (uint32_t i = 0; i < p.n; i++) {
		struct out_part part = parts_get(&p, i);
		size_t before = s.len;

		format_chat.delta(&s, &head, 0, &part);
		if (part.kind == PART_CALL_END)
			assert_int_equal(s.len, before);
		else if (part.kind == PART_ARGUMENTS)
			check_event(&s, CHUNK("{'index':0,'delta':{'tool_calls':[{'index'"
					      ":0,'function':{'arguments':'3}'}}]},"
					      "'logprobs':null,'finish_reason':null}"));
	}
	assert_memory_equal(p.calls[1].id, "call_", 5);
	assert_int_equal(strlen(p.calls[1].id), 29);
	assert_string_not_equal(p.calls[0].id, p.calls[1].id);
	snprintf(want, sizeof(want),
		CHUNK("{'index':0,'delta':{'tool_calls':[{'index':1,'id':'%s','type':"
		      "'function','function':{'name':'g','arguments':''}}]},'logprobs':"
		      "null,'finish_reason':null}"),
		p.calls[1].id);
	check_event(&s, want);
	format_chat.whole(&s, &head,
		&(struct out_choice){.calls = p.calls,
			.n_calls = 1,
			.finish = ANSWER_CALLS,
			.stop = OUT_STOP_NONE},
		1, &usage);
	snprintf(want, sizeof(want),
		"{" HEAD(
			"chat.completion") ",'choices':[{'index':0,'message':{'role':"
					   "'assistant','content':null,'tool_calls':[{"
					   "'id':'%s','type':'function','function':{"
					   "'name':'f','arguments':'{\\\"a\\\":123}'}}]},"
					   "'logprobs':null,'finish_reason':'tool_calls'"
					   ",'stop_reason':null}]," USAGE "}",
		p.calls[0].id);
	check_whole(&s, want);
	parts_release(&p);
	sink_release(&s);
}

/* Pieces of one text and of one call stand together, in the order of the answer. */
static void parts_are_blocks_in_their_order(void **state)
{
	struct out_block b;
	struct parts p;
	uint32_t i = 0;

	(void)state;
	parts_init(&p, 1 << 10);
	assert_false(parts_block(&p, &i, &b));
	parts_text(&p, PART_REASONING, BYTES_STR("hm"));
	parts_text(&p, PART_CONTENT, BYTES_STR("a"));
	parts_call(&p, BYTES_STR("f"));
	parts_arguments(&p, BYTES_STR("{}"));
	parts_call_end(&p);
	parts_call(&p, BYTES_STR("g"));
	parts_text(&p, PART_CONTENT, BYTES_STR("b"));
	parts_text(&p, PART_CONTENT, BYTES_STR("c"));
	assert_true(parts_block(&p, &i, &b) && b.kind == PART_REASONING);
	assert_memory_equal(b.text.at, "hm", b.text.len);
	assert_true(parts_block(&p, &i, &b) && b.kind == PART_CONTENT);
	assert_int_equal(b.text.len, 1);
	assert_true(parts_block(&p, &i, &b) && b.kind == PART_CALL);
	assert_true(b.call == &p.calls[0] && b.call->complete);
	assert_true(parts_block(&p, &i, &b) && b.kind == PART_CALL);
	assert_true(b.call == &p.calls[1] && !b.call->complete);
	assert_true(parts_block(&p, &i, &b) && b.kind == PART_CONTENT);
	assert_int_equal(b.text.len, 2);
	assert_memory_equal(b.text.at, "bc", 2);
	assert_false(parts_block(&p, &i, &b));
	parts_release(&p);
}

static void a_completion_has_its_members(void **state)
{
	const struct out_choice choices[] = {{.index = 0,
		.content = BYTES_STR("a"),
		.finish = ANSWER_LENGTH,
		.stop = OUT_STOP_NONE}};
	struct sink s;

	(void)state;
	sink_init(&s, 1 << 16);
	format_completion.whole(&s, &head, choices, 1, &usage);
	check_whole(&s, "{" HEAD("text_completion") ",'choices':[{'index':0,'text':'a',"
						    "'logprobs':null,'finish_reason':'"
						    "length','stop_reason':null}]"
						    "," USAGE "}");
	format_completion.delta(&s, &head, 1, PART(PART_CONTENT, "b"));
	check_event(&s, TEXT_CHUNK("{'index':1,'text':'b','logprobs':null,"
				   "'finish_reason':null}"));
	format_completion.finish(&s, &head, 1, ANSWER_STOP, OUT_STOP_NONE);
	check_event(&s, TEXT_CHUNK("{'index':1,'text':'','logprobs':null,"
				   "'finish_reason':'stop','stop_reason':null}"));
	format_completion.usage(&s, &head, &usage);
	check_event(&s, "{" HEAD("text_completion") ",'choices':[]," USAGE "}");
	sink_release(&s);
}

static void errors_have_openais_shape(void **state)
{
	static const struct {
		unsigned http;
		const char *type;
	} types[] = {{400, "invalid_request_error"}, {404, "not_found"},
		{413, "invalid_request_error"}, {429, "rate_limit_error"},
		{500, "server_error"}, {501, "not_implemented"}, {503, "server_error"},
		{504, "timeout"}};
	static const char done[] = "data: [DONE]\n\n";
	struct api_error e;
	struct sink s;

	(void)state;
	sink_init(&s, 1 << 16);
	api_error_set(&e, 400, "invalid_value", "messages[0]", "bad \"%s\" \xff", "x");
	out_error(&s, &e);
	check_whole(&s, "{'error':{'message':'bad \\\"x\\\" ?',"
			"'type':'invalid_request_error','param':'messages[0]',"
			"'code':'invalid_value'}}");
	api_error_set(&e, 500, NULL, NULL, "oh");
	format_chat.error_event(&s, &head, &e);
	assert_string_equal(sink_cstr(&s) + s.len - strlen(done), done);
	s.len -= strlen(done);
	check_event(&s, "{'error':{'message':'oh','type':'server_error','param':null,"
			"'code':null}}");
	for (size_t i = 0; i < COUNT(types); i++) {
		api_error_set(&e, types[i].http, NULL, NULL, "x");
		assert_string_equal(e.type, types[i].type);
	}
	sink_release(&s);
}

static void models_and_tokens_have_their_members(void **state)
{
	const struct out_model models[] = {{.id = "a", .created = 5, .len_max = 4096},
		{.id = "b", .root = "/m", .created = 6, .len_max = 1}};
	const uint32_t ids[] = {7, 4294967294u};
	const struct bytes pieces[] = {BYTES_STR("\u00e9"), BYTES_STR("\xc3")};
	struct sink s;

	(void)state;
	sink_init(&s, 1 << 16);
	out_models(&s, models, 2);
	check_whole(&s,
		"{'object':'list','data':[{'id':'a','object':'model','created':5,"
		"'owned_by':'baton','root':'a','parent':null,'max_model_len':4096,"
		"'permission':[]},{'id':'b','object':'model','created':6,"
		"'owned_by':'baton','root':'/m','parent':null,'max_model_len':1,"
		"'permission':[]}]}");
	out_tokens(&s, TOK_SHAPE_VLLM, ids, 2, NULL, 4096);
	check_whole(&s, "{'count':2,'max_model_len':4096,'tokens':[7,4294967294],"
			"'token_strs':null}");
	out_tokens(&s, TOK_SHAPE_VLLM, ids, 2, pieces, 4096);
	check_whole(&s, "{'count':2,'max_model_len':4096,'tokens':[7,4294967294],"
			"'token_strs':['\u00e9','\ufffd']}");
	out_tokens(&s, TOK_SHAPE_LLAMA, ids, 2, NULL, 4096);
	check_whole(&s, "{'tokens':[7,4294967294]}");
	out_tokens(&s, TOK_SHAPE_LLAMA, ids, 2, pieces, 4096);
	check_whole(&s, "{'tokens':[{'id':7,'piece':'\u00e9'},"
			"{'id':4294967294,'piece':[195]}]}");
	out_text(&s, BYTES_STR("x\"y"));
	check_whole(&s, "{'prompt':'x\\\"y','content':'x\\\"y'}");
	sink_release(&s);
}

/* Every code point as JSON and back; those that break lines or scripts never bare. */
static void every_character_survives_escaping(void **state)
{
	struct sink text, json;
	struct json_out w;

	(void)state;
	sink_init(&text, 1 << 24);
	sink_init(&json, 1 << 25);
	for (uint32_t cp = 1; cp <= 0x10FFFF; cp += cp < 0x3000 ? 1 : 37) {
		uint8_t u[4];
		size_t n = 0;

		if (cp >= 0xD800 && cp < 0xE000)
			continue;
		if (cp < 0x80) {
			u[n++] = (uint8_t)cp;
		} else if (cp < 0x800) {
			u[n++] = (uint8_t)(0xC0 | cp >> 6);
			u[n++] = (uint8_t)(0x80 | (cp & 63));
		} else if (cp < 0x10000) {
			u[n++] = (uint8_t)(0xE0 | cp >> 12);
			u[n++] = (uint8_t)(0x80 | (cp >> 6 & 63));
			u[n++] = (uint8_t)(0x80 | (cp & 63));
		} else {
			u[n++] = (uint8_t)(0xF0 | cp >> 18);
			u[n++] = (uint8_t)(0x80 | (cp >> 12 & 63));
			u[n++] = (uint8_t)(0x80 | (cp >> 6 & 63));
			u[n++] = (uint8_t)(0x80 | (cp & 63));
		}
		sink_put(&text, u, n);
	}
	json_out_init(&w, &json);
	json_put_bytes(&w, sink_bytes(&text));
	for (size_t i = 0; i < json.len; i++)
		assert_true(json.at[i] >= 0x20 && json.at[i] != 0x7F);
	assert_null(strstr(sink_cstr(&json), "\u2028"));
	assert_null(strstr(sink_cstr(&json), "\u2029"));
	assert_non_null(strstr(sink_cstr(&json), "\u2027\\u2028\\u2029\u202a"));
	{
		json_t *v = json_loadb(
			(const char *)json.at, json.len, JSON_DECODE_ANY, NULL);

		assert_non_null(v);
		assert_int_equal(json_string_length(v), text.len);
		assert_memory_equal(json_string_value(v), text.at, text.len);
		json_decref(v);
	}
	sink_release(&json);
	sink_release(&text);
	assert_int_equal(mem_taken(), 0);
}

static void ids_are_distinct_and_say_their_kind(void **state)
{
	char a[OUT_ID_BYTES], b[OUT_ID_BYTES];

	(void)state;
	out_id_make(a, format_chat.id_prefix);
	out_id_make(b, format_chat.id_prefix);
	assert_memory_equal(a, "chatcmpl-", 9);
	assert_int_equal(strlen(a), 9 + 32);
	assert_string_not_equal(a, b);
	out_id_make(b, format_completion.id_prefix);
	assert_memory_equal(b, "cmpl-", 5);
}

static void an_answer_that_does_not_fit_is_marked(void **state)
{
	struct sink s;

	(void)state;
	sink_init(&s, 100);
	format_chat.delta(&s, &head, 0, PART(PART_CONTENT, "x"));
	assert_true(s.full);
	sink_release(&s);
}

/* Each dialect has its path, its ids and its errors; other paths have OpenAI's errors. */
static void a_path_leads_to_its_dialect(void **state)
{
	struct api_error e;
	struct sink s, own;

	(void)state;
	assert_ptr_equal(format_of("/v1/chat/completions"), &format_chat);
	assert_ptr_equal(format_of("/v1/completions"), &format_completion);
	assert_null(format_of("/v1/completions/"));
	assert_null(format_of("/tokenize"));
	api_error_set(&e, 400, "x", NULL, "y");
	sink_init(&s, 1000);
	sink_init(&own, 1000);
	format_error(&s, "/v1/completions", &e);
	format_completion.error(&own, &e);
	assert_string_equal(sink_cstr(&s), sink_cstr(&own));
	sink_reset(&s);
	sink_reset(&own);
	format_error(&s, "/other", &e);
	out_error(&own, &e);
	assert_string_equal(sink_cstr(&s), sink_cstr(&own));
	sink_release(&s);
	sink_release(&own);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_path_leads_to_its_dialect),
		cmocka_unit_test(a_chat_answer_has_its_members),
		cmocka_unit_test(a_chat_stream_has_its_chunks),
		cmocka_unit_test(a_call_is_told_in_pieces_and_whole),
		cmocka_unit_test(parts_are_blocks_in_their_order),
		cmocka_unit_test(a_completion_has_its_members),
		cmocka_unit_test(errors_have_openais_shape),
		cmocka_unit_test(models_and_tokens_have_their_members),
		cmocka_unit_test(every_character_survives_escaping),
		cmocka_unit_test(ids_are_distinct_and_say_their_kind),
		cmocka_unit_test(an_answer_that_does_not_fit_is_marked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
