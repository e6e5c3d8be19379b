/* Configuration: sources, order, refusals. Program output is captured from stdout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/conf.h"
#include "tests/unit/base/conf_texts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEST_CONF(U64, F64, STR, BOOL, WORD)                                             \
	U64(max_seqs, "256", 1, 4096, "sequences at once")                               \
	U64(budget, "0", 0, UINT64_MAX, "bytes")                                         \
	F64(share, "0.5", 0.0, 1.0, "share of memory")                                   \
	STR(model, NULL, "model folder")                                                 \
	STR(debug_fault, "", "fault points")                                             \
	WORD(format, "auto", "auto|bf16|f32", "of the state")                            \
	BOOL(migrate, "false", "move sequences when draining")

struct conf {
	CONF_STRUCT(TEST_CONF)
	const char *routers;
};

#define CONF_TYPE struct conf
static const struct conf_key keys[] = {
	CONF_KEYS(TEST_CONF){.name = "routers",
		.help = "router endpoints",
		.initial = "",
		.kind = CONF_STR,
		.offset = offsetof(struct conf, routers),
		.repeat = true},
};

static status check_pair(const void *values, struct err *err)
{
	const struct conf *c = values;

	if (c->migrate && c->share == 0)
		return err_set(err, ST_INVALID, "migrate needs a share");
	return ST_OK;
}

static const struct conf_table table = {
	keys, COUNT(keys), "baton-test", "a test program", check_pair};

struct fixture {
	struct conf c;
	struct err err;
	bool stop;
	char path[64]; /* of a configuration file */
	char out[4096];
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int fd;

	snprintf(f->path, sizeof(f->path), "/tmp/baton-conf-XXXXXX");
	fd = mkstemp(f->path);
	assert_true(fd >= 0);
	close(fd);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	unlink(f->path);
	conf_texts_free(&table, &f->c);
	free(f);
	return 0;
}

