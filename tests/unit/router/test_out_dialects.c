/* Streams and answers of /v1/messages and /v1/responses, byte for byte; streams are told
 * by their events' names where the members are long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "router/format.h"

#include <stdio.h>
#include <string.h>

static const struct out_usage usage = {.prompt_tokens = 5, .completion_tokens = 3};
static struct out_stream stream;

static struct out_head head_of(const struct answer_format *f)
{
	return (struct out_head){.id = f == &format_messages ? "msg_1" : "resp_1",
		.model = "m",
		.created = 9,
		.usage = &usage,
		.mirror = BYTES_STR("{\"top_p\":1}"),
		.stream = &stream};
}

static void begin_stream(void)
{
	stream = (struct out_stream){.n_events = 0};
	sink_init(&stream.text, 1 << 16);
	sink_init(&stream.items, 1 << 16);
}

static void end_stream(void)
{
	sink_release(&stream.text);
	sink_release(&stream.items);
}

/* A thought, a text, a whole call, and one that is cut. Call ids are made the same. */
static void fill(struct parts *p, bool cut)
{
	parts_init(p, 1 << 16);
	parts_text(p, PART_REASONING, BYTES_STR("hm"));
	parts_text(p, PART_CONTENT, BYTES_STR("so"));
	parts_call(p, BYTES_STR("f"));
	parts_arguments(p, BYTES_STR("{\"a\":1}"));
	parts_call_end(p);
	if (cut) {
		parts_call(p, BYTES_STR("g"));
		parts_arguments(p, BYTES_STR("{\"b"));
	}
	for (uint32_t i = 0; i < p->n_calls; i++)
		snprintf(p->calls[i].id, sizeof(p->calls[i].id), "call_%u", i);
}

static void tell(
	struct sink *out, const struct answer_format *f, bool cut, enum out_finish how)
{
	struct out_head head = head_of(f);
	struct parts p;

	fill(&p, cut);
	begin_stream();
	f->first(out, &head, 0);
	for (uint32_t i = 0; i < p.n; i++) {
		struct out_part part = parts_get(&p, i);

		f->delta(out, &head, 0, &part);
	}
	f->finish(out, &head, 0, how, OUT_STOP_NONE);
	if (f->done != NULL)
		f->done(out, &head);
	end_stream();
	parts_release(&p);
}

/* The names of the events, each without the first `skip` bytes. */
static void check_names(struct sink *out, size_t skip, const char *want)
{
	struct sink names;
	const char *at = sink_cstr(out);

	sink_init(&names, 4096);
	while ((at = strstr(at, "event: ")) != NULL) {
		at += 7;
		sink_fmt(&names, "%.*s ", (int)(strcspn(at, "\n") - skip), at + skip);
	}
	assert_string_equal(sink_cstr(&names), want);
	sink_release(&names);
}

static void check_has(struct sink *out, const char *text)
{
	char want[1024];
	size_t n = strlen(text);

	assert_true(n < sizeof(want));
	for (size_t i = 0; i <= n; i++)
		want[i] = text[i] == '\'' ? '"' : text[i];
	if (strstr(sink_cstr(out), want) == NULL)
		fail_msg("%s is not in %s", want, sink_cstr(out));
}

static void a_message_is_streamed_block_after_block(void **state)
{
	struct sink out;

	(void)state;
	sink_init(&out, 1 << 16);
	tell(&out, &format_messages, false, ANSWER_CALLS);
	check_names(&out, 0,
		"message_start content_block_start content_block_delta "
		"content_block_stop content_block_start content_block_delta "
		"content_block_stop content_block_start content_block_delta "
		"content_block_stop message_delta message_stop ");
	check_has(&out,
		"data: {'type':'message_start','message':{'id':'msg_1','type':"
		"'message','role':'assistant','model':'m','content':[],"
		"'stop_reason':null,'stop_sequence':null,'usage':{'input_tokens':5,"
		"'cache_creation_input_tokens':0,'cache_read_input_tokens':0,"
		"'output_tokens':3}}}\n\n");
	check_has(&out, "{'type':'content_block_start','index':2,'content_block':{'type':"
			"'tool_use','id':'call_0','name':'f','input':{}}}\n\n");
	check_has(&out, "{'type':'content_block_delta','index':2,'delta':{'type':"
			"'input_json_delta','partial_json':'{\\'a\\':1}'}}\n\n");
	check_has(&out, "{'type':'message_delta','delta':{'stop_reason':'tool_use',"
			"'stop_sequence':null},'usage':{");
	sink_release(&out);
}

