// labels: threads
// wrap: mem_take mem_regrow mem_dup
/* Request memory that ends at any moment: each allocation of an answer fails once, alone
 * or with all that follow. Nothing of the process breaks, nothing is kept, and the client
 * has one answer. The HTTP server, the calls and the tokenizer are real, the workers are
 * what a tick of the loop says. */
#include "fleet_fixture.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "router/call.h"
#include "router/dispatch.h"
#include "router/prepare.h"
#include "router/requests.h"
#include "router/routes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEMO_MODEL  BATON_SOURCE_DIR "/deploy/demo-model"
#define TOPS        3u
#define WAIT_MS     2000
#define WORDS       8u
/* More than an answer allocates; the run that is not struck ends a case before. */
#define STRIKES_MAX 2000

/* ---- memory that fails ---- */

static atomic_int left;   /* until the strike; 0: none is due */
static atomic_bool stays; /* what follows fails as well */
static atomic_bool struck;

static bool strikes(void)
{
	if (atomic_load(&struck) && atomic_load(&stays))
		return true;
	if (atomic_load(&left) == 0 || atomic_fetch_sub(&left, 1) != 1)
		return false;
	atomic_store(&struck, true);
	return true;
}

void *__real_mem_take(size_t n, size_t size);
void *__real_mem_regrow(void *p, size_t size);
char *__real_mem_dup(const void *at, size_t n);
void *__wrap_mem_take(size_t n, size_t size);
void *__wrap_mem_regrow(void *p, size_t size);
char *__wrap_mem_dup(const void *at, size_t n);

void *__wrap_mem_take(size_t n, size_t size)
{
	return strikes() ? NULL : __real_mem_take(n, size);
}

void *__wrap_mem_regrow(void *p, size_t size)
{
	return strikes() ? NULL : __real_mem_regrow(p, size);
}

char *__wrap_mem_dup(const void *at, size_t n)
{
	return strikes() ? NULL : __real_mem_dup(at, n);
}

/* ---- a router ---- */

struct scene {
	struct router rt;
	struct router_conf conf;
	struct loop_timer tick;
	uint64_t base; /* mem_taken() without a request */
	int waited_ms; /* since the client had its answer */
	const char *body;
	pthread_t client;
	atomic_bool answered;
	char answer[1u << 18];
	size_t n_answer;
};

static void send_nothing(void *self, struct request *r)
{
	(void)self;
	(void)r;
}

static void send_no_word(void *self, struct request *r, struct worker_view *w)
{
	(void)self;
	(void)r;
	(void)w;
}

static const struct request_ops ops = {
	.send_prefill = send_nothing,
	.send_adopt = send_nothing,
	.send_cancel = send_no_word,
	.send_release = send_no_word,
	.stop_prepare = prepare_stop,
	.deliver = call_deliver,
	.score = call_score,
	.end = call_request_ended,
};

static const struct wire_logprob tops[4 * TOPS] = {{300, -1}, {301, -2}, {302, -3},
	{300, -1}, {301, -2}, {302, -3}, {300, -1}, {301, -2}, {302, -3}, {300, -1},
	{301, -2}, {302, -3}};

static void say_prefilled(struct request *r)
{
	static const uint32_t pages[4] = {3, 4, 5, 6};
	uint32_t n = request_asks(r);
	struct wire_first first[4];
	struct msg_prefilled m = {.router = 1,
		.seq = r->seq,
		.attempt = r->attempt,
		.lease = r->seq * 8,
		.pages = {(const uint8_t *)pages,
			CEIL_DIV(r->n_ids, 64u) * sizeof(*pages)},
		.slot = 1,
		.n_tokens = r->n_ids,
		.first = {(const uint8_t *)first, n * sizeof(*first)},
		.tops = {(const uint8_t *)tops,
			r->draw.top_logprobs > 0 ? n * TOPS * sizeof(*tops) : 0}};
	struct err err;

	for (uint32_t i = 0; i < n; i++)
		first[i] = (struct wire_first){.token = 300 + i,
			.logprob = -1,
			.n_tops = r->draw.top_logprobs > 0 ? TOPS : 0};
	assert_int_equal(request_move(r, EV_PREFILLED, &m, &err), ST_OK);
}

/* What workers that hold r say next. */
static void serve_request(struct request *r)
{
	static const struct msg_adopted adopted = {
		.bytes = 4096, .transport = {(const uint8_t *)"shm", 3}};
	struct request_token t = {.token = 310 + r->n_ids % 50,
		.logprob = -1,
		.tops = {(const uint8_t *)tops,
			r->draw.top_logprobs > 0 ? TOPS * sizeof(*tops) : 0}};
	struct msg_finished end = {.router = 1,
		.seq = r->seq,
		.attempt = r->attempt,
		.reason = FINISH_LENGTH,
		.n_generated = request_generated(r)};
	struct err err;

	if (r->state == RQ_PREFILL)
		say_prefilled(r);
	else if (r->state == RQ_HANDOVER)
		assert_int_equal(request_move(r, EV_ADOPTED, &adopted, &err), ST_OK);
	else if (r->state == RQ_DECODE && request_generated(r) == r->max_tokens)
		assert_int_equal(request_move(r, EV_D_FINISHED, &end, &err), ST_OK);
	else if (r->state == RQ_DECODE)
		assert_int_equal(request_move(r, EV_TOKEN, &t, &err), ST_OK);
	while (r->state == RQ_DONE && r->n_claims > 0)
		request_freed(r, r->claim[0].w, r->claim[0].attempt);
}

