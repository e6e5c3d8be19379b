/* Both sides of a beat: what is missing here is said, what nobody wants is ended. */
#include "common/worker/held.h"

#include "common/base/log.h"
#include "common/worker/answer.h"
#include "common/worker/jobs.h"
#include "common/worker/worker.h"

static void say_absent(struct worker *w, struct wire_request r, uint64_t number)
{
	struct msg_absent m = {REQ_MEMBERS(r), .number = number};

	log_debug("absent " REQ_FMT, REQ_ARG(r));
	routers_send(w->routers, r.router, MSG_absent, &m);
}

void held_compare(struct worker *w, uint64_t router, const struct msg_beat *m)
{
	size_t n = wire_count(m->held, struct wire_held);

	if (!m->has_held || !m->has_number)
		return;
	for (size_t i = 0; i < n; i++) {
		struct wire_held h;
		struct wire_request r;

		wire_get(m->held, i, &h, sizeof(h));
		r = (struct wire_request){router, h.seq, h.attempt};
		if (!jobs_named(w->jobs, r, m->number, h.wanted != 0))
			say_absent(w, r, m->number);
	}
	jobs_unnamed(w->jobs, router, m->number);
}
