/* The grammar of a request as a table of states, one function per state. */
#include "router/http_head.h"

#include "common/base/bytes.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum state {
	IDLE, /* before a request: an empty line is passed over */
	IDLE_LF,
	METHOD,
	TARGET,
	VERSION,
	LINE_LF, /* after the CR of the request line or a header line */
	LINE,    /* at the beginning of a header line */
	NAME,
	VALUE,
	HEAD_LF, /* after the CR of the empty line */
	BODY,
	SIZE, /* of a chunk */
	EXTENSION,
	SIZE_LF,
	CHUNK,
	CHUNK_CR,
	CHUNK_LF,
	TRAILER, /* at the beginning of a line behind the last chunk */
	TRAILER_LINE,
	TRAILER_LINE_LF,
	TRAILER_LF,
};

enum field { OTHER, HOST, LENGTH, ENCODING };

static bool bad(struct http_fault *f, const char *text)
{
	f->status = 400;
	f->code = "invalid_request";
	snprintf(f->text, sizeof(f->text), "%s", text);
	return false;
}

static bool bad_framing(struct http_fault *f, const char *text)
{
	(void)bad(f, text);
	f->code = "invalid_framing";
	return false;
}

static bool is_token(uint8_t c)
{
	return isalnum(c) || (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* Text of a value or an extension; others' characters pass. */
static bool is_text(uint8_t c)
{
	return c == '\t' || (c >= ' ' && c != 0x7f);
}

static void begin_word(struct http_head *h)
{
	h->n_word = 0;
	memset(h->word, 0, sizeof(h->word));
}

/* Longer than any that matters: its end is left out. */
static void add_to_word(struct http_head *h, uint8_t c)
{
	if (h->n_word < sizeof(h->word) - 1)
		h->word[h->n_word++] = (char)tolower(c);
}

void http_head_init(struct http_head *h, const struct http_head_limits *limits)
{
	*h = (struct http_head){.limits = limits, .state = IDLE};
}

bool http_head_is_idle(const struct http_head *h)
{
	return h->state == IDLE || h->state == IDLE_LF;
}

const char *http_head_path(const char *target)
{
	static const char *const schemes[] = {"http://", "https://"};

	for (size_t i = 0; i < COUNT(schemes); i++) {
		size_t n = strlen(schemes[i]);

		if (strncasecmp(target, schemes[i], n) == 0) {
			const char *path = strchr(target + n, '/');

			return path != NULL ? path : "/";
		}
	}
	return target;
}

static void begin_request(struct http_head *h)
{
	http_head_init(h, h->limits);
	h->state = METHOD;
}

/* ---- request line ---- */

static bool request_line(struct http_head *h, uint8_t c, struct http_fault *f)
{
	switch (h->state) {
	case METHOD:
		if (c == ' ' && h->n_word > 0) {
			begin_word(h);
			h->state = TARGET;
			return true;
		}
		add_to_word(h, c);
		return is_token(c) || bad(f, "The request line has no method.");
	case TARGET:
		if (c == ' ' && h->n_word > 0) {
			begin_word(h);
			h->state = VERSION;
			return true;
		}
		/* An escaped NUL would end the path for who reads it as a string. */
		if (c <= ' ' || c == 0x7f ||
			(h->n_word >= 2 && c == '0' && memcmp(h->word, "%0", 2) == 0))
			return bad(f, "The target of the request is not valid.");
		if (h->n_target < sizeof(h->target) - 1)
			h->target[h->n_target++] = (char)c;
		h->word[0] = h->n_word > 0 ? h->word[1] : 0;
		h->word[1] = (char)c;
		h->n_word = (uint8_t)MIN(h->n_word + 1, 2);
		return true;
	default:
		break;
	}
	if (c != '\r' && c != '\n') {
		add_to_word(h, c);
		return h->n_word <= strlen("HTTP/1.1") ||
		       bad(f, "The version of the request is neither HTTP/1.1 nor "
			      "HTTP/1.0.");
	}
	h->old = strcmp(h->word, "http/1.0") == 0;
	h->state = c == '\r' ? LINE_LF : LINE;
	return h->old || strcmp(h->word, "http/1.1") == 0 ||
	       bad(f, "The version of the request is neither HTTP/1.1 nor HTTP/1.0.");
}

/* ---- header lines ---- */

static uint8_t field_of(const struct http_head *h)
{
	if (strcmp(h->word, "host") == 0)
		return HOST;
	if (strcmp(h->word, "content-length") == 0)
		return LENGTH;
	return strcmp(h->word, "transfer-encoding") == 0 ? ENCODING : OTHER;
}

static bool begin_value(struct http_head *h, struct http_fault *f)
{
	h->field = field_of(h);
	h->n_hosts += h->field == HOST;
	h->n_lengths += h->field == LENGTH;
	h->n_encodings += h->field == ENCODING;
	h->value_began = false;
	begin_word(h);
	h->state = VALUE;
	if (h->n_hosts > 1)
		return bad_framing(f, "The Host header is given more than once.");
	if (h->n_lengths > 1 || h->n_encodings > 1 || h->n_lengths + h->n_encodings > 1)
		return bad_framing(f, "The length of the body is given more than once "
				      "(Content-Length, Transfer-Encoding).");
	return true;
}

/* Only what matters is kept: digits of a length, the word of an encoding. */
static bool add_to_value(struct http_head *h, uint8_t c, struct http_fault *f)
{
	bool blank = c == ' ' || c == '\t';

	if (!is_text(c))
		return bad(f, "A header line has a control character.");
	if (h->field == OTHER || h->field == HOST || (blank && !h->value_began))
		return true;
	h->value_began = true;
	add_to_word(h, c);
	return true;
}

static bool end_length(struct http_head *h, struct http_fault *f)
{
	h->length = 0;
	for (size_t i = 0; i < h->n_word; i++) {
		if (!isdigit((uint8_t)h->word[i]) || i >= 18)
			return bad_framing(f, "Content-Length is no number of bytes.");
		h->length = h->length * 10 + (uint64_t)(h->word[i] - '0');
	}
	return h->n_word > 0 || bad_framing(f, "Content-Length is no number of bytes.");
}

static bool end_value(struct http_head *h, struct http_fault *f)
{
	while (h->n_word > 0 && strchr(" \t", h->word[h->n_word - 1]) != NULL)
		h->word[--h->n_word] = 0;
	if (h->field == LENGTH)
		return end_length(h, f);
	if (h->field != ENCODING)
		return true;
	if (h->old)
		return bad_framing(f, "Transfer-Encoding does not exist in HTTP/1.0.");
	if (strcmp(h->word, "chunked") == 0)
		return true;
	(void)bad(f, "Transfer-Encoding: only \"chunked\" is supported.");
	f->status = 501;
	f->code = "unsupported_encoding";
	return false;
}

static bool end_head(struct http_head *h, struct http_fault *f)
{
	h->state = h->n_encodings > 0 ? SIZE : h->length > 0 ? BODY : IDLE;
	h->n_digits = 0;
	if (h->n_encodings > 0)
		h->length = 0;
	return h->old || h->n_hosts > 0 || bad_framing(f, "The Host header is missing.");
}

static bool header_line(struct http_head *h, uint8_t c, struct http_fault *f)
{
	switch (h->state) {
	case LINE:
		if (c == '\r' || c == '\n') {
			h->state = HEAD_LF;
			return c == '\r' || end_head(h, f);
		}
		begin_word(h);
		add_to_word(h, c);
		h->n_lines++;
		h->state = NAME;
		return is_token(c) || bad(f, "A header line has no valid name.");
	case NAME:
		if (c == ':')
			return begin_value(h, f);
		add_to_word(h, c);
		return is_token(c) ||
		       bad(f, "The name of a header has a character that names have not, "
			      "or a space before the colon.");
	case VALUE:
		if (c != '\r' && c != '\n')
			return add_to_value(h, c, f);
		h->state = c == '\r' ? LINE_LF : LINE;
		return end_value(h, f);
	default:
		break;
	}
	if (c != '\n')
		return bad(f, "A line of the head has a CR without an LF.");
	if (h->state == HEAD_LF)
		return end_head(h, f);
	h->state = LINE;
	return true;
}

/* ---- chunks ---- */

static const char bad_chunk[] = "The framing of the chunked body is not valid.";

static bool chunk_size(struct http_head *h, uint8_t c, struct http_fault *f)
{
	if (isxdigit(c)) {
		unsigned digit =
			isdigit(c) ? c - (unsigned)'0' : (unsigned)tolower(c) - 'a' + 10u;

		h->length = h->length * 16 + digit;
		return ++h->n_digits <= 15 || bad_framing(f, bad_chunk);
	}
	if (h->n_digits == 0 || (c != '\r' && c != ';'))
		return bad_framing(f, bad_chunk);
	h->state = c == '\r' ? SIZE_LF : EXTENSION;
	return true;
}

/* true for the byte that must come next. */
static bool expect(struct http_head *h, bool right, enum state next, struct http_fault *f)
{
	h->state = (uint8_t)next;
	return right || bad_framing(f, bad_chunk);
}

static bool chunk(struct http_head *h, uint8_t c, struct http_fault *f)
{
	switch (h->state) {
	case SIZE:
		return chunk_size(h, c, f);
	case EXTENSION:
		if (c != '\r')
			return expect(h, is_text(c), EXTENSION, f);
		h->state = SIZE_LF;
		return true;
	case SIZE_LF:
		h->n_digits = 0;
		return expect(h, c == '\n', h->length > 0 ? CHUNK : TRAILER, f);
	case CHUNK_CR:
		return expect(h, c == '\r', CHUNK_LF, f);
	case CHUNK_LF:
		return expect(h, c == '\n', SIZE, f);
	case TRAILER:
		if (c == '\r')
			return expect(h, true, TRAILER_LF, f);
		return expect(h, is_token(c), TRAILER_LINE, f);
	case TRAILER_LINE:
		if (c == '\r')
			return expect(h, true, TRAILER_LINE_LF, f);
		return expect(h, is_text(c), TRAILER_LINE, f);
	case TRAILER_LINE_LF:
		return expect(h, c == '\n', TRAILER, f);
	default:
		return expect(h, c == '\n', IDLE, f);
	}
}

/* ---- all ---- */

static bool within_limits(const struct http_head *h, struct http_fault *f)
{
	const struct http_head_limits *max = h->limits;

	if (h->n_lines <= max->lines && h->bytes <= max->head_bytes)
		return true;
	f->status = 431;
	f->code = "headers_too_large";
	snprintf(f->text, sizeof(f->text),
		"The head of the request has over %" PRIu32 " lines or over %zu bytes.",
		max->lines, max->head_bytes);
	return false;
}

static bool idle(struct http_head *h, uint8_t c, struct http_fault *f)
{
	if (h->state == IDLE && c == '\r') {
		h->state = IDLE_LF;
		return true;
	}
	if (c == '\n') {
		h->state = IDLE;
		return true;
	}
	if (h->state == IDLE_LF)
		return bad(f, "A line of the head has a CR without an LF.");
	begin_request(h);
	return request_line(h, c, f);
}

static bool one(struct http_head *h, uint8_t c, struct http_fault *f)
{
	if (h->state <= IDLE_LF)
		return idle(h, c, f);
	if (h->state >= SIZE)
		return chunk(h, c, f);
	/* Trailers count as well: the bytes of chunk lines are few beside them. */
	h->bytes++;
	return (h->state <= VERSION ? request_line(h, c, f) : header_line(h, c, f)) &&
	       within_limits(h, f);
}

/* Bytes of a body are passed over at once. */
static size_t pass_body(struct http_head *h, size_t n)
{
	size_t len = (size_t)MIN((uint64_t)n, h->length);

	h->length -= len;
	if (h->length == 0)
		h->state = h->state == BODY ? IDLE : CHUNK_CR;
	return len;
}

bool http_head_feed(struct http_head *h, const void *at, size_t n, size_t *begin,
	struct http_fault *f)
{
	const uint8_t *byte = at;
	size_t i = 0;

	*begin = 0;
	while (i < n) {
		bool was_idle = http_head_is_idle(h);

		if (h->state == BODY || h->state == CHUNK)
			i += pass_body(h, n - i);
		else if (one(h, byte[i], f))
			i++;
		else
			return false;
		if (http_head_is_idle(h) && !was_idle)
			*begin = i;
	}
	return true;
}
