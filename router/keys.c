/* Keys of clients: reading the file, comparing in constant time. */
#include "router/keys.h"

#include "common/base/log.h"
#include "common/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX 65536u

static status add_line(struct keys *k, const char *line, size_t len, unsigned number,
	const char *path, struct err *err)
{
	while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == ' '))
		len--;
	if (len == 0 || line[0] == '#')
		return ST_OK;
	if (k->n == KEYS_MAX)
		return err_set(err, ST_LIMIT, "api_key_file %s: more than %u keys", path,
			KEYS_MAX);
	for (size_t i = 0; i < len; i++)
		if (line[i] <= ' ' || line[i] > '~' || len >= KEY_BYTES_MAX)
			return err_set(err, ST_INVALID,
				"api_key_file %s line %u: a key is 1 to %u printable "
				"ASCII characters without a space",
				path, number, KEY_BYTES_MAX - 1);
	memcpy(k->key[k->n++], line, len);
	return ST_OK;
}

static status add_lines(
	struct keys *k, const char *text, size_t len, const char *path, struct err *err)
{
	unsigned number = 0;
	status st = ST_OK;

	for (size_t at = 0; st == ST_OK && at < len;) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end != NULL ? (size_t)(end - text) - at : len - at;

		st = add_line(k, text + at, n, ++number, path, err);
		at += n + 1;
	}
	if (st == ST_OK && k->n == 0)
		return err_set(err, ST_INVALID, "api_key_file %s: no key in it", path);
	return st;
}

/* *len: bytes read, at most FILE_BYTES_MAX. */
static status read_file(const char *path, char *text, size_t *len, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat info;
	ssize_t n = 1;

	*len = 0;
	if (fd < 0)
		return err_set(err, ST_IO, "api_key_file %s: %s", path, strerror(errno));
	if (fstat(fd, &info) == 0 && (info.st_mode & (S_IROTH | S_IWOTH)) != 0)
		log_warn(
			"api_key_file %s may be read or written by everybody (mode %03o)",
			path, info.st_mode & 0777u);
	while (n > 0 && *len < FILE_BYTES_MAX) {
		n = read(fd, text + *len, FILE_BYTES_MAX - *len);
		*len += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	if (n < 0)
		return err_set(err, ST_IO, "api_key_file %s: %s", path, strerror(errno));
	if (n > 0)
		return err_set(err, ST_LIMIT, "api_key_file %s: %u bytes or more", path,
			FILE_BYTES_MAX);
	return ST_OK;
}

status keys_read(struct keys *k, const char *path, struct err *err)
{
	struct keys *made = mem_take(1, sizeof(*made));
	char *text = mem_take(FILE_BYTES_MAX, 1);
	size_t len = 0;
	status st;

	if (made == NULL || text == NULL) {
		st = err_set(
			err, ST_NOMEM, "api_key_file %s: no memory to read it", path);
		goto out;
	}
	*made = (struct keys){0};
	st = read_file(path, text, &len, err);
	if (st == ST_OK)
		st = add_lines(made, text, len, path, err);
	if (st == ST_OK)
		*k = *made;
	explicit_bzero(made, sizeof(*made));
	explicit_bzero(text, FILE_BYTES_MAX);
out:
	mem_give(made);
	mem_give(text);
	return st;
}

/* All keys are looked at in full, whatever the first ones say. */
static bool is_one(const struct keys *k, const char *text)
{
	char given[KEY_BYTES_MAX] = {0};
	size_t len = strlen(text);
	bool found = false;

	if (len == 0 || len >= sizeof(given))
		return false;
	memcpy(given, text, len);
	for (uint32_t i = 0; i < k->n; i++) {
		const volatile char *key = k->key[i];
		unsigned differ = 0;

		for (size_t b = 0; b < sizeof(given); b++)
			differ |= (unsigned)(key[b] ^ given[b]);
		found |= differ == 0;
	}
	explicit_bzero(given, sizeof(given));
	return found;
}

bool keys_allow(const struct keys *k, const char *authorization, const char *plain)
{
	static const char scheme[] = "Bearer ";
	size_t n = sizeof(scheme) - 1;

	if (authorization != NULL && strncasecmp(authorization, scheme, n) == 0 &&
		is_one(k, authorization + n + strspn(authorization + n, " ")))
		return true;
	return plain != NULL && is_one(k, plain);
}
