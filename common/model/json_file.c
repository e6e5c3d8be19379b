/* Reading JSON files. */
#include "common/model/json_file.h"

#include "common/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A vocabulary of TOK_IDS_MAX tokens with four merges each has 14 million values. */
static const struct json_limits limits = {128, 1u << 24, true};

static status read_all(int fd, uint8_t *at, size_t len, const char *path, struct err *err)
{
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = read(fd, at + done, len - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(err, ST_IO, "%s: read: %s", path, strerror(errno));
		if (n == 0)
			return err_set(err, ST_IO, "%s: ends after %zu of %zu bytes",
				path, done, len);
		done += (size_t)n;
	}
	return ST_OK;
}

/* All bytes of a regular file, from mem_take; a zero stands after them. Errors start with
 * the path. */
static status read_file(
	struct bytes *out, const char *path, uint64_t bytes_max, struct err *err)
{
	uint8_t *at = NULL;
	struct stat sb;
	status st;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(err, ST_IO, "%s: open: %s", path, strerror(errno));
	if (fstat(fd, &sb) < 0) {
		st = err_set(err, ST_IO, "%s: stat: %s", path, strerror(errno));
		goto out;
	}
	if (!S_ISREG(sb.st_mode)) {
		st = err_set(err, ST_INVALID, "%s: not a regular file", path);
		goto out;
	}
	if ((uint64_t)sb.st_size > bytes_max) {
		st = err_set(err, ST_LIMIT, "%s: %lld bytes, the limit is %llu", path,
			(long long)sb.st_size, (unsigned long long)bytes_max);
		goto out;
	}
	at = mem_take((size_t)sb.st_size + 1, 1);
	if (at == NULL) {
		st = err_set(err, ST_NOMEM, "%s: no memory for %lld bytes", path,
			(long long)sb.st_size);
		goto out;
	}
	st = read_all(fd, at, (size_t)sb.st_size, path, err);
	if (st != ST_OK)
		goto out;
	*out = (struct bytes){at, (size_t)sb.st_size};
	at = NULL;
out:
	mem_give(at);
	close(fd);
	return st;
}

/* Takes the text over, also on failure. */
static status parse(struct json_file *out, uint8_t *text, size_t len, struct err *err)
{
	struct json_doc doc;
	status st = json_read(&doc, text, len, &limits, err);

	if (st == ST_OK)
		*out = (struct json_file){doc, text};
	else
		mem_give(text);
	return st;
}

status json_file_parse(struct json_file *out, struct bytes text, struct err *err)
{
	uint8_t *copy = (uint8_t *)mem_dup(text.at, text.len);

	if (copy == NULL)
		return err_set(err, ST_NOMEM, "no memory for %zu bytes", text.len);
	return parse(out, copy, text.len, err);
}

status json_file_read(
	struct json_file *out, const char *path, uint64_t bytes_max, struct err *err)
{
	struct bytes text = {0};
	status st;

	st = read_file(&text, path, bytes_max, err);
	if (st != ST_OK)
		return st;
	st = parse(out, (uint8_t *)(uintptr_t)text.at, text.len, err);
	return st == ST_OK ? ST_OK : err_wrap(err, "%s", path);
}

void json_file_release(struct json_file *file)
{
	json_release(&file->doc);
	mem_give(file->text);
	*file = (struct json_file){0};
}
