/* The merges: a pair of ids to the rank of its merge, in an open-addressed table, and
 * the rank to the id that results. */
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/model/tok_impl.h"

#include <string.h>

#define MERGES_MAX   (4 * TOK_IDS_MAX)
/* Vocabularies that were converted from a table of ranks hold a few tokens that no merge
 * makes (232 of 247,788 in one of this family). More than one in so many are merges that
 * do not belong to the vocabulary. */
#define UNMADE_SHARE 100u

/* Two rounds of multiply and shift: ids of one token with many partners must not
 * stand in a row. The constants are those of murmur3's finaliser. */
static uint32_t pair_slot(const struct tokenizer *t, uint32_t left, uint32_t right)
{
	uint64_t h = (uint64_t)left << 32 | right;

	h ^= h >> 33;
	h *= UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 33;
	h *= UINT64_C(0xc4ceb9fe1a85ec53);
	return (uint32_t)(h >> 32) & t->pair_mask;
}

static struct tok_pair *find(const struct tokenizer *t, uint32_t left, uint32_t right)
{
	uint32_t i = pair_slot(t, left, right);

	while (t->pairs[i].rank != TOK_NO_RANK &&
		(t->pairs[i].left != left || t->pairs[i].right != right))
		i = (i + 1) & t->pair_mask;
	return &t->pairs[i];
}

uint32_t tok_merges_rank(const struct tokenizer *t, uint32_t left, uint32_t right)
{
	return find(t, left, right)->rank;
}

/* The two parts of a merge: ["a", "b"] or "a b". */
static bool parts_of(const struct json *item, struct bytes *a, struct bytes *b)
{
	struct bytes text = json_bytes(item);
	const uint8_t *space;

	if (json_is(item, JSON_STRING)) {
		space = text.len > 0 ? memchr(text.at, ' ', text.len) : NULL;
		if (space == NULL)
			return false;
		*a = (struct bytes){text.at, (size_t)(space - text.at)};
		*b = (struct bytes){space + 1, text.len - a->len - 1};
		return b->len == 0 || memchr(b->at, ' ', b->len) == NULL;
	}
	*a = json_bytes(json_item(item, 0));
	*b = json_bytes(json_item(item, 1));
	return json_count(item) == 2 && a->at != NULL && b->at != NULL;
}

/* Appends what a part stands for to buf, and looks it up. */
static uint32_t part_id(
	const struct tokenizer *t, struct bytes text, uint8_t *buf, size_t *n)
{
	size_t more;

	if (text.len > (size_t)2 * TOK_TOKEN_BYTES_MAX ||
		!tok_vocab_bytes(text, buf + *n, &more))
		return TOK_NO_ID;
	*n += more;
	return tok_vocab_find(t, (struct bytes){buf + *n - more, more});
}

static status put(
	struct tokenizer *t, const struct json *item, uint32_t rank, struct err *err)
{
	uint8_t buf[4 * TOK_TOKEN_BYTES_MAX];
	uint32_t left, right, whole;
	struct tok_pair *slot;
	struct bytes a, b;
	char show[128];
	size_t n = 0;

	if (!parts_of(item, &a, &b))
		return err_set(err, ST_INVALID,
			"model.merges[%u] is %s, which is not two parts", rank,
			json_show(item, show, sizeof(show)));
	left = part_id(t, a, buf, &n);
	right = part_id(t, b, buf, &n);
	whole = left == TOK_NO_ID || right == TOK_NO_ID
			? TOK_NO_ID
			: tok_vocab_find(t, (struct bytes){buf, n});
	if (whole == TOK_NO_ID)
		return err_set(err, ST_INVALID,
			"model.merges[%u] is %s: a part or the whole is no token", rank,
			json_show(item, show, sizeof(show)));
	slot = find(t, left, right);
	if (slot->rank != TOK_NO_RANK)
		return err_set(err, ST_INVALID, "model.merges[%u] repeats [%u]: %s", rank,
			slot->rank, json_show(item, show, sizeof(show)));
	*slot = (struct tok_pair){left, right, rank};
	t->merged[rank] = whole;
	return ST_OK;
}

status tok_merges_build(struct tokenizer *t, const struct json *model, struct err *err)
{
	const struct json *merges = json_member(model, "merges");
	uint32_t n = json_count(merges), slots = 1024, rank = 0;
	status st;

	if (!json_is(merges, JSON_ARRAY))
		return err_set(err, ST_INVALID, "model.merges is not an array");
	if (n > MERGES_MAX)
		return err_set(err, ST_LIMIT, "model.merges has %u entries, at most %u",
			n, MERGES_MAX);
	while (slots < 2 * n)
		slots *= 2;
	t->n_merges = n;
	t->merged = mem_alloc(n, sizeof(*t->merged));
	t->pairs = mem_alloc(slots, sizeof(*t->pairs));
	t->pair_mask = slots - 1;
	for (uint32_t i = 0; i < slots; i++)
		t->pairs[i].rank = TOK_NO_RANK;
	json_each(item, merges)
	{
		st = put(t, item, rank++, err);
		if (st != ST_OK)
			return st;
	}
	return ST_OK;
}

status tok_merges_check(const struct tokenizer *t, struct err *err)
{
	uint32_t n = 0, pieces = 0, first = TOK_NO_ID;
	struct bytes text;
	uint8_t *made;

	if (t->ignore_merges) /* a whole piece that is a token needs no merge */
		return ST_OK;
	made = mem_take(t->n_tokens, 1);
	if (made == NULL)
		return err_set(err, ST_NOMEM, "no memory for %u marks", t->n_tokens);
	for (uint32_t rank = 0; rank < t->n_merges; rank++)
		made[t->merged[rank]] = 1;
	for (uint32_t id = 0; id < t->n_tokens; id++) {
		if (t->kind[id] != TOK_VOCAB || t->len[id] == 1)
			continue;
		pieces++;
		n += !made[id];
		if (!made[id])
			first = MIN(first, id);
	}
	mem_give(made);
	if (n == 0)
		return ST_OK;
	text = tokenizer_token_bytes(t, first);
	if (n > pieces / UNMADE_SHARE)
		return err_set(err, ST_INVALID,
			"model.merges: its %u entries make %u of the %u longer tokens of "
			"model.vocab; missing are token %u \"%.*s\" and %u others",
			t->n_merges, pieces - n, pieces, first, (int)utf8_valid_len(text),
			(const char *)text.at, n - 1);
	log_info("tokenizer.json: %u of %u longer tokens are made by no merge and stand "
		 "for "
		 "no text, for example token %u \"%.*s\"",
		n, pieces, first, (int)utf8_valid_len(text), (const char *)text.at);
	return ST_OK;
}
