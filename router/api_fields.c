/* Which members of a generation request we know. What would change the answer and is
 * not built is refused unless it is null or has the value that changes nothing; what
 * changes nothing is ignored and named. */
#include "router/api_fields.h"

#include <string.h>

const struct api_int_range api_max_tokens_range = {
	1, INT64_MAX, "an integer from 1 to 9223372036854775807"};
const struct api_int_range api_top_k_range = {
	-1, INT32_MAX, "an integer from -1 to 2147483647"};
const struct api_int_range api_any_range = {INT64_MIN, INT64_MAX, "a 64-bit integer"};
const struct api_int_range api_choices_range = {
	1, API_CHOICES_MAX, "an integer from 1 to 128"};
const struct api_int_range api_logprobs_range = {
	0, API_LOGPROBS_MAX, "an integer from 0 to 20"};
const struct api_int_range api_min_tokens_range = {
	0, UINT32_MAX, "an integer from 0 to 4294967295"};
const struct api_int_range api_truncate_range = {
	-1, INT32_MAX, "-1, or an integer from 1 to 2147483647"};
static const struct api_range temperature_range = {0, 2, false, "a number from 0 to 2"};
static const struct api_range top_p_range = {
	0, 1, true, "a number above 0, as a 32-bit float too, and at most 1"};
static const struct api_range min_p_range = {0, 1, false, "a number from 0 to 1"};
static const struct api_range penalty_range = {-2, 2, false, "a number from -2 to 2"};
static const struct api_range repetition_range = {
	0, 1000000, true, "a number above 0, as a 32-bit float too, and at most 1000000"};

/* ---- values that ask for nothing ---- */

static bool is_number(const struct json *v, double want)
{
	double d;

	return json_f64(v, &d) && d == want;
}

static bool is_zero(const struct json *v)
{
	return is_number(v, 0);
}

static bool is_one(const struct json *v)
{
	return is_number(v, 1);
}

/* llama.cpp's "until the context ends" and "off". */
static bool is_minus_one(const struct json *v)
{
	return is_number(v, -1);
}

static bool is_zero_or_less(const struct json *v)
{
	double d;

	return json_f64(v, &d) && d <= 0;
}

static bool is_false(const struct json *v)
{
	return json_is(v, JSON_FALSE);
}

static bool is_true(const struct json *v)
{
	return json_is(v, JSON_TRUE);
}

static bool is_empty(const struct json *v)
{
	if (json_is(v, JSON_STRING))
		return json_bytes(v).len == 0;
	return (json_is(v, JSON_ARRAY) || json_is(v, JSON_OBJECT)) && json_count(v) == 0;
}

static bool is_none_or_auto(const struct json *v)
{
	return json_equals(v, "none") || json_equals(v, "auto");
}

static bool is_text_format(const struct json *v)
{
	return json_equals(json_member(v, "type"), "text");
}

/* Of responses: the format, and a verbosity of which nothing depends here. */
static bool is_text_config(const struct json *v)
{
	const struct json *format = json_given(v, "format");

	return json_is(v, JSON_OBJECT) && (format == NULL || is_text_format(format));
}

/* Whoever keeps encrypted thoughts for the next request gets them as text. */
static bool is_plain_list(const struct json *v)
{
	json_each(item,
		v) if (!json_equals(item, "reasoning.encrypted_content")) return false;
	return json_is(v, JSON_ARRAY);
}

static bool is_disabled(const struct json *v)
{
	return json_equals(v, "disabled");
}

static bool is_text_alone(const struct json *v)
{
	return json_is(v, JSON_ARRAY) && json_count(v) == 1 &&
	       json_equals(json_item(v, 0), "text");
}

static bool is_left(const struct json *v)
{
	return json_equals(v, "left");
}

static bool is_split(const struct json *v)
{
	return json_equals(v, "auto") || json_equals(v, "deepseek");
}

static bool never(const struct json *v)
{
	(void)v;
	return false;
}

/* ---- the table ---- */

#define C API_IN_CHAT
#define P API_IN_COMPLETION
#define M API_IN_MESSAGES
#define R API_IN_RESPONSES
#define O FROM_OPENAI
#define V FROM_VLLM
#define G FROM_SGLANG
#define L FROM_LLAMA
#define A FROM_ANTHROPIC

