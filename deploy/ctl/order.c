/* drain and undrain: the order to every router, then watching until the worker is where
 * it was ordered to be. */
#include "common/base/clock.h"
#include "deploy/ctl/commands.h"
#include "deploy/ctl/view.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_MS     200
/* A router that was started again hears of its workers within a second or two. */
#define GONE_NS     (4 * NS_PER_S)
/* A worker that takes work again says so at once. */
#define UNDRAIN_S   10.0
#define NO_TIME_OUT UINT64_MAX

struct watch {
	const char *id;
	const char *goal;     /* a state of the worker */
	const char *goes_on;  /* when nobody watches any more */
	const char *against;  /* a state in which it was not reached; NULL: any */
	char incarnation[17]; /* of the worker that was ordered */
	uint64_t seen_ns;     /* when a router last knew it */
	uint64_t until_ns;
	bool tty;
	char line[128]; /* that was shown last */
};

_Static_assert(ORDERED_OBEYED == (int)CTL_DONE && ORDERED_REFUSED == (int)CTL_REFUSED &&
		       ORDERED_MALFORMED == (int)CTL_USAGE &&
		       ORDERED_UNKNOWN == (int)CTL_UNKNOWN,
	"a router's verdict is the exit status");

/* The incarnation tells the worker from another process of its id. */
static bool is_it(struct watch *w, const struct json *v)
{
	if (v == NULL)
		return false;
	if (w->incarnation[0] == 0)
		snprintf(w->incarnation, sizeof(w->incarnation), "%s",
			view_text(v, "incarnation"));
	return strcmp(view_text(v, "incarnation"), w->incarnation) == 0;
}

/* Before the order: it may end soon after. */
static void note_worker(struct talk *t, struct watch *w)
{
	talk_ask(t, TALK_ALL, "status", NULL);
	for (uint32_t i = 0; i < talk_count(t) && w->incarnation[0] == 0; i++)
		(void)is_it(w, view_worker_of(talk_reply(t, i)->json, w->id));
}

/* One router after another, and none behind one that refuses: so what the first of them
 * refuses nobody does, and of two drains at once that together would empty a role the
 * first router lets one pass. */
static int give(struct talk *t, const struct watch *w, const char *verb, const char *args)
{
	const char *obeyed = NULL;
	int code = CTL_DONE, mine = CTL_DONE;

	for (uint32_t i = 0; i < talk_count(t); i++) {
		const struct talk_reply *r = talk_reply(t, i);

		talk_order(t, i, verb, w->id, args);
		mine = r->came ? (int)r->code : CTL_NO_ROUTER;
		code = MAX(code, mine);
		if (mine == CTL_DONE)
			obeyed = talk_name(t, i);
		else if (!talk_stopped(t))
			fprintf(stderr, "batonctl: router %s: %s\n", talk_name(t, i),
				r->text);
		if (talk_stopped(t) || (r->came && mine != CTL_DONE))
			break;
	}
	if (code != CTL_DONE && obeyed != NULL)
		fprintf(stderr, "batonctl: router %s obeyed: %s\n", obeyed, w->goes_on);
	return talk_stopped(t) ? CTL_STOPPED : code;
}

static void show_progress(struct watch *w, const struct json *v)
{
	char line[sizeof(w->line)];

	if (!w->tty || v == NULL)
		return;
	snprintf(line, sizeof(line), "%.48s %.16s: %llu running, %llu queued", w->id,
		view_text(v, "state"), (unsigned long long)view_u64(v, "running"),
		(unsigned long long)view_u64(v, "queued"));
	if (strcmp(line, w->line) != 0)
		fprintf(stderr, "%s\n", line);
	memcpy(w->line, line, sizeof(line));
}

struct sight {
	uint32_t answers, knows, there, against;
};

static struct sight look(struct talk *t, struct watch *w)
{
	struct sight s = {0};

	talk_ask(t, TALK_ALL, "status", NULL);
	for (uint32_t i = 0; i < talk_count(t); i++) {
		const struct json *answer = talk_reply(t, i)->json;
		const struct json *v = view_worker_of(answer, w->id);

		if (answer == NULL)
			continue;
		s.answers++;
		if (!is_it(w, v))
			continue;
		s.knows++;
		s.there += strcmp(view_text(v, "state"), w->goal) == 0;
		s.against += w->against != NULL &&
			     strcmp(view_text(v, "state"), w->against) == 0;
		show_progress(w, v);
	}
	if (s.knows > 0)
		w->seen_ns = clock_ns();
	return s;
}

/* Every router that answers knows the worker and says that it is where it should be. */
static int watch(struct talk *t, struct watch *w)
{
	w->seen_ns = clock_ns();
	while (true) {
		struct sight s = look(t, w);

		if (talk_stopped(t)) {
			fprintf(stderr, "batonctl: stopped: %s\n", w->goes_on);
			return CTL_STOPPED;
		}
		if (s.answers == 0) {
			fprintf(stderr, "batonctl: no router answers any more: %s\n",
				w->goes_on);
			return CTL_NO_ROUTER;
		}
		if (s.there == s.answers)
			return CTL_DONE;
		if (s.against > 0) {
			fprintf(stderr,
				"batonctl: %s is %s: the order was undone, or did not "
				"reach it\n",
				w->id, w->against);
			return CTL_REFUSED;
		}
		if (s.knows == 0 && clock_ns() - w->seen_ns >= GONE_NS) {
			fprintf(stderr, "batonctl: the process of %s is gone\n", w->id);
			return CTL_REFUSED;
		}
		if (clock_ns() >= w->until_ns) {
			fprintf(stderr, "batonctl: time is up: %s\n", w->goes_on);
			return CTL_TIMEOUT;
		}
		talk_pause(t, LOOK_MS);
	}
}

static uint64_t deadline(double s)
{
	return s < 0 ? NO_TIME_OUT : clock_ns() + (uint64_t)(s * (double)NS_PER_S);
}

int order_drain(struct talk *t, const struct ctl_options *o)
{
	char goes_on[200], args[32];
	struct watch w = {.id = o->id,
		.goal = "drained",
		.against = "up",
		.goes_on = goes_on,
		.until_ns = deadline(o->timeout_s),
		.tty = isatty(STDERR_FILENO) != 0};
	int code;

	snprintf(goes_on, sizeof(goes_on),
		"%s goes on draining; `batonctl undrain %s` undoes it", o->id, o->id);
	note_worker(t, &w);
	snprintf(args, sizeof(args), "%s%s%s", o->force ? "force" : "",
		o->force && o->migrate ? " " : "", o->migrate ? "migrate" : "");
	code = give(t, &w, "drain", args);
	if (code == CTL_DONE)
		code = watch(t, &w);
	if (code == CTL_DONE)
		printf("%s is drained\n", o->id);
	return code;
}

int order_undrain(struct talk *t, const struct ctl_options *o)
{
	char goes_on[120];
	struct watch w = {.id = o->id,
		.goal = "up",
		.goes_on = goes_on,
		.until_ns = deadline(o->timeout_s < 0 ? UNDRAIN_S : o->timeout_s)};
	int code;

	snprintf(goes_on, sizeof(goes_on), "%s was told to take work", o->id);
	note_worker(t, &w);
	code = give(t, &w, "undrain", "");
	if (code == CTL_DONE)
		code = watch(t, &w);
	if (code == CTL_DONE)
		printf("%s takes work\n", o->id);
	return code;
}
