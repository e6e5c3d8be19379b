/* Both sides of a beat: what is missing here is said, what nobody wants is ended. */
#include "common/worker/held.h"

#include "common/base/log.h"
#include "common/worker/reqmap.h"
#include "common/worker/worker.h"

static void say_absent(struct worker *w, struct wire_request r, uint64_t number)
{
	struct msg_absent m = {
		.router = r.router, .seq = r.seq, .attempt = r.attempt, .number = number};

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
		if (!w->role->named(w->self, r, m->number, h.wanted != 0))
			say_absent(w, r, m->number);
	}
	w->role->unnamed(w->self, router, m->number);
}
