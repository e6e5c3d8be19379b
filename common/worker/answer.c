/* Answers about one request, and its line in the log. */
#include "common/worker/answer.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/worker/worker.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

#define TEXT_BYTES 320

void answer_trace(struct wire_request r, struct bytes trace)
{
	char text[33] = {0};

	for (size_t i = 0; i < MIN(trace.len, sizeof(text) - 1); i++)
		text[i] = (char)(isxdigit(trace.at[i]) ? trace.at[i] : '?');
	log_info("trace " REQ_FMT " trace=%s", REQ_ARG(r), text);
}

void answer_rejected(struct worker *w, struct wire_request r, enum wire_reject reason,
	bool later, const char *fmt, ...)
{
	char text[TEXT_BYTES];
	struct msg_rejected m = {REQ_MEMBERS(r), .reason = reason, .later = later};
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	m.text = bytes_of_str(text);
	w->stats.v[STAT_rejected]++;
	log_info("rejected " REQ_FMT " reason='%s' later=%d: %s", REQ_ARG(r),
		wire_reject_text(reason), later, text);
	routers_send(w->routers, r.router, MSG_rejected, &m);
}

void answer_finished(struct worker *w, struct wire_request r, enum wire_finish reason,
	uint32_t n_generated, const char *text)
{
	struct msg_finished m = {REQ_MEMBERS(r), .reason = reason,
		.n_generated = n_generated, .has_text = text != NULL};

	if (text != NULL)
		m.text = bytes_of_str(text);
	log_info("finished " REQ_FMT " reason='%s' generated=%u%s%s", REQ_ARG(r),
		wire_finish_text(reason), n_generated, text != NULL ? ": " : "",
		text != NULL ? text : "");
	routers_send(w->routers, r.router, MSG_finished, &m);
}

void answer_freed(struct worker *w, struct wire_request r)
{
	struct msg_freed m = {REQ_MEMBERS(r)};

	tombs_add(w->tombs, r, clock_ns());
	log_debug("freed " REQ_FMT, REQ_ARG(r));
	routers_send(w->routers, r.router, MSG_freed, &m);
}
