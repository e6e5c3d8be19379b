/* What router/http*.c share: the server and its connections. A connection carries one
 * request at a time, so its record is both. Private to these files. */
#ifndef ROUTER_HTTP_IMPL_H
#define ROUTER_HTTP_IMPL_H
#include "common/base/list.h"
#include "common/loop/runtime.h"
#include "router/http.h"
#include "router/http_head.h"

#include <microhttpd.h>

/* After a refusal in mid-body: how long what still comes is read and dropped, so that
 * the client sees the answer and not a reset. */
#define HTTP_LINGER_NS    (2 * UINT64_C(1000000000))
/* And at most so much of it. */
#define HTTP_LINGER_BYTES (16u << 20)
/* A client that is to send something and sends nothing for so long is closed. */
#define HTTP_SILENCE_NS   (10 * UINT64_C(1000000000))
/* A body that takes longer than read_s comes at least this fast. */
#define HTTP_BYTES_PER_S  1024u
/* Places beyond connections_max, where health probes alone are answered. */
#define HTTP_PROBE_PLACES 16u

/* Retry-After of an answer about memory: it comes back as soon as answers are read. */
#define HTTP_RETRY_S "2"

/* Where the request of a connection is.
 *
 *   IDLE --request line--> HEAD --header lines--> BODY --all of it--> HANDED
 *    ^                       |                      |                   |
 *    |                       +-----> REFUSED <------+                   |
 *    +------- ended, answered or not: from each of them ----------------+
 *
 * Written by http_phase.c alone. */
enum http_phase {
	HTTP_IDLE,    /* none: before the first, between two */
	HTTP_HEAD,    /* request line seen, header lines coming */
	HTTP_BODY,    /* header lines checked, body coming */
	HTTP_HANDED,  /* given to the handler */
	HTTP_REFUSED, /* answered by ourselves, the rest of the body is dropped */
	HTTP__PHASES
};

struct http_req {
	/* Of the connection */
	struct http *h;
	struct MHD_Connection *conn;
	struct list_node node;  /* of http.conns */
	struct list_node ready; /* of http.ready */
	int fd;
	enum http_phase phase;
	bool suspended;
	bool watching;
	struct loop_fd *watch; /* NULL until first needed */
	/* of http_ran_ns, like heard, began and progress: begin of the phase (IDLE, HEAD,
	 * REFUSED) */
	uint64_t since_ns;
	struct http_head head; /* what was read */
	struct http_fault fault;
	bool faulty; /* what comes next is to be refused with `fault` */
	bool ended; /* its client sends nothing more, seen while a request was answered */
	bool dropping; /* was refused: what comes is thrown away */
	bool leaving;  /* closed for want of room */
	bool spoke;    /* a request line came */
	size_t dropped;
	uint64_t heard_ns; /* the newest byte */
	uint64_t began_ns; /* the first byte of the request that is being read */

	/* Of the request: zeroed from here at its begin */
	bool cut;         /* to be given up in the next turn */
	bool old;         /* HTTP/1.0 */
	bool half_closed; /* its client sends nothing more */
	bool gone;
	bool told_gone;
	bool complete; /* the handler gave the whole answer */
	bool streaming;
	bool aborted;
	bool ours;    /* of a stream: its head is out, we send the rest */
	bool blocked; /* ours, and the socket is full */
	bool is_slow; /* a whole answer that did not go out at once */
	enum http_loss loss;
	uint64_t begun_ns;
	uint64_t progress_ns; /* when the client last took bytes of a stream */
	const char *method, *path;
	char id[HTTP_ID_MAX + 1];
	void *user;
	struct sink body;
	unsigned status;
	uint32_t n_headers;
	size_t header_at[HTTP_HEADERS_OUT][2]; /* offsets of name and value in text */
	struct sink header_text;
	/* The whole answer, or what was written of a stream and not yet taken: as it is
	 * for libmicrohttpd, in chunks when we send it. */
	struct sink out;
	size_t out_at;                 /* bytes of out already taken */
	struct MHD_Response *response; /* not yet queued */
};

struct http {
	struct http_options o;
	struct http_handler handler;
	struct MHD_Daemon *daemon;
	struct loop_fd *epoll;
	struct loop_fd *unix_watch;
	struct loop_timer timeout, sweep;
	int listen_fd, unix_fd;
	struct runtime_file unix_file; /* that unix_fd is bound to */
	uint16_t port;
	uint32_t n_leaving;  /* of conns: closed for want of room */
	uint32_t n_requests; /* given to the handler and not ended */
	uint64_t slept_ns;   /* what is known of it (clock_slept) */
	bool must_run;
	bool quiesced;
	bool stopping;
	struct http_head_limits head;
	struct list conns, ready;
	struct http_req **by_fd; /* [n_by_fd]; NULL: none of ours */
	uint32_t n_by_fd;
};