#define ROW(member, in, of) .name = (member), .where = (in), .from = (of)
#define INT(member, in, of, range)                                                       \
	{                                                                                \
		ROW(member, in, of), .integer = &(range)                                 \
	}
/* Whether it was there: for defaults of the model. 0 instead: absent is zero. */
#define HAS(to) offsetof(struct gen_request, has_##to)
#define NUM(member, in, of, range, to, has)                                              \
	{                                                                                \
		ROW(member, in, of), .number = &(range),                                 \
				     .at = offsetof(struct gen_request, draw.to),        \
				     .has_at = (has)                                     \
	}
#define DONE(member, in, of, text)                                                       \
	{                                                                                \
		ROW(member, in, of), .schema = (text)                                    \
	}
#define ONLY(member, in, of, fn, text)                                                   \
	{                                                                                \
		ROW(member, in, of), .fate = FIELD_REFUSED, .harmless = (fn),            \
				     .only = (text)                                      \
	}
#define NEVER(member, in, of) ONLY(member, in, of, never, NULL)
#define IGNORED(member, in, of)                                                          \
	{                                                                                \
		ROW(member, in, of), .fate = FIELD_IGNORED                               \
	}

#define BOOLEAN "\"type\":\"boolean\""
#define STRING  "\"type\":\"string\""
#define SCHEMA  "\"type\":[\"object\",\"string\",\"boolean\"]"
#define OBJECT  "\"type\":\"object\""
#define IDS     "\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0}"
#define TEXT_OR_BLOCKS                                                                   \
	"\"anyOf\":[{" STRING "},{\"type\":\"array\",\"items\":{" OBJECT                 \
	",\"required\":[\"type\"]}}]"
#define STRINGS "\"type\":\"array\",\"items\":{" STRING ",\"minLength\":1}"

