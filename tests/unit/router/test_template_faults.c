// labels: threads
/* Template children that hang, die or eat memory, and templates that are wrong. */
#include "template_rig.h"

#include "router/template_impl.h"

#include <dirent.h>
#include <signal.h>

#define HI                                                                               \
	"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"                        \
	"\"kwargs\":{%s},\"add_generation_prompt\":true}"

/* A template that does what the kwarg `do` says. */
static const char trouble[] =
	"{%- if do == 'hang' -%}"
	"{%- for a in range(99999) %}{% for b in range(99999) %}"
	"{% set c = a + b %}{% endfor %}{% endfor -%}"
	"{%- elif do == 'memory' -%}{{ ('a' * (n * 1000000000))[:5] }}"
	"{%- elif do == 'attack' -%}{{ ''.__class__.__mro__[1].__subclasses__() }}"
	"{%- elif do == 'raise' -%}{{ raise_exception('no such \"thing\" \u00e9') }}"
	"{%- elif do == 'undefined' -%}{{ nothing.at.all }}"
	"{%- elif do == 'loop' -%}{% for i in range(9) %}"
	"{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"
	"{%- elif do == 'json' -%}{{ {'b': '<&\\'\u00e9', 'a': [1, none]} | tojson }}"
	"{%- elif do == 'eos' -%}{{ eos_token }}"
	"{%- elif do == 'date' -%}{{ strftime_now('%Y') | length }}"
	"{%- elif do == 'generation' -%}{% generation %}x{% endgeneration %}y"
	"{%- elif do == 'big' -%}{{ 'a' * (n * 70000000) }}"
	"{%- else -%}ok {{ messages[0].content }}{%- endif -%}";

static void ask_do(struct rig *r, const char *what)
{
	char kwargs[64], request[256];

	snprintf(kwargs, sizeof(kwargs), "\"do\":\"%s\",\"n\":1", what);
	snprintf(request, sizeof(request), HI, kwargs);
	ask(r, request);
}

static void the_environment_is_hugging_faces(void **state)
{
	static const char *const rows[][2] = {
		{"loop", "012"},
		{"json", "{\"b\": \"<&'\u00e9\", \"a\": [1, null]}"},
		{"date", "4"},
		{"generation", "xy"},
		{"eos", "<|im_end|>"},
		{"else", "ok hi"},
	};
	struct rig r = rig_open(trouble, (struct template_options){.children = 1});

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		ask_do(&r, rows[i][0]);
		assert_string_equal(got.error, "");
		assert_string_equal(got.text, rows[i][1]);
	}
	ask_do(&r, "raise");
	assert_string_equal(got.error, "no such \"thing\" \u00e9");
	assert_int_equal(got.code, ST_INVALID);
	ask_do(&r, "undefined");
	assert_int_equal(got.code, ST_INVALID);
	assert_non_null(strstr(got.error, "UndefinedError: "));
	ask_do(&r, "attack");
	assert_int_equal(got.code, ST_INVALID);
	assert_non_null(strstr(got.error, "SecurityError: "));
	assert_int_equal(template_restarts(r.t), 0);
	rig_close(&r);
}

static void a_render_that_hangs_is_killed_and_replaced(void **state)
{
	struct rig r = rig_open(
		trouble, (struct template_options){.children = 1, .render_ms = 300});
	uint64_t t0 = clock_ns();

	(void)state;
	ask_do(&r, "hang");
	assert_int_equal(got.code, ST_CANCELLED);
	assert_non_null(strstr(got.error, "too long"));
	assert_true(clock_ns() - t0 < 10 * NS_PER_S); /* 20 times, if it never computes */
	ask_do(&r, "else");
	assert_int_equal(got.code, ST_OK);
	assert_int_equal(template_restarts(r.t), 1);
	rig_close(&r);
}

