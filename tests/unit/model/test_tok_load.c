/* A model folder: which files count for the stop ids and how they may be written. */
#include "tok_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct folder_case {
	/* tokenizer_config.json, generation_config.json, config.json; NULL: no file */
	const char *files[3];
	status want;
	const char *text; /* of the refusal */
	uint32_t eos[4];
	size_t n_eos;
};

static const char *const names[] = {
	"tokenizer_config.json", "generation_config.json", "config.json"};

static const struct folder_case cases[] = {
	{{NULL, NULL, NULL}, ST_OK, NULL, {0}, 0},
	{{"{}", "{}", "{}"}, ST_OK, NULL, {0}, 0},
	{{NULL, "{\"eos_token_id\":2025}", NULL}, ST_OK, NULL, {2025}, 1},
	{{NULL, "{\"eos_token_id\":[2025,2023,2025]}", NULL}, ST_OK, NULL, {2023, 2025},
		2},
	{{NULL, "{\"eos_token_id\":[]}", NULL}, ST_OK, NULL, {0}, 0},
	{{NULL, "{\"eos_token_id\":null}", "{\"eos_token_id\":7}"}, ST_OK, NULL, {7}, 1},
	{{NULL, NULL, "{\"eos_token_id\":9,\"text_config\":{\"eos_token_id\":[8,2031]}}"},
		ST_OK, NULL, {8, 9, 2031}, 3},
	{{"{\"eos_token\":\"<|im_end|>\"}", NULL, NULL}, ST_OK, NULL, {2025}, 1},
	{{"{\"eos_token\":{\"content\":\"<|endoftext|>\"}}", "{\"eos_token_id\":2025}",
		 "{\"text_config\":{\"eos_token_id\":2024}}"},
		ST_OK, NULL, {2023, 2024, 2025}, 3},
	{{"{\"eos_token\":null}", NULL, NULL}, ST_OK, NULL, {0}, 0},
	{{"{\"eos_token\":\"</s>\"}", NULL, NULL}, ST_INVALID,
		"eos_token \"</s>\": is no added token", {0}, 0},
	{{"{\"eos_token\":7}", NULL, NULL}, ST_INVALID, "is no added token", {0}, 0},
	{{NULL, "{\"eos_token_id\":2032}", NULL}, ST_INVALID,
		"eos_token_id 2032 is no token of 2032", {0}, 0},
	{{NULL, "{\"eos_token_id\":-1}", NULL}, ST_INVALID, "eos_token_id -1", {0}, 0},
	{{NULL, "{\"eos_token_id\":\"2025\"}", NULL}, ST_INVALID, "neither a number", {0},
		0},
	{{NULL, NULL, "{\"eos_token_id\":[1.5]}"}, ST_INVALID, "neither a number", {0},
		0},
	{{NULL, "{\"eos_token_id\":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}", NULL},
		ST_LIMIT, "more than 16 stop ids", {0}, 0},
	{{NULL, "{", NULL}, ST_INVALID, "generation_config.json: JSON line", {0}, 0},
	{{NULL, "{\"a\":1,\"a\":1}", NULL}, ST_INVALID, "generation_config.json", {0}, 0},
};

struct folder {
	char dir[64];
};

static void path_of(const struct folder *f, const char *name, char *path, size_t cap)
{
	int n = snprintf(path, cap, "%s/%s", f->dir, name);

	assert_true(n > 0 && (size_t)n < cap);
}

static int make_folder(void **state)
{
	struct folder *f = calloc(1, sizeof(*f));
	char path[128];

	assert_non_null(f);
	memcpy(f->dir, "/tmp/baton-tok-XXXXXX", sizeof("/tmp/baton-tok-XXXXXX"));
	assert_non_null(mkdtemp(f->dir));
	path_of(f, "tokenizer.json", path, sizeof(path));
	assert_int_equal(symlink(DEMO_MODEL "/tokenizer.json", path), 0);
	*state = f;
	return 0;
}

static void write_files(const struct folder *f, const char *const *texts)
{
	for (size_t i = 0; i < COUNT(names); i++) {
		char path[128];
		FILE *out;

		path_of(f, names[i], path, sizeof(path));
		unlink(path);
		if (texts[i] == NULL)
			continue;
		out = fopen(path, "w");
		assert_non_null(out);
		assert_true(fputs(texts[i], out) >= 0);
		assert_int_equal(fclose(out), 0);
	}
}

static int remove_folder(void **state)
{
	static const char *const none[COUNT(names)];
	struct folder *f = *state;
	char path[128];

	write_files(f, none);
	path_of(f, "tokenizer.json", path, sizeof(path));
	unlink(path);
	rmdir(f->dir);
	free(f);
	return 0;
}

static void stop_ids_come_from_every_file(void **state)
{
	const struct folder *f = *state;

	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct folder_case *c = &cases[i];
		struct tokenizer *t = NULL;
		struct err err = {0};
		const uint32_t *eos;
		status st;
		size_t n;

		write_files(f, c->files);
		st = tokenizer_load(&t, f->dir, &err);
		if (st != c->want || (st != ST_OK && strstr(err.text, c->text) == NULL))
			fail_msg("case %zu: %s, \"%s\"", i, status_name(st), err.text);
		assert_true((t != NULL) == (st == ST_OK));
		if (st != ST_OK) {
			assert_int_equal(strncmp(err.text, f->dir, strlen(f->dir)), 0);
			continue;
		}
		eos = tokenizer_eos(t, &n);
		assert_int_equal(n, c->n_eos);
		for (size_t k = 0; k < n; k++)
			assert_int_equal(eos[k], c->eos[k]);
		tokenizer_destroy(t);
		assert_int_equal(mem_taken(), 0);
	}
}

static void path_that_is_too_long_is_refused(void **state)
{
	static char dir[8192];
	struct tokenizer *t = NULL;
	struct err err;

	(void)state;
	memset(dir, 'x', sizeof(dir) - 1);
	assert_int_equal(tokenizer_load(&t, dir, &err), ST_LIMIT);
	assert_string_equal(err.text, "the path of tokenizer.json is too long");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stop_ids_come_from_every_file),
		cmocka_unit_test(path_that_is_too_long_is_refused),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
