/* Loading: the files of a model folder to one immutable tokenizer. */
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/model/json_field.h"
#include "common/model/json_file.h"
#include "common/model/tok_impl.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Folds everything that decides how a text is encoded and decoded. */
static uint64_t hash_all(const struct tokenizer *t)
{
	uint64_t h = hash64_u64(t->n_tokens, (uint64_t)t->split << 1 | t->ignore_merges);

	for (uint32_t id = 0; id < t->n_tokens; id++) {
		struct bytes text = tokenizer_token_bytes(t, id);

		h = hash64(text.at, text.len, h ^ t->kind[id]);
	}
	for (uint32_t i = 0; i <= t->pair_mask; i++) {
		const struct tok_pair *p = &t->pairs[i];

		if (p->rank != TOK_NO_RANK)
			h = hash64(p, sizeof(*p), h);
	}
	return hash64(t->merged, t->n_merges * sizeof(*t->merged), h);
}

/* Checks the ids of the vocabulary; the size of what holds all tokens. */
static status measure(
	const struct json *vocab, int64_t *id_max, size_t *text_bytes, struct err *err)
{
	char shown[64];
	int64_t id;

	if (!json_is(vocab, JSON_OBJECT) || json_count(vocab) == 0)
		return err_set(
			err, ST_INVALID, "model.vocab is not an object with tokens");
	json_each_member(word, vocab)
	{
		if (!json_i64(word + 1, &id) || id < 0 || id >= TOK_IDS_MAX)
			return err_set(err, ST_LIMIT,
				"model.vocab: the id of %s is not in 0 .. %u (line %u)",
				json_show(word, shown, sizeof(shown)), TOK_IDS_MAX - 1,
				word->line);
		*id_max = MAX(*id_max, id);
		*text_bytes += word->len;
	}
	return ST_OK;
}

static status build(struct tokenizer *t, const struct json *root,
	const struct json *config, struct err *err)
{
	const struct json *model = json_member(root, "model");
	const struct json *ignore = json_member(model, "ignore_merges");
	struct tok_added_sum sum;
	size_t text_bytes = 0;
	int64_t id_max = -1;
	status st;

	st = tok_pipeline_check(root, &t->split, err);
	if (st == ST_OK)
		st = measure(json_member(model, "vocab"), &id_max, &text_bytes, err);
	if (st == ST_OK && ignore != NULL && !json_is_bool(ignore))
		st = err_set(err, ST_INVALID, "model.ignore_merges is not true or false");
	if (st != ST_OK)
		return err_wrap(err, "tokenizer.json");
	t->ignore_merges = json_is(ignore, JSON_TRUE);
	st = tok_added_scan(root, config, &sum, err);
	if (st != ST_OK)
		return st;
	id_max = MAX(id_max, sum.id_max);
	st = tok_vocab_build(
		t, model, (uint32_t)id_max + 1, text_bytes + sum.text_bytes, err);
	if (st == ST_OK)
		st = tok_merges_build(t, model, err);
	if (st != ST_OK)
		return err_wrap(err, "tokenizer.json");
	st = tok_added_build(t, root, config, &sum, err);
	if (st != ST_OK)
		return st;
	st = tok_merges_check(t, err);
	if (st != ST_OK)
		return err_wrap(err, "tokenizer.json");
	t->hash = hash_all(t);
	return ST_OK;
}

static status create(struct tokenizer **out, const struct json *root,
	const struct json *config, struct err *err)
{
	struct tokenizer *t = mem_alloc(1, sizeof(*t));
	status st = build(t, root, config, err);

	if (st == ST_OK)
		*out = t;
	else
		tokenizer_destroy(t);
	return st;
}

status tokenizer_parse(
	struct tokenizer **out, struct bytes json, struct bytes config, struct err *err)
{
	struct json_file root = {0}, more = {0};
	status st;

	st = json_file_parse(&root, json, err);
	if (st != ST_OK) {
		err_wrap(err, "tokenizer.json");
		goto out;
	}
	if (config.len > 0) {
		st = json_file_parse(&more, config, err);
		if (st != ST_OK) {
			err_wrap(err, "tokenizer_config.json");
			goto out;
		}
	}
	st = create(out, root.doc.values, more.doc.values, err);
out:
	json_file_release(&root);
	json_file_release(&more);
	return st;
}

void tokenizer_destroy(struct tokenizer *t)
{
	if (t == NULL)
		return;
	mem_free(t->blob);
	mem_free(t->at);
	mem_free(t->len);
	mem_free(t->kind);
	mem_free(t->merged);
	mem_free(t->pairs);
	mem_free(t->by_bytes);
	mem_free(t->added);
	mem_free(t);
}

