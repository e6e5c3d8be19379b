/* Added tokens: whole texts with an id of their own, from tokenizer.json
 * (added_tokens) and tokenizer_config.json (added_tokens_decoder). Kept sorted by text;
 * a match narrows the range of candidates byte by byte. */
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/model/tok_impl.h"

#include <stdlib.h>
#include <string.h>

#define LIST  "added_tokens"
#define TABLE "added_tokens_decoder"

/* One entry of either file. */
struct entry {
	struct bytes text;
	uint32_t id;
	bool special, normalized;
};

typedef status (*entry_use)(void *of, const struct entry *e, struct err *err);

/* What is done with every entry. A text that the vocabulary holds has its id there,
 * whatever the entry says, as in the reference. */
struct visit {
	const struct json *vocab;
	entry_use use;
	void *of;
};

/* An option that would change where the text matches must be off. */
static status check_off(
	const struct json *item, int64_t id, const char *key, struct err *err)
{
	const struct json *value = json_member(item, key);
	char is[64], content[64];

	if (json_is(value, JSON_FALSE))
		return ST_OK;
	return err_set(err, ST_INVALID,
		"added token %lld %s: %s is %s; supported: false (line %u)",
		(long long)id,
		json_show(json_member(item, "content"), content, sizeof(content)), key,
		value == NULL ? "missing" : json_show(value, is, sizeof(is)), item->line);
}

/* A normalized token is looked for in the NFC of a text. It must be one itself, and not
 * special: what users write is masked before NFC, which may write a new one. */
static status check_normalized(const struct entry *e, struct err *err)
{
	struct sink nfc;
	bool same;
	status st;

	if (!e->normalized)
		return ST_OK;
	if (e->special)
		return err_set(err, ST_INVALID,
			"added token %u \"%.*s\": normalized is true of a special token; "
			"supported: false",
			e->id, (int)MIN(e->text.len, 60), (const char *)e->text.at);
	sink_init(&nfc, 3 * TOK_TOKEN_BYTES_MAX);
	st = tok_norm_nfc(e->text, &nfc, err);
	same = bytes_eq(e->text, sink_bytes(&nfc));
	sink_release(&nfc);
	if (st == ST_OK && !same)
		return err_set(err, ST_INVALID,
			"added token %u \"%.*s\": normalized is true, and the text is "
			"not "
			"in NFC",
			e->id, (int)MIN(e->text.len, 60), (const char *)e->text.at);
	return st;
}

/* A mask must be able to stand inside a special token, and not be part of it. */
static status check_mask(const struct entry *e, struct err *err)
{
	const char mark[] = TOK_MASK_UTF8;

	if (memmem(e->text.at, e->text.len, mark, sizeof(mark) - 1) != NULL)
		return err_set(err, ST_INVALID, "added token %u holds U+10FFFE", e->id);
	if (e->special && utf8_step(e->text).len == e->text.len)
		return err_set(err, ST_INVALID,
			"special token %u has one character, which no mask can split",
			e->id);
	return ST_OK;
}

static status read_entry(
	const struct json *item, int64_t id, struct entry *e, struct err *err)
{
	static const char *const off[] = {"single_word", "lstrip", "rstrip"};
	struct bytes content = json_bytes(json_member(item, "content"));
	const struct json *special = json_member(item, "special");
	const struct json *normalized = json_member(item, "normalized");
	status st = ST_OK;

	if (id < 0 || id >= TOK_IDS_MAX)
		return err_set(err, ST_LIMIT, "added token %lld: ids go from 0 to %u",
			(long long)id, TOK_IDS_MAX - 1);
	if (content.len == 0 || content.len > TOK_TOKEN_BYTES_MAX)
		return err_set(err, ST_INVALID,
			"added token %lld: content is not a text of 1 to %u bytes",
			(long long)id, TOK_TOKEN_BYTES_MAX);
	if (!json_is_bool(special))
		return err_set(err, ST_INVALID,
			"added token %lld: special is not true or false", (long long)id);
	for (size_t i = 0; i < COUNT(off) && st == ST_OK; i++)
		st = check_off(item, id, off[i], err);
	if (st == ST_OK && !json_is_bool(normalized))
		st = check_off(item, id, "normalized", err);
	if (st != ST_OK)
		return st;
	*e = (struct entry){content, (uint32_t)id, json_is(special, JSON_TRUE),
		json_is(normalized, JSON_TRUE)};
	st = check_normalized(e, err);
	return st == ST_OK ? check_mask(e, err) : st;
}