static void an_open_block_of_a_message_is_closed_at_its_end(void **state)
{
	struct sink out;

	(void)state;
	sink_init(&out, 1 << 16);
	tell(&out, &format_messages, true, ANSWER_LENGTH);
	check_has(&out,
		"{'type':'content_block_stop','index':3}\n\nevent: message_delta\n"
		"data: {'type':'message_delta','delta':{'stop_reason':'max_tokens'");
	sink_release(&out);
}

static void a_response_is_streamed_item_after_item(void **state)
{
	struct sink out;

	(void)state;
	sink_init(&out, 1 << 16);
	tell(&out, &format_responses, false, ANSWER_CALLS);
	check_names(&out, strlen("response."),
		"created in_progress output_item.added content_part.added "
		"reasoning_text.delta reasoning_text.done content_part.done "
		"output_item.done output_item.added content_part.added output_text.delta "
		"output_text.done content_part.done output_item.done output_item.added "
		"function_call_arguments.delta function_call_arguments.done "
		"output_item.done completed ");
	check_has(&out,
		"'sequence_number':18,'response':{'id':'resp_1','object':'response',"
		"'created_at':9,'model':'m','status':'completed','error':null,"
		"'incomplete_details':null,'background':false,"
		"'previous_response_id':null,'store':false,'truncation':'disabled',"
		"'top_p':1,'output':[{'id':'rs_100','type':'reasoning','status':"
		"'completed','summary':[],'content':[{'type':'reasoning_text','text':"
		"'hm'}]},{'id':'msg_101','type':'message','status':'completed','role':"
		"'assistant','content':[{'type':'output_text','text':'so',"
		"'annotations':[],'logprobs':[]}]},{'id':'fc_102','type':"
		"'function_call','status':'completed','call_id':'call_0','name':'f',"
		"'arguments':'{\\'a\\':1}'}],'usage':{");
	check_has(&out,
		"{'type':'response.function_call_arguments.done','sequence_number':16,"
		"'item_id':'fc_102','output_index':2,'name':'f','arguments':"
		"'{\\'a\\':1}'}\n\n");
	sink_release(&out);
}

static void a_response_that_was_cut_has_an_incomplete_item(void **state)
{
	struct sink out;

	(void)state;
	sink_init(&out, 1 << 16);
	tell(&out, &format_responses, true, ANSWER_LENGTH);
	check_has(&out, "event: response.incomplete\n");
	check_has(&out, "'incomplete_details':{'reason':'max_output_tokens'}");
	check_has(&out,
		"'id':'fc_103','type':'function_call','status':'incomplete','call_id':"
		"'call_1','name':'g','arguments':'{\\'b'}],'usage'");
	sink_release(&out);
}

static void say_whole(struct sink *out, const struct answer_format *f)
{
	struct out_choice c = {.content = BYTES_STR("so"),
		.reasoning = BYTES_STR("hm"),
		.finish = ANSWER_LENGTH,
		.stop = OUT_STOP_NONE};
	struct out_head head = head_of(f);
	struct parts p;

	fill(&p, true);
	c.parts = &p;
	head.stream = NULL;
	f->whole(out, &head, &c, 1, &usage);
	parts_release(&p);
}