// clang-format off
static const struct api_field fields[] = {
	/* input */
	DONE("model", C | P | M | R, O | V | G | L | A, STRING),
	DONE("messages", C, O | V | G | L, "\"type\":\"array\",\"minItems\":1,\"items\":{" OBJECT
		",\"required\":[\"role\",\"content\"],\"properties\":{\"role\":{\"enum\":[\"system\","
		"\"developer\",\"user\",\"assistant\",\"tool\"]},\"content\":{\"anyOf\":[{" STRING "},"
		"{\"type\":\"array\",\"items\":{" OBJECT ",\"required\":[\"type\",\"text\"],\"properties\":{"
		"\"type\":{\"const\":\"text\"},\"text\":{" STRING "}}}}]}}}"),
	DONE("messages", M, A, "\"type\":\"array\",\"minItems\":1,\"items\":{" OBJECT
		",\"required\":[\"role\",\"content\"],\"properties\":{\"role\":{\"enum\":[\"user\","
		"\"assistant\"]},\"content\":{\"anyOf\":[{" STRING "},{\"type\":\"array\",\"items\":{"
		OBJECT ",\"required\":[\"type\"]}}]}}}"),
	DONE("input", R, O, "\"anyOf\":[{" STRING "},{\"type\":\"array\",\"minItems\":1,\"items\":{" OBJECT "}}]"),
	DONE("instructions", R, O, STRING),
	DONE("reasoning", R, O, OBJECT ",\"properties\":{\"effort\":{\"enum\":[\"none\",\"minimal\","
		"\"low\",\"medium\",\"high\",\"xhigh\",\"max\",null]},\"summary\":{\"enum\":[\"auto\",null]}}"),
	DONE("system", M, A, TEXT_OR_BLOCKS),
	DONE("thinking", M, A, OBJECT ",\"required\":[\"type\"],\"properties\":{\"type\":{\"enum\":["
		"\"enabled\",\"adaptive\",\"disabled\"]},\"budget_tokens\":{\"type\":\"integer\","
		"\"minimum\":1},\"display\":{\"enum\":[\"summarized\",\"omitted\"]}}"),
	DONE("prompt", P, O | V | G | L, "\"anyOf\":[{" STRING ",\"minLength\":1},{" STRINGS
		",\"minItems\":1},{" IDS ",\"minItems\":1},{\"type\":\"array\",\"minItems\":1,"
		"\"items\":{" IDS ",\"minItems\":1}}]"),
	DONE("echo", P, O | V | G, BOOLEAN),
	DONE("chat_template_kwargs", C, V | G | L, OBJECT),
	DONE("tools", C, O | V | G | L, "\"type\":\"array\",\"maxItems\":512,\"items\":{" OBJECT "}"),
	DONE("tools", R, O, "\"type\":\"array\",\"maxItems\":512,\"items\":{" OBJECT
		",\"required\":[\"type\",\"name\"]}"),
	DONE("tools", M, A, "\"type\":\"array\",\"maxItems\":512,\"items\":{" OBJECT
		",\"required\":[\"name\",\"input_schema\"]}"),
	DONE("tool_choice", M, A, OBJECT ",\"required\":[\"type\"],\"properties\":{\"type\":{\"enum\":["
		"\"auto\",\"none\"]},\"disable_parallel_tool_use\":{" BOOLEAN "}}"),
	DONE("tool_choice", C | R, O | V | G | L, "\"enum\":[\"none\",\"auto\"]"),
	DONE("parallel_tool_calls", C | R, O | V | G | L, BOOLEAN),
	DONE("reasoning_effort", C, O | V | G, "\"enum\":[\"none\",\"minimal\",\"low\",\"medium\","
		"\"high\",\"xhigh\",\"max\"]"),
	DONE("add_generation_prompt", C, V, BOOLEAN),
	DONE("continue_final_message", C, V | G, BOOLEAN),
	INT("truncate_prompt_tokens", C | P, V, api_truncate_range),
	/* length */
	INT("max_tokens", C | P | M, O | V | G | L | A, api_max_tokens_range),
	INT("max_completion_tokens", C | P, O | V | G | L, api_max_tokens_range),
	INT("max_output_tokens", R, O, api_max_tokens_range),
	INT("min_tokens", C | P, V | G, api_min_tokens_range),
	DONE("stop", C | P, O | V | G | L, "\"anyOf\":[{" STRING ",\"minLength\":1},{" STRINGS
		",\"maxItems\":16}]"),
	DONE("stop_sequences", M, A, STRINGS ",\"maxItems\":16"),
	DONE("stop_token_ids", C | P, V | G, IDS ",\"maxItems\":48"),
	DONE("include_stop_str_in_output", C | P, V, BOOLEAN),
	DONE("no_stop_trim", C | P, G, BOOLEAN),
	DONE("ignore_eos", C | P, V | G | L, BOOLEAN),
	/* sampling */
	NUM("temperature", C | P | M | R, O | V | G | L | A, temperature_range, temperature, HAS(temperature)),
	NUM("top_p", C | P | M | R, O | V | G | L | A, top_p_range, top_p, HAS(top_p)),
	INT("top_k", C | P | M, V | G | L | A, api_top_k_range),
	NUM("min_p", C | P, V | G | L, min_p_range, min_p, HAS(min_p)),
	INT("seed", C | P, O | V | G | L, api_any_range),
	NUM("presence_penalty", C | P, O | V | G | L, penalty_range, presence, HAS(presence)),
	NUM("frequency_penalty", C | P, O | V | G | L, penalty_range, frequency, HAS(frequency)),
	NUM("repetition_penalty", C | P, V | G, repetition_range, repetition, HAS(repetition)),
	DONE("logit_bias", C | P, O | V | G | L, OBJECT ",\"maxProperties\":512,"
		"\"additionalProperties\":{\"type\":\"number\",\"minimum\":-100,\"maximum\":100}"),
	DONE("bad_words", C | P, V, STRINGS),
	INT("n", C | P, O | V | G | L, api_choices_range),
	INT("best_of", P, O | G, api_choices_range),
	/* the form of the answer */
	DONE("response_format", C | P, O | V | G | L, OBJECT ",\"required\":[\"type\"],\"properties\":{"
		"\"type\":{\"enum\":[\"text\",\"json_object\",\"json_schema\"]},\"json_schema\":{" OBJECT
		",\"required\":[\"schema\"],\"properties\":{\"schema\":{" OBJECT "}}}}"),
	DONE("structured_outputs", C | P, V, OBJECT ",\"minProperties\":1,\"maxProperties\":1,\"properties\":{"
		"\"json\":{" SCHEMA "},\"regex\":{" STRING ",\"minLength\":1},\"choice\":{" STRINGS
		",\"minItems\":1},\"json_object\":{" BOOLEAN "}}"),
	DONE("guided_json", C | P, V, SCHEMA),
	DONE("json_schema", C | P, G | L, SCHEMA),
	DONE("guided_regex", C | P, V, STRING ",\"minLength\":1"),
	DONE("regex", C | P, G, STRING ",\"minLength\":1"),
	DONE("guided_choice", C | P, V, STRINGS ",\"minItems\":1"),
	/* output */
	DONE("stream", C | P | M | R, O | V | G | L | A, BOOLEAN),
	DONE("stream_options", C | P, O | V | G, OBJECT ",\"properties\":{\"include_usage\":{" BOOLEAN
		"},\"continuous_usage_stats\":{" BOOLEAN "}}"),
	DONE("logprobs", C, O | V | G | L, BOOLEAN),
	INT("logprobs", P, O | V | G | L, api_logprobs_range),
	INT("top_logprobs", C, O | V | G | L, api_logprobs_range),
	INT("prompt_logprobs", C | P, V, api_logprobs_range),
	DONE("skip_special_tokens", C | P, V | G, BOOLEAN),
	DONE("include_reasoning", C | P, V, BOOLEAN),
	DONE("return_token_ids", C | P, V | G, BOOLEAN),
	DONE("return_tokens_as_token_ids", C | P, V, BOOLEAN),

	/* Without an effect with these values, and not built with others. */
	ONLY("echo", C, V, is_false, "false"),
	ONLY("suffix", P, O | G | L, is_empty, "empty"),
	ONLY("functions", C, O, is_empty, "empty"),
	ONLY("function_call", C, O, is_none_or_auto, "none, auto"),
	/* Constraints on the answer: leaving one out would be a wrong answer. */
	NEVER("structural_tag", C | P, V | G),
	NEVER("guided_grammar", C | P, V),
	NEVER("ebnf", C | P, G),
	ONLY("grammar", C | P, L, is_empty, "empty"),
	ONLY("allowed_token_ids", C | P, V, is_empty, "empty"),
	ONLY("output_config", M, A, is_empty, "empty"),
	ONLY("output_format", M, A, is_empty, "empty"),
	/* What a server would do beside answering. */
	NEVER("previous_response_id", R, O),
	NEVER("conversation", R, O),
	NEVER("prompt", R, O),
	ONLY("background", R, O, is_false, "false"),
	ONLY("store", R, O, is_false, "false"),
	ONLY("container", M, A, is_empty, "empty"),
	ONLY("context_management", M | R, O | A, is_empty, "empty"),
	ONLY("mcp_servers", M, A, is_empty, "empty"),
	ONLY("text", R, O, is_text_config, "a format of type text"),
	ONLY("truncation", R, O, is_disabled, "disabled"),
	ONLY("include", R, O, is_plain_list, "empty, [\"reasoning.encrypted_content\"]: reasoning is text"),
	ONLY("top_logprobs", R, O, is_zero, "0"),
	/* Input of other kinds, and what a template or a model would be given. */
	NEVER("chat_template", C, V),
	ONLY("documents", C, V, is_empty, "empty"),
	ONLY("modalities", C, O | V, is_text_alone, "[\"text\"]"),
	NEVER("audio", C, O),
	NEVER("web_search_options", C, O),
	ONLY("mm_processor_kwargs", C, V, is_empty, "empty"),
	NEVER("prompt_embeds", P, V),
	NEVER("input_embeds", P, G),
	ONLY("image_data", C | P, G | L, is_empty, "empty"),
	ONLY("lora", C | P, L, is_empty, "empty"),
	ONLY("lora_path", C | P, G, is_empty, "empty"),
	/* No tokenizer of this family adds any: neither value has an effect. */
	ONLY("add_special_tokens", C | P, V, json_is_bool, "true, false: there are none to add"),
	ONLY("truncation_side", C | P, V, is_left, "left"),
	/* Ways to draw, and ends. */
	ONLY("use_beam_search", C | P, V, is_false, "false"),
	ONLY("length_penalty", C | P, V, is_one, "1"),
	ONLY("early_stopping", C | P, V, is_false, "false"),
	ONLY("stop_regex", C | P, G, is_empty, "empty"),
	ONLY("thinking_token_budget", C | P, V, is_minus_one, "-1"),
	ONLY("thinking_budget", C | P, V | G, is_minus_one, "-1"),
	ONLY("thinking_budget_tokens", C | P, L, is_minus_one, "-1"),
	ONLY("reasoning_budget", C | P, L, is_minus_one, "-1"),
	ONLY("n_predict", C | P, L, is_minus_one, "-1"),
	ONLY("n_keep", C | P, L, is_zero, "0"),
	ONLY("n_indent", C | P, L, is_zero, "0"),
	ONLY("n_cmpl", C | P, L, is_one, "1"),
	ONLY("t_max_predict_ms", C | P, L, is_zero_or_less, "0 or less"),
	ONLY("repeat_penalty", C | P, L, is_one, "1"),
	ONLY("typical_p", C | P, L, is_one, "1"),
	ONLY("tfs_z", C | P, L, is_one, "1"),
	ONLY("top_n_sigma", C | P, L, is_minus_one, "-1"),
	ONLY("mirostat", C | P, L, is_zero, "0"),
	ONLY("dynatemp_range", C | P, L, is_zero, "0"),
	ONLY("xtc_probability", C | P, L, is_zero, "0"),
	ONLY("dry_multiplier", C | P, L, is_zero, "0"),
	ONLY("min_keep", C | P, L, is_zero, "0"),
	ONLY("samplers", C | P, L, is_empty, "empty"),
	ONLY("backend_sampling", C | P, L, is_false, "false"),
	ONLY("repetition_detection", C | P, V, is_empty, "empty"),
	ONLY("logits_processors", C | P, V, is_empty, "empty"),
	ONLY("custom_logit_processor", C | P, G, is_empty, "empty"),
	ONLY("custom_params", C | P, G, is_empty, "empty"),
	ONLY("vllm_xargs", C | P, V, is_empty, "empty"),
	ONLY("session_params", C | P, G, is_empty, "empty"),
	ONLY("priority", C | P, V | G, is_zero, "0"),
	NEVER("kv_transfer_params", C | P, V),
	/* Forms of the answer. */
	ONLY("spaces_between_special_tokens", C | P, V | G, is_true, "true"),
	ONLY("logprob_token_ids", C | P, V, is_empty, "empty"),
	ONLY("n_probs", C | P, L, is_zero, "0"),
	ONLY("post_sampling_probs", C | P, L, is_false, "false"),
	ONLY("return_tokens", C | P, L, is_false, "false"),
	ONLY("return_prompt_text", C | P, V, is_false, "false"),
	ONLY("return_hidden_states", C | P, G, is_false, "false"),
	ONLY("return_routed_experts", C | P, V | G, is_false, "false"),
	ONLY("separate_reasoning", C, G, is_true, "true"),
	ONLY("stream_reasoning", C, G, is_true, "true"),
	ONLY("reasoning_format", C | P, L, is_split, "auto, deepseek"),
	ONLY("reasoning_in_content", C | P, L, is_false, "false"),
	ONLY("parse_tool_calls", C | P, L, is_true, "true"),
	ONLY("response_fields", C | P, L, is_empty, "empty"),
	ONLY("verbose", C | P, L, is_false, "false"),

	/* Nothing of an answer depends on them here. */
	IGNORED("user", C | P | R, O | V | G),
	IGNORED("metadata", C | P | M | R, O | A),
	IGNORED("store", C, O),
	IGNORED("service_tier", C | P | M | R, O | A),
	IGNORED("cache_control", M, A),
	IGNORED("inference_geo", M, A),
	IGNORED("prompt_cache_key", C | R, O),
	IGNORED("prompt_cache_retention", C | R, O),
	IGNORED("max_tool_calls", R, O),
	IGNORED("stream_options", R, O),
	IGNORED("safety_identifier", C | R, O),
	IGNORED("verbosity", C, O),
	IGNORED("prediction", C, O),
	IGNORED("request_id", C | P, V),
	IGNORED("cache_salt", C | P, V),
	IGNORED("rid", C | P, G),
	IGNORED("return_cached_tokens_details", C | P, G),
	IGNORED("data_parallel_rank", C | P, G),
	IGNORED("bootstrap_host", C | P, G),
	IGNORED("bootstrap_port", C | P, G),
	IGNORED("bootstrap_room", C | P, G),
	IGNORED("cache_prompt", C | P, L),
	IGNORED("id_slot", C | P, L),
	IGNORED("timings_per_token", C | P, L),
	IGNORED("return_progress", C | P, L),
	IGNORED("sse_ping_interval", C | P, L),
};
// clang-format on

