/* The JSON reader: a scan that counts values, then one strict pass that fills an array
 * of exactly that length. Neither uses the stack for nesting. */
#include "common/base/json_impl.h"
#include "common/base/mem.h"

#include <assert.h>
#include <string.h>

struct reader {
	uint8_t *p;
	const uint8_t *end;
	const uint8_t *line_at; /* where the line began */
	uint32_t line;
	uint32_t n, cap; /* values */
	uint32_t depth;
	bool fresh; /* a container was opened and nothing stands in it yet */
	const struct json_limits *limits;
	struct json *values;
	struct json_table *tables;
	struct err *err;
	uint32_t open[JSON_DEPTH_MAX]; /* index of each open container */
};

/* How many values the text can hold: tokens that begin one. At most values_max, and as
 * soon as the nesting is too deep no more, since the second pass ends there. Strings end
 * where the second pass ends them. */
static uint32_t count_values(const uint8_t *p, size_t len, const struct json_limits *lim)
{
	const uint8_t *end = p + len;
	uint32_t n = 0, depth = 0;
	bool bare = false;

	for (; p < end && n < lim->values_max; p++) {
		bool was_bare = bare;

		bare = false;
		switch (*p) {
		case '"':
			for (p++; p < end && *p != '"'; p++)
				p += *p == '\\';
			n++;
			break;
		case '{':
		case '[':
			n++;
			if (++depth > lim->depth_max)
				return n;
			break;
		case '}':
		case ']':
			depth -= depth > 0;
			break;
		case ' ':
		case '\t':
		case '\n':
		case '\r':
		case ',':
		case ':':
			break;
		default:
			bare = true;
			n += !was_bare;
			break;
		}
	}
	return n;
}

static status refuse(struct reader *r, status code, const uint8_t *at, const char *why)
{
	return err_set(r->err, code, "JSON line %u column %zu: %s", r->line,
		(size_t)(at - r->line_at) + 1, why);
}

/* "A is expected, not what stands here". */
static status refuse_here(struct reader *r, const char *wanted)
{
	char why[96], found[24];

	if (r->p == r->end)
		snprintf(found, sizeof(found), "the end");
	else if (*r->p > 0x20 && *r->p < 0x7f)
		snprintf(found, sizeof(found), "'%c'", *r->p);
	else
		snprintf(found, sizeof(found), "the byte 0x%02x", *r->p);
	snprintf(why, sizeof(why), "%s expected, not %s", wanted, found);
	return refuse(r, ST_INVALID, r->p, why);
}

static void skip_space(struct reader *r)
{
	for (;; r->p++) {
		if (*r->p == '\n') {
			r->line++;
			r->line_at = r->p + 1;
		} else if (*r->p != ' ' && *r->p != '\t' && *r->p != '\r') {
			return;
		}
	}
}

static status add_value(struct reader *r, enum json_kind kind, struct bytes text)
{
	if (r->n == r->limits->values_max) {
		char why[64];

		snprintf(why, sizeof(why), "more than %u values", r->limits->values_max);
		return refuse(r, ST_LIMIT, r->p, why);
	}
	assert(r->n < r->cap);
	r->values[r->n++] = (struct json){
		.at = text.at,
		.len = (uint32_t)text.len,
		.span = 1,
		.line = r->line & JSON_TEXT_MAX,
		.kind = (uint32_t)kind & 7u,
	};
	return ST_OK;
}

static status read_string(struct reader *r)
{
	struct json_fault fault;
	struct bytes text;
	uint8_t *next;
	status st;

	next = json_decode(r->p, r->end, &text, &fault);
	if (next == NULL)
		return refuse(r, ST_INVALID, fault.at, fault.why);
	st = add_value(r, JSON_STRING, text);
	r->p = next;
	return st;
}

static const uint8_t *skip_digits(const uint8_t *p)
{
	while (*p >= '0' && *p <= '9')
		p++;
	return p;
}

/* The end of the number at p; where it breaks off, *ok is false. */
static const uint8_t *number_end(const uint8_t *p, bool *ok)
{
	const uint8_t *q;

	*ok = false;
	p += *p == '-';
	q = *p == '0' ? p + 1 : skip_digits(p);
	if (q == p)
		return q;
	if (*q == '.') {
		p = q + 1;
		q = skip_digits(p);
		if (q == p)
			return q;
	}
	if (*q == 'e' || *q == 'E') {
		p = q + 1;
		p += *p == '+' || *p == '-';
		q = skip_digits(p);
		if (q == p)
			return q;
	}
	*ok = true;
	return q;
}

/* The words of JSON, and of Python where they are allowed. */
static bool read_word(struct reader *r, status *st)
{
	static const struct {
		const char *text;
		enum json_kind kind;
	} words[] = {
		{"null", JSON_NULL},
		{"true", JSON_TRUE},
		{"false", JSON_FALSE},
		{"NaN", JSON_NUMBER},
		{"Infinity", JSON_NUMBER},
		{"-Infinity", JSON_NUMBER},
	};

	for (size_t i = 0; i < (r->limits->python_literals ? COUNT(words) : 3); i++) {
		size_t n = strlen(words[i].text);

		if ((size_t)(r->end - r->p) < n || memcmp(r->p, words[i].text, n) != 0)
			continue;
		*st = add_value(r, words[i].kind,
			words[i].kind == JSON_NUMBER ? (struct bytes){r->p, n}
						     : (struct bytes){NULL, 0});
		r->p += n;
		return true;
	}
	return false;
}