/* Keeps the stop ids ascending and each once. */
static status add_eos(struct tokenizer *t, int64_t id, struct err *err)
{
	size_t at = 0;

	if (id < 0 || id >= t->n_tokens)
		return err_set(err, ST_INVALID,
			"eos_token_id %lld is no token of %u in the tokenizer",
			(long long)id, t->n_tokens);
	while (at < t->n_eos && t->eos[at] < id)
		at++;
	if (at < t->n_eos && t->eos[at] == id)
		return ST_OK;
	if (t->n_eos == TOK_EOS_MAX)
		return err_set(err, ST_LIMIT, "more than %u stop ids", TOK_EOS_MAX);
	memmove(t->eos + at + 1, t->eos + at, (t->n_eos - at) * sizeof(*t->eos));
	t->eos[at] = (uint32_t)id;
	t->n_eos++;
	return ST_OK;
}

/* eos_token_id of an object: a number, a list of numbers, null or not there. */
static status add_eos_ids(struct tokenizer *t, const struct json *object, struct err *err)
{
	const struct json *value = json_given(object, "eos_token_id");
	uint32_t n = json_is(value, JSON_ARRAY) ? json_count(value) : value != NULL;
	status st = ST_OK;
	int64_t id;

	for (uint32_t i = 0; i < n && st == ST_OK; i++) {
		if (!json_i64(json_is(value, JSON_ARRAY) ? json_item(value, i) : value,
			    &id))
			return json_field_refuse(err, "eos_token_id", value,
				"neither a number of an id nor a list of them");
		st = add_eos(t, id, err);
	}
	return st;
}

/* eos_token: a text, or an object with the text as content. */
static status add_eos_token(
	struct tokenizer *t, const struct json *config, struct err *err)
{
	const struct json *value = json_given(config, "eos_token"), *text = value;
	int64_t id;

	if (json_is(value, JSON_OBJECT))
		text = json_given(value, "content");
	if (text == NULL)
		return ST_OK;
	id = json_text(text) != NULL ? tokenizer_find(t, json_text(text)) : -1;
	if (id < 0)
		return json_field_refuse(err, "eos_token", text, "is no added token");
	return add_eos(t, id, err);
}

/* A file that need not be there: then *out stays empty. */
static status read_json(struct json_file *out, const char *dir, const char *name,
	bool needed, struct err *err)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/%s", dir, name);

	if (n < 0 || (size_t)n >= sizeof(path))
		return err_set(err, ST_LIMIT, "the path of %s is too long", name);
	if (!needed && access(path, F_OK) != 0)
		return ST_OK;
	return json_file_read(out, path, TOK_FILE_MAX, err);
}

enum { FILE_TOKENIZER, FILE_TOKENIZER_CONFIG, FILE_GENERATION, FILE_CONFIG, FILE__COUNT };
static const char *const file_names[FILE__COUNT] = {[FILE_TOKENIZER] = "tokenizer.json",
	[FILE_TOKENIZER_CONFIG] = "tokenizer_config.json",
	[FILE_GENERATION] = "generation_config.json",
	[FILE_CONFIG] = "config.json"};

/* The union of what the files say. */
static status collect_eos(
	struct tokenizer *t, const struct json_file *file, struct err *err)
{
	const struct json *config = file[FILE_CONFIG].doc.values;
	const struct {
		int file;
		const struct json *object;
	} ids[] = {{FILE_GENERATION, file[FILE_GENERATION].doc.values},
		{FILE_CONFIG, config}, {FILE_CONFIG, json_member(config, "text_config")}};
	status st = add_eos_token(t, file[FILE_TOKENIZER_CONFIG].doc.values, err);

	if (st != ST_OK)
		return err_wrap(err, "%s", file_names[FILE_TOKENIZER_CONFIG]);
	for (size_t i = 0; i < COUNT(ids); i++) {
		st = add_eos_ids(t, ids[i].object, err);
		if (st != ST_OK)
			return err_wrap(err, "%s", file_names[ids[i].file]);
	}
	return ST_OK;
}

status tokenizer_load(struct tokenizer **out, const char *model_dir, struct err *err)
{
	struct json_file file[FILE__COUNT] = {0};
	struct tokenizer *t = NULL;
	status st = ST_OK;

	for (int i = 0; i < FILE__COUNT && st == ST_OK; i++)
		st = read_json(
			&file[i], model_dir, file_names[i], i == FILE_TOKENIZER, err);
	if (st != ST_OK)
		goto out;
	st = create(&t, file[FILE_TOKENIZER].doc.values,
		file[FILE_TOKENIZER_CONFIG].doc.values, err);
	if (st == ST_OK)
		st = collect_eos(t, file, err);
	if (st != ST_OK) {
		err_wrap(err, "%s", model_dir);
		goto out;
	}
	*out = t;
	t = NULL;
out:
	tokenizer_destroy(t);
	for (int i = 0; i < FILE__COUNT; i++)
		json_file_release(&file[i]);
	return st;
}