const struct api_field *api_fields(size_t *n)
{
	*n = COUNT(fields);
	return fields;
}

bool api_fields_numbers(const struct json *object, enum api_where where,
	struct gen_request *req, struct api_error *e)
{
	for (size_t i = 0; i < COUNT(fields); i++) {
		const struct api_field *f = &fields[i];
		double *to = (double *)(void *)((char *)req + f->at);
		bool *has = f->has_at == 0 ? NULL : (bool *)((char *)req + f->has_at);

		if (f->number != NULL && (f->where & where) &&
			!api_json_f64(object, f->name, f->number, to, has, e))
			return false;
	}
	return true;
}

static const struct api_field *find_field(const struct json *name, enum api_where where)
{
	for (size_t i = 0; i < COUNT(fields); i++)
		if ((fields[i].where & where) && json_equals(name, fields[i].name))
			return &fields[i];
	return NULL;
}

/* Printable ASCII without the separator: the list goes into a log line. */
static void note_ignored(char *list, size_t list_bytes, struct bytes name)
{
	size_t used = strlen(list);
	const char *between = used > 0 ? "," : "";

	if (used + strlen(between) + name.len >= list_bytes)
		return;
	for (; *between != 0; between++)
		list[used++] = *between;
	for (size_t i = 0; i < name.len; i++)
		list[used++] =
			(char)(name.at[i] < ' ' || name.at[i] > '~' || name.at[i] == ','
					? '?'
					: name.at[i]);
	list[used] = 0;
}

