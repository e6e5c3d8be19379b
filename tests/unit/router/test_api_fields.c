/* The table of members: what it says is what happens, and router/FIELDS.md is what it
 * says (BATON_WRITE_FIELDS=1 writes that file anew). */
#include "api_rig.h"

#include "router/api_fields.h"

#define PATH BATON_SOURCE_DIR "/router/FIELDS.md"

static const char head[] =
	"# Members of generation requests\n\n"
	"Made from the table in `api_fields.c` by `unit.router.test_api_fields`. Looked "
	"at were the requests of OpenAI,\nvLLM, SGLang, llama.cpp's server and Anthropic "
	"for `/v1/chat/completions`, `/v1/completions`, `/v1/messages`\nand "
	"`/v1/responses`. A member that is not here is ignored, and named in the log; "
	"one "
	"that only others of these\npaths act on is refused by the last two. `null` is "
	"as "
	"good as absent.\n\n"
	"| member | chat | completions | messages | responses | known from | what "
	"becomes "
	"of it |\n"
	"| --- | --- | --- | --- | --- | --- | --- |\n";

static void put_origin(struct sink *out, unsigned from)
{
	static const char *const names[] = {
		"OpenAI", "vLLM", "SGLang", "llama.cpp", "Anthropic"};
	const char *between = "";

	for (unsigned i = 0; i < COUNT(names); i++) {
		if (!(from & (1u << i)))
			continue;
		sink_fmt(out, "%s%s", between, names[i]);
		between = ", ";
	}
}

static void put_fate(struct sink *out, const struct api_field *f)
{
	if (f->fate == FIELD_IGNORED)
		sink_str(out, "ignored");
	else if (f->fate == FIELD_REFUSED && f->only == NULL)
		sink_str(out, "refused");
	else if (f->fate == FIELD_REFUSED)
		sink_fmt(out, "refused but for: %s", f->only);
	else if (f->integer != NULL)
		sink_fmt(out, "done: %s", f->integer->text);
	else if (f->number != NULL)
		sink_fmt(out, "done: %s", f->number->text);
	else
		sink_str(out, "done");
}

static void put_table(struct sink *out)
{
	size_t n;
	const struct api_field *f = api_fields(&n);

	sink_str(out, head);
	for (; n > 0; n--, f++) {
		sink_fmt(out, "| `%s` | ", f->name);
		for (unsigned at = API_IN_CHAT; at <= API_IN_RESPONSES; at *= 2)
			sink_str(out, f->where & at ? "x | " : " | ");
		put_origin(out, f->from);
		sink_str(out, " | ");
		put_fate(out, f);
		sink_str(out, " |\n");
	}
}

static void the_document_is_the_table(void **state)
{
	struct sink want, have;
	char block[4096];
	FILE *file;
	size_t n;

	(void)state;
	sink_init(&want, 1u << 20);
	sink_init(&have, 1u << 20);
	put_table(&want);
	if (getenv("BATON_WRITE_FIELDS") != NULL) {
		file = fopen(PATH, "w");
		assert_non_null(file);
		assert_int_equal(fwrite(want.at, 1, want.len, file), want.len);
		fclose(file);
	}
	file = fopen(PATH, "r");
	assert_non_null(file);
	while ((n = fread(block, 1, sizeof(block), file)) > 0)
		sink_put(&have, block, n);
	fclose(file);
	assert_string_equal(sink_cstr(&have), sink_cstr(&want));
	sink_release(&want);
	sink_release(&have);
}

/* Members without which nothing is asked. */
static const char *least_of(char where)
{
	switch (where) {
	case 'c':
		return "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]";
	case 'm':
		return "\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":"
		       "\"x\"}]";
	case 'r':
		return "\"input\":\"x\"";
	default:
		return "\"prompt\":\"x\"";
	}
}

static bool takes(const struct api_field *f, char where, const char *value)
{
	char text[512];
	struct gen_request req;
	struct api_error e;
	bool ok;

	snprintf(text, sizeof(text), "{%s,\"%s\":%s}", least_of(where), f->name, value);
	ok = parse(where, bytes_of_str(text), &req, &e);
	if (!ok) {
		assert_string_equal(e.code, "unsupported_parameter");
		assert_string_equal(e.param, f->name);
		return false;
	}
	if (f->fate == FIELD_IGNORED && strcmp(value, "null") != 0)
		assert_string_equal(req.ignored, f->name);
	gen_request_release(&req);
	return true;
}

/* null and what is taken, never anything else of a member that is refused. */
static void check_values(const struct api_field *f, char where)
{
	static const char *const values[] = {"0", "1", "-1", "true", "false", "\"\"",
		"\"x\"", "[]", "[1]", "{}", "{\"a\":1}", "\"none\"", "\"auto\"",
		"\"left\"", "\"disabled\"", "{\"type\":\"text\"}", "[\"text\"]", "1.5"};
	unsigned taken = 0;

	assert_true(takes(f, where, "null"));
	for (unsigned i = 0; i < COUNT(values); i++)
		taken += takes(f, where, values[i]);
	if (f->fate == FIELD_IGNORED)
		assert_int_equal(taken, COUNT(values));
	else if (f->only == NULL)
		assert_int_equal(taken, 0);
	else if (taken == 0 || taken > 3)
		fail_msg("%s: %u of the values are taken", f->name, taken);
}

static void what_is_refused_has_values_that_are_taken(void **state)
{
	static const char parsers[] = "cpmr";
	size_t n;
	const struct api_field *f = api_fields(&n);

	(void)state;
	for (; n > 0; n--, f++)
		for (unsigned i = 0; parsers[i] != 0; i++)
			if (f->fate != FIELD_DONE && (f->where & 1u << i))
				check_values(f, parsers[i]);
	assert_int_equal(mem_taken(), 0);
}

static void a_member_stands_once_for_each_endpoint(void **state)
{
	size_t n;
	const struct api_field *f = api_fields(&n);

	(void)state;
	for (size_t i = 0; i < n; i++)
		for (size_t k = i + 1; k < n; k++)
			if (strcmp(f[i].name, f[k].name) == 0)
				assert_int_equal(f[i].where & f[k].where, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_document_is_the_table),
		cmocka_unit_test(what_is_refused_has_values_that_are_taken),
		cmocka_unit_test(a_member_stands_once_for_each_endpoint),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
