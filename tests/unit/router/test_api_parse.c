/* Bodies of requests: a table of what is accepted, with the values that come out; the
 * bounds of a body. */
#include "api_rig.h"

/* What a request came to, as text; the defaults left out. */
static void describe(const struct gen_request *q, char *out, size_t max)
{
	size_t n = 0;

	out[0] = '\0';
#define SAY(...) n += (size_t)snprintf(out + n, max - n, __VA_ARGS__)
	if (q->model != NULL)
		SAY("model=%s ", q->model);
	if (q->has_max_tokens)
		SAY("max=%llu ", (unsigned long long)q->max_tokens);
	if (q->has_temperature)
		SAY("t=%g ", q->draw.temperature);
	if (q->has_top_p)
		SAY("p=%g ", q->draw.top_p);
	if (q->has_top_k)
		SAY("k=%u ", (unsigned)q->draw.top_k);
	if (q->has_min_p)
		SAY("min=%g ", q->draw.min_p);
	if (q->has_seed)
		SAY("seed=%lld ", (long long)q->draw.seed);
	if (q->render != NULL && strstr(q->render, "\"enable_thinking\":") != NULL)
		SAY("think=%d ", strstr(q->render, "\"enable_thinking\":true") != NULL);
	if (q->stream)
		SAY("stream ");
	if (q->include_usage)
		SAY("usage ");
	if (q->usage_each)
		SAY("each ");
	if (q->ignore_eos)
		SAY("ignore_eos ");
	if (q->n > 1)
		SAY("n=%u ", q->n);
	if (q->draw.presence != 0 || q->draw.frequency != 0)
		SAY("penalty=%g,%g ", q->draw.presence, q->draw.frequency);
	if (q->draw.repetition != 0 && q->draw.repetition != 1)
		SAY("rep=%g ", q->draw.repetition);
	if (q->draw.min_tokens > 0)
		SAY("mintok=%llu ", (unsigned long long)q->draw.min_tokens);
	for (size_t i = 0; i < q->n_stop_token_ids; i++)
		SAY("stopid=%u ", q->stop_token_ids[i]);
	for (size_t i = 0; i < q->n_bias; i++)
		SAY("bias=%u:%g ", q->bias[i].token, (double)q->bias[i].add);
	if (q->logprobs)
		SAY("logprobs=%u ", (unsigned)q->draw.top_logprobs);
	if (q->prompt_logprobs)
		SAY("plp=%u ", q->n_prompt_logprobs);
	if (q->echo)
		SAY("echo ");
	for (uint32_t i = 0; i < q->stop.n; i++)
		SAY("stop=%.*s ", q->stop.len[i], (const char *)q->stop.text[i]);
	for (size_t i = 0; i < q->n_prompts; i++) {
		const struct gen_prompt *p = &q->prompts[i];

		if (p->text != NULL)
			SAY("text=%s ", p->text);
		for (size_t k = 0; k < p->n_ids; k++)
			SAY("%s%u%s", k == 0 ? "ids=" : ",", p->ids[k],
				k + 1 == p->n_ids ? " " : "");
	}
	if (q->ignored[0] != '\0')
		SAY("ignored=%s ", q->ignored);
#undef SAY
	if (n > 0)
		out[n - 1] = '\0';
}