/* Dialects in which a member that another one acts on is no word without a meaning: it
 * asks for something that would be left out. */
static bool is_of_another(const struct json *name, enum api_where where)
{
	if (!(where & (API_IN_MESSAGES | API_IN_RESPONSES)))
		return false;
	for (size_t i = 0; i < COUNT(fields); i++)
		if (fields[i].fate != FIELD_IGNORED && json_equals(name, fields[i].name))
			return true;
	return false;
}

static bool refuse_other(const struct json *name, struct api_error *e)
{
	api_error_set(e, 400, "unsupported_parameter", json_text(name),
		"%s is no member of requests to this path.", json_text(name));
	return false;
}

static bool refuse(const struct api_field *f, struct api_error *e)
{
	if (f->only == NULL)
		api_error_set(e, 400, "unsupported_parameter", f->name,
			"%s is not supported.", f->name);
	else
		api_error_set(e, 400, "unsupported_parameter", f->name,
			"%s is not supported with this value; what is taken: %s.",
			f->name, f->only);
	return false;
}

bool api_fields_check(const struct json *object, enum api_where where, char *ignored,
	size_t ignored_bytes, struct api_error *e)
{
	json_each_member(name, object)
	{
		const struct json *value = name + 1;
		const struct api_field *f = find_field(name, where);

		if (json_is(value, JSON_NULL) || (f != NULL && f->fate == FIELD_DONE))
			continue;
		if (f == NULL && is_of_another(name, where))
			return refuse_other(name, e);
		if (f == NULL || f->fate == FIELD_IGNORED)
			note_ignored(ignored, ignored_bytes, json_bytes(name));
		else if (!f->harmless(value))
			return refuse(f, e);
	}
	return true;
}
