/* What a client sends, seen byte by byte before libmicrohttpd reads it: request lines,
 * header lines and the framing of bodies (RFC 9112), as narrow as two parsers can only
 * read in one way. What is wrong is found here and never handed on. Knows no socket. */
#ifndef ROUTER_HTTP_HEAD_H
#define ROUTER_HTTP_HEAD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is wrong with a request. */
struct http_fault {
	unsigned status;
	const char *code;
	char text[200];
};

/* Bytes of a target that are kept, with the zero: enough to tell paths apart. */
#define HTTP_TARGET_KEPT 64u

struct http_head_limits {
	size_t head_bytes; /* request line and header lines */
	uint32_t lines;    /* header lines */
};

struct http_head {
	const struct http_head_limits *limits;
	uint8_t state;
	/* of the request that is being read */
	bool old; /* HTTP/1.0 */
	uint8_t n_word;
	char word[24]; /* method, version or header name, lower case; cut */
	uint8_t n_target;
	char target[HTTP_TARGET_KEPT]; /* as sent, cut */
	uint8_t field;                 /* whose value is being read */
	bool value_began;
	uint32_t n_lines, n_hosts, n_lengths, n_encodings;
	size_t bytes;
	uint64_t length; /* of the body or chunk that is left */
	uint8_t n_digits;
};

void http_head_init(struct http_head *h, const struct http_head_limits *limits);
/* Reads up to n bytes: all of them, or those before a fault. *begin is the place behind
 * the last byte of a request that ended, 0 when none did. true: no fault. */
bool http_head_feed(struct http_head *h, const void *at, size_t n, size_t *begin,
	struct http_fault *f);
/* Between two requests: nothing of one was seen. */
bool http_head_is_idle(const struct http_head *h);
/* The path of a target that names scheme and host as well (RFC 9112, 3.2.2). */
const char *http_head_path(const char *target);

#endif
