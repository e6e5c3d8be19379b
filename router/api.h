/* Bodies of requests, parsed and checked: everything after this file is numbers and
 * owned text. Nothing here knows workers or tokenizers; ids are checked against the
 * vocabulary by the caller. */
#ifndef ROUTER_API_H
#define ROUTER_API_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include "common/model/stop.h"
#include "common/wire/wire.h"
#include <stdbool.h>
#include <stdint.h>

#define API_DEPTH_MAX    128u /* nesting of JSON in a body */
#define API_PROMPTS_MAX  256u /* prompts of one /v1/completions */
#define API_MESSAGES_MAX 65536u
#define API_ID_MAX       0xFFFFFFFEu

/* What a client is told when a request fails. Static type and code; message bounded,
 * with at most 200 bytes of the client's own text in it, valid UTF-8. */
struct api_error {
	unsigned http;    /* status */
	const char *type; /* "invalid_request_error", "server_error", ... */
	const char *code; /* "invalid_value", ...; NULL: null */
	char param[96];   /* "messages[3].content"; "": null */
	char message[640];
};

/* Fills e; the type follows from the status. param may be NULL. Truncation never cuts a
 * character. */
void api_error_set(struct api_error *e, unsigned http, const char *code,
	const char *param, const char *fmt, ...) PRINTF_LIKE(5, 6);

#define API_CHOICES_MAX  128u /* n */
#define API_ANSWERS_MAX  256u /* prompts times n */
#define API_STOP_IDS_MAX 48u
#define API_BIAS_MAX     512u
#define API_BIAS_BAN     (-100.0f) /* not to be drawn */
#define API_LOGPROBS_MAX 20u
#define API_SCORED_MAX   32768u /* tokens of a prompt whose logprobs are given */

struct tool_set; /* router/tools.h */

/* One prompt of /v1/completions: text, or ids. Both NULL never; n counts ids, len bytes.
 */
struct gen_prompt {
	char *text;
	size_t len;
	char *echo; /* a second copy, for the answer; NULL: not wanted */
	uint32_t *ids;
	size_t n_ids;
};

/* A parsed generation request. Owns everything it points to (mem_take). has_X false:
 * the field was absent or null, X then holds 0; defaults are the caller's (the model's
 * generation_config, then OpenAI's). */
struct gen_request {
	char *model; /* NULL: not given */

	/* Chat: the JSON object that template_render takes: messages adapted
	 * (template.h), the kwargs and the flags. */
	char *render;
	size_t render_len;

	struct gen_prompt *prompts; /* completion: n_prompts >= 1 */
	size_t n_prompts;

	/* has_X false: the member was absent. */
	bool has_max_tokens, has_temperature, has_top_p, has_top_k, has_min_p, has_seed;
	bool has_presence, has_frequency, has_repetition, has_min_tokens;
	bool stream;
	bool include_usage;
	bool keep_stop; /* the stop string or token that ended it is part of the text */
	bool show_special;   /* special tokens are text */
	bool hide_reasoning; /* left out of the answer, its logprobs too */
	bool return_ids;     /* of the prompt and of the answer */
	bool tokens_as_ids;  /* in logprobs */
	int64_t truncate;    /* the last so many tokens of the prompt; -1: those that fit;
				0: all */
	bool usage_each;     /* stream_options.continuous_usage_stats */
	bool ignore_eos;
	uint64_t max_tokens; /* >= 1, or 0 with echo; max_completion_tokens wins */
	/* As the workers get it: temperature 0 .. 2, top_p (0, 1], min_p [0, 1], top_k 0:
	 * off, presence and frequency -2 .. 2, repetition > 0 or 0: off. bias and bans
	 * are set by call_draw.c. */
	struct wire_sampling draw;
	uint32_t n;           /* choices of each prompt, 1 .. API_CHOICES_MAX */
	struct stop_set stop; /* n = 0: none */

	uint32_t *stop_token_ids; /* n_stop_token_ids */
	size_t n_stop_token_ids;
	struct wire_bias *bias; /* n_bias; -100 .. 100 */
	size_t n_bias;
	uint8_t *bad_words; /* n_bad_words texts, each behind its size_t; not yet in bias
			     */
	uint32_t n_bad_words;
	uint8_t *grammar;       /* draw.grammar; NULL: the answer has no form */
	char grammar_param[64]; /* the member that said it */
	bool logprobs;          /* of each token, with draw.top_logprobs likeliest */
	bool prompt_logprobs;
	uint32_t n_prompt_logprobs;
	bool echo;              /* completions: the prompt comes first */
	struct tool_set *tools; /* chat: what the answer may call; may be empty */

	/* JSON object of members that the answer says again; NULL: none. */
	char *mirror;
	size_t mirror_len;

	/* Names of members that were accepted and ignored, "," between; cut at the end
	 * of the array. For one log line per name set, not for the client. */
	char ignored[256];
};

struct api_options {
	/* Roles and their order go to the template as they came: no developer -> system,
	 * no merging of system messages. */
	bool strict_template;
};

/* false: *e says why, *req owns nothing. true: the caller releases *req. The text of
 * body is changed in place and of no more use; nothing in *req points into it. On any
 * thread. */
MUST_CHECK bool api_parse_chat(struct gen_request *req, struct sink *body,
	const struct api_options *options, struct api_error *e);
MUST_CHECK bool api_parse_completion(struct gen_request *req, struct sink *body,
	const struct api_options *options, struct api_error *e);
MUST_CHECK bool api_parse_messages(struct gen_request *req, struct sink *body,
	const struct api_options *options, struct api_error *e);
MUST_CHECK bool api_parse_responses(struct gen_request *req, struct sink *body,
	const struct api_options *options, struct api_error *e);
/* Whether the workers will understand its grammar: up to 100 ms, on any thread. */
MUST_CHECK bool api_grammar_understood(
	const struct gen_request *req, struct api_error *e);
/* Whether nothing else of the request, whose defaults are set, contradicts it. */
MUST_CHECK bool api_grammar_alone(const struct gen_request *req, struct api_error *e);
/* Releases what it owns and zeroes it; a zeroed request is allowed. */
void gen_request_release(struct gen_request *req);

/* /tokenize, in vLLM's shape ({prompt | messages, ...}) or llama.cpp's ({content, ...});
 * Anthropic's count_tokens. */
enum tok_shape { TOK_SHAPE_VLLM, TOK_SHAPE_LLAMA, TOK_SHAPE_COUNT };

struct tok_request {
	enum tok_shape shape;
	char *model; /* NULL: not given */
	char *text;  /* prompt or content; NULL: render is set */
	size_t len;
	char *render; /* messages, as in gen_request */
	size_t render_len;
	bool with_pieces;   /* return_token_strs (vLLM), with_pieces (llama.cpp) */
	bool parse_special; /* added tokens are recognised in text (the default) */
};

MUST_CHECK bool api_parse_tokenize(struct tok_request *req, struct sink *body,
	const struct api_options *options, struct api_error *e);
/* What api_parse_messages takes, max_tokens absent or not. */
MUST_CHECK bool api_parse_count(struct tok_request *req, struct sink *body,
	const struct api_options *options, struct api_error *e);
void tok_request_release(struct tok_request *req);

struct detok_request {
	char *model;
	uint32_t *ids;
	size_t n_ids;
};

MUST_CHECK bool api_parse_detokenize(
	struct detok_request *req, struct sink *body, struct api_error *e);
void detok_request_release(struct detok_request *req);

#endif