static void on_tick(void *ctx)
{
	struct scene *x = ctx;
	struct requests *set = &x->rt.requests;

	dispatch_turn(&x->rt, clock_ns());
	/* Several words of a worker come in one turn. */
	for (uint32_t i = 0; i < set->capacity * WORDS; i++)
		if (set->slot[i % set->capacity] != NULL)
			serve_request(set->slot[i % set->capacity]);
	requests_reap(set);
	if (!atomic_load(&x->answered))
		return;
	/* A watcher is given back one turn after it was closed. */
	if ((set->n == 0 && x->rt.calls.n == 0 && http_connections(x->rt.http) == 0 &&
		    mem_taken() == x->base) ||
		++x->waited_ms > WAIT_MS)
		loop_stop(x->rt.loop);
}

static void join_workers(struct router *rt)
{
	struct fleet_options o = fleet_defaults;

	o.lost_ns = o.silent_ns = UINT64_MAX / 4;
	rt->fleet = fleet_create(&o);
	join(rt->fleet, "p0", 1, WIRE_PREFILL, clock_ns());
	join(rt->fleet, "d0", 2, WIRE_DECODE, clock_ns());
}

static int setup(void **state)
{
	struct scene *x = calloc(1, sizeof(*x));
	struct router *rt = &x->rt;
	struct http_options o = {.host = "127.0.0.1"};
	struct http_handler handler;
	struct err err;

	log_level_set(LOG_ERROR);
	x->conf = (struct router_conf){.id = "r0",
		.cors_origin = "",
		.max_queued = 64,
		.lost_ms = 4000,
		.worker_wait_s = 4,
		.keepalive_s = 60,
		.queue_timeout_s = 60,
		.stall_timeout_s = 300};
	rt->conf = &x->conf;
	rt->name[0] = "demo";
	rt->n_names = 1;
	rt->model_len = 4096;
	api_defaults_plain(&rt->defaults);
	assert_int_equal(tokenizer_load(&rt->tokenizer, DEMO_MODEL, &err), ST_OK);
	rt->eos = tokenizer_eos(rt->tokenizer, &rt->n_eos);
	rt->loop = o.loop = loop_create();
	join_workers(rt);
	requests_init(&rt->requests, 64, &ops, rt);
	rt->requests.n_vocab = tokenizer_n_tokens(rt->tokenizer);
	handler = routes_handler(rt);
	if (http_create(&rt->http, &o, &handler, &err) != ST_OK)
		fail_msg("%s", err.text);
	loop_timer_start(rt->loop, &x->tick, 1, 1, on_tick, x);
	x->base = mem_taken();
	*state = x;
	return 0;
}

static int teardown(void **state)
{
	struct scene *x = *state;

	loop_timer_stop(&x->tick);
	http_destroy(x->rt.http);
	loop_destroy(x->rt.loop);
	requests_release(&x->rt.requests);
	fleet_destroy(x->rt.fleet);
	tokenizer_destroy(x->rt.tokenizer);
	free(x);
	assert_int_equal(mem_taken(), 0);
	log_level_set(LOG_INFO);
	return 0;
}

/* ---- a client ---- */

static void *ask(void *ctx)
{
	struct scene *x = ctx;
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons(http_port(x->rt.http)),
		.sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char head[256];
	ssize_t n;

	snprintf(head, sizeof(head),
		"POST /v1/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
		"Content-Length: %zu\r\n\r\n",
		strlen(x->body));
	x->n_answer = 0;
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
		send(fd, head, strlen(head), MSG_NOSIGNAL) > 0 &&
		send(fd, x->body, strlen(x->body), MSG_NOSIGNAL) > 0)
		while ((n = recv(fd, x->answer + x->n_answer,
				sizeof(x->answer) - 1 - x->n_answer, 0)) > 0)
			x->n_answer += (size_t)n;
	x->answer[x->n_answer] = 0;
	close(fd);
	atomic_store(&x->answered, true);
	return NULL;
}

static uint64_t outcomes(const struct router *rt)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < 6; i++)
		for (unsigned k = 0; k < 100; k++)
			n += rt->metrics.status[i][k];
	return n;
}

static void check_nothing_is_held(struct scene *x)
{
	struct router *rt = &x->rt;

	assert_int_equal(rt->requests.n, 0);
	assert_int_equal(rt->calls.n, 0);
	for (uint32_t i = 0; i < fleet_count(rt->fleet); i++) {
		assert_int_equal(fleet_at(rt->fleet, i)->held_slots, 0);
		assert_int_equal(fleet_at(rt->fleet, i)->held_pages, 0);
	}
	assert_int_equal(mem_taken(), x->base);
}

