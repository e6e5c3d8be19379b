/* What the model tests share: exact checks of statuses and texts, a folder of their
 * own, files of given bytes. */
#ifndef TESTS_UNIT_MODEL_CHECKPOINT_H
#define TESTS_UNIT_MODEL_CHECKPOINT_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/bytes.h"
#include "common/base/err.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN BATON_SOURCE_DIR "/tests/golden/"

#define CHECK_OK(call)                                                                   \
	do {                                                                             \
		struct err err = {0};                                                    \
		if ((call) != ST_OK)                                                     \
			fail_msg("%s: %s", #call, err.text);                             \
	} while (0)

/* The call fails with this status, and its text contains `part`. */
#define CHECK_REFUSED(name, code_, part, call)                                           \
	do {                                                                             \
		struct err err = {0};                                                    \
		status got = (call);                                                     \
		if (got != (code_) || strstr(err.text, (part)) == NULL)                  \
			fail_msg("%s: wanted %s \"%s\", got %s \"%s\"", (name),          \
				status_name(code_), (part), status_name(got), err.text); \
	} while (0)

struct folder {
	char path[64];
};

static inline void folder_create(struct folder *f)
{
	snprintf(f->path, sizeof(f->path), "/tmp/baton_model_XXXXXX");
	assert_non_null(mkdtemp(f->path));
}

static inline int remove_one(
	const char *path, const struct stat *sb, int type, struct FTW *ftw)
{
	(void)sb;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void folder_remove(struct folder *f)
{
	assert_int_equal(nftw(f->path, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static inline const char *folder_file(const struct folder *f, const char *name)
{
	static char path[4][512];
	static unsigned next;

	next = (next + 1) % 4;
	snprintf(path[next], sizeof(path[next]), "%s/%s", f->path, name);
	return path[next];
}

static inline void folder_write(
	const struct folder *f, const char *name, const void *data, size_t len)
{
	FILE *out = fopen(folder_file(f, name), "wb");

	assert_non_null(out);
	assert_int_equal(fwrite(data, 1, len, out), len);
	assert_int_equal(fclose(out), 0);
}

#endif
