/* The demo model's chat template in real children, asked synchronously. */
#ifndef TESTS_UNIT_ROUTER_TEMPLATE_RIG_H
#define TESTS_UNIT_ROUTER_TEMPLATE_RIG_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/model/tokenizer.h"
#include "router/api.h"
#include "router/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEMO_MODEL BATON_SOURCE_DIR "/deploy/demo-model"

struct rig {
	struct loop *loop;
	struct tokenizer *tokenizer;
	struct template *t;
	char path[64]; /* of a template given as text */
};

/* The last answer. */
struct got {
	struct loop *loop;
	unsigned n, stop_at;
	status code;
	char text[1 << 20];
	char error[400];
};

static struct got got;

static void on_rendered(void *ctx, struct sink *frame, struct bytes result, status code,
	const struct err *err)
{
	(void)ctx;
	assert_int_equal(code == ST_OK, frame != NULL);
	got.n++;
	got.code = code;
	got.error[0] = '\0';
	assert_true(result.len < sizeof(got.text));
	if (result.len > 0)
		memcpy(got.text, result.at, result.len);
	got.text[result.len] = '\0';
	if (err != NULL)
		snprintf(got.error, sizeof(got.error), "%s", err->text);
	assert_int_equal(code == ST_OK, err == NULL);
	if (got.n == got.stop_at)
		loop_stop(got.loop);
}

static void never_ends(void *ctx)
{
	(void)ctx;
	fail_msg("the loop was to stop by itself");
}

static void run_until(struct rig *r, unsigned answers)
{
	struct loop_timer guard = {0};

	got.loop = r->loop;
	got.stop_at = answers;
	if (got.n >= answers)
		return;
	loop_timer_start(r->loop, &guard, 20000, 0, never_ends, NULL);
	loop_run(r->loop);
	loop_timer_stop(&guard);
}

static inline status ask_once(
	struct rig *r, const char *request, uint64_t *ticket, struct err *err)
{
	return template_render(r->t, mem_dup(request, strlen(request)), strlen(request),
		on_rendered, NULL, ticket, err);
}

static inline void ask(struct rig *r, const char *request)
{
	uint64_t ticket;
	struct err err;

	got.n = 0;
	assert_int_equal(ask_once(r, request, &ticket, &err), ST_OK);
	run_until(r, 1);
}

/* text: NULL for the model's own template. */
static struct rig rig_open(const char *text, struct template_options o)
{
	struct rig r = {.loop = loop_create()};
	struct err err;

	if (tokenizer_load(&r.tokenizer, DEMO_MODEL, &err) != ST_OK)
		fail_msg("%s", err.text);
	o.loop = r.loop;
	o.model_dir = DEMO_MODEL;
	o.added = tokenizer_added(r.tokenizer, &o.n_added);
	if (text != NULL) {
		int fd;

		snprintf(r.path, sizeof(r.path), "/tmp/baton-template-XXXXXX");
		fd = mkstemp(r.path);
		assert_int_equal(write(fd, text, strlen(text)), strlen(text));
		close(fd);
		o.template_path = r.path;
	}
	if (template_create(&r.t, &o, &err) != ST_OK)
		fail_msg("%s", err.text);
	return r;
}

static void rig_close(struct rig *r)
{
	template_destroy(r->t);
	tokenizer_destroy(r->tokenizer);
	loop_destroy(r->loop);
	if (r->path[0] != '\0')
		unlink(r->path);
	assert_int_equal(mem_taken(), 0);
}

/* A run of k marks becomes k / 2 of them. In place. */
static inline void unmask(char *s)
{
	static const char mark[] = TOK_MASK_UTF8;
	const size_t n = sizeof(mark) - 1;
	char *to = s;

	while (*s != '\0') {
		size_t k = 0;

		while (strncmp(s + k * n, mark, n) == 0)
			k++;
		if (k == 0) {
			*to++ = *s++;
			continue;
		}
		for (size_t i = 0; i < k / 2; i++, to += n)
			memmove(to, mark, n);
		s += k * n;
	}
	*to = '\0';
}

#endif
