/* /openapi.json: an OpenAPI 3.1 document. Paths come from routes.c and format.c, members
 * of generation requests from api_fields.c; what answers look like stands here. */
#include "router/openapi.h"

#include "common/base/json_write.h"
#include "router/api_fields.h"
#include "router/format.h"
#include "router/probe.h"
#include "router/reply.h"
#include "router/routes.h"

#include <string.h>

#define DOCUMENT_BYTES_MAX (1u << 20)

#define STR      "{\"type\":\"string\"}"
#define STR_NULL "{\"type\":[\"string\",\"null\"]}"
#define INT      "{\"type\":\"integer\"}"
#define NUM      "{\"type\":\"number\"}"
#define BOOL     "{\"type\":\"boolean\"}"
#define LIST(of) "{\"type\":\"array\",\"items\":" of "}"
#define OBJ(need, members)                                                               \
	"{\"type\":\"object\",\"required\":[" need "],\"properties\":{" members "}}"
#define REF(name) "{\"$ref\":\"#/components/schemas/" name "\"}"

/* Names in routes.c and below. */
static const struct {
	const char *name, *schema;
} schemas[] = {
	{"Object", "{\"type\":\"object\"}"},
	{"Error",
		OBJ("\"error\"", "\"error\":" OBJ("\"message\",\"type\"",
					 "\"message\":" STR ",\"type\":" STR
					 ",\"param\":" STR_NULL ",\"code\":" STR_NULL))},
	{"Probe", OBJ("\"status\"", "\"status\":" STR ",\"reason\":" STR)},
	{"Version", OBJ("\"version\"", "\"version\":" STR)},
	{"Model", OBJ("\"id\",\"object\",\"created\",\"max_model_len\"",
			  "\"id\":" STR ",\"object\":{\"const\":"
			  "\"model\"},\"created\":" INT ",\"owned_by\":" STR
			  ",\"root\":" STR ",\"parent\":{\"type\":\"null\"},"
			  "\"max_model_len\":" INT ",\"permission\":" LIST("{}"))},
	{"Models",
		OBJ("\"object\",\"data\"",
			"\"object\":{\"const\":\"list\"},\"data\":" LIST(REF("Model")))},
	{"TokenizeRequest",
		"{\"oneOf\":[" OBJ("\"prompt\"",
			"\"prompt\":" STR ",\"model\":" STR
			",\"return_token_strs\":" BOOL) "," OBJ("\"conten"
								"t\"",
			"\"content\":" STR ",\"model\":" STR ",\"with_pieces\":" BOOL
			",\"parse_special\":" BOOL) "," OBJ("\"messages"
							    "\"",
			"\"messages\":" LIST(
				"{\"type\":\"object\"}") ",\"model\":" STR ",\"add_"
							 "generation_"
							 "prompt\":" BOOL ",\"continue_"
							 "final_"
							 "message\":" BOOL ",\"return_"
							 "token_"
							 "strs\":" BOOL) "]"
									 "}"},
	{"Tokens",
		OBJ("\"tokens\"", "\"tokens\":" LIST("{}") ",\"count\":" INT
							   ",\"max_model_len\":" INT
							   ",\"token_strs\":{\"type\":["
							   "\"array\",\"null\"],"
							   "\"items\":" STR "}")},
	{"DetokenizeRequest",
		OBJ("\"tokens\"", "\"tokens\":" LIST("{\"type\":\"integer\",\"minimum\":"
						     "0}") ",\"model\":" STR)},
	{"Text", OBJ("\"prompt\",\"content\"", "\"prompt\":" STR ",\"content\":" STR)},
	{"Load", OBJ("\"server_load\",\"running\",\"waiting\",\"wait_s\","
		     "\"kv_cache_"
		     "usage\"",
			 "\"server_load\":" INT ",\"running\":" INT ",\"waiting\":" INT
			 ",\"wait_s\":" NUM ",\"kv_cache_usage\":" NUM)},
	{"ServerInfo",
		OBJ("\"version\",\"served_model_name\",\"max_model_len\"",
			"\"version\":" STR ",\"router\":" STR ",\"model_path\":" STR
			",\"served_model_name\":" STR ",\"served_model_names\":" LIST(
				STR) ",\"max_model_len\":" INT ",\"vocab_size\":" INT
				     ",\"started\":" INT ",\"ready\":" BOOL
				     ",\"max_queued\":" INT ",\"max_replays\":" INT
				     ",\"queue_timeout_s\":" NUM ",\"prefill\":" LIST(
					     "{\"type\":\"object\"}") ","
								      "\"decode\":" LIST(
									      "{\"type\":"
									      "\"object\""
									      "}"))},
	{"TokenizerInfo",
		OBJ("\"vocab_size\",\"added_tokens\"",
			"\"tokenizer_class\":" STR_NULL ",\"vocab_size\":" INT
			",\"model_max_length\":" INT ",\"bos_token\":" STR_NULL
			",\"eos_token\":" STR_NULL ",\"pad_token\":" STR_NULL
			",\"unk_token\":" STR_NULL ",\"eos_token_ids\":" LIST(
				INT) ",\"added_tokens\":" LIST("{\"type\""
							       ":\"object"
							       "\"}") ","
								      "\""
								      "ch"
								      "at"
								      "_t"
								      "em"
								      "pl"
								      "at"
								      "e"
								      "\""
								      ":" STR_NULL)},
	{"Usage", OBJ("\"prompt_tokens\",\"completion_tokens\",\"total_"
		      "tokens\"",
			  "\"prompt_tokens\":" INT ",\"completion_tokens\":" INT
			  ",\"total_tokens\":" INT ",\"prompt_tokens_details\":{\"type\":"
			  "\"object\"},"
			  "\"completion_tokens_details\":{\"type\":"
			  "\"object\"}")},
	{"ChatAnswer", OBJ("\"id\",\"object\",\"created\",\"model\",\"choices\","
			   "\"usage\"",
			       "\"id\":" STR ",\"object\":{\"const\":\"chat."
			       "completion\"},\"created\":" INT ",\"model\":" STR
			       ",\"usage\":" REF("Usage") ",\"choices\":" LIST(OBJ(
				       "\"index\",\"message\",\"finish_"
				       "reason\"",
				       "\"index\":" INT ",\"finish_reason\":" STR
				       ",\"message\":" OBJ("\"role\",\"content\"",
					       "\"role\":{\"const\":"
					       "\"assistant\"},"
					       "\"content\":" STR_NULL
					       ",\"reasoning\":" STR_NULL ",\"reasoning_"
					       "content\""
					       ":" STR_NULL))))},
	{"Count", OBJ("\"input_tokens\"", "\"input_tokens\":" INT)},
	{"MessagesAnswer",
		OBJ("\"id\",\"type\",\"role\",\"model\",\"content\","
		    "\"stop_reason\","
		    "\"usage\"",
			"\"id\":" STR ",\"type\":{\"const\":\"message\"}"
			",\"role\":{\"const\":\"assistant\"},"
			"\"model\":" STR ",\"stop_reason\":{\"enum\":["
			"\"end_turn\",\"max_tokens\","
			"\"stop_sequence\",\"tool_use\"]},\"stop_"
			"sequence\":" STR_NULL ",\"content\":" LIST(
				OBJ("\"type\"", "\"type\":{\"enum\":[\"text\","
						"\"thinking\",\"tool_use\"]"
						"}")) ",\"usage\":" OBJ("\"input_"
									"tokens\","
									"\"output_"
									"tokens\"",
				"\"input_tokens\":" INT ",\"output_tokens\":" INT))},
	{"ResponsesAnswer", OBJ("\"id\",\"object\",\"created_at\",\"model\","
				"\"status\",\"output\","
				"\"usage\"",
				    "\"id\":" STR ",\"object\":{\"const\":\"response\"}"
				    ",\"created_at\":" INT ",\"model\":" STR
				    ",\"status\":{\"enum\":[\"completed\","
				    "\"incomplete\"]}"
				    ",\"output\":" LIST(OBJ("\"id\",\"type\",\"status\"",
					    "\"id\":" STR ",\"type\":{\"enum\":["
					    "\"reasoning\",\"message\","
					    "\"function_call\"]},"
					    "\"status\":" STR)) ",\"usage\""
								":" OBJ("\"in"
									"put_"
									"toke"
									"ns\""
									",\"o"
									"utpu"
									"t_"
									"toke"
									"ns\""
									",\"t"
									"otal"
									"_tok"
									"ens"
									"\"",
									"\"in"
									"put_"
									"toke"
									"ns\""
									":" INT ",\"o"
									"utpu"
									"t_"
									"toke"
									"ns\""
									":" INT ",\"t"
									"otal"
									"_tok"
									"ens"
									"\""
									":" INT))},
	{"CompletionAnswer", OBJ("\"id\",\"object\",\"created\",\"model\",\"choices\","
				 "\"usage\"",
				     "\"id\":" STR ",\"object\":{\"const\":\"text_"
				     "completion\"},\"created\":" INT ",\"model\":" STR
				     ",\"usage\":" REF("Usage") ",\"choices\":" LIST(
					     OBJ("\"index\",\"text\",\"finish_"
						 "reason\"",
						     "\"index\":" INT ",\"text\":" STR
						     ",\"finish_reason\":" STR)))},
};

