/* What tokenizer.json says around the vocabulary, compared with the one pipeline that
 * is implemented. Truncation and padding are not looked at: the reference resets both
 * on every call. Nor are the offsets of ByteLevel (trim_offsets), which no id depends
 * on. */
#include "common/base/json.h"
#include "common/model/tok_impl.h"

#include <stdlib.h>
#include <string.h>

enum want {
	WANT_TEXT,    /* this string */
	WANT_FALSE,   /* false */
	WANT_OFF,     /* false, or not there */
	WANT_NOTHING, /* null, "" or not there */
};

struct rule {
	const char *path; /* members and indexes, with dots between */
	enum want want;
	const char *text;
};

#define PRE   "pre_tokenizer"
#define SPLIT "pre_tokenizer.pretokenizers.0"
#define LEVEL "pre_tokenizer.pretokenizers.1"

static const struct rule rules[] = {
	{"normalizer.type", WANT_TEXT, "NFC"},
	{PRE ".type", WANT_TEXT, "Sequence"},
	{SPLIT ".type", WANT_TEXT, "Split"},
	{SPLIT ".behavior", WANT_TEXT, "Isolated"},
	{SPLIT ".invert", WANT_FALSE, NULL},
	{LEVEL ".type", WANT_TEXT, "ByteLevel"},
	{LEVEL ".add_prefix_space", WANT_FALSE, NULL},
	{LEVEL ".use_regex", WANT_FALSE, NULL},
	{PRE ".pretokenizers.2", WANT_NOTHING, NULL},
	{"decoder.type", WANT_TEXT, "ByteLevel"},
	{"model.type", WANT_TEXT, "BPE"},
	{"model.dropout", WANT_NOTHING, NULL},
	{"model.unk_token", WANT_NOTHING, NULL},
	{"model.continuing_subword_prefix", WANT_NOTHING, NULL},
	{"model.end_of_word_suffix", WANT_NOTHING, NULL},
	{"model.fuse_unk", WANT_OFF, NULL},
	{"model.byte_fallback", WANT_OFF, NULL},
};

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const char *const expressions[] = {
	[TOK_SPLIT_QWEN2] = CONTRACTIONS
	"|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES,
	[TOK_SPLIT_QWEN35] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
					  "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES,
};

static const char *show(const struct json *value, char *buf, size_t cap)
{
	return value == NULL ? "missing" : json_show(value, buf, cap);
}

/* The value at a path; NULL when a step of it is not there. */
static const struct json *walk(const struct json *at, const char *path)
{
	char step[32];

	while (at != NULL && *path != '\0') {
		int n = (int)strcspn(path, ".");

		snprintf(step, sizeof(step), "%.*s", n, path);
		if (json_is(at, JSON_ARRAY))
			at = json_item(at, (uint32_t)strtoul(step, NULL, 10));
		else
			at = json_member(at, step);
		path += n + (path[n] == '.');
	}
	return at;
}

static bool is_nothing(const struct json *value)
{
	return value == NULL || json_is(value, JSON_NULL) || json_equals(value, "");
}

static bool holds(const struct rule *r, const struct json *value)
{
	switch (r->want) {
	case WANT_TEXT:
		return json_equals(value, r->text);
	case WANT_FALSE:
		return json_is(value, JSON_FALSE);
	case WANT_OFF:
		return value == NULL || json_is(value, JSON_FALSE);
	case WANT_NOTHING:
		return is_nothing(value);
	}
	return false;
}

static const char *wanted(enum want want)
{
	return want == WANT_NOTHING ? "nothing" : "false";
}

/* A post_processor may only be the one that adds nothing. */
static status check_post(const struct json *root, struct err *err)
{
	const struct json *value = json_member(root, "post_processor");
	const struct json *type = json_member(value, "type");
	char buf[128];

	if (is_nothing(value) || json_equals(type, "ByteLevel"))
		return ST_OK;
	return err_set(err, ST_INVALID,
		"post_processor.type is %s; supported: \"ByteLevel\" or none",
		show(type, buf, sizeof(buf)));
}

static status check_split(const struct json *root, enum tok_split *split, struct err *err)
{
	const struct json *value = walk(root, SPLIT ".pattern.Regex");
	char buf[224];

	for (size_t i = 0; i < COUNT(expressions); i++) {
		if (json_equals(value, expressions[i])) {
			*split = (enum tok_split)i;
			return ST_OK;
		}
	}
	return err_set(err, ST_INVALID,
		SPLIT ".pattern.Regex is none of the known ones: %s",
		show(value, buf, sizeof(buf)));
}

status tok_pipeline_check(const struct json *root, enum tok_split *split, struct err *err)
{
	const char *shown;
	char buf[128];
	status st;

	for (size_t i = 0; i < COUNT(rules); i++) {
		const struct rule *r = &rules[i];
		const struct json *value = walk(root, r->path);

		if (holds(r, value))
			continue;
		shown = show(value, buf, sizeof(buf));
		if (r->want == WANT_TEXT)
			return err_set(err, ST_INVALID, "%s is %s; supported: \"%s\"",
				r->path, shown, r->text);
		return err_set(err, ST_INVALID, "%s is %s; supported: %s", r->path, shown,
			wanted(r->want));
	}
	st = check_post(root, err);
	return st == ST_OK ? check_split(root, split, err) : st;
}