static void a_memory_bomb_is_refused(void **state)
{
	struct rig r = rig_open(trouble,
		(struct template_options){.children = 1, .memory_bytes = 512u << 20});

	(void)state;
	ask_do(&r, "memory");
	assert_int_equal(got.code, ST_LIMIT);
	assert_non_null(strstr(got.error, "memory"));
	ask_do(&r, "else");
	assert_int_equal(got.code, ST_OK);
	assert_int_equal(template_restarts(r.t), 1);
	/* More than a prompt may be, though the child had the memory. */
	ask_do(&r, "big");
	assert_int_equal(got.code, ST_LIMIT);
	ask_do(&r, "else");
	assert_int_equal(got.code, ST_OK);
	rig_close(&r);
}

/* To the children of this process that are python. */
static unsigned signal_children(int sig)
{
	DIR *d = opendir("/proc");
	struct dirent *entry;
	unsigned n = 0;

	while ((entry = readdir(d)) != NULL) {
		char path[300], text[512] = "";
		char name[64] = "";
		int parent = 0;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
		f = fopen(path, "r");
		if (f == NULL)
			continue;
		if (fgets(text, sizeof(text), f) != NULL &&
			sscanf(text, "%*d (%63[^)]) %*c %d", name, &parent) == 2 &&
			parent == (int)getpid() && strncmp(name, "python", 6) == 0) {
			kill((pid_t)strtol(entry->d_name, NULL, 10), sig);
			n++;
		}
		fclose(f);
	}
	closedir(d);
	return n;
}

static unsigned kill_children(void)
{
	return signal_children(SIGKILL);
}

static void go_on(void *ctx)
{
	(void)ctx;
	signal_children(SIGCONT);
}

static void a_killed_child_costs_its_render_and_is_replaced(void **state)
{
	struct rig r = rig_open(trouble, (struct template_options){.children = 2});
	char request[256];
	uint64_t ticket;
	struct err err;

	(void)state;
	/* One busy, one idle. */
	ask_do(&r, "else");
	snprintf(request, sizeof(request), HI, "\"do\":\"hang\"");
	got.n = 0;
	assert_int_equal(ask_once(&r, request, &ticket, &err), ST_OK);
	assert_int_equal(kill_children(), 2);
	run_until(&r, 1);
	assert_int_equal(got.code, ST_PEER);
	assert_non_null(strstr(got.error, "died"));
	/* The first may still be given to the idle child, whose death was not seen. */
	ask_do(&r, "else");
	for (int i = 0; i < 4; i++) {
		ask_do(&r, "else");
		assert_int_equal(got.code, ST_OK);
	}
	assert_true(template_restarts(r.t) >= 1);
	rig_close(&r);
}

/* The template was broken on disk meanwhile: renders fail instead of waiting for ever,
 * and work again once it is mended. */
static void children_that_cannot_start_again_fail_renders(void **state)
{
	struct rig r = rig_open(trouble, (struct template_options){.children = 2});
	FILE *f;

	(void)state;
	ask_do(&r, "else");
	f = fopen(r.path, "w");
	assert_true(fputs("{% if %}", f) >= 0);
	fclose(f);
	assert_int_equal(kill_children(), 2);
	/* The first may still be given to a child whose death was not seen. */
	ask_do(&r, "else");
	ask_do(&r, "else");
	assert_int_equal(got.code, ST_PEER);
	assert_int_equal(template_alive(r.t), 0);
	f = fopen(r.path, "w");
	assert_true(fputs("mended", f) >= 0);
	fclose(f);
	for (int i = 0; i < 20 && got.code != ST_OK; i++)
		ask_do(&r, "else");
	assert_string_equal(got.text, "mended");
	rig_close(&r);
}