/* Dialects whose members stand in api_fields.c. format: NULL of a body that asks for no
 * text. */
#define NEEDS_MAX 2u
static const struct dialect {
	const struct answer_format *format;
	enum api_where where;
	const char *body, *answer, *needs[NEEDS_MAX];
} dialects[] = {
	{&format_chat, API_IN_CHAT, "ChatRequest", "ChatAnswer", {"messages"}},
	{&format_completion, API_IN_COMPLETION, "CompletionRequest", "CompletionAnswer",
		{"prompt"}},
	{&format_messages, API_IN_MESSAGES, "MessagesRequest", "MessagesAnswer",
		{"messages", "max_tokens"}},
	{NULL, API_IN_MESSAGES, "CountRequest", NULL, {"messages"}},
	{&format_responses, API_IN_RESPONSES, "ResponsesRequest", "ResponsesAnswer",
		{"input"}},
};

static void add_ref(struct json_out *w, const char *name, const char *schema)
{
	struct sink text;

	json_name(w, name);
	sink_init(&text, 256);
	sink_fmt(&text, REF("%s"), schema);
	json_put_raw(w, sink_bytes(&text));
	sink_release(&text);
}

/* ---- members ---- */

static void add_bounds(struct json_out *w, const struct api_field *f)
{
	if (f->integer != NULL) {
		json_add_text(w, "type", "integer");
		json_add_i64(w, "minimum", f->integer->min);
		json_add_i64(w, "maximum", f->integer->max);
		json_add_text(w, "description", f->integer->text);
		return;
	}
	json_add_text(w, "type", "number");
	json_add_f64(w, f->number->open ? "exclusiveMinimum" : "minimum", f->number->min);
	json_add_f64(w, "maximum", f->number->max);
	json_add_text(w, "description", f->number->text);
}

