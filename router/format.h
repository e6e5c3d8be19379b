/* One row per API dialect of generated text: its path, its parser, its writers. A dialect
 * is a parser (api_*.c, declared in api.h), a file of writers that ends with the row
 * (out_*.c), and its line below; nothing else in the router tells dialects apart. */
#ifndef ROUTER_FORMAT_H
#define ROUTER_FORMAT_H
#include "router/api_out.h"
#include "router/out_logprobs.h"

struct answer_format {
	const char *path;
	const char *id_prefix;
	bool takes_messages; /* the prompt is rendered by the model's template */
	uint64_t max_tokens; /* of a request that says none; as many as fit, if fewer */

	bool (*parse)(struct gen_request *req, struct sink *body,
		const struct api_options *options, struct api_error *e);

	void (*whole)(struct sink *out, const struct out_head *head,
		const struct out_choice *choices, size_t n,
		const struct out_usage *usage);

	/* Each one or more whole events, or none: append to one sink. A stream is, per
	 * choice: first (before all else of it; NULL: the dialect has none), a delta for
	 * each part (parts.h), finish; then usage if asked for; then done. */
	void (*first)(struct sink *out, const struct out_head *head, uint32_t index);
	void (*delta)(struct sink *out, const struct out_head *head, uint32_t index,
		const struct out_part *part);
	void (*finish)(struct sink *out, const struct out_head *head, uint32_t index,
		enum out_finish finish, struct out_stop stop);
	void (*usage)(struct sink *out, const struct out_head *head,
		const struct out_usage *usage);
	/* Behind the last event; NULL: nothing. */
	void (*done)(struct sink *out, const struct out_head *head);
	/* That the stream is alive; only between whole events, at any time. */
	void (*keepalive)(struct sink *out);

	/* JSON for out_head and out_choice, of what was not written yet. */
	void (*logprobs)(
		struct sink *out, const struct tokenizer *t, struct logprob_list *l);

	/* As an answer, and as the end of a stream. */
	void (*error)(struct sink *out, const struct api_error *e);
	void (*error_event)(
		struct sink *out, const struct out_head *head, const struct api_error *e);
};

/* A line each. */
#define FORMATS(X)                                                                       \
	X(chat)                                                                          \
	X(completion)                                                                    \
	X(messages)                                                                      \
	X(responses)
#define X(name) extern const struct answer_format format_##name;
FORMATS(X)
#undef X

/* One after the other; NULL behind the last. */
const struct answer_format *format_at(size_t i);
/* The dialect of a path, or NULL. */
const struct answer_format *format_of(const char *path);
/* An error in the shape that clients of the path read: the dialect's for its path and all
 * below it, OpenAI's elsewhere and for NULL. */
void format_error(struct sink *out, const char *path, const struct api_error *e);

#endif
