/* baton-logits: logits of given token ids through the engine's own code, for numerics
 * tests. Reads case.<i>.ids (and deep.ids), writes case.<i>.logits [T][V] of every
 * position, not masked; with --deep also what stands between the layers. With --decode
 * the last ids go through decode steps, after a hand-over from a second process. */
#include "common/base/conf.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/process.h"
#include "deploy/tools/logits_file.h"
#include "deploy/tools/logits_handover.h"
#include "deploy/tools/logits_run.h"

#include <stdio.h>
#include <string.h>

#define TOOL_MEMORY_BYTES (UINT64_C(64) << 30)
#define SLOT              1u

#define LOGITS_CONF(U64, F64, STR, BOOL, WORD)                                           \
	STR(model, "", "checkpoint folder")                                              \
	STR(load_format, "auto", "auto: the checkpoint; dummy: random weights")          \
	STR(model_config, "", "with dummy: config.json of the model")                    \
	STR(dummy_format, "nvfp4", "with dummy: nvfp4, released or bf16")                \
	STR(in, NULL, "safetensors file with case.<i>.ids, and deep.ids for --deep")     \
	STR(out, NULL, "safetensors file to write")                                      \
	U64(chunk, "512", 1, 1 << 20, "tokens of one prefill pass")                      \
	U64(decode, "0", 0, 1 << 20, "ids at each end that go through decode steps")     \
	BOOL(deep, "false", "write hidden states and GDN state of deep.ids")             \
	WORD(backend, "auto", "auto|cpu|cuda", "what the devices must be")               \
	STR(gpus, "", "devices, one rank each: cpu:0,cpu:1 or 0,1; empty: the first")    \
	BOOL(expert_parallel, "false",                                                   \
		"ranks share the experts by expert, not by width")                       \
	STR(gpus_decode, "", "with --decode: devices of the decoding side, if others")   \
	STR(transport, "auto", "with --decode: as the workers' --transport")             \
	U64(last, "0", 0, 1 << 20, "positions whose logits are written; 0: all")         \
	STR(flip, "", "with --decode: damage the state that moves: slot, or page:I")     \
	STR(kernels, "", "kernel variants to force: linear/plain,moe/avx2")              \
	STR(route, "", "file with case.<i>.route: expert ids to use")                    \
	STR(dump_route, "", "file to write expert ids to")                               \
	U64(export_order_fd, "0", 0, 1 << 20,                                            \
		"set by the program for its other process")                              \
	U64(export_logits_fd, "0", 0, 1 << 20,                                           \
		"set by the program for its other process")                              \
	STR(export_dir, "", "set by the program for its other process")

struct logits_conf {
	CONF_STRUCT(LOGITS_CONF)
};
#define CONF_TYPE struct logits_conf
static const struct conf_key keys[] = {CONF_KEYS(LOGITS_CONF)};
static const struct conf_table table = {
	.keys = keys,
	.n_keys = COUNT(keys),
	.program = "baton-logits",
	.purpose = "logits of given token ids through the engine, for numerics tests",
};

struct tool {
	struct logits_conf conf;
	struct st_index *in, *route;
	struct engine *engine;
	struct handover *handover; /* --decode */
	uint32_t *pages;           /* of the one sequence at a time; last page first
				    */
	uint32_t n_pages, longest;
	struct out_file out, dump;
	/* --deep: where the tap writes the hidden states of the running
	 * pass. */
	float **hidden; /* [n_layers + 1] */
	uint32_t hidden_at;
};

static void keep_hidden(
	void *ctx, uint32_t layer, const float *hidden, uint32_t n_rows, uint32_t width)
{
	struct tool *t = ctx;

	memcpy(t->hidden[layer] + (uint64_t)t->hidden_at * width, hidden,
		(uint64_t)n_rows * width * sizeof(float));
	if (layer == engine_config(t->engine)->n_layers)
		t->hidden_at += n_rows;
}

