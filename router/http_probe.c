/* The probe port: a small libmicrohttpd daemon with a thread of its own that reads
 * nothing but atomics. */
#include "router/probe.h"

#include "common/base/clock.h"
#include "common/base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#define PROBE_CONNECTIONS 64u
#define PROBE_TIMEOUT_S   5u
/* In which a loop that is not stuck comes to its turn on a busy machine. */
#define WAKE_MS           1000u
#define WAKE_STEP_MS      10

struct probe {
	struct MHD_Daemon *daemon;
	uint16_t port;
	_Atomic int state;
	_Atomic uint64_t beat_ns;
	_Atomic uint64_t stuck_ns; /* 0: never */
	uint64_t stuck_beat_ns;    /* of this thread alone: was waited for already */
};

static const char *const live_paths[] = {"/live", "/liveness", "/livez"};
static const char *const ready_paths[] = {"/ready", "/readiness", "/readyz", "/health"};

static const struct {
	unsigned http_code;
	const char *body;
} answers[] = {
	[PROBE_LOADING] = {503, "{\"status\":\"unavailable\",\"reason\":\"loading\"}"},
	[PROBE_NO_WORKERS] = {503,
		"{\"status\":\"unavailable\",\"reason\":\"no_workers\"}"},
	[PROBE_READY] = {200, "{\"status\":\"ok\"}"},
	[PROBE_DRAINING] = {503, "{\"status\":\"unavailable\",\"reason\":\"draining\"}"},
};

static bool is_one_of(const char *path, const char *const *paths, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(path, paths[i]) == 0)
			return true;
	return false;
}

const char *probe_path(size_t i)
{
	if (i < COUNT(live_paths))
		return live_paths[i];
	i -= COUNT(live_paths);
	return i < COUNT(ready_paths) ? ready_paths[i] : NULL;
}

bool probe_answer(const char *path, enum probe_state state, bool live,
	unsigned *http_code, struct bytes *body)
{
	bool asks_live = is_one_of(path, live_paths, COUNT(live_paths));

	if (!asks_live && !is_one_of(path, ready_paths, COUNT(ready_paths)))
		return false;
	if (!live) {
		*http_code = 503;
		*body = bytes_of_str("{\"status\":\"unavailable\",\"reason\":\"stuck\"}");
		return true;
	}
	if (asks_live)
		state = PROBE_READY;
	*http_code = answers[state].http_code;
	*body = bytes_of_str(answers[state].body);
	return true;
}

/* The beat is old: the loop is stuck, or the whole process did not run, and this thread
 * is the first that does again. Then the loop's beat comes while we wait, once for each
 * beat that was old. */
static bool beats_again(struct probe *p, uint64_t beat)
{
	for (unsigned ms = 0; p->stuck_beat_ns != beat && ms < WAKE_MS;
		ms += WAKE_STEP_MS) {
		(void)poll(NULL, 0, WAKE_STEP_MS);
		if (atomic_load(&p->beat_ns) != beat)
			return true;
	}
	p->stuck_beat_ns = beat;
	return false;
}

static bool is_live(struct probe *p)
{
	uint64_t stuck = atomic_load(&p->stuck_ns);
	uint64_t beat = atomic_load(&p->beat_ns);

	/* The beat is read first: the clock is then not behind it. */
	return stuck == 0 || clock_ns() - beat < stuck || beats_again(p, beat);
}

static enum MHD_Result answer(
	struct MHD_Connection *conn, unsigned http_code, struct bytes body)
{
	/* libmicrohttpd does not write to it. */
	struct MHD_Response *r = MHD_create_response_from_buffer(
		body.len, (void *)body.at, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result ok;

	if (r == NULL)
		return MHD_NO;
	MHD_add_response_header(r, "Content-Type", "application/json");
	MHD_add_response_header(r, "Cache-Control", "no-store");
	if (http_code == 405)
		MHD_add_response_header(r, "Allow", "GET, HEAD");
	ok = MHD_queue_response(conn, http_code, r);
	MHD_destroy_response(r);
	return ok;
}

/* NOLINTNEXTLINE(readability-function-size): libmicrohttpd's signature */
static enum MHD_Result on_access(void *cls, struct MHD_Connection *conn, const char *url,
	const char *method, const char *version, const char *data, size_t *data_len,
	void **con_cls)
{
	struct probe *p = cls;
	unsigned http_code;
	struct bytes body;

	(void)version;
	(void)data;
	/* A body is not wanted: the answer comes before it and ends the connection. */
	(void)data_len;
	(void)con_cls;
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return answer(conn, 405,
			BYTES_STR("{\"error\":{\"message\":\"Only GET and HEAD.\","
				  "\"type\":\"invalid_request_error\",\"param\":null,"
				  "\"code\":\"method_not_allowed\"}}"));
	if (!probe_answer(url, (enum probe_state)atomic_load(&p->state), is_live(p),
		    &http_code, &body))
		return answer(conn, 404,
			BYTES_STR("{\"error\":{\"message\":\"No such path.\","
				  "\"type\":\"not_found\",\"param\":null,"
				  "\"code\":\"path_not_found\"}}"));
	return answer(conn, http_code, body);
}

status probe_create(struct probe **out, const char *host, uint16_t port, struct err *err)
{
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	bool six = inet_pton(AF_INET6, host, &a6.sin6_addr) == 1;
	unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL;
	struct probe *p;

	if (!six && inet_pton(AF_INET, host, &a4.sin_addr) != 1)
		return err_set(err, ST_INVALID, "host \"%s\" is no IP address", host);
	p = mem_alloc(1, sizeof(*p));
	atomic_store(&p->state, PROBE_LOADING);
	atomic_store(&p->beat_ns, clock_ns());
	p->daemon = MHD_start_daemon(flags | (six ? MHD_USE_DUAL_STACK : 0u), port, NULL,
		NULL, on_access, p, MHD_OPTION_SOCK_ADDR,
		six ? (struct sockaddr *)&a6 : (struct sockaddr *)&a4,
		MHD_OPTION_CONNECTION_LIMIT, PROBE_CONNECTIONS,
		MHD_OPTION_CONNECTION_TIMEOUT, PROBE_TIMEOUT_S, MHD_OPTION_END);
	if (p->daemon == NULL) {
		err_set(err, ST_IO, "probe port: listen on %s port %u: %s", host, port,
			strerror(errno));
		mem_free(p);
		return err->code;
	}
	p->port = MHD_get_daemon_info(p->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
	*out = p;
	return ST_OK;
}

uint16_t probe_port(const struct probe *p)
{
	return p->port;
}

void probe_destroy(struct probe *p)
{
	if (p == NULL)
		return;
	MHD_stop_daemon(p->daemon);
	mem_free(p);
}

void probe_set(struct probe *p, enum probe_state state)
{
	atomic_store(&p->state, (int)state);
}

void probe_beat(struct probe *p)
{
	atomic_store(&p->beat_ns, clock_ns());
}

void probe_stuck_after(struct probe *p, uint32_t stuck_ms)
{
	atomic_store(&p->stuck_ns, stuck_ms * NS_PER_MS);
}
