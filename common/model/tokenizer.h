/* Text to token ids and back: byte-level BPE as a Hugging Face tokenizer.json
 * describes it (NFC, one of the two Qwen split expressions, merges). What a file
 * asks for beyond that is refused at load, by name and value. Immutable after load:
 * any number of threads may use one tokenizer at the same time. */
#ifndef COMMON_MODEL_TOKENIZER_H
#define COMMON_MODEL_TOKENIZER_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bounds of a tokenizer; a file that exceeds one is refused with ST_LIMIT. */
#define TOK_IDS_MAX         (1u << 20)   /* ids 0 .. TOK_IDS_MAX - 1 */
#define TOK_ADDED_MAX       4096u        /* added tokens */
#define TOK_TOKEN_BYTES_MAX 1024u        /* bytes of one token */
#define TOK_EOS_MAX         16u          /* stop ids */
#define TOK_TEXT_MAX        (1u << 29)   /* bytes given to one encode */
#define TOK_FILE_MAX        (256u << 20) /* bytes of one file of the model */

struct tokenizer;

/* Reads tokenizer.json and, where present, tokenizer_config.json (more added tokens,
 * eos_token), generation_config.json and config.json (eos_token_id). Start-up memory.
 * No tokenizer.json: ST_IO with its path; the caller decides what that means. */
MUST_CHECK status tokenizer_load(
	struct tokenizer **out, const char *model_dir, struct err *err);
void tokenizer_destroy(struct tokenizer *t);

/* A growing array of ids; storage from mem_take. */
struct tok_ids {
	uint32_t *v;
	size_t n;
	size_t cap;
	size_t max; /* most ids it may hold */
};

void tok_ids_init(struct tok_ids *ids, size_t max);
void tok_ids_release(struct tok_ids *ids);

enum tok_flag {
	TOK_ADDED = 1u << 0,  /* recognise the added tokens in the text */
	TOK_MASKED = 1u << 1, /* the text is masked (below): undo that in plain text */
};

/* Masks: how text that came from a user is kept from yielding a special token
 * although it is rendered into one prompt with the template's own text. Whoever
 * renders changes each user string before the template sees it, in this order:
 *   1. every U+10FFFE in it is doubled;
 *   2. one U+10FFFE is inserted after the first character of every place where the
 *      text of an added token begins, and of every place where the rest of the
 *      string is a beginning of such a text (the template may put another string
 *      right behind it). Places are those of the string after step 1, overlapping
 *      ones included. A string may be spared for tokens that are not special.
 * Encoding with TOK_ADDED | TOK_MASKED first takes the added tokens out of the masked
 * text (the normalized ones out of the NFC of what the others leave), then undoes the
 * masks in the pieces between them: a run of k marks becomes
 * k / 2 marks (rounded down). So a user's text is encoded as if TOK_ADDED knew none of
 * the masked tokens there. A token of one character cannot be masked: a special one is
 * refused at load, as is any that holds the mark; a plain one stays recognised. */
#define TOK_MASK_UTF8 "\xF4\x8F\xBF\xBE"

/* Appends the ids of text to out. ST_INVALID: not UTF-8 (the text names the byte
 * offset); ST_LIMIT: more than out->max ids in all, or a text over TOK_TEXT_MAX;
 * ST_NOMEM: the request memory is used up. On failure out->n is as it was. Time is
 * n log n in the bytes of the text. */
MUST_CHECK status tokenizer_encode(const struct tokenizer *t, struct bytes text,
	unsigned flags, struct tok_ids *out, struct err *err);

/* The raw bytes of a token, borrowed; added tokens: their text. Not always UTF-8 by
 * itself (detok.h). An id without a token: no bytes. */
struct bytes tokenizer_token_bytes(const struct tokenizer *t, uint32_t id);
/* 1 + the largest id: logits at and above it belong to no token. */
uint32_t tokenizer_n_tokens(const struct tokenizer *t);
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);

struct tok_added {
	struct bytes text;
	uint32_t id;
	bool special;
};

/* All added tokens, in the byte order of their texts; borrowed. */
const struct tok_added *tokenizer_added(const struct tokenizer *t, size_t *n);
/* Id of the added token with exactly this text, or -1. */
int64_t tokenizer_find(const struct tokenizer *t, const char *text);
/* Ids that end an answer: the union of what the files of the model say, ascending.
 * n may be 0 when no file says any. */
const uint32_t *tokenizer_eos(const struct tokenizer *t, size_t *n);
/* Equal for two tokenizers that encode and decode every text alike. */
uint64_t tokenizer_hash(const struct tokenizer *t);

#endif