static status visit_entry(
	const struct visit *v, const struct json *item, int64_t id, struct err *err)
{
	const char *text = json_text(json_member(item, "content"));
	int64_t known;
	struct entry e;
	status st;

	st = read_entry(item, id, &e, err);
	if (st != ST_OK)
		return st;
	if (text != NULL && json_i64(json_member(v->vocab, text), &known))
		e.id = (uint32_t)known; /* measured before: an id */
	return v->use(v->of, &e, err);
}

/* An id that stands as a member's name. */
static int64_t id_of_name(const char *name)
{
	size_t n = strspn(name, "0123456789");

	return n > 0 && n < 10 && name[n] == '\0' ? (int64_t)strtoull(name, NULL, 10)
						  : -1;
}

static status each_of_list(
	const struct json *list, const struct visit *v, struct err *err)
{
	uint32_t i = 0;
	int64_t id;
	status st;

	if (list != NULL && !json_is(list, JSON_ARRAY))
		return err_set(err, ST_INVALID, LIST " is not an array");
	json_each(item, list)
	{
		if (!json_i64(json_member(item, "id"), &id))
			return err_set(err, ST_INVALID,
				LIST "[%u].id is not a number (line %u)", i, item->line);
		st = visit_entry(v, item, id, err);
		if (st != ST_OK)
			return st;
		i++;
	}
	return ST_OK;
}

static status each_of_table(
	const struct json *table, const struct visit *v, struct err *err)
{
	int64_t id;
	status st;

	if (table != NULL && !json_is(table, JSON_OBJECT))
		return err_set(err, ST_INVALID, TABLE " is not an object");
	json_each_member(name, table)
	{
		id = json_text(name) != NULL ? id_of_name(json_text(name)) : -1;
		if (id < 0)
			return err_set(err, ST_INVALID,
				TABLE ": \"%.40s\" is no id (line %u)",
				(const char *)name->at, name->line);
		st = visit_entry(v, name + 1, id, err);
		if (st != ST_OK)
			return st;
	}
	return ST_OK;
}

/* All entries of both files; one token may stand in both. */
static status each(const struct json *root, const struct json *config, entry_use use,
	void *of, struct err *err)
{
	const struct visit v = {
		json_member(json_member(root, "model"), "vocab"), use, of};
	status st = each_of_list(json_member(root, LIST), &v, err);

	if (st != ST_OK)
		return err_wrap(err, "tokenizer.json");
	st = each_of_table(json_member(config, TABLE), &v, err);
	return st == ST_OK ? ST_OK : err_wrap(err, "tokenizer_config.json");
}

static status count_entry(void *of, const struct entry *e, struct err *err)
{
	struct tok_added_sum *sum = of;

	if (sum->n == 2 * TOK_ADDED_MAX)
		return err_set(err, ST_LIMIT, "more than %u added tokens", TOK_ADDED_MAX);
	sum->n++;
	sum->text_bytes += e->text.len;
	sum->id_max = MAX(sum->id_max, (int64_t)e->id);
	return ST_OK;
}

status tok_added_scan(const struct json *root, const struct json *config,
	struct tok_added_sum *sum, struct err *err)
{
	*sum = (struct tok_added_sum){.id_max = -1};
	return each(root, config, count_entry, sum, err);
}

