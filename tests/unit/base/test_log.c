// labels: threads
/* Log lines as a reader of stderr sees them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_LINES 500

static _Atomic uint64_t fake_ns;

static uint64_t fake_clock(void)
{
	return fake_ns;
}

static FILE *captured;

static int capture(void **state)
{
	(void)state;
	fake_ns = 100 * NS_PER_S;
	clock_replace(fake_clock);
	captured = tmpfile();
	assert_non_null(captured);
	log_to(fileno(captured));
	return 0;
}

static int release(void **state)
{
	(void)state;
	log_to(STDERR_FILENO);
	fclose(captured);
	clock_replace(NULL);
	log_level_set(LOG_INFO);
	log_name_set("");
	return 0;
}

/* What was written since the last call. */
static const char *text(void)
{
	static char buf[1 << 17];
	static long from;
	size_t n;
	long end;

	end = lseek(fileno(captured), 0, SEEK_END);
	if (from > end)
		from = 0; /* a new file */
	n = (size_t)pread(fileno(captured), buf, (size_t)(end - from), from);
	buf[n] = 0;
	from = end;
	return buf;
}

static unsigned lines_with(const char *all, const char *word)
{
	unsigned n = 0;

	for (const char *at = strstr(all, word); at != NULL; at = strstr(at + 1, word))
		n++;
	return n;
}

static void a_line_has_time_level_process_file_and_words(void **state)
{
	const char *line;

	(void)state;
	text();
	log_name_set("prefill/p0");
	log_warn("slow disk wait_ms=%d", 17);
	line = text();
	/* 2024-05-01T12:00:00.123Z */
	assert_true(isdigit((unsigned char)line[0]) && line[4] == '-' &&
		    line[10] == 'T' && line[19] == '.' && line[23] == 'Z');
	assert_string_equal(
		line + 24, " warn prefill/p0 test_log.c: slow disk wait_ms=17\n");
}

static void levels_above_the_limit_are_not_written(void **state)
{
	(void)state;
	text();
	log_debug("step %d", 1);
	assert_string_equal(text(), "");
	log_level_set(LOG_DEBUG);
	log_debug("step %d", 2);
	assert_int_equal(lines_with(text(), "debug test_log.c: step 2\n"), 1);
	log_level_set(LOG_ERROR);
	log_warn("not shown");
	log_error("shown");
	assert_int_equal(lines_with(text(), "shown"), 1);
}

static void a_text_of_a_peer_stays_one_line(void **state)
{
	char big[5000];
	const char *line;

	(void)state;
	text();
	log_info("name=%s", "a\nb\r\x1b[2Jc");
	assert_int_equal(lines_with(text(), "name=a b  [2Jc\n"), 1);
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	log_info("%s", big);
	line = text();
	assert_true(strlen(line) < 1400);
	assert_int_equal(lines_with(line, "\n"), 1);
	assert_int_equal(line[strlen(line) - 1], '\n');
}

static void a_word_of_a_client_has_no_character_that_ends_it(void **state)
{
	char word[LOG_WORD_BYTES], big[1000];

	(void)state;
	assert_string_equal(log_word(word, "/v1/a-b_c~d"), "/v1/a-b_c~d");
	assert_string_equal(log_word(word, "a b\"c\\d=e%f\n\x7f\xc3"),
		"a%20b%22c%5Cd%3De%25f%0A%7F%C3");
	memset(big, ' ', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	assert_true(strlen(log_word(word, big)) < LOG_WORD_BYTES);
}

static void repeats_within_a_second_are_counted(void **state)
{
	const char *all;

	(void)state;
	text();
	for (int i = 0; i < 10; i++)
		log_warn("peer lost");
	log_error("peer lost"); /* another level is another line */
	all = text();
	assert_int_equal(lines_with(all, "warn test_log.c: peer lost\n"), 1);
	assert_int_equal(lines_with(all, "error test_log.c: peer lost\n"), 1);
	fake_ns += NS_PER_S;
	log_info("something else");
	all = text();
	assert_int_equal(lines_with(all, "warn test_log.c: peer lost repeated=9\n"), 1);
	assert_int_equal(lines_with(all, "something else\n"), 1);
	log_warn("peer lost");
	assert_int_equal(lines_with(text(), "peer lost\n"), 1);
}

static void counts_survive_when_many_other_texts_push_a_text_out(void **state)
{
	const char *all;

	(void)state;
	text();
	log_warn("first");
	log_warn("first");
	for (int i = 0; i < 100; i++) {
		fake_ns++;
		log_warn("other %d", i);
	}
	all = text();
	assert_int_equal(lines_with(all, "first repeated=1\n"), 1);
	assert_int_equal(lines_with(all, ": other "), 100);
}

static void *write_lines(void *ctx)
{
	for (int i = 0; i < N_LINES; i++)
		log_info("thread=%s line=%d end", (const char *)ctx, i);
	return NULL;
}

static void lines_of_threads_do_not_mix(void **state)
{
	pthread_t a, b;
	const char *all;

	(void)state;
	text();
	assert_int_equal(pthread_create(&a, NULL, write_lines, "a"), 0);
	assert_int_equal(pthread_create(&b, NULL, write_lines, "b"), 0);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	all = text();
	assert_int_equal(lines_with(all, "info test_log.c: thread=a line="), N_LINES);
	assert_int_equal(lines_with(all, "info test_log.c: thread=b line="), N_LINES);
	assert_int_equal(lines_with(all, " end\n"), 2 * N_LINES);
}

#define T(name) cmocka_unit_test_setup_teardown(name, capture, release)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_line_has_time_level_process_file_and_words),
		T(levels_above_the_limit_are_not_written),
		T(a_text_of_a_peer_stays_one_line),
		T(a_word_of_a_client_has_no_character_that_ends_it),
		T(repeats_within_a_second_are_counted),
		T(counts_survive_when_many_other_texts_push_a_text_out),
		T(lines_of_threads_do_not_mix),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