/* http_listen.c: the TCP socket and, if one is wanted, the Unix socket. */
MUST_CHECK status http_listen_open(struct http *h, struct err *err);
/* Also when open failed half-way. Of the Unix socket's file only the own one goes. */
void http_listen_close(struct http *h);

/* http.c: silence after which libmicrohttpd closes; our own limits come first. */
unsigned http_mhd_timeout_s(const struct http_options *o);
/* Time in which this process ran (clock.h): what is judged by it is also stamped by it,
 * so that a client is not blamed for our own sleep. */
uint64_t http_ran_ns(void);
/* Look at req in this turn. */
void http_mark_ready(struct http_req *req);

/* http_tap.c: whether libmicrohttpd reads through us in this process; if not, nothing may
 * be served. */
MUST_CHECK status http_tap_check(struct err *err);
/* One run of libmicrohttpd, whose reads are looked at. */
void http_tap_run(struct http *h);
/* Reads on after a refusal; false: there is nothing more to come. */
bool http_tap_drop(struct http_req *req);

/* http_phase.c: what holds in the phase must be true before it is entered. */
void http_phase_set(struct http_req *req, enum http_phase phase);
/* The request's part of the record, back to nothing: IDLE. */
void http_phase_reset(struct http_req *req);
/* A request begins: HEAD. */
void http_phase_begin(struct http_req *req);

/* http_conn.c: what the client sends cannot be read; answered, and nothing more is. */
void http_conn_refuse(struct http_req *req, const struct http_fault *f);
/* Between two requests: what was seen while the one before was answered, and had to wait.
 */
void http_conn_between(struct http_req *req);
/* Called by libmicrohttpd. */
void *http_conn_uri(void *cls, const char *uri, struct MHD_Connection *conn);
enum MHD_Result http_conn_access(void *cls, struct MHD_Connection *conn, const char *url,
	const char *method, const char *version, const char *data, size_t *data_len,
	void **con_cls);
void http_conn_notify(void *cls, struct MHD_Connection *conn, void **socket_context,
	enum MHD_ConnectionNotificationCode code);
void http_conn_completed(void *cls, struct MHD_Connection *conn, void **con_cls,
	enum MHD_RequestTerminationCode code);
/* The client is gone, or is to be: tells the handler once, ends the socket. */
void http_conn_cut(struct http_req *req, enum http_loss why);
/* Keeps the first reason. */
void http_conn_lost(struct http_req *req, enum http_loss why);
/* Whether it has ended in both directions. */
bool http_conn_hung_up(const struct http_req *req);
/* Nothing to say for now: until http_mark_ready, or the client's end. From a callback
 * of libmicrohttpd only. */
void http_conn_suspend(struct http_req *req);
/* What is looked for at the socket of a request that is being answered. */
void http_conn_watch(const struct http_req *req);

/* http_limits.c: time limits of one connection. */
void http_limits_sweep(struct http_req *req, uint64_t now_ns);
/* This process slept: libmicrohttpd's own limit begins anew. */
void http_limits_renew(struct http_req *req);

/* http_answer.c: queue the answer that the handler gave. */
enum MHD_Result http_answer_queue(struct http_req *req);
/* Status and headers of req->response. false: no memory, the request is given up. */
bool http_answer_head(struct http_req *req, unsigned http_code, const char *content_type);
/* Gives the request up in this turn or the next, never inside the caller's call. */
void http_cut_later(struct http_req *req, enum http_loss why);
/* http_stream.c: once a turn, for a stream that is ours to write: sends what waits.
 * false: it is libmicrohttpd's again, which ends it. */
bool http_stream_flush(struct http_req *req);
/* http_refuse.c: error JSON before the handler saw the request. queue: the client is
 * not sending a body; raw: it may be, and what it sends is thrown away from here on. */
enum MHD_Result http_refuse_queue(
	struct http_req *req, unsigned http_code, const char *code, const char *text);
void http_refuse_raw(
	struct http_req *req, unsigned http_code, const char *code, const char *text);
/* The same for a connection that has no record, for want of memory. */
enum MHD_Result http_refuse_unrecorded(
	struct http *h, struct MHD_Connection *conn, const char *path);
/* The answer for which no request memory is needed; NULL: not even other memory. */
struct MHD_Response *http_refuse_no_memory(struct http *h, const char *path);
/* false: the body that is announced is too long. */
bool http_refuse_check(const struct http_req *req, struct http_fault *f);

#endif
