/* Lives of requests as text: words between spaces, each an event or what must hold then.
 * An argument stands behind a colon, in it "_" for a space. Workers are p0, d0 and d1.
 *
 *   new[:N]            a request of 100 tokens that wants N (5)
 *   use:I              later words mean the I-th request, not the last
 *   replays:N  no_eos  before it is made: max_replays; no stop ids
 *   preparing          work for it is under way
 *   ready  go[:W]  place[:W]  first:T[/FAULT]  adopted  tok:T  evicted  cut:W  cancel
 *                      its events; a route leads over decode worker W (d0)
 *   p_later:R  d_later:R  p_refuses:R  d_refuses:R     REJECT_R of a worker
 *   p_ends:R  d_ends:R[:N]             FINISH_R of a worker, after N tokens
 *   lost:W  freed:W  back:W   its loss; its word on attempt 1; its claim returns
 *   cut_inside         it is cancelled from inside the next delivery
 *   free  reap         workers give back all they hold; what ended is forgotten
 *   quiet              what was sent so far is no matter
 *
 *   =STATE  ended:F    the state; the last end: stop, length, failed, cancelled
 *   sent:A,B           since the last such word, and nothing else
 *   error:CODE  says:TEXT      of its error; by:TRANSPORT of its hand-over
 *   claimed:W:A        attempt A is claimed of a worker
 *   NUMBER[:W]:N       SCRIPT_NUMBERS; without N it is 1
 *
 * At the end everything must be back (rig_close): a script says `free` where it is not so
 * by itself. */
#ifndef TESTS_UNIT_ROUTER_REQUEST_SCRIPT_H
#define TESTS_UNIT_ROUTER_REQUEST_SCRIPT_H
#include "request_rig.h"

#include <stdlib.h>

struct script {
	struct rig g;
	struct request *all[4], *r;
	uint32_t n;
	bool no_eos;
	const char *name; /* of the scenario, for messages */
	char word[80];
};

struct scenario {
	const char *name;
	const char *text; /* scripts, "|" between them */
};

#define SCRIPT_FAIL(s, fmt, ...)                                                         \
	fail_msg("%s: at \"%s\": " fmt, (s)->name, (s)->word, __VA_ARGS__)

static inline struct worker_view *script_worker(struct script *s, const char *id)
{
	struct worker_view *all[] = {s->g.p, s->g.d, s->g.d2};

	for (size_t i = 0; i < COUNT(all); i++)
		if (strncmp(id, all[i]->id, 2) == 0)
			return all[i];
	SCRIPT_FAIL(s, "there is no worker %s", id);
	return NULL;
}

static inline unsigned script_reason(
	struct script *s, const char *name, const char *const *names, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (names[i] != NULL && strncmp(name, names[i], strlen(names[i])) == 0)
			return i;
	SCRIPT_FAIL(s, "unknown: %s", name);
	return 0;
}

static const char *const script_rejects[] = {
#define X(name, text) #name,
	WIRE_REJECT_MAP(X)
#undef X
};
static const char *const script_finishes[] = {
#define X(name, text) #name,
	WIRE_FINISH_MAP(X)
#undef X
};
static const char *const script_ends[] = {[REQUEST_STOP] = "stop",
	[REQUEST_LENGTH] = "length",
	[REQUEST_FAILED] = "failed",
	[REQUEST_CANCELLED] = "cancelled"};

/* ---- events ---- */

static inline uint32_t script_u32(const char *arg)
{
	return (uint32_t)strtoul(arg, NULL, 10);
}

static inline void script_new(struct script *s, const char *arg)
{
	assert_true(s->n < COUNT(s->all));
	s->r = s->all[s->n++] = rig_request(&s->g, arg[0] != 0 ? script_u32(arg) : 5);
	if (s->no_eos)
		s->r->n_stop_ids = 0;
}

static inline void script_route(struct script *s, enum request_event ev, const char *arg)
{
	struct request_route route = rig_route(&s->g, s->r);

	if (arg[0] != 0)
		route.d = script_worker(s, arg);
	rig_move(s->r, ev, &route);
}

static inline void script_first(struct script *s, const char *arg)
{
	struct wire_first first = {.token = script_u32(arg)};
	struct msg_prefilled m = rig_prefilled(s->r, &first);
	const char *fault = strchr(arg, '/');

	if (fault != NULL && strcmp(fault, "/tokens") == 0)
		m.n_tokens--;
	else if (fault != NULL && strcmp(fault, "/pages") == 0)
		m.pages.len -= sizeof(uint32_t);
	else if (fault != NULL && strcmp(fault, "/none") == 0)
		m.first.len = 0;
	else if (fault != NULL && strcmp(fault, "/lease") == 0)
		m.lease = 0;
	else if (fault != NULL)
		SCRIPT_FAIL(s, "unknown: %s", fault);
	rig_move(s->r, EV_PREFILLED, &m);
}

