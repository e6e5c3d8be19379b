/* Bodies that are refused: status, code, member and words of the message. */
#include "api_rig.h"

static const struct {
	char kind;
	const char *body, *code, *param, *words;
} refused[] = {
	{'c', "", "invalid_json", "", "empty"},
	{'c', "[]", "invalid_json", "", "JSON object"},
	{'c', "'x'", "invalid_json", "", "JSON object"},
	{'c', "null", "invalid_json", "", "JSON object"},
	{'c', "NaN", "invalid_json", "", "not valid JSON"},
	{'c', "{", "invalid_json", "", "not valid JSON"},
	{'c', "{} x", "invalid_json", "", "not valid JSON"},
	{'c', "{'a':1,'a':2}", "invalid_json", "", "\"a\" stands there twice"},
	{'c', "{'a':'\xff'}", "invalid_json", "", "line 1 column 7"},
	{'c', "{'a':'\xc0\xaf'}", "invalid_json", "", "not valid JSON"},
	{'c', "{'a':'x',\n'b':'\\ud83d'}", "invalid_json", "", "line 2 column 6"},
	{'c', "{'a':'\\udc00'}", "invalid_json", "", "not valid JSON"},
	{'c', "{'\\ud83d':1}", "invalid_json", "", "not valid JSON"},
	{'p', "{" P ",'seed':9,}", "invalid_json", "", "not valid JSON"},
	{'p', "[99999999999999999999]", "invalid_json", "", "must be a JSON object"},
	/* A number that nobody reads is nobody's fault; one that is read must fit. */
	{'c', "{'a':1e400}", "missing_required_parameter", "messages", "required"},
	{'c', "{'seed':9223372036854775808," M "}", "invalid_value", "seed",
		"a 64-bit integer, not 9223372036854775808"},
	{'c', "{'seed':-99999999999999999999," M "}", "invalid_value", "seed", "64-bit"},
	{'c', "{'seed':1e400," M "}", "invalid_value", "seed", "not 1e400"},
	{'c', "{'temperature':1e400," M "}", "invalid_value", "temperature", "not 1e400"},
	{'c', "{'temperature':-1e400," M "}", "invalid_value", "temperature", "0 to 2"},
	{'c', "{'temperature':NaN," M "}", "invalid_json", "", "not valid JSON"},
	{'c', "{'max_tokens':5.0000000000000000000001," M "}", "invalid_value",
		"max_tokens", "not 5.0000000000000000000001"},
	{'c', "{" M ",'logit_bias':{'5':1e400}}", "invalid_value", "logit_bias",
		"from -100"},
	{'c', "{" M ",'priority':1e400}", "unsupported_parameter", "priority", "not"},
	{'p', "{'prompt':[1,99999999999999999999],'seed':1}", "invalid_value",
		"prompt[1]", "not 99999999999999999999"},
	/* U+0000 is text, and part of no name. */
	{'c', "{'a':'\\u0000'}", "missing_required_parameter", "messages", "required"},
	{'c', "{" M ",'model':'m\\u0000'}", "invalid_value", "model",
		"without U+0000, not \"m\\u0000\""},
	{'c', "{'messages':[{'role':'user\\u0000','content':'x'}]}", "invalid_value",
		"messages[0].role", "one of"},
	{'c', "{" M ",'reasoning_effort':'low\\u0000'}", "invalid_value",
		"reasoning_effort", "minimal"},
	{'c', "{" M ",'logit_bias':{'5\\u0000':1}}", "invalid_value", "logit_bias",
		"token ids"},
	{'c',
		"{'messages':[{'role':'user','content':[{'type':'text\\u0000','text':"
		"'x'}]}]}",
		"invalid_value", "messages[0].content[0]", "text-only server"},
	{'c', "{}", "missing_required_parameter", "messages", "messages is required"},
	{'c', "{'messages':[]}", "invalid_value", "messages", "non-empty"},
	{'c', "{'messages':'x'}", "invalid_value", "messages", "not \"x\""},
	{'c', "{'messages':[1]}", "invalid_value", "messages[0]", "an object"},
	{'c', "{'messages':[{'content':'x'}]}", "missing_required_parameter",
		"messages[0].role", "role is required"},
	{'c', "{'messages':[{'role':'bot','content':'x'}]}", "invalid_value",
		"messages[0].role", "not \"bot\""},
	{'c', "{'messages':[{'role':'user','content':5}]}", "invalid_value",
		"messages[0].content", "text parts, not 5"},
	{'c', "{'messages':[{'role':'user','content':['x']}]}",
		"missing_required_parameter", "messages[0].content[0].type", "type"},
	{'c', "{'messages':[{'role':'user','content':[{'type':'text'}]}]}",
		"missing_required_parameter", "messages[0].content[0].text", "string"},
	{'c',
		"{'messages':[{'role':'user','content':[{'type':'image_url',"
		"'image_url':{'url':'x'}}]}]}",
		"invalid_value", "messages[0].content[0]", "text-only server"},
	{'c', "{'messages':[{'role':'assistant','reasoning':[]}]}", "invalid_value",
		"messages[0].reasoning", "a string"},
	{'c', "{'messages':[{'role':'assistant','tool_calls':{}}]}", "invalid_value",
		"messages[0].tool_calls", "a list"},
	{'c', "{'messages':[{'role':'assistant','tool_calls':[{}]}]}",
		"missing_required_parameter", "messages[0].tool_calls[0].function",
		"an object"},
	{'c', "{'messages':[{'role':'assistant','tool_calls':[{'function':{}}]}]}",
		"missing_required_parameter", "messages[0].tool_calls[0].function.name",
		"a string"},
	{'c',
		"{'messages':[{'role':'assistant','tool_calls':[{'function':"
		"{'name':'f','arguments':'{x'}}]}]}",
		"invalid_json", "messages[0].tool_calls[0].function.arguments",
		"not valid JSON"},
	{'c',
		"{'messages':[{'role':'assistant','tool_calls':[{'function':"
		"{'name':'f','arguments':'[1]'}}]}]}",
		"invalid_json", "messages[0].tool_calls[0].function.arguments",
		"must be a JSON object"},
	{'c',
		"{'messages':[{'role':'assistant','tool_calls':[{'function':"
		"{'name':'f','arguments':7}}]}]}",
		"invalid_value", "messages[0].tool_calls[0].function.arguments",
		"JSON object, not 7"},
	{'c', "{" M ",'model':7}", "invalid_value", "model", "a string, not 7"},
	{'c', "{" M ",'max_tokens':0}", "invalid_value", "max_tokens", "from 1"},
	{'c', "{" M ",'max_tokens':-1}", "invalid_value", "max_tokens", "from 1"},
	{'c', "{" M ",'max_tokens':1.5}", "invalid_value", "max_tokens", "not 1.5"},
	{'c', "{" M ",'max_tokens':'5'}", "invalid_value", "max_tokens", "not \"5\""},
	{'c', "{" M ",'max_tokens':true}", "invalid_value", "max_tokens", "not true"},
	{'c', "{" M ",'max_tokens':1e30}", "invalid_value", "max_tokens", "integer"},
	{'c', "{" M ",'max_completion_tokens':0}", "invalid_value",
		"max_completion_tokens", "from 1"},
	{'c', "{" M ",'temperature':-0.1}", "invalid_value", "temperature", "0 to 2"},
	{'c', "{" M ",'temperature':2.1}", "invalid_value", "temperature", "0 to 2"},
	{'c', "{" M ",'temperature':'1'}", "invalid_value", "temperature", "\"1\""},
	{'c', "{" M ",'top_p':0}", "invalid_value", "top_p", "above 0"},
	{'c', "{" M ",'top_p':1e-60}", "invalid_value", "top_p", "32-bit"},
	{'c', "{" M ",'top_p':1.01}", "invalid_value", "top_p", "at most 1"},
	{'c', "{" M ",'top_k':-2}", "invalid_value", "top_k", "from -1"},
	{'c', "{" M ",'min_p':1.1}", "invalid_value", "min_p", "0 to 1"},
	{'c', "{" M ",'seed':1.5}", "invalid_value", "seed", "64-bit integer"},
	{'c', "{" M ",'stop':''}", "invalid_value", "stop", "non-empty string"},
	{'c', "{" M ",'stop':5}", "invalid_value", "stop", "not 5"},
	{'c', "{" M ",'stop':['a','']}", "invalid_value", "stop[1]", "non-empty"},
	{'c',
		"{" M ",'stop':['a','a','a','a','a','a','a','a','a','a','a','a','a',"
		"'a','a','a','a']}",
		"invalid_value", "stop", "at most 16"},
	{'c', "{" M ",'stream':1}", "invalid_value", "stream", "true or false"},
	{'c', "{" M ",'stream':'true'}", "invalid_value", "stream", "true or false"},
	{'c', "{" M ",'stream_options':{}}", "invalid_value", "stream_options",
		"stream is true"},
	{'c', "{" M ",'stream':true,'stream_options':1}", "invalid_value",
		"stream_options", "an object"},
	{'c', "{" M ",'stream':true,'stream_options':{'include_usage':1}}",
		"invalid_value", "include_usage", "true or false"},
	{'c', "{" M ",'chat_template_kwargs':[]}", "invalid_value",
		"chat_template_kwargs", "an object"},
	{'c', "{" M ",'chat_template_kwargs':{'enable_thinking':'false'}}",
		"invalid_value", "chat_template_kwargs.enable_thinking", "not \"false\""},
	{'c', "{" M ",'chat_template_kwargs':{'messages':[]}}", "invalid_value",
		"chat_template_kwargs.messages", "cannot be given"},
	{'c', "{" M ",'reasoning_effort':'huge'}", "invalid_value", "reasoning_effort",
		"minimal"},
	{'c', "{" M ",'n':0}", "invalid_value", "n", "from 1 to 128"},
	{'c', "{" M ",'n':129}", "invalid_value", "n", "from 1 to 128"},
	{'p', "{'prompt':['a','b','c'],'n':100}", "invalid_value", "n", "300 answers"},
	{'p', "{" P ",'n':2,'best_of':3}", "invalid_value", "best_of", "beyond n"},
	{'c', "{" M ",'tools':[{}]}", "unsupported_parameter", "tools", "not"},
	{'c', "{" M ",'tool_choice':'required'}", "unsupported_parameter", "tool_choice",
		"not"},
	{'c', "{" M ",'functions':[{}]}", "unsupported_parameter", "functions", "not"},
	{'c', "{" M ",'response_format':{'type':'json_object'}}", "unsupported_parameter",
		"response_format", "not"},
	{'c', "{" M ",'logprobs':3}", "invalid_value", "logprobs", "true or false"},
	{'c', "{" M ",'top_logprobs':1}", "invalid_value", "top_logprobs", "logprobs"},
	{'c', "{" M ",'logprobs':true,'top_logprobs':21}", "invalid_value",
		"top_logprobs", "from 0 to 20"},
	{'c', "{" M ",'logprobs':true,'top_logprobs':'x'}", "invalid_value",
		"top_logprobs", "from 0 to 20"},
	{'c', "{" M ",'stream':true,'prompt_logprobs':1}", "invalid_value",
		"prompt_logprobs", "stream"},
	{'c', "{" M ",'presence_penalty':2.1}", "invalid_value", "presence_penalty",
		"from -2 to 2"},
	{'c', "{" M ",'frequency_penalty':'1'}", "invalid_value", "frequency_penalty",
		"from -2 to 2"},
	{'c', "{" M ",'repetition_penalty':0}", "invalid_value", "repetition_penalty",
		"above 0"},
	{'c', "{" M ",'repetition_penalty':1e-60}", "invalid_value", "repetition_penalty",
		"32-bit float"},
	{'c', "{" M ",'logit_bias':{'5':101}}", "invalid_value", "logit_bias",
		"from -100 to 100"},
	{'c', "{" M ",'logit_bias':{'5x':1}}", "invalid_value", "logit_bias",
		"token ids"},
	{'c', "{" M ",'logit_bias':{'':1}}", "invalid_value", "logit_bias", "token ids"},
	{'c', "{" M ",'logit_bias':{'4294967295':1}}", "invalid_value", "logit_bias",
		"token ids"},
	{'c', "{" M ",'logit_bias':[5]}", "invalid_value", "logit_bias", "an object"},
	{'c', "{" M ",'stop_token_ids':['a']}", "invalid_value", "stop_token_ids[0]",
		"token id"},
	{'c', "{" M ",'stop_token_ids':5}", "invalid_value", "stop_token_ids", "list"},
	{'c', "{" M ",'min_tokens':-1}", "invalid_value", "min_tokens", "from 0"},
	{'c', "{" M ",'max_tokens':3,'min_tokens':4}", "invalid_value", "min_tokens",
		"max_tokens"},
	{'c', "{" M ",'chat_template':'x'}", "unsupported_parameter", "chat_template",
		"not"},
	{'c', "{" M ",'add_generation_prompt':false}", "unsupported_parameter",
		"add_generation_prompt", "not"},
	{'c', "{" M ",'guided_json':{}}", "unsupported_parameter", "guided_json", "not"},
	{'c', "{" M ",'skip_special_tokens':false}", "unsupported_parameter",
		"skip_special_tokens", "not"},
	{'p', "{}", "missing_required_parameter", "prompt", "required"},
	{'p', "{'prompt':''}", "invalid_value", "prompt", "non-empty"},
	{'p', "{'prompt':[]}", "invalid_value", "prompt", "non-empty"},
	{'p', "{'prompt':{}}", "invalid_value", "prompt", "list"},
	{'p', "{'prompt':['a','']}", "invalid_value", "prompt[1]", "non-empty"},
	{'p', "{'prompt':['a',1]}", "invalid_value", "prompt[1]", "not 1"},
	{'p', "{'prompt':[1,'a']}", "invalid_value", "prompt[1]", "token id"},
	{'p', "{'prompt':[-1]}", "invalid_value", "prompt[0]", "not -1"},
	{'p', "{'prompt':[4294967295]}", "invalid_value", "prompt[0]", "token id"},
	{'p', "{'prompt':[[1],[]]}", "invalid_value", "prompt[1]", "non-empty"},
	{'p', "{'prompt':[[1],2]}", "invalid_value", "prompt[1]", "list"},
	{'p', "{'prompt':[true]}", "invalid_value", "prompt", "list"},
	{'p', "{" P ",'max_tokens':0}", "invalid_value", "max_tokens", "from 1"},
	{'p', "{" P ",'echo':false,'max_tokens':0}", "invalid_value", "max_tokens",
		"from 1"},
	{'p', "{" P ",'echo':1}", "invalid_value", "echo", "true or false"},
	{'p', "{" P ",'logprobs':21}", "invalid_value", "logprobs", "from 0 to 20"},
	{'p', "{" P ",'logprobs':true}", "invalid_value", "logprobs", "from 0 to 20"},
	{'p', "{" P ",'suffix':'x'}", "unsupported_parameter", "suffix", "not"},
};

static void what_is_refused_is_named(void **state)
{
	char buf[2048];

	(void)state;
	for (size_t i = 0; i < COUNT(refused); i++) {
		struct bytes body = body_of(refused[i].body, buf, sizeof(buf));
		struct gen_request req;
		struct api_error e;

		if (parse(refused[i].kind, body, &req, &e))
			fail_msg("accepted: %s", buf);
		if (e.http != 400 || strcmp(e.code, refused[i].code) != 0 ||
			strcmp(e.param, refused[i].param) != 0 ||
			strstr(e.message, refused[i].words) == NULL)
			fail_msg("%s: %u %s param \"%s\": %s", buf, e.http, e.code,
				e.param, e.message);
		assert_string_equal(e.type, "invalid_request_error");
		assert_null(req.model);
		assert_null(req.render);
		assert_null(req.prompts);
	}
	assert_int_equal(mem_taken(), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_refused_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
