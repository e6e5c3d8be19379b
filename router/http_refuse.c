/* Refusing a request before its handler sees it: what cannot be read, limits, time. The
 * answers are error JSON like all others. */
#include "router/http_impl.h"

#include "router/api_out.h"

#include <assert.h>
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

static void tell_refusal(struct http_req *req, unsigned http_code, const char *code)
{
	const struct http_handler *handler = &req->h->handler;

	if (handler->on_refused != NULL)
		handler->on_refused(handler->ctx, req, http_code, code);
}

static const char *header_text(const struct http_req *req, size_t i, bool value)
{
	return (const char *)req->header_text.at + req->header_at[i][value];
}

/* Lines of the headers that the handler added; those that do not fit are left out. */
static const char *header_lines(const struct http_req *req, char *text, size_t bytes)
{
	size_t used = 0;

	text[0] = 0;
	for (uint32_t i = 0; i < req->n_headers && !req->header_text.full; i++) {
		int n = snprintf(text + used, bytes - used, "%s: %s\r\n",
			header_text(req, i, false), header_text(req, i, true));

		if (n < 0 || (size_t)n >= bytes - used) {
			text[used] = 0;
			break;
		}
		used += (size_t)n;
	}
	return text;
}

/* Of an error's text: at most 200 bytes of ours, each six at most, and its members. */
#define ERROR_BYTES 2048

/* Needs no memory of requests, for it may be that which is missing. */
static void make_error(const struct http *h, const char *path, unsigned http_code,
	const char *code, const char *message, char text[ERROR_BYTES])
{
	struct api_error e;
	struct sink out;

	api_error_set(&e, http_code, code, NULL, "%s", message);
	sink_over(&out, text, ERROR_BYTES);
	if (h->handler.put_error != NULL)
		h->handler.put_error(&out, path, &e);
	else
		out_error(&out, &e);
	assert(!out.full);
	(void)sink_cstr(&out);
}

/* The path of a request whose head was not read whole: as far as it was seen. */
static const char *path_seen(const struct http_req *req, char path[HTTP_TARGET_KEPT])
{
	if (req->path != NULL)
		return req->path;
	snprintf(path, HTTP_TARGET_KEPT, "%s", http_head_path(req->head.target));
	path[strcspn(path, "?")] = 0;
	return path;
}

static struct MHD_Response *make_response(const char *json)
{
	return MHD_create_response_from_buffer(
		strlen(json), (void *)(uintptr_t)json, MHD_RESPMEM_MUST_COPY);
}

struct MHD_Response *http_refuse_no_memory(struct http *h, const char *path)
{
	char json[ERROR_BYTES];

	make_error(h, path, 503, "overloaded",
		"The server has no memory for this request now.", json);
	return make_response(json);
}

enum MHD_Result http_refuse_queue(
	struct http_req *req, unsigned http_code, const char *code, const char *text)
{
	char json[ERROR_BYTES];
	struct MHD_Response *r;
	enum MHD_Result ok;

	make_error(req->h, req->path, http_code, code, text, json);
	tell_refusal(req, http_code, code);
	r = make_response(json);
	if (r == NULL)
		return MHD_NO;
	MHD_add_response_header(r, "Content-Type", "application/json");
	MHD_add_response_header(r, "X-Request-Id", req->id);
	MHD_add_response_header(r, "Connection", "close");
	for (uint32_t i = 0; i < req->n_headers && !req->header_text.full; i++)
		MHD_add_response_header(
			r, header_text(req, i, false), header_text(req, i, true));
	if (http_code == 503)
		MHD_add_response_header(r, "Retry-After", HTTP_RETRY_S);
	ok = MHD_queue_response(req->conn, http_code, r);
	MHD_destroy_response(r);
	return ok;
}

enum MHD_Result http_refuse_unrecorded(
	struct http *h, struct MHD_Connection *conn, const char *path)
{
	struct MHD_Response *r = http_refuse_no_memory(h, path);
	enum MHD_Result ok;

	if (h->handler.on_refused != NULL)
		h->handler.on_refused(h->handler.ctx, NULL, 503, "overloaded");
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
	char path[HTTP_TARGET_KEPT], json[ERROR_BYTES], lines[1024],
		all[ERROR_BYTES + sizeof(lines) + 1024];
	ssize_t sent;
	int n;

	http_phase_set(req, HTTP_REFUSED);
	req->since_ns = http_ran_ns();
	req->dropping = true;
	sink_release(&req->body);
	make_error(req->h, path_seen(req, path), http_code, code, text, json);
	tell_refusal(req, http_code, code);
	n = snprintf(all, sizeof(all),
		"HTTP/1.1 %u %s\r\nContent-Type: application/json\r\n"
		"Content-Length: %zu\r\nConnection: close\r\n%s%sX-Request-Id: %s\r\n"
		"\r\n%s",
		http_code, MHD_get_reason_phrase_for(http_code), strlen(json),
		http_code == 503 ? "Retry-After: " HTTP_RETRY_S "\r\n" : "",
		header_lines(req, lines, sizeof(lines)), req->id, json);
	/* The buffer of a socket on which nothing was written takes this whole; if not,
	 * the client is one that does not read. */
	sent = send(req->fd, all, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)sent;
	shutdown(req->fd, SHUT_WR);
}
