/* The HTTP server: libmicrohttpd on the loop's epoll, everything on the loop thread.
 * A request is handed over once its body is there and stays suspended until it is
 * answered; the client's leaving is watched meanwhile (libmicrohttpd does not).
 *
 * Life of a request, callbacks in this order:
 *   may_enter    when its head is there
 *   on_request   exactly once
 *   on_gone      at most once: the client left, or was cut for not reading, before the
 *                answer was given in full; answering is then a no-op, stop the work
 *   on_end       exactly once, last: the request does not exist after it returns
 * What is refused before its body was read (413, 408, 431, 400 for framing, what
 * may_enter says) never reaches on_request; on_refused is told of it. Such answers are
 * error JSON too. */
#ifndef ROUTER_HTTP_H
#define ROUTER_HTTP_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include "common/loop/loop.h"
#include <stdbool.h>
#include <stdint.h>

#define HTTP_ID_MAX      128u /* bytes of a request id without the zero */
#define HTTP_HEADERS_OUT 12u  /* http_header_add per request */

struct api_error;
struct http_fault;
struct http;
struct http_req;

struct http_options {
	struct loop *loop;
	const char *host;      /* address literal, "127.0.0.1" or "::" (both families) */
	const char *unix_path; /* a Unix socket besides the port; NULL or "": none */
	size_t body_max;       /* bytes of a body; 0: 32 MiB */
	size_t header_max;     /* bytes of all header lines; 0: 16 KiB */
	size_t stream_max;     /* bytes waiting in one stream; 0: 16 MiB */
	/* mem_taken() from which on bodies are refused, so that small requests (probes,
	 * metrics) find memory while large ones do not; 0: when mem_take refuses. */
	uint64_t memory_max;
	uint32_t headers_max;     /* header lines; 0: 100 */
	uint32_t connections_max; /* 0: 4096 */
	uint32_t idle_s;          /* a connection between two requests; 0: 75 */
	/* For a head; a body has more time while 1 KiB/s arrive. Else 408, as after 10 s
	 * of silence. A new connection has 10 s to begin. 0: 60 */
	uint32_t read_s;
	uint32_t drain_s; /* a client that reads nothing is cut; 0: 60 */
	uint16_t port;    /* 0: any free one, see http_port */
};

struct http_handler {
	void *ctx;
	/* The head is there: method, path, headers and id may be asked for, headers of
	 * the answer added. false: *f is the answer, and the body is not read. May be
	 * NULL. */
	bool (*may_enter)(void *ctx, struct http_req *req, struct http_fault *f);
	void (*on_request)(void *ctx, struct http_req *req);
	void (*on_gone)(void *ctx, struct http_req *req);
	void (*on_end)(void *ctx, struct http_req *req);
	/* req is NULL where there was no memory to remember it. May be NULL. */
	void (*on_refused)(
		void *ctx, struct http_req *req, unsigned http_code, const char *code);
	/* The client sends nothing more: it is there or not. In a stream something is to
	 * be written that changes nothing, so that its absence shows. May be NULL. */
	void (*on_half_closed)(void *ctx, struct http_req *req);
	/* Writes an error as clients of the path read it; path is NULL where none was
	 * seen. NULL: OpenAI's shape. */
	void (*put_error)(struct sink *out, const char *path, const struct api_error *e);
};

/* Listens at return. ST_IO: the address cannot be bound, with the reason. A Unix socket
 * that nobody listens on is replaced; one in use, or what is no socket, is refused. */
MUST_CHECK status http_create(struct http **out, const struct http_options *options,
	const struct http_handler *handler, struct err *err);
uint16_t http_port(const struct http *h);
/* Open connections, suspended ones included. */
uint32_t http_connections(const struct http *h);
/* Requests between on_request and on_end: worked on, or answered and not yet wholly in
 * the kernel because the client reads slowly. */
uint32_t http_requests(const struct http *h);
/* Each of them; fn may answer it. */
void http_each(struct http *h, void (*fn)(void *ctx, struct http_req *req), void *ctx);
/* Stop accepting; what is open goes on, each answer closes its connection. */
void http_quiesce(struct http *h);
/* Cuts what is unfinished (on_gone where it applies, then on_end), closes all. */
void http_destroy(struct http *h);

/* The text of an IPv4 or IPv6 address. */
bool http_is_address(const char *host);

/* Of a request; borrowed until on_end returns, the body until it is answered. */
const char *http_method(const struct http_req *req); /* as sent: "GET", "HEAD" ... */
const char *http_path(const struct http_req *req); /* unescaped, without host and query */
const char *http_header(const struct http_req *req, const char *name);
/* X-Request-Id of the client if 1..128 printable ASCII characters other than space, quote
 * and backslash, else made here. Sent back on every answer. */
const char *http_id(const struct http_req *req);
uint64_t http_begun_ns(const struct http_req *req); /* clock_ns of the request line */
/* The body becomes the caller's, to be given to sink_release. */
struct sink http_body_take(struct http_req *req);
/* The owner's pointer. */
void http_set_user(struct http_req *req, void *user);
void *http_user(const struct http_req *req);

unsigned http_status(const struct http_req *req); /* 0: not answered */
/* In on_end: why the answer was not handed to the kernel whole; the first reason counts.
 * What the handler aborted itself has none. */
enum http_loss {
	HTTP_NOT_LOST,
	HTTP_CLIENT_GONE,
	HTTP_NOT_READING,
	HTTP_NO_MEMORY,
	HTTP_STOPPED,
};
enum http_loss http_lost(const struct http_req *req);
const char *http_loss_name(enum http_loss loss); /* "client_gone"; "-" */

/* Before respond or stream_begin: a header of the answer; name and value are copied.
 * At most HTTP_HEADERS_OUT; value must hold no control characters. */
void http_header_add(struct http_req *req, const char *name, const char *value);
/* Answer in full, once; also from on_request. body is copied. A HEAD request gets the
 * same headers and no body. No-op after gone. Without memory for it the answer is 503
 * with Retry-After. */
void http_respond(struct http_req *req, unsigned http_code, const char *content_type,
	struct bytes body);
/* The same; the bytes are taken out of body, which the caller still releases. */
void http_respond_take(struct http_req *req, unsigned http_code, const char *content_type,
	struct sink *body);

/* Or answer in pieces. begin sends the status line and headers with the first piece;
 * what is written in one turn goes out together, with the end if that is given in it. */
void http_stream_begin(
	struct http_req *req, unsigned http_code, const char *content_type);
/* Copied. false: gone, or more than stream_max waits (the client is then cut and
 * on_gone follows in this turn or the next). */
bool http_stream_write(struct http_req *req, struct bytes piece);
/* After what was written: end of the answer. */
void http_stream_end(struct http_req *req);
/* Cut the connection without an end mark: the client sees a broken answer. No-op when it
 * is cut already; what is written later goes nowhere. */
void http_stream_abort(struct http_req *req);

#endif
