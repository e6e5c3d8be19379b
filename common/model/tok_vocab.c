/* The vocabulary: ids to bytes, bytes to ids. Tokens are written in an alphabet of 256
 * printable characters, one for each byte (GPT-2's): the printable ASCII and Latin-1
 * characters stand for themselves, the other 68 bytes for U+0100 and up. */
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/model/tok_impl.h"

#include <assert.h>
#include <string.h>

/* Bytes that stand for themselves; 0xad, the soft hyphen, is not printable. */
static bool is_printable(uint32_t byte)
{
	return (byte >= 0x21 && byte <= 0x7e) ||
	       (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

/* The byte that a character stands for, or -1. U+0100 .. U+0143 are the others in
 * ascending order: 0 .. 20, 7f .. a0, ad. */
static int byte_of(uint32_t cp)
{
	if (cp < 0x100)
		return is_printable(cp) ? (int)cp : -1;
	cp -= 0x100;
	if (cp <= 0x20)
		return (int)cp;
	cp += 0x7f - 0x21;
	if (cp <= 0xa0)
		return (int)cp;
	return cp == 0xa1 ? 0xad : -1;
}

bool tok_vocab_bytes(struct bytes text, uint8_t *buf, size_t *n)
{
	const uint8_t *p = text.at, *end = text.at + text.len;

	*n = 0;
	while (p < end) {
		int byte = byte_of(utf8_next(&p));

		if (byte < 0)
			return false;
		buf[(*n)++] = (uint8_t)byte;
	}
	return true;
}

/* The slot of raw, or the free one where it would go. */
static uint32_t find_slot(const struct tokenizer *t, struct bytes raw)
{
	uint32_t i = (uint32_t)hash64(raw.at, raw.len, 0) & t->by_bytes_mask;

	while (t->by_bytes[i] != TOK_NO_ID &&
		!bytes_eq(tokenizer_token_bytes(t, t->by_bytes[i]), raw))
		i = (i + 1) & t->by_bytes_mask;
	return i;
}

uint32_t tok_vocab_find(const struct tokenizer *t, struct bytes raw)
{
	return t->by_bytes[find_slot(t, raw)];
}

status tok_vocab_put(struct tokenizer *t, uint32_t id, struct bytes text,
	enum tok_kind kind, struct err *err)
{
	if (text.len == 0 || text.len > TOK_TOKEN_BYTES_MAX)
		return err_set(err, ST_LIMIT,
			"token %u has %zu bytes, supported: 1 to %u", id, text.len,
			TOK_TOKEN_BYTES_MAX);
	assert(id < t->n_tokens);
	memcpy(t->blob + t->blob_used, text.at, text.len);
	t->at[id] = (uint32_t)t->blob_used;
	t->len[id] = (uint16_t)text.len;
	t->kind[id] = (uint8_t)kind;
	t->blob_used += text.len;
	return ST_OK;
}

static status put_word(
	struct tokenizer *t, struct bytes text, uint32_t id, struct err *err)
{
	/* A character of the alphabet has at most two bytes. */
	uint8_t buf[2 * TOK_TOKEN_BYTES_MAX];
	status st;
	size_t n;

	if (t->kind[id] != TOK_ABSENT)
		return err_set(err, ST_INVALID, "model.vocab gives id %u twice", id);
	if (text.len > sizeof(buf))
		return err_set(err, ST_LIMIT,
			"token %u has %zu bytes, supported: 1 to %u", id, text.len,
			TOK_TOKEN_BYTES_MAX);
	if (!tok_vocab_bytes(text, buf, &n))
		return tok_vocab_put(t, id, text, TOK_RAW, err);
	st = tok_vocab_put(t, id, (struct bytes){buf, n}, TOK_VOCAB, err);
	if (st != ST_OK)
		return st;
	t->by_bytes[find_slot(t, (struct bytes){buf, n})] = id;
	t->longest = MAX(t->longest, (uint32_t)n);
	if (n == 1)
		t->byte_id[buf[0]] = id;
	return ST_OK;
}

status tok_vocab_build(struct tokenizer *t, const struct json *model, uint32_t n_tokens,
	size_t blob_bytes, struct err *err)
{
	const struct json *vocab = json_member(model, "vocab");
	uint32_t slots = 1024;
	int64_t id;
	status st;

	while (slots < 2 * json_count(vocab))
		slots *= 2;
	t->n_tokens = n_tokens;
	t->blob = mem_alloc(blob_bytes, 1);
	t->at = mem_alloc(n_tokens, sizeof(*t->at));
	t->len = mem_alloc(n_tokens, sizeof(*t->len));
	t->kind = mem_alloc(n_tokens, 1);
	t->by_bytes = mem_alloc(slots, sizeof(*t->by_bytes));
	t->by_bytes_mask = slots - 1;
	memset(t->by_bytes, 0xff, slots * sizeof(*t->by_bytes));
	memset(t->byte_id, 0xff, sizeof(t->byte_id));
	json_each_member(word, vocab)
	{
		if (!json_i64(word + 1, &id))
			continue; /* was measured: every one is an id */
		st = put_word(t, json_bytes(word), (uint32_t)id, err);
		if (st != ST_OK)
			return st;
	}
	for (uint32_t b = 0; b < 256; b++) {
		if (t->byte_id[b] == TOK_NO_ID)
			return err_set(err, ST_INVALID,
				"model.vocab has no token for byte 0x%02x alone", b);
	}
	return ST_OK;
}
