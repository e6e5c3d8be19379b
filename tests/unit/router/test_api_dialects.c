/* Bodies of Anthropic's messages and OpenAI's responses: what becomes of them for the
 * template, and what is refused. */
#include "api_rig.h"

struct row {
	char kind; /* m or r */
	const char *body, *render;
};

#define ASKS       ",'add_generation_prompt':true,'continue_final_message':false}"
#define NO_THOUGHT ",'kwargs':{'enable_thinking':false}"
#define HI         "{'role':'user','content':'hi'}"
#define TOOL                                                                             \
	"'tools':[{'type':'function','function':{'name':'f','description':'d',"          \
	"'parameters':{'type':'object'}}}]"

static const struct row taken[] = {
	{'m', "{'max_tokens':1,'messages':[" HI "]}",
		"{'messages':[" HI "]" NO_THOUGHT ASKS},
	{'m',
		"{'max_tokens':1,'system':[{'type':'text','text':'a'},{'type':'text','"
		"text':"
		"'b'}],'messages':[" HI "],'thinking':{'type':'adaptive'}}",
		"{'messages':[{'role':'system','content':'ab'}," HI
		"],'kwargs':{'enable_thinking':true}" ASKS},
	/* What a tool gave stands between texts in its order. */
	{'m',
		"{'max_tokens':1,'messages':[{'role':'user','content':[{'type':'text','"
		"text':"
		"'a'},{'type':'tool_result','tool_use_id':'t','is_error':true,'content':["
		"{"
		"'type':'text','text':'r'}]},{'type':'text','text':'b'}]}]}",
		"{'messages':[{'role':'user','content':'a'},{'role':'tool','content':'r',"
		"'tool_call_id':'t'},{'role':'user','content':'b'}]" NO_THOUGHT ASKS},
	{'m',
		"{'max_tokens':1,'messages':[{'role':'assistant','content':[{'type':'"
		"thinking',"
		"'thinking':'x','signature':''},{'type':'text','text':'y'},{'type':'tool_"
		"use',"
		"'id':'t','name':'f','input':{'n':9007199254740993}}]},{'role':'user',"
		"'content':[{'type':'tool_result','tool_use_id':'t'}]}]}",
		"{'messages':[{'role':'assistant','content':'y','reasoning_content':'x',"
		"'tool_calls':[{'id':'t','type':'function','function':{'name':'f',"
		"'arguments':{'n':9007199254740993}}}]},{'role':'tool','content':'',"
		"'tool_call_id':'t'}]" NO_THOUGHT ASKS},
	{'m', "{'max_tokens':1,'messages':[" HI ",{'role':'assistant','content':'go'}]}",
		"{'messages':[" HI ",{'role':'assistant','content':'go'}]" NO_THOUGHT
		",'add_generation_prompt':false,'continue_final_message':true}"},
	{'m',
		"{'max_tokens':1,'messages':[" HI
		"],'tools':[{'name':'f','description':'d',"
		"'cache_control':{},'input_schema':{'type':'object'}}]}",
		"{'messages':[" HI "]" NO_THOUGHT "," TOOL ASKS},
	{'m',
		"{'max_tokens':1,'messages':[" HI
		"],'tools':[{'name':'f','description':'d',"
		"'input_schema':{'type':'object'}}],'tool_choice':{'type':'none'}}",
		"{'messages':[" HI "]" NO_THOUGHT ASKS},
	{'r', "{'input':'hi'}", "{'messages':[" HI "],'kwargs':{}" ASKS},
	/* Instructions and what else is the system's are one message, in front. */
	{'r', "{'instructions':'a','input':[" HI ",{'role':'developer','content':'b'}]}",
		"{'messages':[{'role':'system','content':'a\\n\\nb'}," HI
		"],'kwargs':{}" ASKS},
	/* A turn is reasoning, text and calls; the next text is another one. */
	{'r',
		"{'input':[" HI ",{'type':'reasoning','summary':[],'content':[{'type':"
		"'reasoning_text','text':'x'}]},{'type':'message','role':'assistant','"
		"content':"
		"[{'type':'output_text','text':'y'}]},{'type':'function_call','call_id':'"
		"t',"
		"'name':'f','arguments':'{\\'n\\':9007199254740993}'},{'type':"
		"'function_call_output','call_id':'t','output':'r'},{'role':'assistant',"
		"'content':'p'},{'role':'assistant','content':'q'}]}",
		"{'messages':[" HI
		",{'role':'assistant','content':'y','reasoning_content':'x',"
		"'tool_calls':[{'id':'t','type':'function','function':{'name':'f','"
		"arguments':"
		"{'n':9007199254740993}}}]},{'role':'tool','content':'r','tool_call_id':'"
		"t'},"
		"{'role':'assistant','content':'p'},{'role':'assistant','content':'q'}]"
		",'kwargs':{}" ASKS},
	{'r',
		"{'input':'hi','reasoning':{'effort':'none'},'tools':[{'type':'function',"
		"'name':"
		"'f','description':'d','parameters':{'type':'object'},'strict':null}]}",
		"{'messages':[" HI
		"],'kwargs':{'enable_thinking':false,'reasoning_effort':'none'}," TOOL
			ASKS},
};

