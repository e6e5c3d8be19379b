/* Writing a safetensors file, for tools and tests. */
#include "common/base/json_write.h"
#include "common/model/safetensors_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static uint64_t tensor_bytes(const struct st_out_tensor *t)
{
	static const uint8_t dtype_bits[STD__COUNT] = {
#define X(name, bits) [STD_##name] = bits,
		ST_DTYPE_MAP(X)
#undef X
	};
	uint64_t bits = dtype_bits[t->dtype];

	for (uint32_t i = 0; i < t->n_dims; i++)
		bits *= t->dim[i];
	return bits / 8;
}

static void put_entry(struct json_out *w, const struct st_out_tensor *t, uint64_t begin)
{
	json_name(w, t->name);
	json_open(w, '{');
	json_add_text(w, "dtype", st_dtype_name(t->dtype));
	json_name(w, "shape");
	json_open(w, '[');
	for (uint32_t d = 0; d < t->n_dims; d++)
		json_put_u64(w, t->dim[d]);
	json_close(w);
	json_name(w, "data_offsets");
	json_open(w, '[');
	json_put_u64(w, begin);
	json_put_u64(w, begin + tensor_bytes(t));
	json_close(w);
	json_close(w);
}

static status check_name(const char *name, struct err *err)
{
	size_t n = strlen(name);

	if (n == 0 || n > ST_NAME_MAX)
		return err_set(err, ST_INVALID, "a tensor name of %zu bytes", n);
	for (size_t i = 0; i < n; i++) {
		if (name[i] < 0x20 || name[i] > 0x7e || name[i] == '"' || name[i] == '\\')
			return err_set(err, ST_INVALID,
				"tensor name with byte 0x%02x at %zu",
				(unsigned char)name[i], i);
	}
	return ST_OK;
}

static status write_all(
	int fd, const char *path, const void *data, uint64_t len, struct err *err)
{
	const uint8_t *at = data;

	while (len > 0) {
		ssize_t n = write(fd, at, (size_t)MIN(len, (uint64_t)1 << 30));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(
				err, ST_IO, "%s: write: %s", path, strerror(errno));
		at += n;
		len -= (uint64_t)n;
	}
	return ST_OK;
}

/* Padded with spaces so that the data begins at a multiple of 8. */
static status make_header(struct sink *text, const struct st_out_tensor *tensors,
	uint32_t n_tensors, struct err *err)
{
	struct json_out w;
	uint64_t begin = 0;
	status st;

	json_out_init(&w, text);
	json_open(&w, '{');
	for (uint32_t i = 0; i < n_tensors; i++) {
		st = check_name(tensors[i].name, err);
		if (st != ST_OK)
			return st;
		put_entry(&w, &tensors[i], begin);
		begin += tensor_bytes(&tensors[i]);
	}
	json_close(&w);
	while (!text->full && text->len % 8 != 0)
		sink_str(text, " ");
	if (text->full)
		return err_set(err, ST_LIMIT, "the header exceeds %llu bytes",
			(unsigned long long)ST_HEADER_MAX);
	return ST_OK;
}

status st_write(const char *path, const struct st_out_tensor *tensors, uint32_t n_tensors,
	struct err *err)
{
	struct sink text;
	uint8_t length[8];
	int fd = -1;
	status st;

	sink_init(&text, ST_HEADER_MAX);
	st = make_header(&text, tensors, n_tensors, err);
	if (st != ST_OK)
		goto out;
	for (int i = 0; i < 8; i++)
		length[i] = (uint8_t)((uint64_t)text.len >> 8 * i);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0) {
		st = err_set(err, ST_IO, "%s: open: %s", path, strerror(errno));
		goto out;
	}
	st = write_all(fd, path, length, 8, err);
	if (st == ST_OK)
		st = write_all(fd, path, text.at, text.len, err);
	for (uint32_t i = 0; i < n_tensors && st == ST_OK; i++)
		st = write_all(fd, path, tensors[i].data, tensor_bytes(&tensors[i]), err);
out:
	if (fd >= 0 && close(fd) < 0 && st == ST_OK)
		st = err_set(err, ST_IO, "%s: close: %s", path, strerror(errno));
	sink_release(&text);
	return st;
}
