/* Bounded reading and writing. */
#include "common/base/bytes.h"

#include "common/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct bytes bytes_of_str(const char *s)
{
	return (struct bytes){(const uint8_t *)s, strlen(s)};
}

bool bytes_eq(struct bytes a, struct bytes b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

bool cur_u64le(struct cursor *c, uint64_t *v)
{
	if (c->end - c->at < 8)
		return false;
	*v = 0;
	for (int i = 7; i >= 0; i--)
		*v = *v << 8 | c->at[i];
	c->at += 8;
	return true;
}

bool cur_u32le(struct cursor *c, uint32_t *v)
{
	if (c->end - c->at < 4)
		return false;
	*v = 0;
	for (int i = 3; i >= 0; i--)
		*v = *v << 8 | c->at[i];
	c->at += 4;
	return true;
}

bool cur_take(struct cursor *c, size_t n, struct bytes *out)
{
	if ((size_t)(c->end - c->at) < n)
		return false;
	*out = (struct bytes){c->at, n};
	c->at += n;
	return true;
}

void sink_init(struct sink *s, size_t max)
{
	*s = (struct sink){.max = max};
}

void sink_over(struct sink *s, void *storage, size_t bytes)
{
	*s = (struct sink){.at = storage, .cap = bytes, .max = bytes - 1};
}

void sink_release(struct sink *s)
{
	mem_give(s->at);
	*s = (struct sink){.max = s->max};
}

void sink_reset(struct sink *s)
{
	s->len = 0;
	s->full = false;
}

/* Room for n more bytes and a terminating zero. */
static bool sink_room(struct sink *s, size_t n)
{
	size_t cap;
	uint8_t *at;

	if (s->full || n > s->max - s->len) {
		s->full = true;
		return false;
	}
	if (s->len + n + 1 <= s->cap)
		return true;
	cap = MAX(s->cap * 2, s->len + n + 1);
	cap = MAX(cap, 64);
	at = mem_regrow(s->at, cap);
	if (at == NULL) {
		s->full = true;
		return false;
	}
	s->at = at;
	s->cap = cap;
	return true;
}

void sink_put(struct sink *s, const void *data, size_t len)
{
	if (!sink_room(s, len))
		return;
	if (len > 0)
		memcpy(s->at + s->len, data, len);
	s->len += len;
}

void sink_str(struct sink *s, const char *text)
{
	sink_put(s, text, strlen(text));
}

void sink_fmt(struct sink *s, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || !sink_room(s, (size_t)n)) {
		s->full = true;
		return;
	}
	va_start(ap, fmt);
	vsnprintf((char *)s->at + s->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	s->len += (size_t)n;
}

void sink_consume(struct sink *s, size_t n)
{
	memmove(s->at, s->at + n, s->len - n);
	s->len -= n;
}

struct bytes sink_bytes(const struct sink *s)
{
	return (struct bytes){s->at, s->len};
}

const char *sink_cstr(struct sink *s)
{
	if (s->at == NULL && !sink_room(s, 0))
		return "";
	s->at[s->len] = 0;
	return (const char *)s->at;
}
