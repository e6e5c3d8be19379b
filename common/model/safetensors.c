/* One file and its header, the map by name, reading. */
#include "common/model/safetensors_impl.h"

#include "common/base/hash.h"
#include "common/base/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *st_dtype_name(enum st_dtype dtype)
{
	static const char *const names[STD__COUNT] = {
#define X(name, bits) [STD_##name] = #name,
		ST_DTYPE_MAP(X)
#undef X
	};
	return (unsigned)dtype < STD__COUNT ? names[dtype] : "?";
}

static uint32_t *find_slot(const struct st_index *ix, const char *name)
{
	uint32_t mask = ix->n_slots - 1;
	uint32_t i = (uint32_t)hash64(name, strlen(name), 0) & mask;

	while (ix->slots[i] != 0 && strcmp(ix->tensors[ix->slots[i] - 1].name, name) != 0)
		i = (i + 1) & mask;
	return &ix->slots[i];
}

status st_index_map(struct st_index *ix, struct err *err)
{
	ix->n_slots = 64;
	while (ix->n_slots < ix->n_tensors * 2)
		ix->n_slots *= 2;
	ix->slots = mem_alloc(ix->n_slots, sizeof(*ix->slots));
	for (uint32_t i = 0; i < ix->n_tensors; i++) {
		const struct st_tensor *t = &ix->tensors[i];
		uint32_t *slot = find_slot(ix, t->name);

		if (*slot != 0)
			return err_set(err, ST_INVALID, "%s: tensor %s: is named twice",
				ix->files[t->file].name, t->name);
		*slot = i + 1;
	}
	return ST_OK;
}

static char *copy_text(const char *text)
{
	size_t n = strlen(text) + 1;

	return memcpy(mem_alloc(n, 1), text, n);
}

struct st_index *st_index_create(uint32_t files_max)
{
	struct st_index *ix = mem_alloc(1, sizeof(*ix));

	ix->files = mem_alloc(files_max, sizeof(*ix->files));
	ix->cap_tensors = 64;
	ix->tensors = mem_alloc(ix->cap_tensors, sizeof(*ix->tensors));
	return ix;
}

/* The file keeps fd, also on failure; st_close closes it. */
static uint32_t add_file(struct st_index *ix, const char *name, int fd)
{
	ix->files[ix->n_files] = (struct st_file){.name = copy_text(name), .fd = fd};
	return ix->n_files++;
}