static inline void script_offers(struct script *s, const char *arg)
{
	struct msg_offered m = rig_offered(s->r);

	if (strcmp(arg, "/tokens") == 0)
		m.n_tokens++;
	else if (strcmp(arg, "/pages") == 0)
		m.pages.len -= sizeof(uint32_t);
	else if (strcmp(arg, "/lease") == 0)
		m.lease = 0;
	else if (arg[0] != 0)
		SCRIPT_FAIL(s, "unknown: %s", arg);
	rig_move(s->r, EV_OFFERED, &m);
}

static inline void script_token(struct script *s, const char *arg)
{
	struct request_token t = {.token = script_u32(arg)};

	rig_move(s->r, EV_TOKEN, &t);
}

static inline void script_reject(
	struct script *s, enum request_event ev, const char *reason)
{
	struct msg_rejected m = {
		.reason = script_reason(s, reason, script_rejects, REJECT__COUNT),
		.later = ev == EV_P_LATER || ev == EV_D_LATER,
		.text = BYTES_STR("5000 tokens")};

	rig_move(s->r, ev, &m);
}

static inline void script_finish(struct script *s, enum request_event ev, const char *arg)
{
	const char *n = strchr(arg, ':');
	struct msg_finished m = {
		.reason = script_reason(s, arg, script_finishes, FINISH__COUNT),
		.n_generated = n != NULL ? script_u32(n + 1) : 0};

	rig_move(s->r, ev, &m);
}

static inline void script_lost(struct script *s, const char *arg)
{
	char text[32];

	snprintf(text, sizeof(text), "%s was lost", arg);
	request_worker_lost(s->r, script_worker(s, arg), text);
}

static inline void script_free(struct script *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		rig_free_all(&s->g, s->all[i]);
}

/* ---- what must hold ---- */

static inline void script_state(struct script *s, const char *arg)
{
	const char *is = request_state_name(s->r->state);

	if (strcmp(is, arg) != 0)
		SCRIPT_FAIL(s, "it is %s", is);
}

static inline void script_ended(struct script *s, const char *arg)
{
	unsigned want = script_reason(s, arg, script_ends, COUNT(script_ends));

	if (s->g.finish != want)
		SCRIPT_FAIL(s, "it ended with %d", (int)s->g.finish);
}

/* "adopt_d0,release_p0" of what the rig writes: "adopt d0;release p0;". */
static inline void script_sent(struct script *s, const char *arg)
{
	char is[256];
	size_t n = 0;

	for (const char *c = sink_cstr(&s->g.log); *c != 0 && n < sizeof(is) - 1; c++)
		if (*c != ';' || c[1] != 0)
			is[n++] = *c == ' ' ? '_' : *c == ';' ? ',' : *c;
	is[n] = 0;
	if (strcmp(is, arg) != 0)
		SCRIPT_FAIL(s, "sent was \"%s\"", is);
	sink_reset(&s->g.log);
}

static inline void script_error(struct script *s, const char *arg)
{
	if (strcmp(s->r->error.code, arg) != 0)
		SCRIPT_FAIL(s, "its code is \"%s\"", s->r->error.code);
}

static inline void script_says(struct script *s, const char *arg)
{
	char text[80];

	snprintf(text, sizeof(text), "%s", arg);
	for (char *c = text; *c != 0; c++)
		*c = *c == '_' ? ' ' : *c;
	if (strstr(s->r->error.message, text) == NULL)
		SCRIPT_FAIL(s, "it says \"%s\"", s->r->error.message);
}

/* Of it, of the set, of the worker that the argument begins with (id: of its place). */
#define SCRIPT_NUMBERS(X)                                                                \
	X(http, s->r->error.http)                                                        \
	X(no_retry, s->r->no_retry)                                                      \
	X(got, request_generated(s->r))                                                  \
	X(prompt, s->r->n_prompt)                                                        \
	X(ids, s->r->n_ids)                                                              \
	X(id, s->r->ids[script_u32(arg)])                                                \
	X(attempt, s->r->attempt)                                                        \
	X(replayed, s->r->replays)                                                       \
	X(deaths, s->r->deaths)                                                          \
	X(claims, s->r->n_claims)                                                        \
	X(leased, s->r->leased)                                                          \
	X(lease, s->r->lease)                                                            \
	X(bytes, s->r->handover_bytes)                                                   \
	X(pause, s->r->not_before_ns > 0)                                                \
	X(queued_at, s->r->queued_ns > 0)                                                \
	X(begun, s->r->dispatched_ns > 0)                                                \
	X(computed, s->r->prefilled_ns > 0)                                              \
	X(offered, s->r->adopt_ns > 0)                                                   \
	X(taken, s->r->adopted_ns > 0)                                                   \
	X(head, list_first(&s->g.set.queued[0], struct request, node) == s->r)           \
	X(ends, s->g.ends)                                                               \
	X(out, s->g.n_delivered)                                                         \
	X(live, s->g.set.n)                                                              \
	X(queued, s->g.set.queued[0].n)                                                  \
	X(placing, s->g.set.placing.n)                                                   \
	X(breaches, s->g.set.breaches)                                                   \
	X(replays_of_all, s->g.set.replays)                                              \
	X(held, script_worker(s, arg)->held_slots)                                       \
	X(pages, script_worker(s, arg)->held_pages)                                      \
	X(tokens, script_worker(s, arg)->held_tokens)