static void put_value(struct json_out *w, const struct api_field *f)
{
	struct sink text;

	if (f->schema == NULL) {
		json_open(w, '{');
		add_bounds(w, f);
		json_close(w);
		return;
	}
	sink_init(&text, 4096);
	sink_fmt(&text, "{%s}", f->schema);
	json_put_raw(w, sink_bytes(&text));
	sink_release(&text);
}

/* null is as good as absent, but for what is required. */
static void put_taken(struct json_out *w, const struct api_field *f, bool required)
{
	if (required) {
		put_value(w, f);
		return;
	}
	json_open(w, '{');
	json_name(w, "anyOf");
	json_open(w, '[');
	put_value(w, f);
	json_put_raw(w, BYTES_STR("{\"type\":\"null\"}"));
	json_close(w);
	json_close(w);
}

static void put_refused(struct json_out *w, const struct api_field *f)
{
	struct sink text;

	sink_init(&text, 512);
	sink_fmt(&text, f->only != NULL ? "refused, but for: %s" : "refused", f->only);
	json_open(w, '{');
	json_add_text(w, "type", "null");
	json_add_text(w, "description", sink_cstr(&text));
	json_close(w);
	sink_release(&text);
}

static bool is_needed(const struct dialect *d, const char *name)
{
	for (size_t i = 0; i < NEEDS_MAX && d->needs[i] != NULL; i++)
		if (strcmp(d->needs[i], name) == 0)
			return true;
	return false;
}

static void add_request(struct json_out *w, const struct dialect *d)
{
	size_t n;
	const struct api_field *f = api_fields(&n);

	json_name(w, d->body);
	json_open(w, '{');
	json_add_text(w, "type", "object");
	json_name(w, "required");
	json_open(w, '[');
	for (size_t i = 0; i < NEEDS_MAX && d->needs[i] != NULL; i++)
		json_put_text(w, d->needs[i]);
	json_close(w);
	json_name(w, "properties");
	json_open(w, '{');
	for (; n > 0; n--, f++) {
		if (!(f->where & d->where) || f->fate == FIELD_IGNORED)
			continue;
		json_name(w, f->name);
		if (f->fate == FIELD_REFUSED)
			put_refused(w, f);
		else
			put_taken(w, f, is_needed(d, f->name));
	}
	json_close(w);
	json_close(w);
}

static void add_components(struct json_out *w)
{
	json_name(w, "components");
	json_open(w, '{');
	json_name(w, "schemas");
	json_open(w, '{');
	for (size_t i = 0; i < COUNT(schemas); i++) {
		json_name(w, schemas[i].name);
		json_put_raw(w, bytes_of_str(schemas[i].schema));
	}
	for (size_t i = 0; i < COUNT(dialects); i++)
		add_request(w, &dialects[i]);
	json_close(w);
	json_name(w, "securitySchemes");
	json_put_raw(w, BYTES_STR("{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"},"
				  "\"x_api_key\":{\"type\":\"apiKey\",\"in\":\"header\","
				  "\"name\":\"x-api-key\"}}"));
	json_close(w);
}