static status pread_all(int fd, void *dst, uint64_t len, uint64_t at, struct err *err)
{
	uint8_t *to = dst;

	while (len > 0) {
		/* Linux moves at most 2 GiB - 4 KiB per call. */
		size_t part = (size_t)MIN(len, (uint64_t)1 << 30);
		ssize_t n = pread(fd, to, part, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(err, ST_IO, "read of %zu bytes at %llu: %s", part,
				(unsigned long long)at, strerror(errno));
		if (n == 0)
			return err_set(err, ST_IO, "the file ends at byte %llu",
				(unsigned long long)at);
		to += n;
		at += (uint64_t)n;
		len -= (uint64_t)n;
	}
	return ST_OK;
}

/* first: the length field. Leaves the length of the header text. */
static status check_length(const uint8_t first[8], uint64_t file_bytes,
	uint64_t *text_bytes, struct err *err)
{
	struct cursor c = {first, first + 8};

	if (!cur_u64le(&c, text_bytes))
		return err_set(err, ST_INVALID, "the length field is cut");
	if (*text_bytes > ST_HEADER_MAX)
		return err_set(err, ST_LIMIT, "header of %llu bytes, the limit is %llu",
			(unsigned long long)*text_bytes,
			(unsigned long long)ST_HEADER_MAX);
	if (*text_bytes > file_bytes - 8)
		return err_set(err, ST_INVALID, "header of %llu bytes in a file of %llu",
			(unsigned long long)*text_bytes, (unsigned long long)file_bytes);
	return ST_OK;
}

static status read_header(struct st_index *ix, uint32_t file, struct err *err)
{
	struct st_file *f = &ix->files[file];
	uint64_t file_bytes, text_bytes;
	uint8_t first[8];
	struct stat sb;
	status st;

	if (fstat(f->fd, &sb) < 0)
		return err_set(err, ST_IO, "stat: %s", strerror(errno));
	if (!S_ISREG(sb.st_mode))
		return err_set(err, ST_INVALID, "not a regular file");
	file_bytes = (uint64_t)sb.st_size;
	if (file_bytes < 8)
		return err_set(err, ST_INVALID, "%llu bytes are too short for a header",
			(unsigned long long)file_bytes);
	st = pread_all(f->fd, first, 8, 0, err);
	if (st != ST_OK)
		return st;
	st = check_length(first, file_bytes, &text_bytes, err);
	if (st != ST_OK)
		return st;
	f->header = mem_alloc((size_t)text_bytes + 1, 1);
	st = pread_all(f->fd, f->header, text_bytes, 8, err);
	if (st != ST_OK)
		return st;
	return st_parse_header(
		ix, file, f->header, text_bytes, file_bytes - 8 - text_bytes, err);
}

status st_index_add(
	struct st_index *ix, const char *path, const char *name, struct err *err)
{
	uint32_t file;
	status st;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(err, ST_IO, "%s: open: %s", path, strerror(errno));
	file = add_file(ix, name, fd);
	st = read_header(ix, file, err);
	return st == ST_OK ? ST_OK : err_wrap(err, "%s", name);
}

/* An index whose files were read, or could not be (st). */
static status finish(
	struct st_index **out, struct st_index *ix, status st, struct err *err)
{
	if (st == ST_OK)
		st = st_index_map(ix, err);
	if (st == ST_OK)
		*out = ix;
	else
		st_close(ix);
	return st;
}

status st_open_file(struct st_index **out, const char *path, struct err *err)
{
	const char *slash = strrchr(path, '/');
	struct st_index *ix = st_index_create(1);
	status st;

	st = st_index_add(ix, path, slash != NULL ? slash + 1 : path, err);
	return finish(out, ix, st, err);
}

status st_parse(
	struct st_index **out, struct bytes head, uint64_t file_bytes, struct err *err)
{
	struct st_index *ix;
	uint64_t text_bytes;
	char *text;
	status st;

	if (head.len < 8 || file_bytes < 8)
		return err_set(err, ST_INVALID, "%zu bytes are too short for a header",
			head.len);
	st = check_length(head.at, file_bytes, &text_bytes, err);
	if (st != ST_OK)
		return st;
	if (text_bytes > head.len - 8)
		return err_set(err, ST_INVALID, "header of %llu bytes, %zu are here",
			(unsigned long long)text_bytes, head.len - 8);
	ix = st_index_create(1);
	text = mem_alloc((size_t)text_bytes + 1, 1);
	memcpy(text, head.at + 8, (size_t)text_bytes);
	ix->files[add_file(ix, "header", -1)].header = text;
	st = st_parse_header(ix, 0, text, text_bytes, file_bytes - 8 - text_bytes, err);
	return finish(out, ix, st, err);
}

void st_close(struct st_index *ix)
{
	if (ix == NULL)
		return;
	for (uint32_t i = 0; i < ix->n_files; i++) {
		mem_free(ix->files[i].name);
		mem_free(ix->files[i].header);
		if (ix->files[i].fd >= 0)
			close(ix->files[i].fd);
	}
	mem_free(ix->files);
	mem_free(ix->tensors);
	mem_free(ix->slots);
	mem_free(ix);
}

uint32_t st_count(const struct st_index *ix)
{
	return ix->n_tensors;
}

const struct st_tensor *st_at(const struct st_index *ix, uint32_t i)
{
	assert(i < ix->n_tensors);
	return &ix->tensors[i];
}

const struct st_tensor *st_find(const struct st_index *ix, const char *name)
{
	uint32_t slot = *find_slot(ix, name);

	return slot != 0 ? &ix->tensors[slot - 1] : NULL;
}

const char *st_file_name(const struct st_index *ix, uint32_t file)
{
	assert(file < ix->n_files);
	return ix->files[file].name;
}

const char *st_name(const struct st_index *ix)
{
	return ix->n_files == 1 ? ix->files[0].name : SHARD_INDEX_NAME;
}

status st_read(const struct st_index *ix, const struct st_tensor *t, uint64_t at,
	void *dst, uint64_t len, struct err *err)
{
	const struct st_file *f = &ix->files[t->file];
	status st;

	assert(at <= t->bytes && len <= t->bytes - at);
	st = pread_all(f->fd, dst, len, t->begin + at, err);
	return st == ST_OK ? ST_OK : err_wrap(err, "%s: tensor %s", f->name, t->name);
}
