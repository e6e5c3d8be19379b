/* Bounded reading of JSON files. */
#include "common/model/json.h"

#include "common/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* jansson parses recursively; the depth is bounded here, before its stack is used. */
static status check_depth(struct bytes text, struct err *err)
{
	uint32_t depth = 0;
	bool in_string = false;

	for (size_t i = 0; i < text.len; i++) {
		uint8_t c = text.at[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			if (++depth > JSON_DEPTH_MAX)
				return err_set(err, ST_LIMIT,
					"JSON nested deeper than %u at byte %zu",
					JSON_DEPTH_MAX, i);
		} else if ((c == '}' || c == ']') && depth > 0) {
			depth--;
		}
	}
	return ST_OK;
}

status json_parse(json_t **out, struct bytes text, struct err *err)
{
	json_error_t e;
	json_t *root;
	status st;

	st = check_depth(text, err);
	if (st != ST_OK)
		return st;
	root = json_loadb((const char *)text.at, text.len, JSON_REJECT_DUPLICATES, &e);
	if (root == NULL)
		return err_set(err, ST_INVALID, "JSON line %d column %d: %s", e.line,
			e.column, e.text);
	*out = root;
	return ST_OK;
}

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

status json_read_file(
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

status json_parse_file(
	json_t **out, const char *path, uint64_t bytes_max, struct err *err)
{
	struct bytes text;
	status st;

	st = json_read_file(&text, path, bytes_max, err);
	if (st != ST_OK)
		return st;
	st = json_parse(out, text, err);
	if (st != ST_OK)
		err_wrap(err, "%s", path);
	mem_give((void *)(uintptr_t)text.at);
	return st;
}