static void write_file(struct fixture *f, const char *text)
{
	FILE *file = fopen(f->path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* Arguments up to NULL; stdout of the call lands in f->out. */
static status load(struct fixture *f, const char *first, ...)
{
	char *argv[16] = {(char *)(uintptr_t) "program"};
	int argc = 1;
	FILE *captured = tmpfile();
	int real = dup(STDOUT_FILENO);
	size_t n;
	va_list ap;
	status st;

	va_start(ap, first);
	for (const char *a = first; a != NULL; a = va_arg(ap, const char *))
		argv[argc++] = (char *)(uintptr_t)a;
	va_end(ap);
	fflush(stdout);
	dup2(fileno(captured), STDOUT_FILENO);
	memset(&f->err, 0, sizeof(f->err));
	conf_texts_free(&table, &f->c);
	st = conf_load(&table, argc, argv, &f->c, &f->stop, &f->err);
	dup2(real, STDOUT_FILENO);
	close(real);
	rewind(captured);
	n = fread(f->out, 1, sizeof(f->out) - 1, captured);
	f->out[n] = 0;
	fclose(captured);
	return st;
}

static void defaults_then_file_then_flags(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(load(f, "--model", "/m", NULL), ST_OK);
	assert_false(f->stop);
	assert_int_equal(f->c.max_seqs, 256);
	assert_true(f->c.share == 0.5);
	assert_string_equal(f->c.model, "/m");
	assert_string_equal(f->c.debug_fault, "");
	assert_false(f->c.migrate);
	write_file(f, "# a comment\n\n  max-seqs = 8 \nmodel=/file # not a comment\r\n"
		      "migrate=yes\nshare=1");
	assert_int_equal(load(f, "--config", f->path, NULL), ST_OK);
	assert_int_equal(f->c.max_seqs, 8);
	assert_string_equal(f->c.model, "/file # not a comment");
	assert_true(f->c.migrate);
	assert_true(f->c.share == 1.0);
	assert_int_equal(
		load(f, "--max-seqs=9", "--config", f->path, "--migrate=off", NULL),
		ST_OK);
	assert_int_equal(f->c.max_seqs, 9);
	assert_false(f->c.migrate);
	assert_string_equal(f->c.model, "/file # not a comment");
}

static void dashes_dots_and_underscores_are_the_same(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(load(f, "--debug.fault=pause@adopt", "--max_seqs", "5",
				 "--migrate", "--model=", "--format=f32", NULL),
		ST_OK);
	assert_string_equal(f->c.format, "f32");
	assert_string_equal(f->c.debug_fault, "pause@adopt");
	assert_int_equal(f->c.max_seqs, 5);
	assert_true(f->c.migrate);
	assert_string_equal(f->c.model, "");
}

static void repeated_keys_are_joined_within_a_source(void **state)
{
	struct fixture *f = *state;

	write_file(f, "model=m\nrouters=a\nrouters=b\n");
	assert_int_equal(load(f, "--config", f->path, NULL), ST_OK);
	assert_string_equal(f->c.routers, "a\nb");
	assert_int_equal(
		load(f, "--config", f->path, "--routers", "c", "--routers", "d", NULL),
		ST_OK);
	assert_string_equal(f->c.routers, "c\nd");
}

static void bad_values_are_refused_with_key_and_value(void **state)
{
	static const struct {
		const char *flag, *text;
	} bad[] = {
		{"--max-seqs=0", "max_seqs=0 is outside 1 to 4096"},
		{"--max-seqs=4097", "max_seqs=4097 is outside"},
		{"--max-seqs=-1", "max_seqs='-1'"},
		{"--max-seqs=+1", "max_seqs='+1'"},
		{"--max-seqs=", "max_seqs=''"},
		{"--max-seqs=8k", "max_seqs='8k'"},
		{"--max-seqs= 8", "max_seqs=' 8'"},
		{"--budget=18446744073709551616", "budget='18446744073709551616'"},
		{"--share=1.01", "share=1.01 is outside 0 to 1"},
		{"--share=nan", "share='nan'"},
		{"--format=f16", "format 'f16': auto, bf16 or f32"},
		{"--format=bf", "format 'bf': auto, bf16 or f32"},
		{"--format=auto|bf16", "format 'auto|bf16'"},
		{"--format=", "format ''"},
		{"--share=0x1p-2", "share='0x1p-2'"},
		{"--share=1e999", "share='1e999'"},
		{"--share=.5x", "share='.5x'"},
		{"--migrate=maybe", "migrate='maybe'"},
		{"--max-seq=1", "unknown key 'max-seq' (nearest: max_seqs)"},
		{"--confg=x", "unknown key 'confg' (nearest: config)"},
		{"model", "unexpected argument 'model'"},
		{"-m", "unexpected argument '-m'"},
		{"--", "unexpected argument '--'"},
		{"--share", "--share needs a value"},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < COUNT(bad); i++) {
		assert_int_equal(load(f, "--model=m", bad[i].flag, NULL), ST_INVALID);
		if (strstr(f->err.text, bad[i].text) == NULL)
			fail_msg("%s: %s", bad[i].flag, f->err.text);
	}
	assert_int_equal(
		load(f, "--model=m", "--budget=18446744073709551615", NULL), ST_OK);
	assert_true(f->c.budget == UINT64_MAX);
}

static void twice_missing_and_unreadable_are_refused(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(load(f, "--model=a", "--model=b", NULL), ST_INVALID);
	assert_non_null(strstr(f->err.text, "model is given twice"));
	assert_int_equal(load(f, NULL, NULL), ST_INVALID);
	assert_non_null(strstr(f->err.text, "model is not given"));
	assert_int_equal(load(f, "--config=/nonexistent/x", NULL), ST_INVALID);
	assert_non_null(strstr(f->err.text, "/nonexistent/x"));
	assert_int_equal(load(f, "--config=a", "--config=b", NULL), ST_INVALID);
	assert_non_null(strstr(f->err.text, "config is given twice"));
}

static void a_bad_line_of_the_file_is_named_by_its_number(void **state)
{
	static const struct {
		const char *file, *text;
	} bad[] = {
		{"model=m\n\nmax_seqs=x\n", "line 3: max_seqs='x'"},
		{"model=m\nmodel=n\n", "line 2: model is given twice"},
		{"model=m\nmodle=n\n", "line 2: unknown key 'modle' (nearest: model)"},
		{"model\n", "line 1: 'model' is not key=value"},
		{"model=m\n=5\n", "line 2: unknown key ''"},
	};
	struct fixture *f = *state;
	char line[6000];

	for (size_t i = 0; i < COUNT(bad); i++) {
		write_file(f, bad[i].file);
		assert_int_equal(load(f, "--config", f->path, NULL), ST_INVALID);
		if (strstr(f->err.text, bad[i].text) == NULL)
			fail_msg("%s", f->err.text);
		assert_non_null(strstr(f->err.text, f->path));
	}
	memset(line, 'x', sizeof(line) - 1);
	memcpy(line, "model=", 6);
	line[sizeof(line) - 1] = 0;
	write_file(f, line);
	assert_int_equal(load(f, "--config", f->path, NULL), ST_INVALID);
	assert_non_null(strstr(f->err.text, "line 1"));
}

static void texts_that_end_the_program_are_printed(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(load(f, "--nonsense", "--help", NULL), ST_OK);
	assert_true(f->stop);
	assert_non_null(strstr(f->out, "baton-test: a test program"));
	assert_non_null(strstr(f->out, "--max-seqs N"));
	assert_non_null(strstr(f->out, "(default: 256; 1 to 4096)"));
	assert_non_null(strstr(f->out, "model folder (required)"));
	assert_int_equal(load(f, "--version", NULL), ST_OK);
	assert_true(f->stop);
	assert_string_equal(f->out, "baton-test " BATON_VERSION "\n");
	assert_int_equal(load(f, "--check-config", "--model=m", NULL), ST_OK);
	assert_true(f->stop);
	assert_string_equal(f->out, "ok\n");
	assert_int_equal(
		load(f, "--check-config", "--model=m", "--share=2", NULL), ST_INVALID);
	assert_string_equal(f->out, "");
}

static void what_only_together_is_wrong_is_refused_and_never_said_to_be_ok(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(load(f, "--model=m", "--share=0", NULL), ST_OK);
	assert_int_equal(
		load(f, "--model=m", "--share=0", "--migrate", NULL), ST_INVALID);
	assert_string_equal(f->err.text, "migrate needs a share");
	assert_int_equal(
		load(f, "--check-config", "--model=m", "--share=0", "--migrate", NULL),
		ST_INVALID);
	assert_false(f->stop);
	assert_string_equal(f->out, "");
}

static void effective_values_print_in_one_line(void **state)
{
	struct fixture *f = *state;
	struct sink s;

	assert_int_equal(load(f, "--model=a \"b\"", "--share=0.25", "--migrate",
				 "--routers=x", "--routers=y", NULL),
		ST_OK);
	sink_init(&s, 4096);
	conf_print(&table, &f->c, &s);
	assert_string_equal(sink_cstr(&s),
		"max_seqs=256 budget=0 share=0.25 model=\"a \\\"b\\\"\" debug_fault=\"\" "
		"format=auto migrate=true routers=\"x\\ny\"");
	sink_release(&s);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(defaults_then_file_then_flags),
		T(dashes_dots_and_underscores_are_the_same),
		T(repeated_keys_are_joined_within_a_source),
		T(bad_values_are_refused_with_key_and_value),
		T(twice_missing_and_unreadable_are_refused),
		T(a_bad_line_of_the_file_is_named_by_its_number),
		T(texts_that_end_the_program_are_printed),
		T(what_only_together_is_wrong_is_refused_and_never_said_to_be_ok),
		T(effective_values_print_in_one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