static uint32_t moe_layers(const struct model_config *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_layers; i++)
		n += c->layer_moe[i];
	return n;
}

/* Forced and dumped expert ids of one set of ids,
 * [n_moe_layers][n][top_k]. *forced is the caller's to give back. */
static status set_route(
	struct tool *t, const char *set, uint32_t n, uint32_t **forced, struct err *err)
{
	const struct model_config *c = engine_config(t->engine);
	const uint64_t dim[] = {moe_layers(c), n, c->top_k};
	uint64_t bytes = dim[0] * dim[1] * dim[2] * sizeof(uint32_t);
	char name[OUT_NAME_MAX];
	void *dump = NULL;

	*forced = NULL;
	(void)snprintf(name, sizeof(name), "%s.route", set);
	if (t->route != NULL) {
		const struct st_tensor *r = st_find(t->route, name);
		status st;

		if (r == NULL || r->dtype != STD_I32 || r->bytes != bytes)
			return err_set(err, ST_INVALID,
				"%s: %s is not I32 [%llu][%u][%u]", t->conf.route, name,
				(unsigned long long)dim[0], n, c->top_k);
		*forced = mem_take(1, bytes);
		if (*forced == NULL)
			return err_set(err, ST_NOMEM, "%s: no memory", name);
		st = st_read(t->route, r, 0, *forced, bytes, err);
		for (uint64_t i = 0; st == ST_OK && i < bytes / sizeof(uint32_t); i++)
			if ((*forced)[i] >= c->n_experts)
				st = err_set(err, ST_INVALID, "%s: expert %u of %u", name,
					(*forced)[i], c->n_experts);
		if (st != ST_OK)
			return st;
	}
	if (t->conf.dump_route[0] != 0) {
		status st = out_add(&t->dump, &dump, STD_I32, 3, dim, name, err);

		if (st != ST_OK)
			return st;
	}
	engine_route(t->engine, *forced, dump, n);
	return ST_OK;
}

static void print_chunks(const char *set, uint32_t n, uint32_t chunk)
{
	printf("%s chunks:", set);
	for (uint32_t at = 0; at < n; at += chunk)
		printf(" %u", MIN(chunk, n - at));
	printf("\n");
}

static status run_set(struct tool *t, const char *set, const uint32_t *ids, uint32_t n,
	float *logits, struct err *err)
{
	struct place place = {t->pages, CEIL_DIV(n, PAGE_TOKENS), SLOT};
	uint32_t *forced;
	status st = set_route(t, set, n, &forced, err);

	if (st == ST_OK) {
		print_chunks(set, n, (uint32_t)t->conf.chunk);
		st = run_prefill(
			t->engine, ids, n, (uint32_t)t->conf.chunk, &place, logits, err);
	}
	engine_route(t->engine, NULL, NULL, 0);
	mem_give(forced);
	return st;
}

/* The last `decode` ids through steps, those before them in the other
 * process. */
static status run_handed_over(struct tool *t, const char *set, const uint32_t *ids,
	uint32_t n, float *logits, struct err *err)
{
	uint32_t steps = (uint32_t)MIN(t->conf.decode, (uint64_t)n - 1);
	struct place place = {t->pages, CEIL_DIV(n - steps, PAGE_TOKENS), SLOT};
	uint64_t bytes;
	status st;

	print_chunks(set, n - steps, (uint32_t)t->conf.chunk);
	st = handover_run(t->handover, ids, n - steps, &place, logits, &bytes, err);
	if (st != ST_OK)
		return st;
	printf("%s handed over: %u tokens, %llu bytes, then %u steps\n", set, n - steps,
		(unsigned long long)bytes, steps);
	place.n_pages = CEIL_DIV(n, PAGE_TOKENS);
	logits += (uint64_t)(n - steps) * engine_config(t->engine)->vocab;
	return run_decode(t->engine, ids, n - steps, steps, &place, logits, err);
}