static const struct {
	char kind; /* c: chat, p: completion */
	const char *body;
	const char *want; /* describe() of the result */
} accepted[] = {
	{'c', "{" M "}", ""},
	{'c', " \n{" M "} \r\n", ""},
	{'c', "{" M ",'model':'m'}", "model=m"},
	{'c', "{" M ",'model':null,'max_tokens':null,'stop':null,'n':null,'tools':null}",
		""},
	{'c', "{" M ",'max_tokens':5}", "max=5"},
	{'c', "{" M ",'max_tokens':5.0}", "max=5"},
	{'c', "{" M ",'max_tokens':5,'max_completion_tokens':7}", "max=7"},
	{'c', "{" M ",'max_completion_tokens':7,'max_tokens':5}", "max=7"},
	{'c', "{" M ",'max_completion_tokens':null,'max_tokens':5}", "max=5"},
	{'c', "{" M ",'temperature':0}", "t=0"},
	{'c', "{" M ",'temperature':-0.0}", "t=-0"},
	{'c', "{" M ",'temperature':2,'top_p':1,'min_p':0}", "t=2 p=1 min=0"},
	{'c', "{" M ",'top_p':0.000001,'min_p':1}", "p=1e-06 min=1"},
	{'c', "{" M ",'top_k':-1}", "k=0"},
	{'c', "{" M ",'top_k':0}", "k=0"},
	{'c', "{" M ",'top_k':20}", "k=20"},
	{'c', "{" M ",'seed':-9223372036854775808}", "seed=-9223372036854775808"},
	{'c', "{" M ",'seed':9223372036854775807}", "seed=9223372036854775807"},
	{'c', "{" M ",'stop':'x'}", "stop=x"},
	{'c', "{" M ",'stop':['x','yz']}", "stop=x stop=yz"},
	{'c', "{" M ",'stop':[]}", ""},
	{'c', "{" M ",'stream':true}", "stream"},
	{'c', "{" M ",'stream':false,'stream_options':null}", ""},
	{'c', "{" M ",'stream':true,'stream_options':{'include_usage':true}}",
		"stream usage"},
	{'c',
		"{" M ",'stream':true,'stream_options':{'include_usage':true,"
		"'continuous_usage_stats':true}}",
		"stream usage each"},
	{'c', "{" M ",'chat_template_kwargs':{'enable_thinking':false}}", "think=0"},
	{'c', "{" M ",'chat_template_kwargs':{'enable_thinking':null,'x':[1]}}", ""},
	{'c', "{" M ",'reasoning_effort':'low'}", "think=1"},
	{'c', "{" M ",'reasoning_effort':'none'}", "think=0"},
	{'c',
		"{" M ",'reasoning_effort':'none','chat_template_kwargs':"
		"{'enable_thinking':true}}",
		"think=1"},
	{'c', "{" M ",'ignore_eos':true}", "ignore_eos"},
	{'c',
		"{" M ",'n':1,'presence_penalty':0,'frequency_penalty':0.0,"
		"'repetition_penalty':1,'logprobs':false,'top_logprobs':0,"
		"'logit_bias':{},'tools':[],'tool_choice':'none','min_tokens':0,"
		"'parallel_tool_calls':true,'response_format':{'type':'text'},"
		"'echo':false,'stop_token_ids':[],'priority':0}",
		""},
	{'c',
		"{" M ",'n':3,'presence_penalty':0.5,'frequency_penalty':-2,"
		"'repetition_penalty':1.5,'min_tokens':4,'stop_token_ids':[7,8],"
		"'logit_bias':{'9':-100,'10':0.5},'logprobs':true,'top_logprobs':20,"
		"'prompt_logprobs':0}",
		"n=3 penalty=0.5,-2 rep=1.5 mintok=4 stopid=7 stopid=8 bias=9:-100 "
		"bias=10:0.5 logprobs=20 plp=0"},
	{'p', "{" P ",'echo':true,'max_tokens':0,'logprobs':0,'best_of':1}",
		"max=0 logprobs=0 echo text=hi"},
	{'p', "{" P ",'n':2,'best_of':2,'logprobs':null}", "n=2 text=hi"},
	{'c', "{" M ",'user':'u','store':true,'metadata':{'a':1}}",
		"ignored=user,store,metadata"},
	{'c', "{" M ",'best_of':2,'prompt':'x'}", "ignored=best_of,prompt"},
	{'c', "{" M ",'a\\nb':1}", "ignored=a?b"},
	{'c', "{" M ",'a,b':1,'c d':1}", "ignored=a?b,c d"},
	{'c', "{" M ",'a\\u0000b':'\\u0000'}", "ignored=a?b"},
	{'c', "{" M ",'x':1e400,'y':[18446744073709551616,-0,1E-999]}", "ignored=x,y"},
	{'c', "{" M ",'seed':1e3,'max_tokens':50e-1}", "max=5 seed=1000"},
	{'c',
		"{'messages':[{'role':'developer','content':null},"
		"{'role':'function','name':'f'},{'role':'assistant'},{'role':'user'}]}",
		""},
	{'p', "{" P "}", "text=hi"},
	{'p', "{'prompt':['a','b']}", "text=a text=b"},
	{'p', "{'prompt':[1,2.0,4294967294]}", "ids=1,2,4294967294"},
	{'p', "{'prompt':[[1,2],[3]]}", "ids=1,2 ids=3"},
	{'p', "{" P ",'max_tokens':16,'suffix':'','n':1}", "max=16 text=hi"},
	{'p', "{" P ",'messages':3}", "text=hi ignored=messages"},
	{'p', "{'prompt':'\\ud83d\\ude00'}", "text=\U0001F600"},
};

