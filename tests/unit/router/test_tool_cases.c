/* Calls of tools as models drift from their form: tool_text.json has raw text and what is
 * due, the same however it is cut. */
#include "api_rig.h"

#include "common/model/tokenizer.h"
#include "router/parts.h"
#include "router/tool_text.h"
#include "router/tools.h"

#include <jansson.h>

#define CASES      BATON_SOURCE_DIR "/tests/unit/router/tool_text.json"
#define DEMO_MODEL BATON_SOURCE_DIR "/deploy/demo-model"
#define TEXT_MAX   (1u << 20)
#define CUTS       50u
#define SEED       20261201u

static json_t *all;
static struct gen_request req;

static int set_up(void **state)
{
	json_error_t error;
	struct api_error e;
	struct sink body;
	char *tools;

	(void)state;
	all = json_load_file(CASES, 0, &error);
	if (all == NULL)
		fail_msg("%s", error.text);
	tools = json_dumps(json_object_get(all, "tools"), 0);
	sink_init(&body, TEXT_MAX);
	sink_fmt(&body,
		"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
		"\"tools\":%s}",
		tools);
	if (!api_parse_chat(&req, &body, &lax, &e))
		fail_msg("%s: %s", e.param, e.message);
	sink_release(&body);
	free(tools);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	json_decref(all);
	gen_request_release(&req);
	assert_int_equal(mem_taken(), 0);
	return 0;
}

static void on_text(void *ctx, struct bytes text)
{
	parts_text(ctx, PART_CONTENT, text);
}

static void on_begin(void *ctx, const struct tool *tool)
{
	parts_call(ctx, bytes_of_str(tool->name));
}

static void on_arguments(void *ctx, struct bytes json)
{
	parts_arguments(ctx, json);
}

static void on_end(void *ctx)
{
	parts_call_end(ctx);
}

static const struct tool_events events = {on_text, on_begin, on_arguments, on_end};

/* Pieces end at the bytes that are marked in cuts; NULL: one piece. */
static struct parts read_row(const json_t *row, const bool *cuts)
{
	const json_t *raw = json_object_get(row, "raw");
	const uint8_t *at = (const uint8_t *)json_string_value(raw);
	size_t n = json_string_length(raw), from = 0;
	struct parts parts;
	struct tool_text t;

	parts_init(&parts, TEXT_MAX);
	tool_text_init(&t, req.tools, &events, &parts, TEXT_MAX);
	for (size_t i = 1; i <= n; i++) {
		if (i < n && (cuts == NULL || !cuts[i]))
			continue;
		tool_text_feed(&t, (struct bytes){at + from, i - from});
		from = i;
	}
	tool_text_finish(&t, json_is_true(json_object_get(row, "cut")));
	assert_false(parts_full(&parts) || tool_text_is_full(&t));
	tool_text_release(&t);
	return parts;
}

static bool is_call(struct out_call *call, const json_t *want, const char *exact)
{
	const char *name = json_string_value(json_array_get(want, 0));
	json_t *got;
	bool same;

	if (!bytes_eq(call->name, bytes_of_str(name)))
		return false;
	if (exact != NULL)
		return strcmp(sink_cstr(&call->arguments), exact) == 0;
	got = json_loadb((const char *)call->arguments.at, call->arguments.len,
		JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	same = call->complete && json_equal(got, json_array_get(want, 1));
	json_decref(got);
	return same;
}

static bool is_due(const json_t *row, struct parts *p)
{
	const json_t *calls = json_object_get(row, "calls");
	const json_t *exact = json_object_get(row, "arguments");
	bool same = p->n_calls == json_array_size(calls) &&
		    strcmp(sink_cstr(&p->content),
			    json_string_value(json_object_get(row, "content"))) == 0;

	for (uint32_t i = 0; same && i < p->n_calls; i++)
		same = is_call(&p->calls[i], json_array_get(calls, i),
			json_string_value(json_array_get(exact, i)));
	return same;
}

static bool check(const json_t *row, const bool *cuts, const char *how)
{
	struct parts p = read_row(row, cuts);
	bool due = is_due(row, &p);

	if (!due) {
		print_error("%s (%s): content \"%s\"",
			json_string_value(json_object_get(row, "name")), how,
			sink_cstr(&p.content));
		for (uint32_t i = 0; i < p.n_calls; i++)
			print_error(" %s", sink_cstr(&p.calls[i].arguments));
		print_error("\n");
	}
	parts_release(&p);
	return due;
}

static void cut_at_tokens(const struct tokenizer *demo, const json_t *row, bool *cuts)
{
	const json_t *raw = json_object_get(row, "raw");
	struct bytes text = {
		(const uint8_t *)json_string_value(raw), json_string_length(raw)};
	struct tok_ids ids;
	struct err err;
	size_t at = 0;

	memset(cuts, 0, text.len);
	tok_ids_init(&ids, TEXT_MAX);
	assert_int_equal(tokenizer_encode(demo, text, TOK_ADDED, &ids, &err), ST_OK);
	for (size_t k = 0; k < ids.n; k++) {
		at += tokenizer_token_bytes(demo, ids.v[k]).len;
		if (at < text.len)
			cuts[at] = true;
	}
	tok_ids_release(&ids);
}

/* No cut inside of a character: the reader is given whole ones. */
static bool is_border(const json_t *row, size_t i)
{
	const char *raw = json_string_value(json_object_get(row, "raw"));

	return ((uint8_t)raw[i] & 0xc0) != 0x80;
}

static uint32_t next(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	*seed ^= *seed << 5;
	return *seed;
}

static bool check_row(const json_t *row, const struct tokenizer *demo, uint32_t *seed)
{
	static bool cuts[TEXT_MAX];
	size_t n = json_string_length(json_object_get(row, "raw"));
	bool ok = check(row, NULL, "whole");

	for (size_t step = 1; ok && step <= 3; step += 2) {
		for (size_t k = 0; k < n; k++)
			cuts[k] = k % step == 0 && is_border(row, k);
		ok = check(row, cuts, "in pieces of bytes");
	}
	cut_at_tokens(demo, row, cuts);
	for (size_t k = 0; k < n; k++)
		cuts[k] &= is_border(row, k);
	ok = ok && check(row, cuts, "by token");
	for (unsigned i = 0; ok && i < CUTS; i++) {
		for (size_t k = 0; k < n; k++)
			cuts[k] = next(seed) % 8 == 0 && is_border(row, k);
		ok = check(row, cuts, "at random");
	}
	return ok;
}

/* Whole, by byte, by three bytes, by token, and at random places. */
static void every_cut_gives_what_is_due(void **state)
{
	struct tokenizer *demo;
	uint32_t seed = SEED;
	struct err err;
	unsigned bad = 0;
	size_t i;
	json_t *row;

	(void)state;
	assert_int_equal(tokenizer_load(&demo, DEMO_MODEL, &err), ST_OK);
	json_array_foreach(json_object_get(all, "cases"), i, row) bad +=
		!check_row(row, demo, &seed);
	tokenizer_destroy(demo);
	assert_true(i > 70);
	assert_int_equal(bad, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_cut_gives_what_is_due),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