static status run_rows(struct tool *t, const char *set, const uint32_t *ids, uint32_t n,
	float *logits, struct err *err)
{
	if (t->handover != NULL && n > 1)
		return run_handed_over(t, set, ids, n, logits, err);
	return run_set(t, set, ids, n, logits, err);
}

static status run_case(
	struct tool *t, uint32_t index, const uint32_t *ids, uint32_t n, struct err *err)
{
	uint64_t kept = t->conf.last != 0 ? MIN(t->conf.last, (uint64_t)n) : n;
	const uint64_t dim[] = {kept, engine_config(t->engine)->vocab};
	char set[OUT_NAME_MAX / 2], name[OUT_NAME_MAX];
	float *all = NULL;
	void *logits;
	status st;

	(void)snprintf(set, sizeof(set), "case.%u", index);
	(void)snprintf(name, sizeof(name), "%s.logits", set);
	st = out_add(&t->out, &logits, STD_F32, 2, dim, name, err);
	if (st == ST_OK && kept == n)
		st = run_rows(t, set, ids, n, logits, err);
	else if (st == ST_OK) {
		all = mem_take(n * dim[1], sizeof(*all));
		st = all == NULL ? err_set(err, ST_NOMEM, "no memory for logits")
				 : run_rows(t, set, ids, n, all, err);
		if (st == ST_OK)
			memcpy(logits, all + (n - kept) * dim[1],
				kept * dim[1] * sizeof(*all));
	}
	mem_give(all);
	return st == ST_OK ? ST_OK : err_wrap(err, "%s", set);
}

static status add_hidden(struct tool *t, uint32_t n, struct err *err)
{
	const struct model_config *c = engine_config(t->engine);
	const uint64_t dim[] = {n, c->hidden};
	status st = ST_OK;

	t->hidden = mem_alloc(c->n_layers + 1, sizeof(*t->hidden));
	for (uint32_t i = 0; st == ST_OK && i <= c->n_layers; i++) {
		char name[OUT_NAME_MAX];
		void *data;

		(void)snprintf(name, sizeof(name), "deep.hidden.%u", i);
		st = out_add(&t->out, &data, STD_F32, 2, dim,
			i == c->n_layers ? "deep.final" : name, err);
		t->hidden[i] = data;
	}
	return st;
}

static status add_states(struct tool *t, struct err *err)
{
	const struct model_config *c = engine_config(t->engine);
	const uint64_t state_dim[] = {c->gdn_v_heads, c->gdn_k_dim, c->gdn_v_dim};
	const uint64_t conv_dim[] = {model_conv_channels(c), c->conv_taps - 1};
	status st = ST_OK;

	for (uint32_t i = 0; st == ST_OK && i < c->n_layers; i++) {
		char name[OUT_NAME_MAX];
		void *state, *conv;

		if (c->layer_kind[i] != LAYER_GDN)
			continue;
		(void)snprintf(name, sizeof(name), "deep.state.%u", i);
		st = out_add(&t->out, &state, STD_F32, 3, state_dim, name, err);
		(void)snprintf(name, sizeof(name), "deep.conv.%u", i);
		if (st == ST_OK)
			st = out_add(&t->out, &conv, STD_F32, 2, conv_dim, name, err);
		if (st == ST_OK)
			st = run_read_state(
				t->engine, SLOT, c->layer_ordinal[i], state, conv, err);
	}
	return st;
}

static status run_deep(struct tool *t, const uint32_t *ids, uint32_t n, struct err *err)
{
	uint64_t vocab = engine_config(t->engine)->vocab;
	float *logits = mem_take(n * vocab, sizeof(*logits));
	status st;

	if (logits == NULL)
		return err_set(err, ST_NOMEM, "deep: no memory for logits");
	st = add_hidden(t, n, err);
	if (st == ST_OK) {
		engine_tap(t->engine, keep_hidden, t);
		st = run_set(t, "deep", ids, n, logits, err);
	}
	if (st == ST_OK)
		st = add_states(t, err);
	mem_give(logits);
	return st;
}

