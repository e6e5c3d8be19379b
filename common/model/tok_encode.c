/* Encoding: added tokens out of the raw text, then those that are normalized out of the
 * NFC of each piece between them, then masks, NFC, split and merges on what is left; and
 * the small questions about tokens. */
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/model/tok_impl.h"

#include <string.h>

struct encoder {
	const struct tokenizer *t;
	struct tok_ids *out;
	bool masked;
	struct sink gap, unmasked, normal;
	struct tok_work work;
};

static bool is_ascii(struct bytes text)
{
	for (size_t i = 0; i < text.len; i++) {
		if (text.at[i] >= 0x80)
			return false;
	}
	return true;
}

/* Text without added tokens. */
static status encode_plain(struct encoder *e, struct bytes text, struct err *err)
{
	status st = ST_OK;

	/* ASCII holds no mask and is its own NFC. */
	if (!is_ascii(text)) {
		if (e->masked) {
			sink_reset(&e->unmasked);
			st = tok_norm_unmask(text, &e->unmasked, err);
			text = sink_bytes(&e->unmasked);
		}
		sink_reset(&e->normal);
		if (st == ST_OK)
			st = tok_norm_nfc(text, &e->normal, err);
		text = sink_bytes(&e->normal);
	}
	while (text.len > 0 && st == ST_OK) {
		size_t n = tok_split_next(e->t->split, text);

		st = tok_bpe_encode(
			e->t, &e->work, (struct bytes){text.at, n}, e->out, err);
		text = (struct bytes){text.at + n, text.len - n};
	}
	return st;
}

/* Added tokens of one kind; what stands between them goes to `between`. */
static status take_added(struct encoder *e, struct bytes text, bool normalized,
	status (*between)(struct encoder *, struct bytes, struct err *), struct err *err)
{
	size_t from = 0, at = 0;

	while (at < text.len) {
		const struct tok_added *a = tok_added_match(
			e->t, (struct bytes){text.at + at, text.len - at}, normalized);
		status st;

		if (a == NULL) {
			at++;
			continue;
		}
		st = between(e, (struct bytes){text.at + from, at - from}, err);
		if (st == ST_OK)
			st = tok_ids_push(e->out, a->id, err);
		if (st != ST_OK)
			return st;
		at += a->text.len;
		from = at;
	}
	return between(e, (struct bytes){text.at + from, text.len - from}, err);
}

/* Marks stay in the text here: NFC composes nothing across them. */
static status encode_normalized(struct encoder *e, struct bytes text, struct err *err)
{
	status st;

	if (!e->t->any_normalized)
		return encode_plain(e, text, err);
	if (!is_ascii(text)) {
		sink_reset(&e->gap);
		st = tok_norm_nfc(text, &e->gap, err);
		if (st != ST_OK)
			return st;
		text = sink_bytes(&e->gap);
	}
	return take_added(e, text, true, encode_plain, err);
}

static status encode_added(struct encoder *e, struct bytes text, struct err *err)
{
	return take_added(e, text, false, encode_normalized, err);
}

status tokenizer_encode(const struct tokenizer *t, struct bytes text, unsigned flags,
	struct tok_ids *out, struct err *err)
{
	struct encoder e = {.t = t, .out = out, .masked = (flags & TOK_MASKED) != 0};
	size_t valid, n_before = out->n;
	status st;

	if (text.len > TOK_TEXT_MAX)
		return err_set(err, ST_LIMIT, "text of %zu bytes, at most %u", text.len,
			TOK_TEXT_MAX);
	valid = utf8_valid_len(text);
	if (valid < text.len)
		return err_set(err, ST_INVALID, "text is not UTF-8 at byte %zu", valid);
	/* NFC makes text at most three times as long (Unicode 16, annex 15, section
	 * 13); piece positions are 32 bits. */
	_Static_assert(TOK_TEXT_MAX <= UINT32_MAX / 3, "pieces have 32-bit positions");
	sink_init(&e.gap, (size_t)TOK_TEXT_MAX * 3);
	sink_init(&e.unmasked, (size_t)TOK_TEXT_MAX * 3);
	sink_init(&e.normal, (size_t)TOK_TEXT_MAX * 3);
	st = flags & TOK_ADDED ? encode_added(&e, text, err)
			       : encode_plain(&e, text, err);
	if (st != ST_OK)
		out->n = n_before;
	sink_release(&e.gap);
	sink_release(&e.unmasked);
	sink_release(&e.normal);
	tok_work_release(&e.work);
	return st;
}

struct bytes tokenizer_token_bytes(const struct tokenizer *t, uint32_t id)
{
	if (id >= t->n_tokens)
		return (struct bytes){t->blob, 0};
	return (struct bytes){t->blob + t->at[id], t->len[id]};
}

uint32_t tokenizer_n_tokens(const struct tokenizer *t)
{
	return t->n_tokens;
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id)
{
	return id < t->n_tokens && t->kind[id] == TOK_SPECIAL;
}

const struct tok_added *tokenizer_added(const struct tokenizer *t, size_t *n)
{
	*n = t->n_added;
	return t->added;
}

int64_t tokenizer_find(const struct tokenizer *t, const char *text)
{
	struct bytes want = bytes_of_str(text);

	for (int normalized = 0; want.len > 0 && normalized < 2; normalized++) {
		const struct tok_added *a = tok_added_match(t, want, normalized == 1);

		if (a != NULL && a->text.len == want.len)
			return a->id;
	}
	return -1;
}

const uint32_t *tokenizer_eos(const struct tokenizer *t, size_t *n)
{
	*n = t->n_eos;
	return t->eos;
}

uint64_t tokenizer_hash(const struct tokenizer *t)
{
	return t->hash;
}
