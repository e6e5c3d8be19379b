/* Text or chat messages to token ids: the template in a child process, the tokenizer on
 * the thread pool, the result on the loop. */
#ifndef ROUTER_ENCODE_H
#define ROUTER_ENCODE_H
#include "router/output.h"
#include "router/router.h"

/* Messages to workers hold no more; a longer prompt is only counted up to here. */
#define ENCODE_IDS_MAX 1100000u

struct encode_result {
	/* The callback may keep ids.v by taking it and zeroing the struct. */
	struct tok_ids ids;
	enum output_mode mode; /* of a rendered chat prompt */
	bool too_long;         /* more than ENCODE_IDS_MAX ids; error is not set */
	bool failed;           /* error says why */
	struct api_error error;
};

/* Once, never from inside encode_start. */
typedef void encode_fn(void *ctx, struct encode_result *result);

struct encode;
/* render: JSON object for template_render; NULL: text is encoded with flags. Len bytes
 * from mem_take, taken in any case. param: the member's name, for errors. NULL: *e says
 * why it cannot begin. */
struct encode_source {
	char *render, *text;
	size_t len;
	unsigned flags;
	const char *param;
};
struct encode *encode_start(struct router *rt, const struct encode_source *s,
	encode_fn *fn, void *ctx, struct api_error *e);
/* fn is not called any more. */
void encode_stop(struct encode *p);
/* false: messages cannot become a prompt here, and *e says why. */
bool encode_takes_messages(const struct router *rt, struct api_error *e);
void encode_no_memory(struct router *rt, struct api_error *e);

#endif
