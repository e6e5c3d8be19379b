/* The page of a browser and what it looks at. The page is one file without anything from
 * outside; its policy lets only its own script run, named by a nonce of each answer. */
#include "router/page.h"

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "router/control.h"
#include "router/reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NONCE_MARK       "@NONCE@"
#define NONCE_BYTES      17u
#define STATUS_BYTES_MAX (4u << 20)

__asm__(".section .rodata\n"
	"page_text:\n"
	".incbin \"" BATON_SOURCE_DIR "/router/page.html\"\n"
	".byte 0\n"
	".previous\n");
extern const char page_text[];

static void put_page(struct sink *out, const char *nonce)
{
	const char *at = page_text, *mark;

	while ((mark = strstr(at, NONCE_MARK)) != NULL) {
		sink_put(out, at, (size_t)(mark - at));
		sink_str(out, nonce);
		at = mark + strlen(NONCE_MARK);
	}
	sink_str(out, at);
}

static void add_policy(struct http_req *req, const char *nonce)
{
	char policy[256];

	snprintf(policy, sizeof(policy),
		"default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; "
		"connect-src 'self'; img-src data:; base-uri 'none'; "
		"form-action 'none'; frame-ancestors 'none'",
		nonce, nonce);
	http_header_add(req, "Content-Security-Policy", policy);
	http_header_add(req, "X-Content-Type-Options", "nosniff");
	http_header_add(req, "Referrer-Policy", "no-referrer");
	http_header_add(req, "Cache-Control", "no-store");
}

static void refuse(struct router *rt, struct http_req *req)
{
	struct api_error e;

	api_error_set(&e, 503, "overloaded", NULL, "No memory for the answer.");
	reply_error(rt, req, &e, false);
}

void page_answer(struct router *rt, struct http_req *req)
{
	char nonce[NONCE_BYTES];
	struct sink out;

	snprintf(nonce, sizeof(nonce), "%016" PRIx64, rng_entropy64());
	sink_init(&out, 1u << 20);
	put_page(&out, nonce);
	if (out.full) {
		refuse(rt, req);
	} else {
		add_policy(req, nonce);
		http_respond_take(req, 200, "text/html; charset=utf-8", &out);
	}
	sink_release(&out);
}

void page_status(struct router *rt, struct http_req *req)
{
	struct sink out;

	sink_init(&out, STATUS_BYTES_MAX);
	api_status(rt, clock_ns(), &out);
	if (out.full) {
		refuse(rt, req);
	} else {
		http_header_add(req, "Cache-Control", "no-store");
		reply_json(req, 200, &out);
	}
	sink_release(&out);
}