static void what_is_accepted_has_these_values(void **state)
{
	char buf[2048], said[2048];

	(void)state;
	for (size_t i = 0; i < COUNT(accepted); i++) {
		struct bytes body = body_of(accepted[i].body, buf, sizeof(buf));
		struct gen_request req;
		struct api_error e;

		if (!parse(accepted[i].kind, body, &req, &e))
			fail_msg("%s: %s", buf, e.message);
		describe(&req, said, sizeof(said));
		if (strcmp(said, accepted[i].want) != 0)
			fail_msg("%s: \"%s\", not \"%s\"", buf, said, accepted[i].want);
		assert_in_range(req.n, 1, API_CHOICES_MAX);
		assert_int_equal(accepted[i].kind == 'c', req.render != NULL);
		assert_int_equal(accepted[i].kind == 'c', req.n_prompts == 0);
		gen_request_release(&req);
	}
	assert_int_equal(mem_taken(), 0);
}

static void raw_zero_bytes_are_refused(void **state)
{
	static const char text[] = "{\"prompt\":\"a\0b\"}";
	struct gen_request req;
	struct api_error e;

	(void)state;
	assert_false(parse(
		'p', (struct bytes){(const uint8_t *)text, sizeof(text) - 1}, &req, &e));
	assert_string_equal(e.code, "invalid_json");
}

/* "[" n times; in a member that would be ignored. */
static void check_depth(unsigned n, bool fits)
{
	size_t max = 2 * (size_t)n + 64, at;
	char *text = malloc(max);
	struct gen_request req;
	struct api_error e;
	bool ok;

	at = (size_t)snprintf(text, max, "{\"prompt\":\"x\",\"deep\":");
	memset(text + at, '[', n);
	memset(text + at + n, ']', n);
	text[at + 2 * n] = '}';
	ok = parse('p', (struct bytes){(uint8_t *)text, at + 2 * n + 1}, &req, &e);
	assert_int_equal(ok, fits);
	if (ok)
		gen_request_release(&req);
	else
		assert_non_null(strstr(e.message, "deeper than 128"));
	free(text);
}

static void depth_is_bounded_at_128(void **state)
{
	(void)state;
	check_depth(127, true);
	check_depth(128, false);
	check_depth(1000000, false);
	assert_int_equal(mem_taken(), 0);
}

/* A body of a few megabytes must not become gigabytes of values. */
static void the_number_of_values_is_bounded(void **state)
{
	size_t n = 1200000, at;
	char *text = malloc(3 * n + 64);
	struct gen_request req;
	struct api_error e;

	(void)state;
	at = (size_t)snprintf(text, 64, "{\"prompt\":\"x\",\"many\":[[]");
	for (size_t i = 0; i < n; i++, at += 3)
		memcpy(text + at, ",[]", 3);
	memcpy(text + at, "]}", 2);
	assert_false(parse('p', (struct bytes){(uint8_t *)text, at + 2}, &req, &e));
	assert_non_null(strstr(e.message, "more than"));
	free(text);
}