/* The text that a token of the vocabulary has in the file is this one. */
static bool same_word(const struct tokenizer *t, const struct entry *e)
{
	uint8_t buf[TOK_TOKEN_BYTES_MAX];
	struct bytes raw = e->text;
	enum tok_kind kind = TOK_RAW;
	size_t n;

	if (tok_vocab_bytes(e->text, buf, &n)) {
		raw = (struct bytes){buf, n};
		kind = TOK_VOCAB;
	}
	return t->kind[e->id] == kind && bytes_eq(tokenizer_token_bytes(t, e->id), raw);
}

static status put_entry(void *of, const struct entry *e, struct err *err)
{
	struct tokenizer *t = of;
	enum tok_kind now = (enum tok_kind)t->kind[e->id];
	enum tok_kind kind = e->special      ? TOK_SPECIAL
			     : e->normalized ? TOK_NORMALIZED
					     : TOK_PLAIN;
	status st;

	if (now == TOK_PLAIN || now == TOK_NORMALIZED || now == TOK_SPECIAL) {
		if (now == kind && bytes_eq(tokenizer_token_bytes(t, e->id), e->text))
			return ST_OK;
		return err_set(err, ST_INVALID,
			"added token %u stands twice, with other text, special or "
			"normalized",
			e->id);
	}
	if (now != TOK_ABSENT && !same_word(t, e))
		return err_set(err, ST_INVALID,
			"added token %u: the id is another token's in model.vocab",
			e->id);
	if (t->n_added == TOK_ADDED_MAX)
		return err_set(err, ST_LIMIT, "more than %u added tokens", TOK_ADDED_MAX);
	st = tok_vocab_put(t, e->id, e->text, kind, err);
	if (st != ST_OK)
		return st;
	t->added[t->n_added++] =
		(struct tok_added){tokenizer_token_bytes(t, e->id), e->id, e->special};
	t->any_normalized |= e->normalized;
	return ST_OK;
}

static int by_text(const void *a, const void *b)
{
	const struct tok_added *x = a, *y = b;
	int order = memcmp(x->text.at, y->text.at, MIN(x->text.len, y->text.len));

	if (order != 0)
		return order;
	if (x->text.len != y->text.len)
		return x->text.len > y->text.len ? 1 : -1;
	return (x->id > y->id) - (x->id < y->id);
}

status tok_added_build(struct tokenizer *t, const struct json *root,
	const struct json *config, const struct tok_added_sum *sum, struct err *err)
{
	status st;

	t->added = mem_alloc(sum->n, sizeof(*t->added));
	st = each(root, config, put_entry, t, err);
	if (st != ST_OK)
		return st;
	qsort(t->added, t->n_added, sizeof(*t->added), by_text);
	for (size_t i = 1; i < t->n_added; i++) {
		if (bytes_eq(t->added[i - 1].text, t->added[i].text))
			return err_set(err, ST_INVALID,
				"added tokens %u and %u have the same text",
				t->added[i - 1].id, t->added[i].id);
	}
	for (size_t i = 0; i < t->n_added; i++)
		t->added_first[t->added[i].text.at[0] + 1]++;
	for (size_t b = 0; b < 256; b++)
		t->added_first[b + 1] += t->added_first[b];
	return ST_OK;
}

const struct tok_added *tok_added_match(
	const struct tokenizer *t, struct bytes text, bool normalized)
{
	size_t low = t->added_first[text.at[0]], high = t->added_first[text.at[0] + 1];
	const struct tok_added *found = NULL;

	/* All of low .. high - 1 begin with the first depth bytes of text; of those the
	 * one that ends there, if any, is the first. */
	for (size_t depth = 1; low < high; depth++) {
		if (t->added[low].text.len == depth) {
			if ((t->kind[t->added[low].id] == TOK_NORMALIZED) == normalized)
				found = &t->added[low];
			low++;
		}
		if (depth == text.len)
			break;
		while (low < high && t->added[low].text.at[depth] < text.at[depth])
			low++;
		while (low < high && t->added[high - 1].text.at[depth] > text.at[depth])
			high--;
	}
	return found;
}