/* ---- paths ---- */

struct operation {
	const char *path, *about, *body, *answer; /* body NULL: GET; answer "": text */
	bool open, stream;
};

static void add_content(
	struct json_out *w, const char *type, const char *schema, const char *raw)
{
	json_name(w, type);
	json_open(w, '{');
	if (schema != NULL) {
		add_ref(w, "schema", schema);
	} else {
		json_name(w, "schema");
		json_put_raw(w, bytes_of_str(raw));
	}
	json_close(w);
}

static void add_answer(struct json_out *w, const char *code, const char *about,
	const char *answer, bool stream)
{
	json_name(w, code);
	json_open(w, '{');
	json_add_text(w, "description", about);
	json_name(w, "content");
	json_open(w, '{');
	if (answer[0] != 0)
		add_content(w, "application/json", answer, NULL);
	else
		add_content(w, "text/*", NULL, STR);
	if (stream)
		add_content(w, "text/event-stream", NULL, STR);
	json_close(w);
	json_close(w);
}

/* A path that ends in "/" goes on with the name of a model. */
static void add_parameter(struct json_out *w)
{
	json_name(w, "parameters");
	json_put_raw(
		w, BYTES_STR("[{\"name\":\"model\",\"in\":\"path\",\"required\":true,"
			     "\"schema\":" STR "}]"));
}

static void add_operation(struct json_out *w, const struct operation *op)
{
	size_t len = strlen(op->path);
	bool named = len > 1 && op->path[len - 1] == '/';
	struct sink path;

	sink_init(&path, 256);
	sink_fmt(&path, "%s%s", op->path, named ? "{model}" : "");
	json_name(w, sink_cstr(&path));
	sink_release(&path);
	json_open(w, '{');
	json_name(w, op->body != NULL ? "post" : "get");
	json_open(w, '{');
	json_add_text(w, "summary", op->about);
	if (named)
		add_parameter(w);
	if (op->body != NULL) {
		json_name(w, "requestBody");
		json_open(w, '{');
		json_add_bool(w, "required", true);
		json_name(w, "content");
		json_open(w, '{');
		add_content(w, "application/json", op->body, NULL);
		json_close(w);
		json_close(w);
	}
	json_name(w, "responses");
	json_open(w, '{');
	add_answer(w, "200", op->about, op->answer, op->stream);
	if (strcmp(op->answer, "Probe") == 0)
		add_answer(w, "503", "not now, and why", "Probe", false);
	add_answer(w, "default", "an error", "Error", false);
	json_close(w);
	json_name(w, "security");
	json_put_raw(w, op->open ? BYTES_STR("[]")
				 : BYTES_STR("[{},{\"key\":[]},{\"x_api_key\":[]}]"));
	json_close(w);
	json_close(w);
}

static void add_dialects(struct json_out *w)
{
	const struct answer_format *format;

	for (size_t i = 0; (format = format_at(i)) != NULL; i++) {
		struct operation op = {.path = format->path,
			.about = "generated text",
			.body = "Object",
			.answer = "Object",
			.stream = true};

		for (size_t k = 0; k < COUNT(dialects); k++)
			if (dialects[k].format == format) {
				op.body = dialects[k].body;
				op.answer = dialects[k].answer;
			}
		add_operation(w, &op);
	}
}

static void add_paths(struct json_out *w)
{
	const char *probe;
	size_t n;
	const struct route *r = routes_all(&n);

	json_name(w, "paths");
	json_open(w, '{');
	add_dialects(w);
	for (; n > 0; n--, r++) {
		struct operation op = {.path = r->path,
			.about = r->about,
			.body = r->body,
			.answer = r->answer,
			.open = r->open};

		add_operation(w, &op);
	}
	for (size_t i = 0; (probe = probe_path(i)) != NULL; i++) {
		struct operation op = {.path = probe,
			.about = "whether it lives, or is ready",
			.answer = "Probe",
			.open = true};

		add_operation(w, &op);
	}
	json_close(w);
}

void openapi_answer(struct router *rt, struct http_req *req)
{
	struct json_out w;
	struct sink out;

	(void)rt;
	sink_init(&out, DOCUMENT_BYTES_MAX);
	json_out_init(&w, &out);
	json_open(&w, '{');
	json_add_text(&w, "openapi", "3.1.0");
	json_name(&w, "info");
	json_open(&w, '{');
	json_add_text(&w, "title", "Baton");
	json_add_text(&w, "version", BATON_VERSION);
	json_close(&w);
	add_paths(&w);
	add_components(&w);
	json_close(&w);
	reply_json(req, 200, &out);
	sink_release(&out);
}
