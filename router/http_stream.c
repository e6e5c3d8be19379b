/* Answers in pieces. libmicrohttpd sends the head and what is there with it, then finds
 * nothing and is suspended; from there we send the chunks ourselves, all that was written
 * in a turn at once, and give the connection back for the mark of the end. So an event of
 * a stream costs one send(2), and libmicrohttpd, which looks at every suspended
 * connection whenever one is resumed, does not run for it. */
#include "router/http_impl.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Bytes that libmicrohttpd asks for at once. */
#define READ_BLOCK    (32u << 10)
/* Taken bytes at the front of the buffer are dropped from here on. */
#define COMPACT_BYTES (64u << 10)

static void compact(struct http_req *req)
{
	if (req->out_at == req->out.len) {
		sink_reset(&req->out);
		req->out_at = 0;
	} else if (req->out_at > COMPACT_BYTES && req->out_at > req->out.len / 2) {
		sink_consume(&req->out, req->out_at);
		req->out_at = 0;
	}
}

static void took(struct http_req *req, size_t n)
{
	req->out_at += n;
	compact(req);
	req->progress_ns = http_ran_ns();
}

/* libmicrohttpd asks when all that it had is sent. */
static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct http_req *req = cls;
	size_t n = MIN(max, req->out.len - req->out_at);

	(void)pos;
	if (req->gone || req->aborted)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (n > 0) {
		memcpy(buf, req->out.at + req->out_at, n);
		took(req, n);
		return (ssize_t)n;
	}
	if (req->complete)
		return MHD_CONTENT_READER_END_OF_STREAM;
	/* One of HTTP/1.0 has no chunks. */
	req->ours = !req->old;
	http_conn_suspend(req);
	return 0;
}

/* The end of the answer that follows goes with it, in one packet. */
static void send_waiting(struct http_req *req)
{
	size_t n = req->out.len - req->out_at;
	int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (req->complete ? MSG_MORE : 0);
	bool was_blocked = req->blocked;
	ssize_t sent = send(req->fd, req->out.at + req->out_at, n, flags);

	if (sent > 0)
		took(req, (size_t)sent);
	if (sent < 0 && errno != EAGAIN && errno != EINTR) {
		http_conn_cut(req, HTTP_CLIENT_GONE);
		return;
	}
	req->blocked = sent < (ssize_t)n;
	if (req->blocked != was_blocked)
		http_conn_watch(req);
}

bool http_stream_flush(struct http_req *req)
{
	if (!req->gone && !req->aborted && req->out.len > req->out_at)
		send_waiting(req);
	if (!req->gone && !req->aborted && (!req->complete || req->blocked))
		return true;
	req->ours = req->blocked = false;
	return false;
}

void http_stream_begin(struct http_req *req, unsigned http_code, const char *content_type)
{
	if (req->gone || req->cut)
		return;
	assert(req->phase == HTTP_HANDED && req->status == 0);
	req->response = MHD_create_response_from_callback(
		MHD_SIZE_UNKNOWN, READ_BLOCK, read_stream, req, NULL);
	req->streaming = true;
	/* Not left to libmicrohttpd: what we send must be what the head says. */
	if (req->response != NULL && !req->old &&
		MHD_add_response_header(req->response, "Transfer-Encoding", "chunked") !=
			MHD_YES) {
		MHD_destroy_response(req->response);
		req->response = NULL;
	}
	(void)http_answer_head(req, http_code, content_type);
}

/* Of a stream that is over, whoever ended it, nothing more is said. */
static bool is_over(const struct http_req *req)
{
	return req->gone || req->cut || req->aborted;
}

/* The line before a chunk; once for every event. */
static void put_size(struct sink *out, size_t size)
{
	char line[2 * sizeof(size) + 2];
	size_t at = sizeof(line);

	line[--at] = '\n';
	line[--at] = '\r';
	for (; size > 0; size >>= 4)
		line[--at] = "0123456789abcdef"[size & 15];
	sink_put(out, line + at, sizeof(line) - at);
}

static void put_piece(struct http_req *req, struct bytes piece)
{
	if (req->ours)
		put_size(&req->out, piece.len);
	sink_put(&req->out, piece.at, piece.len);
	if (req->ours)
		sink_put(&req->out, "\r\n", 2);
}

bool http_stream_write(struct http_req *req, struct bytes piece)
{
	size_t waiting = req->out.len - req->out_at;

	if (is_over(req))
		return false;
	assert(req->streaming && !req->complete);
	if (piece.len == 0)
		return true;
	if (piece.len > req->h->o.stream_max ||
		waiting > req->h->o.stream_max - piece.len) {
		http_cut_later(req, HTTP_NOT_READING);
		return false;
	}
	if (waiting == 0)
		req->progress_ns = http_ran_ns();
	put_piece(req, piece);
	if (req->out.full) {
		http_cut_later(req, HTTP_NO_MEMORY);
		return false;
	}
	http_mark_ready(req);
	return true;
}

void http_stream_end(struct http_req *req)
{
	if (is_over(req))
		return;
	assert(req->streaming && !req->complete);
	req->complete = true;
	http_mark_ready(req);
}

void http_stream_abort(struct http_req *req)
{
	if (is_over(req))
		return;
	req->aborted = true;
	req->complete = true;
	http_mark_ready(req);
}
