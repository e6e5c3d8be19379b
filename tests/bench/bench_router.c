// layers: loop model wire
/* What the router itself costs. Workers that answer at once and a client that asks at a
 * fixed rate, whatever comes back, run beside a real router:
 *   bench_router ROUTER MODEL SECONDS RATE:STEP_MS:TOKENS...
 * 200 ids in, TOKENS out as a stream, one token of every stream each STEP_MS. CPU time is
 * the router's own, so other load on the machine blurs only the latencies. The floor is
 * a loop of send() of one event to each of 100 sockets in turn, before each row. */
#include "router_stub.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONNS_MAX     12000u
#define SAMPLES       (1u << 20)
#define IDS_IN        200u
#define FLOOR_SOCKETS 100u
#define EVENT_SIZE    180u
#define FLOOR_SENDS   100000u

/* ---- the floor ---- */

static void read_all(const int *in)
{
	static char sinkhole[1u << 16];
	struct epoll_event e = {.events = EPOLLIN};
	int epoll = epoll_create1(0), open = FLOOR_SOCKETS;

	for (uint32_t i = 0; i < FLOOR_SOCKETS; i++) {
		e.data.fd = in[i];
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, in[i], &e) != 0)
			_exit(1);
	}
	while (open > 0 && epoll_wait(epoll, &e, 1, -1) == 1) {
		if (read(e.data.fd, sinkhole, sizeof(sinkhole)) > 0)
			continue;
		close(e.data.fd);
		open--;
	}
	_exit(0);
}

