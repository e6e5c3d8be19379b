/* What a handler does with a request: reading it, answering it whole. */
#include "router/http_impl.h"

#include "common/base/mem.h"

#include <assert.h>
#include <string.h>

const char *http_method(const struct http_req *req)
{
	return req->method;
}

const char *http_path(const struct http_req *req)
{
	return req->path;
}

const char *http_header(const struct http_req *req, const char *name)
{
	return MHD_lookup_connection_value(req->conn, MHD_HEADER_KIND, name);
}

const char *http_id(const struct http_req *req)
{
	return req->id;
}

uint64_t http_begun_ns(const struct http_req *req)
{
	return req->begun_ns;
}

struct sink http_body_take(struct http_req *req)
{
	struct sink body = req->body;

	sink_init(&req->body, body.max);
	return body;
}

void http_set_user(struct http_req *req, void *user)
{
	req->user = user;
}

void *http_user(const struct http_req *req)
{
	return req->user;
}

unsigned http_status(const struct http_req *req)
{
	return req->status;
}

enum http_loss http_lost(const struct http_req *req)
{
	return req->loss;
}

const char *http_loss_name(enum http_loss loss)
{
	static const char *const names[] = {
		[HTTP_NOT_LOST] = "-",
		[HTTP_CLIENT_GONE] = "client_gone",
		[HTTP_NOT_READING] = "client_not_reading",
		[HTTP_NO_MEMORY] = "no_memory",
		[HTTP_STOPPED] = "router_stopped",
	};

	return names[loss];
}

void http_header_add(struct http_req *req, const char *name, const char *value)
{
	size_t i = req->n_headers;

	assert(i < HTTP_HEADERS_OUT && req->status == 0);
	req->header_at[i][0] = req->header_text.len;
	sink_put(&req->header_text, name, strlen(name) + 1);
	req->header_at[i][1] = req->header_text.len;
	sink_put(&req->header_text, value, strlen(value) + 1);
	req->n_headers++;
}

void http_cut_later(struct http_req *req, enum http_loss why)
{
	http_conn_lost(req, why);
	req->cut = true;
	http_mark_ready(req);
}

bool http_answer_head(struct http_req *req, unsigned http_code, const char *content_type)
{
	const char *text = (const char *)req->header_text.at;
	struct MHD_Response *r = req->response;
	bool ok = r != NULL && !req->header_text.full;

	req->status = http_code;
	if (ok && content_type != NULL)
		ok = MHD_add_response_header(r, "Content-Type", content_type) == MHD_YES;
	for (uint32_t i = 0; ok && i < req->n_headers; i++)
		ok = MHD_add_response_header(r, text + req->header_at[i][0],
			     text + req->header_at[i][1]) == MHD_YES;
	ok = ok && MHD_add_response_header(r, "X-Request-Id", req->id) == MHD_YES;
	if (ok && req->h->quiesced)
		ok = MHD_add_response_header(r, "Connection", "close") == MHD_YES;
	if (!ok)
		http_cut_later(req, HTTP_NO_MEMORY);
	else if (req->suspended)
		http_mark_ready(req);
	return ok;
}

/* Not even the answer fits into the budget: one that takes nothing from it, on a
 * connection that then ends. */
static void replace_answer(struct http_req *req, unsigned *http_code)
{
	sink_release(&req->out);
	sink_release(&req->header_text);
	req->n_headers = 0;
	req->response = http_refuse_no_memory(req->h, req->path);
	if (req->response != NULL) {
		MHD_add_response_header(req->response, "Retry-After", HTTP_RETRY_S);
		MHD_add_response_header(req->response, "Connection", "close");
	}
	*http_code = 503;
}

/* The answer stands in `out`. */
static void respond(struct http_req *req, unsigned http_code, const char *content_type)
{
	size_t len = req->out.len;

	if (req->out.full || req->header_text.full) {
		content_type = "application/json";
		replace_answer(req, &http_code);
	} else {
		req->response = MHD_create_response_from_buffer(
			len, req->out.at, MHD_RESPMEM_PERSISTENT);
	}
	/* A client that reads slowly holds its answer, not what it asked. */
	sink_release(&req->body);
	if (!http_answer_head(req, http_code, content_type))
		return;
	req->complete = true;
}

void http_respond(struct http_req *req, unsigned http_code, const char *content_type,
	struct bytes body)
{
	if (req->gone || req->cut)
		return;
	assert(req->phase == HTTP_HANDED && req->status == 0);
	sink_put(&req->out, body.at, body.len);
	respond(req, http_code, content_type);
}

/* An answer may wait long for its reader: without the room that it grew into. */
static void drop_spare(struct sink *s)
{
	uint8_t *at = s->at != NULL ? mem_regrow(s->at, s->len + 1) : NULL;

	if (at != NULL) {
		s->at = at;
		s->cap = s->len + 1;
	}
}

void http_respond_take(struct http_req *req, unsigned http_code, const char *content_type,
	struct sink *body)
{
	if (req->gone || req->cut)
		return;
	assert(req->phase == HTTP_HANDED && req->status == 0);
	sink_release(&req->out);
	req->out = *body;
	sink_init(body, body->max);
	drop_spare(&req->out);
	respond(req, http_code, content_type);
}

enum MHD_Result http_answer_queue(struct http_req *req)
{
	enum MHD_Result ok = MHD_queue_response(req->conn, req->status, req->response);

	MHD_destroy_response(req->response);
	req->response = NULL;
	return ok;
}
