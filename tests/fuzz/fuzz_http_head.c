// layers: router
/* Bytes of clients as the server sees them first. However they are cut, the reader says
 * the same; and what it takes is read a second time here, line by line, by code that
 * shares nothing with it: one Host, one length, no byte that another parser could read
 * in another way, and requests that end where it says. */
#include "router/http_head.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Small, so that inputs reach them. */
static const struct http_head_limits limits = {.head_bytes = 600, .lines = 12};

#define SHORT_BYTES 1024u

static void check(bool ok)
{
	if (!ok)
		abort();
}

/* What was said of an input. */
struct said {
	struct http_head head;
	struct http_fault fault;
	bool ok;
	size_t end; /* behind the last byte of a request that ended */
};

static void feed(struct said *s, const uint8_t *at, size_t from, size_t to)
{
	size_t begin;

	if (!s->ok)
		return;
	s->ok = http_head_feed(&s->head, at + from, to - from, &begin, &s->fault);
	check(begin <= to - from);
	if (begin > 0)
		s->end = from + begin;
}

static struct said fresh(void)
{
	struct said s = {.ok = true};

	http_head_init(&s.head, &limits);
	return s;
}

static void check_same(const struct said *a, const struct said *b)
{
	check(a->ok == b->ok && a->end == b->end);
	if (a->ok) {
		check(http_head_is_idle(&a->head) == http_head_is_idle(&b->head));
		check(a->head.state == b->head.state && a->head.bytes == b->head.bytes);
		check(a->head.length == b->head.length);
		return;
	}
	check(a->fault.status >= 400 && a->fault.status < 600);
	check(a->fault.status == b->fault.status && a->fault.text[0] != '\0');
	check(strcmp(a->fault.code, b->fault.code) == 0);
	check(strcmp(a->fault.text, b->fault.text) == 0);
}

/* Byte by byte, and in two pieces at every place; at some when there are too many. */
static void check_cuts(const uint8_t *at, size_t size, const struct said *whole)
{
	size_t step = size <= SHORT_BYTES ? 1 : size / 32;
	struct said s = fresh();

	for (size_t i = 0; i < size; i++)
		feed(&s, at, i, i + 1);
	check_same(whole, &s);
	for (size_t i = 1; i < size; i += step) {
		s = fresh();
		feed(&s, at, 0, i);
		feed(&s, at, i, size);
		check_same(whole, &s);
	}
}

/* ---- the second reading ---- */

struct text {
	const uint8_t *at;
	size_t n;
};

/* The next line without its end; LF alone ends one, and no CR is left in it. */
static struct text line(struct text *rest)
{
	const uint8_t *lf = memchr(rest->at, '\n', rest->n);
	struct text out = {rest->at, 0};

	check(lf != NULL);
	out.n = (size_t)(lf - rest->at);
	rest->n -= out.n + 1;
	rest->at += out.n + 1;
	if (out.n > 0 && out.at[out.n - 1] == '\r')
		out.n--;
	check(memchr(out.at, '\r', out.n) == NULL && memchr(out.at, 0, out.n) == NULL);
	return out;
}

static bool is_named(struct text l, const char *name)
{
	size_t n = strlen(name);

	return l.n > n && strncasecmp((const char *)l.at, name, n) == 0 && l.at[n] == ':';
}

static uint64_t number(struct text digits, int base)
{
	uint64_t out = 0;

	check(digits.n > 0 && digits.n <= 18);
	for (size_t i = 0; i < digits.n; i++) {
		int c = tolower(digits.at[i]);

		check(isdigit(c) || (base == 16 && c >= 'a' && c <= 'f'));
		out = out * (uint64_t)base +
		      (uint64_t)(isdigit(c) ? c - '0' : c - 'a' + 10);
	}
	return out;
}

static struct text value_of(struct text l)
{
	const uint8_t *colon = memchr(l.at, ':', l.n);
	struct text v = {colon + 1, l.n - (size_t)(colon + 1 - l.at)};

	while (v.n > 0 && (v.at[0] == ' ' || v.at[0] == '\t')) {
		v.at++;
		v.n--;
	}
	while (v.n > 0 && (v.at[v.n - 1] == ' ' || v.at[v.n - 1] == '\t'))
		v.n--;
	return v;
}

static void pass(struct text *rest, uint64_t n)
{
	check(n <= rest->n);
	rest->at += n;
	rest->n -= (size_t)n;
}

static void read_chunks(struct text *rest)
{
	uint64_t n;

	do {
		struct text l = line(rest);
		const uint8_t *end = memchr(l.at, ';', l.n);

		n = number((struct text){l.at, end != NULL ? (size_t)(end - l.at) : l.n},
			16);
		if (n > 0) {
			pass(rest, n);
			check(line(rest).n == 0);
		}
	} while (n > 0);
	while (line(rest).n > 0)
		;
}

static void read_request(struct text *rest)
{
	unsigned n_hosts = 0, n_lengths = 0, n_lines = 0;
	struct text l = line(rest);
	bool old, chunked = false;
	uint64_t length = 0;

	if (l.n == 0)
		return; /* empty lines between two requests */
	check(l.n > 13);
	old = strncasecmp((const char *)l.at + l.n - 9, " HTTP/1.0", 9) == 0;
	check(old || strncasecmp((const char *)l.at + l.n - 9, " HTTP/1.1", 9) == 0);
	while ((l = line(rest)).n > 0) {
		n_lines++;
		check(l.at[0] != ' ' && l.at[0] != '\t' && l.at[0] != ':');
		check(memchr(l.at, ':', l.n) != NULL);
		n_hosts += is_named(l, "host");
		if (is_named(l, "content-length")) {
			n_lengths++;
			length = number(value_of(l), 10);
		}
		if (is_named(l, "transfer-encoding")) {
			n_lengths++;
			chunked = true;
			check(value_of(l).n == 7 &&
				strncasecmp((const char *)value_of(l).at, "chunked", 7) ==
					0);
		}
	}
	check(n_hosts == 1 || (old && n_hosts == 0));
	check(n_lengths <= 1 && !(old && chunked) && n_lines <= limits.lines);
	if (chunked)
		read_chunks(rest);
	else
		pass(rest, length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct said whole = fresh();
	struct text rest = {data, 0};

	feed(&whole, data, 0, size);
	check_cuts(data, size, &whole);
	rest.n = whole.end;
	while (rest.n > 0)
		read_request(&rest);
	return 0;
}
