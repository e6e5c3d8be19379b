/* Borrowed bytes with an end, a cursor that never reads past it, and a bounded
 * sink that never writes past its capacity. */
#ifndef COMMON_BASE_BYTES_H
#define COMMON_BASE_BYTES_H
#include "common/base/attr.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Borrowed: valid as long as the buffer that it points into. */
struct bytes {
	const uint8_t *at;
	size_t len;
};

#define BYTES_STR(literal)                                                               \
	((struct bytes){(const uint8_t *)(literal), sizeof(literal) - 1})
struct bytes bytes_of_str(const char *s);
bool bytes_eq(struct bytes a, struct bytes b);

struct cursor {
	const uint8_t *at;
	const uint8_t *end;
};

/* Each returns false, and moves nothing, when too few bytes are left. */
bool cur_u64le(struct cursor *c, uint64_t *v);
bool cur_u32le(struct cursor *c, uint32_t *v);
bool cur_take(struct cursor *c, size_t n, struct bytes *out);

/* A growing text or byte buffer with a maximum; once a write did not fit, `full`
 * is set, later writes are dropped, and the content is not to be used. Storage
 * comes from mem_take (common/base/mem.h) and counts against its budget. */
struct sink {
	uint8_t *at;
	size_t len;
	size_t cap;
	size_t max;
	bool full;
};

void sink_init(struct sink *s, size_t max);
/* Over storage of the caller, of which the last byte is for the zero: takes no memory,
 * and is not to be released. */
void sink_over(struct sink *s, void *storage, size_t bytes);
void sink_release(struct sink *s);
void sink_reset(struct sink *s);
void sink_put(struct sink *s, const void *data, size_t len);
void sink_str(struct sink *s, const char *text);
void sink_fmt(struct sink *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Drop the first n bytes (n <= len), keep the rest. */
void sink_consume(struct sink *s, size_t n);
struct bytes sink_bytes(const struct sink *s);
/* A zero byte stands after the content (not counted), so it can be read as C text. */
const char *sink_cstr(struct sink *s);

#endif