static status read_number(struct reader *r)
{
	bool ok;
	const uint8_t *end = number_end(r->p, &ok);
	status st;

	if (!ok) {
		r->p += end - r->p;
		return refuse_here(r, "a digit");
	}
	st = add_value(r, JSON_NUMBER, (struct bytes){r->p, (size_t)(end - r->p)});
	r->p += end - r->p;
	return st;
}

static status open_container(struct reader *r, enum json_kind kind)
{
	status st;

	if (r->depth == r->limits->depth_max) {
		char why[64];

		snprintf(why, sizeof(why), "nested deeper than %u", r->limits->depth_max);
		return refuse(r, ST_LIMIT, r->p, why);
	}
	st = add_value(r, kind, (struct bytes){NULL, 0});
	if (st != ST_OK)
		return st;
	r->open[r->depth++] = r->n - 1;
	r->p++;
	r->fresh = true;
	return ST_OK;
}

/* A whole scalar, or the beginning of an array or object. */
static status read_value(struct reader *r)
{
	status st = ST_OK;
	uint8_t c;

	skip_space(r);
	c = *r->p;
	if (c == '"')
		return read_string(r);
	if (c == '{')
		return open_container(r, JSON_OBJECT);
	if (c == '[')
		return open_container(r, JSON_ARRAY);
	if (read_word(r, &st))
		return st;
	if (c == '-' || (c >= '0' && c <= '9'))
		return read_number(r);
	return refuse_here(r, "a value");
}

/* A name of the object at values[object], and the colon. */
static status read_name(struct reader *r, uint32_t object)
{
	const uint8_t *at = r->p;
	char why[96];
	bool ok;
	status st;

	if (*r->p != '"')
		return refuse_here(r, "a name in quotes");
	st = read_string(r);
	if (st != ST_OK)
		return st;
	if (json_table_add(&r->tables, &r->values[object], &r->values[r->n - 1], &ok) !=
		NULL) {
		char shown[64];

		snprintf(why, sizeof(why), "the name %s stands there twice",
			json_show(&r->values[r->n - 1], shown, sizeof(shown)));
		return refuse(r, ST_INVALID, at, why);
	}
	if (!ok)
		return refuse(r, ST_NOMEM, at, "no memory for the names of an object");
	skip_space(r);
	if (*r->p != ':')
		return refuse_here(r, "':'");
	r->p++;
	return ST_OK;
}

/* Closes what ends here. Afterwards a value is due, or the root is whole (depth 0). */
static status read_between(struct reader *r)
{
	while (r->depth > 0) {
		struct json *v = &r->values[r->open[r->depth - 1]];
		bool is_object = v->kind == JSON_OBJECT;

		skip_space(r);
		if (*r->p == (is_object ? '}' : ']')) {
			v->span = r->n - r->open[--r->depth];
			r->fresh = false;
			r->p++;
			continue;
		}
		if (!r->fresh) {
			if (*r->p != ',')
				return refuse_here(
					r, is_object ? "',' or '}'" : "',' or ']'");
			r->p++;
			skip_space(r);
		}
		r->fresh = false;
		if (is_object) {
			status st = read_name(r, r->open[r->depth - 1]);

			if (st != ST_OK)
				return st;
		}
		v->n++;
		return ST_OK;
	}
	return ST_OK;
}

static status read_root(struct reader *r)
{
	status st;

	do {
		st = read_value(r);
		if (st == ST_OK)
			st = read_between(r);
	} while (st == ST_OK && r->depth > 0);
	if (st != ST_OK)
		return st;
	skip_space(r);
	return r->p == r->end ? ST_OK : refuse_here(r, "the end");
}

status json_read(struct json_doc *out, uint8_t *text, size_t len,
	const struct json_limits *limits, struct err *err)
{
	struct reader r = {.p = text, .line_at = text, .line = 1, .err = err};
	status st;

	*out = (struct json_doc){0};
	assert(limits->depth_max <= JSON_DEPTH_MAX && text[len] == 0);
	r.end = text + len;
	r.limits = limits;
	if (len > JSON_TEXT_MAX)
		return err_set(err, ST_LIMIT,
			"JSON line 1 column 1: a text of %zu bytes, the limit is %u", len,
			JSON_TEXT_MAX);
	r.cap = count_values(text, len, limits);
	r.values = mem_take(MAX(r.cap, 1), sizeof(*r.values));
	if (r.values == NULL)
		return err_set(err, ST_NOMEM,
			"JSON line 1 column 1: no memory for %u values", r.cap);
	st = read_root(&r);
	if (st == ST_OK) {
		*out = (struct json_doc){r.values, r.tables};
		return ST_OK;
	}
	json_table_release(r.tables);
	mem_give(r.values);
	return st;
}

void json_release(struct json_doc *doc)
{
	json_table_release(doc->tables);
	mem_give(doc->values);
	*doc = (struct json_doc){0};
}