static void messages_and_items_become_what_templates_know(void **state)
{
	char body[2048], want[2048];
	struct gen_request req;
	struct api_error e;

	(void)state;
	for (size_t i = 0; i < COUNT(taken); i++) {
		const struct row *r = &taken[i];

		if (!parse(r->kind, body_of(r->body, body, sizeof(body)), &req, &e))
			fail_msg("%s: %s", r->body, e.message);
		body_of(r->render, want, sizeof(want));
		assert_string_equal(req.render, want);
		assert_int_equal(req.render_len, strlen(want));
		gen_request_release(&req);
	}
	assert_int_equal(mem_taken(), 0);
}

static void a_count_is_of_the_same_prompt(void **state)
{
	char body[2048];
	struct gen_request req;
	struct tok_request tok;
	struct api_error e;
	struct sink s;

	(void)state;
	for (size_t i = 0; i < COUNT(taken) && taken[i].kind == 'm'; i++) {
		struct bytes text = body_of(taken[i].body, body, sizeof(body));

		s = copy_of(text);
		assert_true(api_parse_count(&tok, &s, &lax, &e));
		assert_true(parse('m', text, &req, &e));
		assert_int_equal(tok.shape, TOK_SHAPE_COUNT);
		assert_string_equal(tok.render, req.render);
		sink_release(&s);
		gen_request_release(&req);
		tok_request_release(&tok);
	}
	s = copy_of(body_of("{'messages':[" HI "]}", body, sizeof(body)));
	assert_true(api_parse_count(&tok, &s, &lax, &e));
	sink_release(&s);
	tok_request_release(&tok);
	assert_int_equal(mem_taken(), 0);
}

/* Both dialects say what they take: a member that another one acts on is not left out in
 * silence. */
static void members_of_other_dialects_are_refused_by_name(void **state)
{
	static const struct {
		char kind;
		const char *body, *param;
	} rows[] = {
		{'m', "{'max_tokens':1,'messages':[" HI "],'seed':1}", "seed"},
		{'m', "{'max_tokens':1,'messages':[" HI "],'stop':'x'}", "stop"},
		{'m', "{'max_tokens':1,'messages':[" HI "],'guided_json':{}}",
			"guided_json"},
		{'r', "{'input':'x','max_tokens':1}", "max_tokens"},
		{'r', "{'input':'x','messages':[]}", "messages"},
		{'r', "{'input':'x','response_format':{'type':'json_object'}}",
			"response_format"},
	};
	char body[512];
	struct gen_request req;
	struct api_error e;

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		assert_false(parse(rows[i].kind,
			body_of(rows[i].body, body, sizeof(body)), &req, &e));
		assert_string_equal(e.code, "unsupported_parameter");
		assert_string_equal(e.param, rows[i].param);
	}
	assert_true(parse(
		'r', body_of("{'input':'x','unheard':1}", body, sizeof(body)), &req, &e));
	assert_string_equal(req.ignored, "unheard");
	gen_request_release(&req);
	assert_int_equal(mem_taken(), 0);
}

static void a_response_mirrors_its_request(void **state)
{
	char body[512], want[1024];
	struct gen_request req;
	struct api_error e;

	(void)state;
	assert_true(parse('r',
		body_of("{'input':'x','temperature':0.50,'max_output_tokens':7}", body,
			sizeof(body)),
		&req, &e));
	body_of("{'instructions':null,'max_output_tokens':7,'metadata':{},'parallel_tool_"
		"calls':true,"
		"'reasoning':{'effort':null,'summary':null},'temperature':0.50,'text':{"
		"'format':{'type':'text'}},'tool_choice':'auto','tools':[],'top_p':null}",
		want, sizeof(want));
	assert_int_equal(req.mirror_len, strlen(want));
	assert_memory_equal(req.mirror, want, req.mirror_len);
	assert_true(req.has_max_tokens && req.max_tokens == 7);
	gen_request_release(&req);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_and_items_become_what_templates_know),
		cmocka_unit_test(a_count_is_of_the_same_prompt),
		cmocka_unit_test(members_of_other_dialects_are_refused_by_name),
		cmocka_unit_test(a_response_mirrors_its_request),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