/* The whole answer, an error, or a connection that ends without either; never a whole
 * answer that lacks something. */
static void check_answer(const struct scene *x, const char *whole)
{
	bool ok = strncmp(x->answer, "HTTP/1.1 200 ", 13) == 0;
	bool ended = strstr(x->answer, "\r\n0\r\n\r\n") != NULL ||
		     strstr(x->answer, "Content-Length: ") != NULL;
	bool error = strstr(x->answer, "{\"error\":{\"message\":\"") != NULL;

	if (x->n_answer == 0)
		return;
	if (!ok || error)
		assert_true(error && ended);
	else if (ended)
		assert_non_null(strstr(x->answer, whole));
	if (ok && strstr(x->answer, "text/event-stream") != NULL && ended)
		assert_non_null(strstr(x->answer, "data: [DONE]"));
}

/* false: the strike came too late. */
static bool strike(struct scene *x, int n, bool all, const char *whole)
{
	uint64_t before = outcomes(&x->rt);

	atomic_store(&x->answered, false);
	x->waited_ms = 0;
	atomic_store(&struck, false);
	atomic_store(&stays, all);
	atomic_store(&left, n);
	assert_int_equal(pthread_create(&x->client, NULL, ask, x), 0);
	loop_run(x->rt.loop);
	pthread_join(x->client, NULL);
	atomic_store(&left, 0);
	atomic_store(&stays, false);
	check_nothing_is_held(x);
	check_answer(x, whole);
	if (outcomes(&x->rt) != before + 1)
		fail_msg("strike %d: %d outcomes, answer: %.300s", n,
			(int)(outcomes(&x->rt) - before), x->answer);
	return atomic_load(&struck);
}

static void strike_each(struct scene *x, const char *body, const char *whole)
{
	int n;

	x->body = body;
	assert_false(strike(x, 0, false, whole));
	if (strncmp(x->answer, "HTTP/1.1 200 ", 13) != 0 ||
		strstr(x->answer, whole) == NULL)
		fail_msg("%s", x->answer);
	for (int all = 0; all < 2; all++) {
		n = 1;
		while (strike(x, n, all != 0, whole))
			assert_true(++n < STRIKES_MAX);
		assert_true(n > 10);
	}
}

static void a_stream_survives_the_loss_of_any_allocation(void **state)
{
	strike_each(*state,
		"{\"model\":\"demo\",\"prompt\":\"one two\",\"max_tokens\":20,"
		"\"stream\":true,\"logprobs\":3,\"return_token_ids\":true,"
		"\"stream_options\":{\"include_usage\":true}}",
		"\"completion_tokens\":20");
}

/* More than is read on the loop. */
static void a_body_that_the_pool_reads_survives_the_loss_of_any_allocation(void **state)
{
	static char body[16384];
	size_t n;

	n = (size_t)snprintf(body, sizeof(body),
		"{\"model\":\"demo\",\"prompt\":\"one two\",\"max_tokens\":2,"
		"\"echo\":true,\"logit_bias\":{\"300\":1},\"stop_token_ids\":[7],"
		"\"unread\":[0");
	while (n < sizeof(body) - 8)
		n += (size_t)snprintf(body + n, sizeof(body) - n, ",1e400");
	snprintf(body + n, sizeof(body) - n, "]}");
	strike_each(*state, body, "\"completion_tokens\":2");
}

static void a_whole_answer_survives_the_loss_of_any_allocation(void **state)
{
	strike_each(*state,
		"{\"model\":\"demo\",\"prompt\":\"one two\",\"max_tokens\":20,"
		"\"logprobs\":3,\"stop\":[\"never said\"]}",
		"\"completion_tokens\":20");
	strike_each(*state,
		"{\"model\":\"demo\",\"prompt\":\"one two\",\"max_tokens\":20,"
		"\"bad_words\":[\"x\"],\"return_token_ids\":true}",
		"\"completion_tokens\":20");
}

static void four_answers_survive_the_loss_of_any_allocation(void **state)
{
	strike_each(*state,
		"{\"model\":\"demo\",\"prompt\":[300,301,302],\"max_tokens\":20,"
		"\"n\":4,\"logprobs\":3}",
		"\"completion_tokens\":80");
}

static void four_streamed_answers_survive_the_loss_of_any_allocation(void **state)
{
	strike_each(*state,
		"{\"model\":\"demo\",\"prompt\":[300,301,302],\"max_tokens\":20,"
		"\"n\":4,\"logprobs\":3,\"stream\":true,"
		"\"stream_options\":{\"include_usage\":true}}",
		"\"completion_tokens\":80");
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_stream_survives_the_loss_of_any_allocation),
		T(a_body_that_the_pool_reads_survives_the_loss_of_any_allocation),
		T(a_whole_answer_survives_the_loss_of_any_allocation),
		T(four_answers_survive_the_loss_of_any_allocation),
		T(four_streamed_answers_survive_the_loss_of_any_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