static status run_all(struct tool *t, struct err *err)
{
	uint32_t n, *ids;
	status st = ST_OK;

	for (uint32_t i = 0; st == ST_OK; i++) {
		char name[OUT_NAME_MAX];

		(void)snprintf(name, sizeof(name), "case.%u.ids", i);
		st = ids_read(t->in, name, &ids, &n, err);
		if (st != ST_OK || ids == NULL)
			break;
		st = run_case(t, i, ids, n, err);
		mem_give(ids);
	}
	if (st != ST_OK || !t->conf.deep)
		return st;
	st = ids_read(t->in, "deep.ids", &ids, &n, err);
	if (st == ST_OK && ids == NULL)
		st = err_set(err, ST_INVALID, "%s: no deep.ids", t->conf.in);
	if (st == ST_OK)
		st = run_deep(t, ids, n, err);
	mem_give(ids);
	return st;
}

static uint32_t longest_set(const struct st_index *ix)
{
	uint64_t longest = 1;

	for (uint32_t i = 0; i < st_count(ix); i++) {
		const struct st_tensor *s = st_at(ix, i);
		size_t len = strlen(s->name);

		if (len > 4 && strcmp(s->name + len - 4, ".ids") == 0 && s->n_dims == 1)
			longest = MAX(longest, s->dim[0]);
	}
	return (uint32_t)MIN(longest, UINT32_MAX / 2);
}

static struct engine_options model_options(const struct tool *t)
{
	return (struct engine_options){.model_dir = t->conf.model,
		.config_file = t->conf.model_config,
		.dummy = strcmp(t->conf.load_format, "dummy") == 0 ? t->conf.dummy_format
								   : "",
		.expert_parallel = t->conf.expert_parallel};
}

/* The backend follows from the devices; a name given for it has to agree. */
static status check_backend(struct logits_conf *c, struct err *err)
{
	bool cuda = strcmp(c->backend, "cuda") == 0, cpu = strcmp(c->backend, "cpu") == 0;
	const char *devices[2];

	if (c->gpus[0] == 0)
		c->gpus = cuda ? "0" : "cpu:0";
	devices[0] = c->gpus;
	devices[1] = c->gpus_decode;
	for (int i = 0; i < 2; i++) {
		bool on_cpu = strncmp(devices[i], "cpu", 3) == 0;

		if (devices[i][0] != 0 && ((cuda && on_cpu) || (cpu && !on_cpu)))
			return err_set(err, ST_INVALID,
				"backend %s: devices '%s' are of another", c->backend,
				devices[i]);
	}
	return ST_OK;
}

static status check_model(const struct tool *t, struct err *err)
{
	bool dummy = strcmp(t->conf.load_format, "dummy") == 0;

	if (!dummy && strcmp(t->conf.load_format, "auto") != 0)
		return err_set(err, ST_INVALID, "load_format '%s': auto or dummy",
			t->conf.load_format);
	if (!dummy && t->conf.model_config[0] != 0)
		return err_set(err, ST_INVALID, "model_config is for load_format dummy");
	if (t->conf.model[0] == 0 && t->conf.model_config[0] == 0)
		return err_set(err, ST_INVALID, "neither model nor model_config is set");
	return ST_OK;
}

/* The second process is this program with the same flags, and those of
 * the link. */
static status start_exporter(struct tool *t, int argc, char **argv, struct err *err)
{
	struct engine_options o = model_options(t);
	struct model_config config;
	status st = engine_read_config(&o, &config, err);

	if (st != ST_OK)
		return st;
	if (t->conf.route[0] != 0 || t->conf.dump_route[0] != 0)
		return err_set(err, ST_INVALID,
			"route and dump_route: only without decode, "
			"steps choose freely");
	return handover_start(&t->handover, (const char *const *)argv, (uint32_t)argc,
		(uint64_t)t->longest * config.vocab * sizeof(float), err);
}