/* The answer to a large bad body is small, and valid UTF-8 wherever it was cut. */
static void the_echo_of_input_is_bounded(void **state)
{
	size_t n = 1u << 20, at;
	char *text = malloc(n + 64);
	struct gen_request req;
	struct api_error e;

	(void)state;
	for (int shift = 0; shift < 3; shift++) {
		at = (size_t)snprintf(
			text, 64, "{\"prompt\":\"x\",\"model\":[\"%.*s", shift, "aa");
		for (; at < n; at += 3)
			memcpy(text + at, "\u20ac", 3);
		memcpy(text + at, "\"]}", 3);
		assert_false(
			parse('p', (struct bytes){(uint8_t *)text, at + 3}, &req, &e));
		assert_string_equal(e.param, "model");
		assert_true(strlen(e.message) < 300);
		assert_non_null(strstr(e.message, "\u20ac\u20ac"));
		assert_int_equal(
			utf8_valid_len(bytes_of_str(e.message)), strlen(e.message));
	}
	free(text);
}

static void tokenize_takes_both_shapes(void **state)
{
	static const char *const bad[] = {"{}", "{'prompt':'a','content':'b'}",
		"{'prompt':5}", "{'content':[]}", "{'messages':[]}",
		"{" M ",'continue_final_message':true}", "{" M ",'tools':[{}]}",
		"{'prompt':'a','return_token_strs':1}"};
	struct tok_request t;
	struct api_error e;

	(void)state;
	assert_true(parse_tokenize(
		"{'prompt':'ab','model':'m','return_token_strs':true}", &t, &e));
	assert_int_equal(t.shape, TOK_SHAPE_VLLM);
	assert_string_equal(t.text, "ab");
	assert_string_equal(t.model, "m");
	assert_true(t.with_pieces && t.parse_special && t.len == 2);
	tok_request_release(&t);
	assert_true(parse_tokenize("{'content':'','parse_special':false}", &t, &e));
	assert_int_equal(t.shape, TOK_SHAPE_LLAMA);
	assert_string_equal(t.text, "");
	assert_false(t.parse_special || t.with_pieces);
	tok_request_release(&t);
	assert_true(parse_tokenize("{" M ",'add_generation_prompt':false}", &t, &e));
	assert_null(t.text);
	assert_non_null(strstr(t.render, "\"add_generation_prompt\":false"));
	tok_request_release(&t);
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_false(parse_tokenize(bad[i], &t, &e));
	assert_int_equal(mem_taken(), 0);
}

static void detokenize_takes_ids(void **state)
{
	static const char *const bad[] = {"{}", "{'tokens':5}", "{'tokens':['a']}",
		"{'tokens':[-1]}", "{'tokens':[1.5]}"};
	struct detok_request d;
	struct api_error e;

	(void)state;
	assert_true(parse_detokenize("{'tokens':[5,6]}", &d, &e));
	assert_int_equal(d.n_ids, 2);
	assert_int_equal(d.ids[1], 6);
	detok_request_release(&d);
	assert_true(parse_detokenize("{'tokens':[]}", &d, &e));
	assert_int_equal(d.n_ids, 0);
	detok_request_release(&d);
	for (size_t i = 0; i < COUNT(bad); i++) {
		assert_false(parse_detokenize(bad[i], &d, &e));
		assert_null(strstr(e.message, "non-empty"));
	}
	assert_int_equal(mem_taken(), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_accepted_has_these_values),
		cmocka_unit_test(raw_zero_bytes_are_refused),
		cmocka_unit_test(depth_is_bounded_at_128),
		cmocka_unit_test(the_number_of_values_is_bounded),
		cmocka_unit_test(the_echo_of_input_is_bounded),
		cmocka_unit_test(tokenize_takes_both_shapes),
		cmocka_unit_test(detokenize_takes_ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