/* Of a call without an end a message says nothing: its input would be no JSON. */
static void whole_answers_have_their_blocks(void **state)
{
	struct sink out;

	(void)state;
	sink_init(&out, 1 << 16);
	say_whole(&out, &format_messages);
	check_has(&out,
		"'content':[{'type':'thinking','thinking':'hm','signature':''},"
		"{'type':'text','text':'so'},{'type':'tool_use','id':'call_0','name':"
		"'f','input':{'a':1}}],'stop_reason':'max_tokens','stop_sequence':null");
	sink_reset(&out);
	say_whole(&out, &format_responses);
	check_has(&out,
		"'status':'completed','call_id':'call_0','name':'f','arguments':"
		"'{\\'a\\':1}'},{'id':'fc_103','type':'function_call','status':"
		"'incomplete','call_id':'call_1','name':'g','arguments':'{\\'b'}]");
	sink_release(&out);
}

/* Also where nothing was said before: a failure may come first. */
static void errors_end_a_stream_in_the_shape_of_the_dialect(void **state)
{
	struct out_head head = head_of(&format_messages);
	struct api_error e;
	struct sink out;

	(void)state;
	sink_init(&out, 1 << 16);
	api_error_set(&e, 503, "worker_lost", NULL, "gone");
	format_messages.error_event(&out, &head, &e);
	check_has(&out, "event: error\ndata: {'type':'error','error':{'type':"
			"'overloaded_error','message':'gone','code':'worker_lost'}}\n\n");
	sink_reset(&out);
	begin_stream();
	head = head_of(&format_responses);
	format_responses.error_event(&out, &head, &e);
	check_has(&out, "event: response.failed\ndata: {'type':'response.failed',"
			"'sequence_number':0,'response':{'id':'resp_1'");
	check_has(&out,
		"'status':'failed','error':{'code':'worker_lost','message':'gone'}");
	end_stream();
	sink_release(&out);
}

static void errors_of_messages_have_anthropics_types(void **state)
{
	static const struct {
		unsigned http;
		const char *type;
	} rows[] = {{400, "invalid_request_error"}, {401, "authentication_error"},
		{404, "not_found_error"}, {405, "invalid_request_error"},
		{413, "request_too_large"}, {429, "rate_limit_error"}, {500, "api_error"},
		{503, "overloaded_error"}, {504, "timeout_error"}};
	struct api_error e;
	struct sink out;
	char want[128];

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		sink_init(&out, 4096);
		api_error_set(&e, rows[i].http, NULL, "a.b", "oh");
		format_error(&out, "/v1/messages/count_tokens", &e);
		snprintf(want, sizeof(want),
			"{'type':'error','error':{'type':'%s','message':'oh','param':'a."
			"b'}}",
			rows[i].type);
		check_has(&out, want);
		sink_release(&out);
	}
}

/* What does not fit is marked, not cut: the call fails then. */
static void what_a_stream_repeats_must_fit(void **state)
{
	struct out_head head = head_of(&format_responses);
	struct out_part part = {
		.kind = PART_CONTENT, .text = BYTES_STR("more than fits")};
	struct sink out;

	(void)state;
	sink_init(&out, 1 << 16);
	stream = (struct out_stream){.n_events = 0};
	sink_init(&stream.text, 4);
	sink_init(&stream.items, 4);
	format_responses.delta(&out, &head, 0, &part);
	assert_true(out.full);
	sink_release(&out);
	end_stream();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_is_streamed_block_after_block),
		cmocka_unit_test(an_open_block_of_a_message_is_closed_at_its_end),
		cmocka_unit_test(a_response_is_streamed_item_after_item),
		cmocka_unit_test(a_response_that_was_cut_has_an_incomplete_item),
		cmocka_unit_test(whole_answers_have_their_blocks),
		cmocka_unit_test(errors_end_a_stream_in_the_shape_of_the_dialect),
		cmocka_unit_test(errors_of_messages_have_anthropics_types),
		cmocka_unit_test(what_a_stream_repeats_must_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