static uint64_t own_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static double floor_us(void)
{
	static char event[EVENT_SIZE];
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int at = socket(AF_INET, SOCK_STREAM, 0);
	int in[FLOOR_SOCKETS], out[FLOOR_SOCKETS], on = 1;
	uint64_t cpu;
	pid_t reader;

	if (bind(at, (struct sockaddr *)&a, len) != 0 || listen(at, 1) != 0 ||
		getsockname(at, (struct sockaddr *)&a, &len) != 0)
		fail("sockets of the floor");
	for (uint32_t i = 0; i < FLOOR_SOCKETS; i++) {
		out[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		/* As a stream must: each event leaves at once. */
		if (connect(out[i], (struct sockaddr *)&a, len) != 0 ||
			setsockopt(out[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) !=
				0)
			fail("sockets of the floor");
		in[i] = accept(at, NULL, NULL);
	}
	reader = fork();
	if (reader == 0) {
		for (uint32_t i = 0; i < FLOOR_SOCKETS; i++)
			close(out[i]);
		read_all(in);
	}
	cpu = own_cpu_ns();
	for (uint32_t i = 0; i < FLOOR_SENDS; i++)
		if (send(out[i % FLOOR_SOCKETS], event, sizeof(event), MSG_NOSIGNAL) < 0)
			fail("send");
	cpu = own_cpu_ns() - cpu;
	for (uint32_t i = 0; i < FLOOR_SOCKETS; i++) {
		close(in[i]);
		close(out[i]);
	}
	close(at);
	waitpid(reader, NULL, 0);
	return (double)cpu / 1e3 / FLOOR_SENDS;
}

/* ---- the client ---- */

struct conn {
	int fd;
	uint32_t n_events;
	uint64_t sent_ns;
	char tail[8]; /* the last bytes received */
	bool busy, answered;
};

static struct client {
	int epoll;
	uint16_t port;
	struct conn conn[CONNS_MAX];
	uint32_t idle[CONNS_MAX], n_idle, n_conns, n_busy, busy_max;
	uint64_t n_sent, n_done, n_failed, n_events;
	uint32_t *ttft_us, n_ttft;
	char request[4096];
	size_t n_request;
} c;

static int open_conn(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(c.port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0)
		fail("socket");
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static void ask(void)
{
	uint32_t i;
	struct conn *k;

	if (c.n_idle > 0) {
		i = c.idle[--c.n_idle];
	} else {
		if (c.n_conns == CONNS_MAX)
			fail("too many connections: the rate is not held");
		i = c.n_conns++;
		c.conn[i].fd = -1;
	}
	k = &c.conn[i];
	if (k->fd < 0) {
		struct epoll_event e = {.events = EPOLLIN, .data.u32 = i};

		k->fd = open_conn();
		if (k->fd < 0 || fcntl(k->fd, F_SETFL, O_NONBLOCK) != 0 ||
			epoll_ctl(c.epoll, EPOLL_CTL_ADD, k->fd, &e) != 0)
			fail("connect");
	}
	k->n_events = 0;
	k->answered = false;
	k->busy = true;
	k->sent_ns = clock_ns();
	c.n_sent++;
	c.n_busy++;
	c.busy_max = c.n_busy > c.busy_max ? c.n_busy : c.busy_max;
	if (send(k->fd, c.request, c.n_request, MSG_NOSIGNAL) != (ssize_t)c.n_request)
		fail("a request was not sent");
}

static void end(struct conn *k, bool right)
{
	if (k->busy) {
		c.n_busy--;
		c.n_done += right;
		c.n_failed += !right;
		c.idle[c.n_idle++] = (uint32_t)(k - c.conn);
	}
	k->busy = false;
	if (!right) {
		close(k->fd);
		k->fd = -1;
	}
}

static void take(struct conn *k)
{
	static char buf[(1u << 16) + 8];
	ssize_t n = recv(k->fd, buf + 8, sizeof(buf) - 8, 0);
	const char *at = buf;

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0 || !k->busy) {
		/* One that idled too long is opened anew when it is needed. */
		end(k, false);
		if (k->fd >= 0)
			close(k->fd);
		k->fd = -1;
		return;
	}
	if (!k->answered && (n < 12 || memcmp(buf + 8, "HTTP/1.1 200", 12) != 0)) {
		end(k, false);
		return;
	}
	memcpy(buf, k->answered ? k->tail : "        ", 8);
	if (!k->answered && c.n_ttft < SAMPLES)
		c.ttft_us[c.n_ttft++] = (uint32_t)((clock_ns() - k->sent_ns) / 1000);
	k->answered = true;
	while ((at = memmem(at, (size_t)(buf + 8 + n - at), "\ndata: {", 8)) != NULL) {
		/* One that ends the tail was counted with what came before. */
		k->n_events += at > buf;
		at += 8;
	}
	memcpy(k->tail, buf + n, 8);
	if (memcmp(buf + 8 + n - 7, "\r\n0\r\n\r\n", 7) == 0) {
		c.n_events += k->n_events;
		end(k, true);
	}
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t cpu_ns(pid_t pid)
{
	struct timespec t;
	clockid_t id;

	if (clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &t) != 0)
		fail("the router has ended");
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint64_t rss_mib(pid_t pid)
{
	char path[64];
	unsigned long size = 0, rss = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	f = fopen(path, "r");
	if (f == NULL || fscanf(f, "%lu %lu", &size, &rss) != 2)
		fail(path);
	fclose(f);
	return rss * (uint64_t)sysconf(_SC_PAGESIZE) >> 20;
}

static void make_request(uint32_t tokens)
{
	char body[2048];
	int n = snprintf(body, sizeof(body),
		"{\"model\":\"demo\",\"stream\":true,\"temperature\":0,\"ignore_eos\":"
		"true,"
		"\"max_tokens\":%u,\"prompt\":[300",
		tokens);

	for (uint32_t i = 1; i < IDS_IN; i++)
		n += snprintf(body + n, sizeof(body) - (size_t)n, ",%u", 300 + i);
	n += snprintf(body + n, sizeof(body) - (size_t)n, "]}");
	c.n_request = (size_t)snprintf(c.request, sizeof(c.request),
		"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: "
		"application/json\r\nContent-Length: %d\r\n\r\n%s",
		n, body);
}

static void offer(uint32_t rate, uint32_t seconds, uint32_t grace_s)
{
	struct epoll_event e[256];
	uint64_t start = clock_ns(), gap = NS_PER_S / rate;
	uint64_t total = (uint64_t)rate * seconds;
	uint64_t last = start + ((uint64_t)seconds + grace_s) * NS_PER_S;

	while ((c.n_sent < total || c.n_busy > 0) && clock_ns() < last) {
		int n;

		while (c.n_sent < total && clock_ns() >= start + c.n_sent * gap)
			ask();
		n = epoll_wait(c.epoll, e, 256, 1);
		for (int i = 0; i < n; i++)
			take(&c.conn[e[i].data.u32]);
	}
}

/* Where those stand that have no end: with no answer at all, or in the middle of one. */
static void tell_open(void)
{
	uint32_t unanswered = 0, least = UINT32_MAX, most = 0;

	for (uint32_t i = 0; i < c.n_conns; i++) {
		const struct conn *k = &c.conn[i];

		unanswered += k->busy && !k->answered;
		if (!k->busy || !k->answered)
			continue;
		least = k->n_events < least ? k->n_events : least;
		most = k->n_events > most ? k->n_events : most;
	}
	fprintf(stderr,
		"%u requests have no end: %u without an answer, the others after %u to "
		"%u events\n",
		c.n_busy, unanswered, least, most);
}

static void row(pid_t router, uint32_t seconds, const char *text)
{
	uint32_t rate, step, tokens;
	double bare = floor_us(), cpu;
	uint64_t began, rss;

	if (sscanf(text, "%u:%u:%u", &rate, &step, &tokens) != 3 || rate == 0)
		fail("a row is RATE:STEP_MS:TOKENS");
	*step_ms = step;
	make_request(tokens);
	c.n_sent = c.n_done = c.n_failed = c.n_events = 0;
	c.n_ttft = c.busy_max = 0;
	began = cpu_ns(router);
	offer(rate, seconds, 10 + tokens * step / 500);
	cpu = (double)(cpu_ns(router) - began) / 1e3;
	rss = rss_mib(router);
	qsort(c.ttft_us, c.n_ttft, sizeof(*c.ttft_us), by_size);
	printf("%6u %5u %6u | %7llu %6llu %6u | %8.1f %8.2f %6.2f | %8.2f %8.2f | "
	       "%5llu\n",
		rate, step, tokens, (unsigned long long)c.n_done,
		(unsigned long long)(c.n_failed + c.n_busy), c.busy_max,
		cpu / (double)(c.n_done > 0 ? c.n_done : 1),
		cpu / (double)(c.n_events > 0 ? c.n_events : 1), bare,
		c.n_ttft > 0 ? c.ttft_us[c.n_ttft / 2] / 1e3 : 0.0,
		c.n_ttft > 0 ? c.ttft_us[(uint64_t)c.n_ttft * 99 / 100] / 1e3 : 0.0,
		(unsigned long long)rss);
	fflush(stdout);
	if (c.n_busy == 0)
		return;
	tell_open();
	fail("requests that have no end yet: the rows that follow would be wrong");
}

static uint16_t free_port(void)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(fd, (struct sockaddr *)&a, len) != 0 ||
		getsockname(fd, (struct sockaddr *)&a, &len) != 0)
		fail("bind");
	close(fd);
	return ntohs(a.sin_port);
}

static pid_t begin_router(const char *path, const char *model, const char *dir)
{
	char port[16];
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(port, sizeof(port), "%u", c.port);
	execl(path, path, "--model", model, "--runtime-dir", dir, "--port", port,
		"--served-model-name", "demo", "--connections-max", "16384",
		"--log-level", "error", (char *)NULL);
	fail(path);
	return -1;
}

static void wait_ready(void)
{
	static const char get[] = "GET /ready HTTP/1.0\r\n\r\n";
	uint64_t last = clock_ns() + 30 * NS_PER_S;
	char head[64];

	while (clock_ns() < last) {
		int fd = open_conn();
		ssize_t n = -1;

		if (fd >= 0 && send(fd, get, sizeof(get) - 1, MSG_NOSIGNAL) > 0)
			n = recv(fd, head, sizeof(head), 0);
		if (fd >= 0)
			close(fd);
		if (n > 12 && memcmp(head + 8, " 200", 4) == 0)
			return;
		usleep(50000);
	}
	fail("the router does not get ready");
}

int main(int argc, char **argv)
{
	struct rlimit files;
	char dir[] = "/tmp/baton-bench-XXXXXX";
	pid_t router, workers;

	if (argc < 5)
		fail("usage: bench_router ROUTER MODEL SECONDS RATE:STEP_MS:TOKENS...");
	if (getrlimit(RLIMIT_NOFILE, &files) != 0)
		fail("getrlimit");
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) != 0 || mkdtemp(dir) == NULL)
		fail("descriptors or directory");
	step_ms = mmap(
		NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (step_ms == MAP_FAILED)
		fail("mmap");
	*step_ms = 20;
	c.port = free_port();
	router = begin_router(argv[1], argv[2], dir);
	workers = fork();
	if (workers == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_workers(dir, argv[2]);
		_exit(0);
	}
	wait_ready();
	c.epoll = epoll_create1(0);
	c.ttft_us = mem_alloc(SAMPLES, sizeof(*c.ttft_us));
	printf("  rate  step tokens |    done failed streams| us/requ  us/event   bare |"
	       " TTFT P50      P99 ms| MiB\n");
	for (int i = 4; i < argc; i++)
		row(router, (uint32_t)strtoul(argv[3], NULL, 10), argv[i]);
	kill(workers, SIGKILL);
	kill(router, SIGTERM);
	waitpid(router, NULL, 0);
	waitpid(workers, NULL, 0);
	return 0;
}