static inline bool script_number(struct script *s, const char *name, const char *arg)
{
	const char *colon = strchr(arg, ':');
	uint64_t want = arg[0] == 0 ? 1 : strtoull(colon ? colon + 1 : arg, NULL, 10);
	uint64_t is;

#define X(word, value)                                                                   \
	if (strcmp(name, #word) == 0) {                                                  \
		is = (uint64_t)(value);                                                  \
		if (is != want)                                                          \
			SCRIPT_FAIL(s, "it is %llu", (unsigned long long)is);            \
		return true;                                                             \
	}
	SCRIPT_NUMBERS(X)
#undef X
	return false;
}

#define SCRIPT_WORDS(X)                                                                  \
	X(new, script_new(s, arg))                                                       \
	X(use, s->r = s->all[script_u32(arg)])                                           \
	X(replays, s->g.set.max_replays = script_u32(arg))                               \
	X(no_eos, s->no_eos = true)                                                      \
	X(preparing, s->r->prepare = &s->g)                                              \
	X(ready, rig_move(s->r, EV_PREPARED, NULL))                                      \
	X(go, script_route(s, EV_DISPATCHED, arg))                                       \
	X(place, script_route(s, EV_PLACED, arg))                                        \
	X(first, script_first(s, arg))                                                   \
	X(adopted, rig_move(s->r, EV_ADOPTED, &rig_adopted))                             \
	X(tok, script_token(s, arg))                                                     \
	X(offers, script_offers(s, arg))                                                 \
	X(evicted, rig_move(s->r, EV_EVICTED, NULL))                                     \
	X(cut, request_cut(s->r, script_worker(s, arg)))                                 \
	X(cancel, request_cancel(s->r))                                                  \
	X(p_later, script_reject(s, EV_P_LATER, arg))                                    \
	X(d_later, script_reject(s, EV_D_LATER, arg))                                    \
	X(p_refuses, script_reject(s, EV_P_REJECTED, arg))                               \
	X(d_refuses, script_reject(s, EV_D_REJECTED, arg))                               \
	X(p_ends, script_finish(s, EV_P_FINISHED, arg))                                  \
	X(d_ends, script_finish(s, EV_D_FINISHED, arg))                                  \
	X(lost, script_lost(s, arg))                                                     \
	X(freed, request_freed(s->r, script_worker(s, arg), 1))                          \
	X(back, request_return(s->r, script_worker(s, arg), s->r->attempt))              \
	X(cut_inside, s->g.fail_on_deliver = s->r)                                       \
	X(free, script_free(s))                                                          \
	X(reap, requests_reap(&s->g.set))                                                \
	X(quiet, sink_reset(&s->g.log))                                                  \
	X(ended, script_ended(s, arg))                                                   \
	X(sent, script_sent(s, arg))                                                     \
	X(error, script_error(s, arg))                                                   \
	X(says, script_says(s, arg))                                                     \
	X(by, assert_string_equal(s->r->transport, arg))                                 \
	X(claimed, assert_true(request_claims(                                           \
			   s->r, script_worker(s, arg), script_u32(arg + 3))))

static inline void script_do(struct script *s)
{
	size_t n = strcspn(s->word, ":");
	const char *arg = s->word[n] == ':' ? s->word + n + 1 : "";
	char name[80];

	if (s->word[0] == '=') {
		script_state(s, s->word + 1);
		return;
	}
	snprintf(name, sizeof(name), "%.*s", (int)n, s->word);
#define X(word, act)                                                                     \
	if (strcmp(name, #word) == 0) {                                                  \
		act;                                                                     \
		return;                                                                  \
	}
	SCRIPT_WORDS(X)
#undef X
	if (!script_number(s, name, arg))
		SCRIPT_FAIL(s, "no word is called %s", name);
}

/* A test of cmocka; *state is its scenario. */
static inline void script_play(void **state)
{
	const struct scenario *sc = *state;
	const char *at = sc->text;

	while (*at != 0) {
		struct script s = {.name = sc->name};

		rig_open(&s.g);
		for (; *at != 0 && *at != '|'; at += strspn(at, " ")) {
			size_t n = strcspn(at, " |");

			assert_true(n < sizeof(s.word));
			memcpy(s.word, at, n);
			s.word[n] = 0;
			script_do(&s);
			at += n;
		}
		snprintf(s.word, sizeof(s.word), "its end");
		rig_close(&s.g);
		at += *at == '|';
		at += strspn(at, " ");
	}
}

#endif
