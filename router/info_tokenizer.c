/* What /tokenizer_info says, made once at start: special tokens as the model's
 * tokenizer_config.json names them, all added ones, the chat template. */
#include "common/base/json_write.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/model/json_file.h"
#include "router/info.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_BYTES_MAX   (16u << 20)
#define TEMPLATE_BYTES_MAX (4u << 20)
#define INFO_BYTES_MAX     (64u << 20)
#define BLOCK_BYTES        4096u

/* "eos_token": its text, however the file says it; null when it does not. */
static void add_special(struct json_out *w, const struct json *config, const char *name)
{
	const struct json *v = json_given(config, name);

	json_name(w, name);
	if (json_is(v, JSON_OBJECT))
		v = json_given(v, "content");
	if (json_is(v, JSON_STRING))
		json_put(w, v);
	else
		json_put_null(w);
}

static void add_added(struct json_out *w, const struct tokenizer *t)
{
	const struct tok_added *added;
	size_t n;

	added = tokenizer_added(t, &n);
	json_name(w, "added_tokens");
	json_open(w, '[');
	for (size_t i = 0; i < n; i++) {
		json_open(w, '{');
		json_add_u64(w, "id", added[i].id);
		json_add_bytes(w, "content", added[i].text);
		json_add_bool(w, "special", added[i].special);
		json_close(w);
	}
	json_close(w);
}

static void add_eos(struct json_out *w, const struct router *rt)
{
	json_name(w, "eos_token_ids");
	json_open(w, '[');
	for (size_t i = 0; i < rt->n_eos; i++)
		json_put_u64(w, rt->eos[i]);
	json_close(w);
}

static void put_tokenizer(struct json_out *w, const struct router *rt,
	const struct json *config, struct bytes template)
{
	static const char *const special[] = {
		"bos_token", "eos_token", "pad_token", "unk_token"};
	const struct json *class = json_given(config, "tokenizer_class");

	json_open(w, '{');
	json_name(w, "tokenizer_class");
	if (json_is(class, JSON_STRING))
		json_put(w, class);
	else
		json_put_null(w);
	json_add_u64(w, "vocab_size", tokenizer_n_tokens(rt->tokenizer));
	json_add_u64(w, "model_max_length", rt->model_len);
	for (size_t i = 0; i < COUNT(special); i++)
		add_special(w, config, special[i]);
	add_eos(w, rt);
	add_added(w, rt->tokenizer);
	json_name(w, "chat_template");
	if (template.at != NULL)
		json_put_bytes(w, template);
	else
		json_put_null(w);
	json_close(w);
}

/* false: there is no such file, or none of text. */
static bool read_text(struct sink *out, const char *path)
{
	FILE *file = fopen(path, "re");
	char block[BLOCK_BYTES];
	size_t n;

	sink_reset(out);
	if (file == NULL)
		return false;
	while ((n = fread(block, 1, sizeof(block), file)) > 0)
		sink_put(out, block, n);
	fclose(file);
	return !out->full && utf8_valid_len(sink_bytes(out)) == out->len;
}

/* As the template child finds it: the file of the key, the model's, the configuration's.
 */
static struct bytes find_template(
	const struct router *rt, const struct json *config, struct sink *text)
{
	const char *given = rt->conf->chat_template;
	const struct json *own = json_given(config, "chat_template");
	char path[4096];

	snprintf(path, sizeof(path), "%s/chat_template.jinja", rt->conf->model);
	if (read_text(text, given[0] != 0 ? given : path))
		return sink_bytes(text);
	if (given[0] == 0 && json_is(own, JSON_STRING))
		return json_bytes(own);
	return (struct bytes){NULL, 0};
}

status info_tokenizer_open(struct router *rt, struct err *err)
{
	struct json_file file = {0};
	struct sink template, out;
	char path[4096], *text;
	status st = ST_OK;
	struct json_out w;

	sink_init(&template, TEMPLATE_BYTES_MAX);
	sink_init(&out, INFO_BYTES_MAX);
	snprintf(path, sizeof(path), "%s/tokenizer_config.json", rt->conf->model);
	if (access(path, F_OK) == 0)
		st = json_file_read(&file, path, CONFIG_BYTES_MAX, err);
	if (st != ST_OK)
		goto out;
	json_out_init(&w, &out);
	put_tokenizer(
		&w, rt, file.doc.values, find_template(rt, file.doc.values, &template));
	if (out.full) {
		st = err_set(err, ST_NOMEM, "no memory for /tokenizer_info");
		goto out;
	}
	text = mem_alloc(1, out.len + 1);
	memcpy(text, out.at, out.len);
	rt->tokenizer_info = text;
out:
	json_file_release(&file);
	sink_release(&template);
	sink_release(&out);
	return st;
}
