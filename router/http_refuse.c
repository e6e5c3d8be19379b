/* Refusing a request before its handler sees it: what cannot be read, limits, time. The
 * answers are error JSON like all others. */
#include "router/http_impl.h"

#include "router/api_out.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* false: over max. It is a number (http_head.c). */
static bool length_fits(const char *text, size_t max)
{
	unsigned long long n;

	errno = 0;
	n = strtoull(text, NULL, 10);
	return errno == 0 && n <= max;
}

bool http_refuse_check(const struct http_req *req, struct http_fault *f)
{
	const char *length = http_header(req, "Content-Length");
	size_t max = req->h->o.body_max;

	if (length == NULL || length_fits(length, max))
		return true;
	f->status = 413;
	f->code = "body_too_large";
	snprintf(f->text, sizeof(f->text), "The body is over %zu bytes.", max);
	return false;
}

static void put_error(
	struct sink *out, unsigned http_code, const char *code, const char *text)
{
	struct api_error e;

	api_error_set(&e, http_code, code, NULL, "%s", text);
	out_error(out, &e);
}

static void count_refusal(struct http_req *req, unsigned http_code)
{
	const struct http_handler *handler = &req->h->handler;

	if (handler->on_refused != NULL)
		handler->on_refused(handler->ctx, http_code);
}

const char http_no_memory[] =
	"{\"error\":{\"message\":\"The server has no memory for this request now.\","
	"\"type\":\"server_error\",\"param\":null,\"code\":\"overloaded\"}}";

/* The text of an error, in body if there is memory for it. */
static const char *make_error(
	struct sink *body, unsigned *http_code, const char *code, const char *text)
{
	sink_init(body, 4096);
	put_error(body, *http_code, code, text);
	if (!body->full)
		return sink_cstr(body);
	*http_code = 503;
	return http_no_memory;
}

enum MHD_Result http_refuse_queue(
	struct http_req *req, unsigned http_code, const char *code, const char *text)
{
	struct MHD_Response *r;
	enum MHD_Result ok;
	struct sink body;
	const char *json = make_error(&body, &http_code, code, text);

	count_refusal(req, http_code);
	r = MHD_create_response_from_buffer(
		strlen(json), (void *)(uintptr_t)json, MHD_RESPMEM_MUST_COPY);
	sink_release(&body);
	if (r == NULL)
		return MHD_NO;
	MHD_add_response_header(r, "Content-Type", "application/json");
	MHD_add_response_header(r, "X-Request-Id", req->id);
	MHD_add_response_header(r, "Connection", "close");
	if (http_code == 503)
		MHD_add_response_header(r, "Retry-After", HTTP_RETRY_S);
	ok = MHD_queue_response(req->conn, http_code, r);
	MHD_destroy_response(r);
	return ok;
}

enum MHD_Result http_refuse_unrecorded(struct http *h, struct MHD_Connection *conn)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(strlen(http_no_memory),
		(void *)(uintptr_t)http_no_memory, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result ok;

	if (h->handler.on_refused != NULL)
		h->handler.on_refused(h->handler.ctx, 503);
	if (r == NULL)
		return MHD_NO;
	MHD_add_response_header(r, "Content-Type", "application/json");
	MHD_add_response_header(r, "Connection", "close");
	MHD_add_response_header(r, "Retry-After", HTTP_RETRY_S);
	ok = MHD_queue_response(conn, 503, r);
	MHD_destroy_response(r);
	return ok;
}

/* libmicrohttpd takes an answer only before the body or after it. In between nothing
 * else writes to this socket, so the answer goes there directly and the connection
 * ends: what the client still sends is read and dropped for a moment, since closing
 * with unread bytes would reset the connection and destroy the answer. */
void http_refuse_raw(
	struct http_req *req, unsigned http_code, const char *code, const char *text)
{
	const char *json;
	struct sink body;
	char all[6144];
	ssize_t sent;
	int n;

	req->phase = HTTP_REFUSED;
	req->since_ns = http_ran_ns();
	req->dropping = true;
	/* First: the error may need the memory that the body took. */
	sink_release(&req->body);
	json = make_error(&body, &http_code, code, text);
	count_refusal(req, http_code);
	n = snprintf(all, sizeof(all),
		"HTTP/1.1 %u %s\r\nContent-Type: application/json\r\n"
		"Content-Length: %zu\r\nConnection: close\r\n%sX-Request-Id: %s\r\n"
		"\r\n%s",
		http_code, MHD_get_reason_phrase_for(http_code), strlen(json),
		http_code == 503 ? "Retry-After: " HTTP_RETRY_S "\r\n" : "", req->id,
		json);
	/* The buffer of a socket on which nothing was written takes this whole; if not,
	 * the client is one that does not read. */
	sent = send(req->fd, all, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)sent;
	shutdown(req->fd, SHUT_WR);
	sink_release(&body);
}
