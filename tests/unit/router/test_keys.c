/* Keys: the file, and what clients show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/bytes.h"
#include "common/base/mem.h"
#include "router/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[64];

static status read_text(struct keys *k, const char *text, struct err *err)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	chmod(path, 0600);
	return keys_read(k, path, err);
}

static void a_file_has_a_key_in_each_line(void **state)
{
	static struct keys k;
	struct err err;

	(void)state;
	assert_int_equal(read_text(&k, "# who\n\nsk-one\r\nsk-two  \nlast", &err), ST_OK);
	assert_int_equal(k.n, 3);
	assert_true(keys_allow(&k, "Bearer sk-one", NULL));
	assert_true(keys_allow(&k, "bearer  sk-two", NULL));
	assert_true(keys_allow(&k, NULL, "last"));
	assert_true(keys_allow(&k, "Bearer wrong", "last"));
}

static void what_is_no_key_of_the_file_is_not_let_in(void **state)
{
	static const char *const bad[] = {"", "Bearer", "Bearer ", "Bearer sk-on",
		"Bearer sk-one1", "Bearer sk-one ", "Basic sk-one", "sk-one", "# who",
		"Bearer # who"};
	char longer[400] = "Bearer ";
	static struct keys k;
	struct err err;

	(void)state;
	assert_int_equal(read_text(&k, "# who\nsk-one\n", &err), ST_OK);
	for (unsigned i = 0; i < COUNT(bad); i++)
		if (keys_allow(&k, bad[i], NULL))
			fail_msg("%s is let in", bad[i]);
	memset(longer + 7, 'x', 300);
	assert_false(keys_allow(&k, longer, longer + 7));
	assert_false(keys_allow(&k, NULL, NULL));
	assert_false(keys_allow(&k, NULL, ""));
	assert_false(keys_allow(&k, NULL, "Bearer sk-one"));
}

/* Neither does an error show what stands in the file. */
static void a_file_that_is_wrong_leaves_the_keys_that_are(void **state)
{
	static char many[KEYS_MAX * 4 + 16], large[70000], word[KEY_BYTES_MAX + 2];
	const char *const bad[] = {"", "# nothing\n\n", "good\nse cret\n", "se\tcret\n",
		"s\xc3\xa4\n", word, many, large};
	static struct keys k;
	struct err err;

	(void)state;
	memset(word, 'w', KEY_BYTES_MAX);
	for (unsigned i = 0; i <= KEYS_MAX; i++)
		memcpy(many + i * 2, "k\n", 2);
	memset(large, '\n', sizeof(large) - 1);
	assert_int_equal(read_text(&k, "stays\n", &err), ST_OK);
	for (unsigned i = 0; i < COUNT(bad); i++) {
		if (read_text(&k, bad[i], &err) == ST_OK)
			fail_msg("file %u is taken", i);
		assert_non_null(strstr(err.text, path));
		assert_null(strstr(err.text, "cret"));
		assert_null(strstr(err.text, "www"));
		assert_true(k.n == 1 && keys_allow(&k, NULL, "stays"));
	}
	unlink(path);
	assert_int_equal(keys_read(&k, path, &err), ST_IO);
	assert_true(keys_allow(&k, NULL, "stays"));
	assert_int_equal(mem_taken(), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_has_a_key_in_each_line),
		cmocka_unit_test(what_is_no_key_of_the_file_is_not_let_in),
		cmocka_unit_test(a_file_that_is_wrong_leaves_the_keys_that_are),
	};
	int failed;

	snprintf(path, sizeof(path), "/tmp/baton-keys-%d", (int)getpid());
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
