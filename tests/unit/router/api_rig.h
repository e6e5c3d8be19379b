/* What the tests of body parsers share. */
#ifndef TESTS_UNIT_ROUTER_API_RIG_H
#define TESTS_UNIT_ROUTER_API_RIG_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "router/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define M "'messages':[{'role':'user','content':'hi'}]"
#define P "'prompt':'hi'"

static const struct api_options lax = {0};

/* Single quotes stand for double ones. */
static inline struct bytes body_of(const char *text, char *buf, size_t max)
{
	size_t n = strlen(text);

	assert_true(n < max);
	for (size_t i = 0; i <= n; i++)
		buf[i] = text[i] == '\'' ? '"' : text[i];
	return (struct bytes){(uint8_t *)buf, n};
}

/* A body that its parser may change. */
static inline struct sink copy_of(struct bytes text)
{
	struct sink s;

	sink_init(&s, text.len);
	sink_put(&s, text.at, text.len);
	assert_false(s.full);
	return s;
}

static inline bool parse(
	char kind, struct bytes text, struct gen_request *req, struct api_error *e)
{
	struct sink body = copy_of(text);
	bool ok = kind == 'c'   ? api_parse_chat(req, &body, &lax, e)
		  : kind == 'm' ? api_parse_messages(req, &body, &lax, e)
		  : kind == 'r' ? api_parse_responses(req, &body, &lax, e)
				: api_parse_completion(req, &body, &lax, e);

	sink_release(&body);
	return ok;
}

static inline bool parse_tokenize(
	const char *text, struct tok_request *t, struct api_error *e)
{
	char buf[512];
	struct sink body = copy_of(body_of(text, buf, sizeof(buf)));
	bool ok = api_parse_tokenize(t, &body, &lax, e);

	sink_release(&body);
	return ok;
}

static inline bool parse_detokenize(
	const char *text, struct detok_request *d, struct api_error *e)
{
	char buf[512];
	struct sink body = copy_of(body_of(text, buf, sizeof(buf)));
	bool ok = api_parse_detokenize(d, &body, e);

	sink_release(&body);
	return ok;
}

#endif