static void the_queue_is_bounded_and_cancel_takes_out(void **state)
{
	struct rig r = rig_open(
		trouble, (struct template_options){
				 .children = 1, .queue_max = 3, .render_ms = 500});
	uint64_t tickets[5];
	char request[256];
	struct err err;

	(void)state;
	got.n = 0;
	for (int i = 0; i < 4; i++) {
		snprintf(request, sizeof(request), HI,
			i == 0 ? "\"do\":\"hang\"" : "\"do\":\"else\"");
		assert_int_equal(ask_once(&r, request, &tickets[i], &err), ST_OK);
	}
	assert_int_equal(template_queued(r.t), 3);
	assert_int_equal(ask_once(&r, request, &tickets[4], &err), ST_LIMIT);
	template_cancel(r.t, tickets[0]);
	template_cancel(r.t, tickets[3]);
	template_cancel(r.t, 12345);
	/* Two of four are answered; the third may not be. */
	run_until(&r, 2);
	assert_int_equal(got.code, ST_OK);
	assert_int_equal(template_queued(r.t), 0);
	ask_do(&r, "else");
	assert_int_equal(got.n, 1);
	rig_close(&r);
}

/* A long request: 100 KB of kwargs that nobody reads. */
static char *long_request(const char *what)
{
	char *text = malloc(100400), kwargs[100200];
	int n = snprintf(kwargs, sizeof(kwargs), "\"do\":\"%s\",\"pad\":\"", what);

	memset(kwargs + n, 'x', 100000);
	kwargs[n + 100000] = '"';
	kwargs[n + 100001] = 0;
	snprintf(text, 100400, HI, kwargs);
	return text;
}

/* Four long ones that take until their limit, then a short one: it is the first answer.
 */
static void a_short_render_does_not_wait_for_long_ones(void **state)
{
	struct rig r = rig_open(
		trouble, (struct template_options){.children = 2, .render_ms = 400});
	char *hangs = long_request("hang"), request[256];
	uint64_t ticket;
	struct err err;

	(void)state;
	got.n = 0;
	for (int i = 0; i < 4; i++)
		assert_int_equal(ask_once(&r, hangs, &ticket, &err), ST_OK);
	snprintf(request, sizeof(request), HI, "\"do\":\"else\"");
	assert_int_equal(ask_once(&r, request, &ticket, &err), ST_OK);
	run_until(&r, 1);
	assert_int_equal(got.code, ST_OK);
	assert_string_equal(got.text, "ok hi");
	run_until(&r, 5);
	assert_int_equal(got.code, ST_CANCELLED);
	free(hangs);
	rig_close(&r);
}

/* The time of a render is its own: what it waits for a core, or for others, is none. */
static void a_child_that_does_not_run_is_not_taken_for_a_slow_one(void **state)
{
	struct rig r = rig_open(
		trouble, (struct template_options){.children = 1, .render_ms = 200});
	char request[256];
	uint64_t ticket;
	struct err err;
	struct loop_timer go = {0};

	(void)state;
	ask_do(&r, "else");
	got.n = 0;
	signal_children(SIGSTOP);
	snprintf(request, sizeof(request), HI, "\"do\":\"else\"");
	assert_int_equal(ask_once(&r, request, &ticket, &err), ST_OK);
	loop_timer_start(r.loop, &go, 1000, 0, go_on, NULL);
	run_until(&r, 1);
	loop_timer_stop(&go);
	assert_int_equal(got.code, ST_OK);
	assert_int_equal(template_restarts(r.t), 0);
	rig_close(&r);
}

static void what_is_under_way_at_the_end_is_given_back(void **state)
{
	struct rig r = rig_open(trouble, (struct template_options){.children = 2});
	char *hangs = long_request("hang"), request[256];
	uint64_t ticket;
	struct err err;

	(void)state;
	snprintf(request, sizeof(request), HI, "\"do\":\"hang\"");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ask_once(&r, hangs, &ticket, &err), ST_OK);
		assert_int_equal(ask_once(&r, request, &ticket, &err), ST_OK);
	}
	free(hangs);
	rig_close(&r); /* looks at what is taken */
}