static status create_engine(struct tool *t, bool exporting, struct err *err)
{
	bool other = !exporting && t->conf.decode > 0 && t->conf.gpus_decode[0] != 0;
	struct engine_options o = model_options(t);

	o.gpus = other ? t->conf.gpus_decode : t->conf.gpus;
	o.kernels = t->conf.kernels;
	o.rows_max = (uint32_t)MIN(t->conf.chunk, (uint64_t)t->longest);
	o.seqs_max = 1;
	o.len_max = t->longest;
	o.n_pages = (uint64_t)t->n_pages + 1;
	o.logits = true;
	o.kv_dtype = o.conv_dtype = strncmp(o.gpus, "cpu", 3) == 0 ? DT_F32 : DT_BF16;
	return engine_create(&t->engine, &o, err);
}

static status open_files(struct tool *t, struct err *err)
{
	status st = st_open_file(&t->in, t->conf.in, err);

	if (st == ST_OK && t->conf.route[0] != 0)
		st = st_open_file(&t->route, t->conf.route, err);
	if (st != ST_OK)
		return st;
	t->longest = longest_set(t->in);
	t->n_pages = CEIL_DIV(t->longest, PAGE_TOKENS);
	t->pages = mem_alloc(t->n_pages, sizeof(*t->pages));
	for (uint32_t i = 0; i < t->n_pages; i++)
		t->pages[i] = t->n_pages - i;
	return ST_OK;
}

static status export_state(struct tool *t, struct err *err)
{
	struct exporter_options o = {.order_fd = (int)t->conf.export_order_fd,
		.logits_fd = (int)t->conf.export_logits_fd,
		.runtime_dir = t->conf.export_dir,
		.flip = t->conf.flip,
		.chunk = (uint32_t)t->conf.chunk};
	status st = create_engine(t, true, err);

	return st == ST_OK ? handover_export(t->engine, &o, err) : st;
}

static status write_tensors(struct tool *t, int argc, char **argv, struct err *err)
{
	status st = ST_OK;

	if (t->conf.decode > 0)
		st = start_exporter(t, argc, argv, err);
	if (st == ST_OK)
		st = create_engine(t, false, err);
	if (st == ST_OK)
		printf("model %016llx\n",
			(unsigned long long)engine_layout(t->engine)->model_hash);
	if (st == ST_OK && t->handover != NULL)
		st = handover_attach(t->handover, t->engine, t->conf.transport, err);
	if (st == ST_OK)
		st = run_all(t, err);
	if (st == ST_OK)
		st = out_write(&t->out, t->conf.out, err);
	if (st == ST_OK && t->conf.dump_route[0] != 0)
		st = out_write(&t->dump, t->conf.dump_route, err);
	return st;
}

int main(int argc, char **argv)
{
	/* Its configuration lives until exit, as start-up memory does. */
	static struct tool t;
	bool stop = false;
	struct err err;
	status st;

	log_name_set("logits");
	log_level_set(LOG_WARN);
	mem_budget(TOOL_MEMORY_BYTES);
	st = process_begin(&err);
	if (st == ST_OK)
		st = conf_load(&table, argc, argv, &t.conf, &stop, &err);
	if (st == ST_OK && !stop)
		st = check_backend(&t.conf, &err);
	if (st == ST_OK && !stop)
		st = check_model(&t, &err);
	if (st == ST_OK && !stop)
		st = open_files(&t, &err);
	if (st == ST_OK && !stop)
		st = t.conf.export_order_fd > 0 ? export_state(&t, &err)
						: write_tensors(&t, argc, argv, &err);
	if (st != ST_OK)
		log_error("%s", err.text);
	handover_end(t.handover);
	engine_destroy(t.engine);
	st_close(t.in);
	st_close(t.route);
	out_release(&t.out);
	out_release(&t.dump);
	mem_free(t.hidden);
	mem_free(t.pages);
	return process_end(st == ST_OK ? 0 : 1);
}
