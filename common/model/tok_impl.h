/* What the files of the tokenizer share; nobody else includes this, except tests. */
#ifndef COMMON_MODEL_TOK_IMPL_H
#define COMMON_MODEL_TOK_IMPL_H
#include "common/model/tokenizer.h"

struct json; /* common/base/json.h */

/* Sizes of the generated tables; gen_tok_classes.py prints them. */
#define TOK_CLASS_RUNS   1980
#define TOK_INERT_RANGES 69

/* The general categories that the split expressions name; disjoint. */
enum tok_class { TOK_OTHER, TOK_L, TOK_M, TOK_N, TOK_S };

struct tok_range {
	uint32_t first, last;
};

/* Runs of equal class, ascending: first code point << 3 | class; one entry more ends
 * the table. */
extern const uint32_t tok_class_runs[TOK_CLASS_RUNS + 1];
/* Code points that `tokenizers` does not normalise although today's Unicode does. */
extern const struct tok_range tok_inert[TOK_INERT_RANGES];

/* Which of the two known expressions cuts text into pieces. */
enum tok_split { TOK_SPLIT_QWEN2, TOK_SPLIT_QWEN35 };

/* A slot of the table (left id, right id) -> rank; free when rank is TOK_NO_RANK. */
struct tok_pair {
	uint32_t left, right, rank;
};

#define TOK_NO_RANK UINT32_MAX
#define TOK_NO_ID   UINT32_MAX

struct tokenizer {
	/* Bytes of token id: blob + at[id] .. at[id] + len[id]. */
	uint8_t *blob;
	size_t blob_used;
	uint32_t *at;
	uint16_t *len;
	uint8_t *kind; /* enum tok_kind, for each id */
	uint32_t n_tokens;

	uint32_t byte_id[256];
	uint32_t *merged; /* rank -> id of the token that the merge gives */
	uint32_t n_merges;
	struct tok_pair *pairs;
	uint32_t pair_mask; /* slots - 1; slots are a power of two */
	uint32_t longest;   /* bytes of the longest token of the vocabulary */

	/* Tokens of the vocabulary by their bytes, TOK_NO_ID where free. */
	uint32_t *by_bytes;
	uint32_t by_bytes_mask;
	bool ignore_merges; /* a piece that is a token stays whole */

	struct tok_added *added; /* sorted by text */
	size_t n_added;
	bool any_normalized;
	size_t added_first[257]; /* those that begin with byte b: [b] .. [b + 1] */

	uint32_t eos[TOK_EOS_MAX];
	size_t n_eos;
	enum tok_split split;
	uint64_t hash;
};

enum tok_kind {
	TOK_ABSENT, /* a gap between ids */
	TOK_VOCAB,  /* written in the byte alphabet */
	TOK_RAW, /* of the vocabulary, but not in the byte alphabet: decodes as it stands
		  */
	TOK_PLAIN,      /* added, not special */
	TOK_NORMALIZED, /* the same, recognised in the text after NFC */
	TOK_SPECIAL,
};

/* tok_load.c */
/* json: tokenizer.json; config: tokenizer_config.json, or no bytes. */
MUST_CHECK status tokenizer_parse(
	struct tokenizer **out, struct bytes json, struct bytes config, struct err *err);

/* tok_pipeline.c */
/* Refuses every normalizer, pre_tokenizer, post_processor, decoder and model option
 * that is not done here, with "name is value". */
MUST_CHECK status tok_pipeline_check(
	const struct json *root, enum tok_split *split, struct err *err);

/* tok_vocab.c */
/* Sizes everything that is indexed by id; n_tokens and blob_bytes cover the added
 * tokens too. */
MUST_CHECK status tok_vocab_build(struct tokenizer *t, const struct json *model,
	uint32_t n_tokens, size_t blob_bytes, struct err *err);
MUST_CHECK status tok_vocab_put(struct tokenizer *t, uint32_t id, struct bytes text,
	enum tok_kind kind, struct err *err);
/* What a token written in the byte alphabet stands for; false: it is not. buf has room
 * for text.len bytes. */
bool tok_vocab_bytes(struct bytes text, uint8_t *buf, size_t *n);
/* Id of the token of the vocabulary (not RAW) with these bytes, or TOK_NO_ID. */
uint32_t tok_vocab_find(const struct tokenizer *t, struct bytes raw);

/* tok_merges.c */
MUST_CHECK status tok_merges_build(
	struct tokenizer *t, const struct json *model, struct err *err);
uint32_t tok_merges_rank(const struct tokenizer *t, uint32_t left, uint32_t right);
/* After the added tokens: the other tokens of several bytes are what merges make. */
MUST_CHECK status tok_merges_check(const struct tokenizer *t, struct err *err);

/* tok_added.c; what: the file, for refusals. */
struct tok_added_sum {
	size_t n;
	size_t text_bytes;
	int64_t id_max; /* -1: none */
};

/* root: tokenizer.json; config: tokenizer_config.json or NULL. Checks and counts. */
MUST_CHECK status tok_added_scan(const struct json *root, const struct json *config,
	struct tok_added_sum *sum, struct err *err);
/* After tok_vocab_build; sum as scanned. */
MUST_CHECK status tok_added_build(struct tokenizer *t, const struct json *root,
	const struct json *config, const struct tok_added_sum *sum, struct err *err);
/* The longest added token of that kind that text begins with, or NULL. */
const struct tok_added *tok_added_match(
	const struct tokenizer *t, struct bytes text, bool normalized);

/* tok_bpe.c */
/* Memory of one encode call, grown as its pieces need. */
struct tok_work {
	uint32_t *sym;  /* id at a byte position that begins a symbol */
	uint32_t *next; /* byte position of the following symbol, or the piece's length */
	uint32_t *prev;
	uint32_t *rank; /* of the merge with the following symbol, or TOK_NO_RANK */
	size_t cap;     /* bytes of a piece that the four arrays can hold */
	uint64_t *heap; /* rank << 32 | position */
	size_t n_heap;
	uint64_t
		n_pushed; /* heap entries of the last piece ever made: at most 3 a byte */
};

void tok_work_release(struct tok_work *w);
MUST_CHECK status tok_bpe_encode(const struct tokenizer *t, struct tok_work *w,
	struct bytes piece, struct tok_ids *out, struct err *err);
MUST_CHECK status tok_ids_push(struct tok_ids *ids, uint32_t id, struct err *err);

/* tok_split.c: bytes of the first piece of text, which is valid UTF-8, not empty. */
size_t tok_split_next(enum tok_split split, struct bytes text);
enum tok_class tok_class_of(uint32_t cp);

/* tok_norm.c: append to out, whose bound is large enough for any text in. */
MUST_CHECK status tok_norm_nfc(struct bytes text, struct sink *out, struct err *err);
MUST_CHECK status tok_norm_unmask(struct bytes text, struct sink *out, struct err *err);

#endif
