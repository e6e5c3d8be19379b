/* How long a client may take: to begin, to send, to read. */
#include "router/http_impl.h"

#include "common/base/clock.h"

/* How a whole answer drains only libmicrohttpd sees. Few get here: most are in the kernel
 * before the first sweep, and who has a limit of its own is looked at in every run. */
static void note_slow(struct http_req *req)
{
	req->is_slow = true;
	MHD_set_connection_option(
		req->conn, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)req->h->o.drain_s);
}

/* Its clock has no gaps. It begins to count when a limit is set where none was. */
void http_limits_renew(struct http_req *req)
{
	unsigned limit_s = req->is_slow ? (unsigned)req->h->o.drain_s
					: http_mhd_timeout_s(&req->h->o);

	MHD_set_connection_option(req->conn, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
	MHD_set_connection_option(req->conn, MHD_CONNECTION_OPTION_TIMEOUT, limit_s);
}

static void time_out(struct http_req *req)
{
	struct http_fault f = {
		408, "request_timeout", "The request did not arrive in time."};

	http_conn_refuse(req, &f);
}

/* Of two moments of http_ran_ns; the earlier one may be ahead by what a gap took back. */
static uint64_t between(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? to_ns - from_ns : 0;
}

/* A client that sends: silence is answered soon, a trickle when it falls behind. */
static void check_arrival(struct http_req *req, uint64_t now_ns)
{
	uint64_t patience_ns =
		req->h->o.read_s * NS_PER_S + req->body.len / HTTP_BYTES_PER_S * NS_PER_S;

	/* While the request before it was answered, nothing was read. */
	if (between(MAX(req->heard_ns, req->since_ns), now_ns) > HTTP_SILENCE_NS ||
		between(MAX(req->began_ns, req->since_ns), now_ns) > patience_ns)
		time_out(req);
}

/* Nothing of a request is there. A new connection is for one that comes soon. */
static void check_idle(struct http_req *req, uint64_t now_ns)
{
	uint64_t limit_ns = req->h->o.idle_s * NS_PER_S;

	if (!req->spoke)
		limit_ns = MIN(limit_ns, HTTP_SILENCE_NS);
	if (between(req->since_ns, now_ns) > limit_ns)
		http_conn_cut(req, HTTP_CLIENT_GONE);
}

static void check_handed(struct http_req *req, uint64_t now_ns)
{
	const struct http_options *o = &req->h->o;

	if (req->half_closed && !req->complete && http_conn_hung_up(req)) {
		http_conn_cut(req, HTTP_CLIENT_GONE);
		return;
	}
	if (req->complete && !req->streaming && !req->is_slow)
		note_slow(req);
	/* Its watcher tells that it reads; there may have been no memory for one. */
	if (req->blocked)
		http_mark_ready(req);
	if (req->streaming && (!req->suspended || req->ours) &&
		req->out.len > req->out_at &&
		between(req->progress_ns, now_ns) > o->drain_s * NS_PER_S)
		http_conn_cut(req, HTTP_NOT_READING);
}

/* Seen here, because libmicrohttpd has one limit for all phases and restarts it with
 * every byte. */
void http_limits_sweep(struct http_req *req, uint64_t now_ns)
{
	switch (req->phase) {
	case HTTP_IDLE:
		/* libmicrohttpd believes that there is nothing left to read. */
		if (req->faulty || req->ended)
			http_conn_between(req);
		else if (http_head_is_idle(&req->head))
			check_idle(req, now_ns);
		else
			check_arrival(req, now_ns);
		break;
	case HTTP_HEAD:
	case HTTP_BODY:
		check_arrival(req, now_ns);
		break;
	case HTTP_REFUSED:
		if (between(req->since_ns, now_ns) > HTTP_LINGER_NS ||
			(req->dropping && !http_tap_drop(req)))
			http_conn_cut(req, HTTP_CLIENT_GONE);
		break;
	case HTTP_HANDED:
		check_handed(req, now_ns);
		break;
	case HTTP__PHASES:
		break;
	}
}