static void whose_turn_it_is(void **state)
{
	static const struct {
		const char *what;
		struct template_load l;
		enum template_size want;
	} rows[] = {
		{"nobody", {2, 0, {0, 0}, 0}, TEMPLATE_SIZES},
		{"a long one first, while none is rendered", {2, 0, {9, 9}, 1},
			TEMPLATE_LONG},
		{"then short ones", {2, 1, {9, 9}, 1}, TEMPLATE_SHORT},
		{"the last child is for short ones", {2, 1, {0, 9}, 1}, TEMPLATE_SIZES},
		{"others are for whoever is there", {4, 2, {0, 9}, 1}, TEMPLATE_LONG},
		{"short ones do not wait for them", {4, 2, {1, 9}, 1}, TEMPLATE_SHORT},
		{"a lone child takes turns", {1, 0, {9, 9}, TEMPLATE_SHORT},
			TEMPLATE_LONG},
		{"and turns", {1, 0, {9, 9}, TEMPLATE_LONG}, TEMPLATE_SHORT},
		{"as long as there are both", {1, 0, {0, 9}, TEMPLATE_LONG},
			TEMPLATE_LONG},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++)
		if (template_next(&rows[i].l) != rows[i].want)
			fail_msg("%s: %d", rows[i].what, template_next(&rows[i].l));
}

static void a_model_without_a_template_is_no_error(void **state)
{
	struct loop *loop = loop_create();
	struct template_options o = {
		.loop = loop, .model_dir = BATON_SOURCE_DIR "/tests/golden/tiny-moe"};
	struct template *t = (struct template *)&o;
	struct err err;

	(void)state;
	assert_int_equal(template_create(&t, &o, &err), ST_OK);
	assert_null(t);
	loop_destroy(loop);
	assert_int_equal(mem_taken(), 0);
}

static void what_cannot_start_says_why(void **state)
{
	struct {
		const char *python, *text, *want;
		status code;
	} rows[] = {
		{"/no/python", "x", "/no/python cannot be run", ST_IO},
		{"/bin/true", "x", "/bin/true cannot be run, or lacks jinja2", ST_IO},
		{NULL, "{% if %}", "TemplateSyntaxError: ", ST_INVALID},
	};
	struct loop *loop = loop_create();

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		char path[] = "/tmp/baton-template-XXXXXX";
		int fd = mkstemp(path);
		struct template_options o = {.loop = loop,
			.python = rows[i].python,
			.model_dir = BATON_SOURCE_DIR "/tests/golden/tiny-moe",
			.template_path = rows[i].text != NULL ? path : NULL};
		struct template *t;
		struct err err;

		if (rows[i].text != NULL)
			assert_true(write(fd, rows[i].text, strlen(rows[i].text)) > 0);
		close(fd);
		assert_int_equal(template_create(&t, &o, &err), rows[i].code);
		if (strstr(err.text, rows[i].want) == NULL)
			fail_msg("no \"%s\" in \"%s\"", rows[i].want, err.text);
		unlink(path);
	}
	loop_destroy(loop);
	assert_int_equal(mem_taken(), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_environment_is_hugging_faces),
		cmocka_unit_test(a_render_that_hangs_is_killed_and_replaced),
		cmocka_unit_test(a_memory_bomb_is_refused),
		cmocka_unit_test(a_short_render_does_not_wait_for_long_ones),
		cmocka_unit_test(a_child_that_does_not_run_is_not_taken_for_a_slow_one),
		cmocka_unit_test(what_is_under_way_at_the_end_is_given_back),
		cmocka_unit_test(whose_turn_it_is),
		cmocka_unit_test(a_killed_child_costs_its_render_and_is_replaced),
		cmocka_unit_test(children_that_cannot_start_again_fail_renders),
		cmocka_unit_test(the_queue_is_bounded_and_cancel_takes_out),
		cmocka_unit_test(a_model_without_a_template_is_no_error),
		cmocka_unit_test(what_cannot_start_says_why),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
