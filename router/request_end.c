/* How a generation ends: each way tells whoever holds something, then the client's
 * side. Rows of the move table. */
#include "common/base/clock.h"
#include "router/request_impl.h"

void request_end(struct request *r, enum request_finish finish)
{
	r->finish = finish;
	r->done_ns = clock_ns();
	r->set->ops->end(r->set->self, r);
}

void request_end_failed(struct request *r, const void *what)
{
	request_let_go(r);
	r->error = *(const struct api_error *)what;
	request_end(r, REQUEST_FAILED);
}

void request_end_cancelled(struct request *r, const void *what)
{
	(void)what;
	request_let_go(r);
	request_end(r, REQUEST_CANCELLED);
}

void request_end_unprepared(struct request *r, const void *what)
{
	if (r->prepare != NULL)
		r->set->ops->stop_prepare(r->set->self, r);
	request_end_failed(r, what);
}

void request_end_unwanted(struct request *r, const void *what)
{
	if (r->prepare != NULL)
		r->set->ops->stop_prepare(r->set->self, r);
	request_end_cancelled(r, what);
}

/* A worker said what it cannot have meant. */
void request_end_breach(struct request *r, const void *what)
{
	struct api_error e;

	(void)what;
	r->set->breaches++;
	api_error_set(&e, 500, "worker_protocol", NULL,
		"A worker broke the protocol while it served this request.");
	request_end_failed(r, &e);
}

static void rejected(struct request *r, const void *what)
{
	const struct msg_rejected *m = what;
	struct api_error e;

	if (m->reason == REJECT_UNSUPPORTED)
		api_error_set(&e, 400, "unsupported_parameter", NULL, "%.*s.",
			(int)MIN(m->text.len, 400), (const char *)m->text.at);
	else
		api_error_set(&e, 500, "rejected", NULL,
			"A worker refused this request: %s: %.*s",
			wire_reject_text((unsigned)m->reason), (int)MIN(m->text.len, 320),
			(const char *)m->text.at);
	request_end_failed(r, &e);
}

static void finished_badly(struct request *r, const struct msg_finished *m)
{
	struct api_error e;

	if (m->reason == FINISH_NAN)
		api_error_set(&e, 500, "nan_logits", NULL,
			"The model gave NaN or infinite logits; no token was made of "
			"them.");
	else if (m->reason == FINISH_ERROR)
		api_error_set(&e, 500, "worker_error", NULL,
			"The worker ended this request: %s",
			wire_finish_text((unsigned)m->reason));
	else
		api_error_set(&e, 500, "worker_protocol", NULL,
			"The worker ended this request without a reason (%s).",
			wire_finish_text((unsigned)m->reason));
	request_end_failed(r, &e);
}

void request_end_p_rejected(struct request *r, const void *what)
{
	r->p = NULL;
	rejected(r, what);
}

void request_end_d_rejected(struct request *r, const void *what)
{
	r->d = NULL;
	r->adopt_sent = false;
	rejected(r, what);
}

/* p gives up by itself what it held: it is not told to. */
void request_end_p_finished(struct request *r, const void *what)
{
	r->p = NULL;
	r->leased = false;
	finished_badly(r, what);
}

void request_end_d_finished(struct request *r, const void *what)
{
	const struct msg_finished *m = what;
	bool counted = m->n_generated == request_generated(r);

	r->d = NULL;
	r->adopt_sent = false;
	if (!counted && m->reason != FINISH_CANCELLED && m->reason != FINISH_ERROR &&
		m->reason != FINISH_NAN) {
		request_let_go(r);
		request_end_breach(r, NULL);
	} else if (m->reason == FINISH_STOP_TOKEN || m->reason == FINISH_STOP_STRING ||
		   m->reason == FINISH_LENGTH) {
		request_let_go(r);
		request_end(
			r, m->reason == FINISH_LENGTH ? REQUEST_LENGTH : REQUEST_STOP);
	} else {
		finished_badly(r, m);
	}
}
