/* From options to an engine that lacks only its threads: model, devices, kernels, the
 * memory plan, and the memory itself. */
#include "common/engine/engine_impl.h"

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/model/weights_dummy.h"

#include <math.h>
#include <string.h>

#define DEVICE_NAME_MAX 64u

/* A plan may speak of GPUs that are not here. */
static status open_device(
	const struct engine *e, struct backend **out, const char *spec, struct err *err)
{
	return e->planning && backend_is_absent(spec) ? backend_describe(out, spec, err)
						      : backend_open(out, spec, err);
}

static status open_devices(struct engine *e, struct err *err)
{
	const char *at = e->o.gpus;

	for (;;) {
		size_t len = strcspn(at, ",");
		char spec[DEVICE_NAME_MAX];
		struct rank *r = &e->rank[e->n_ranks];
		status st;

		if (e->n_ranks == RANKS_MAX)
			return err_set(err, ST_INVALID, "gpus '%s': more than %u",
				e->o.gpus, RANKS_MAX);
		if (len == 0 || len >= sizeof(spec))
			return err_set(err, ST_INVALID,
				"gpus '%s': a device of %zu bytes", e->o.gpus, len);
		memcpy(spec, at, len);
		spec[len] = 0;
		st = open_device(e, &r->b, spec, err);
		if (st != ST_OK)
			return st;
		r->e = e;
		r->index = e->n_ranks++;
		if (at[len] == 0)
			return ST_OK;
		at += len + 1;
	}
}

static bool is_given(const char *option)
{
	return option != NULL && option[0] != 0;
}

status engine_read_config(
	const struct engine_options *o, struct model_config *out, struct err *err)
{
	if (is_given(o->config_file))
		return model_config_load_file(out, o->config_file, err);
	return model_config_load(out, o->model_dir, err);
}

static status open_weights(struct engine *e, struct err *err)
{
	bool dummy = is_given(e->o.dummy);
	enum dummy_format format = DUMMY_BF16;
	status st = weights_check_ranks(&e->config, e->n_ranks, err);

	if (st == ST_OK && dummy)
		st = dummy_format_of(e->o.dummy, &format, err);
	for (uint32_t i = 0; st == ST_OK && i < e->n_ranks; i++) {
		struct weights **w = &e->rank[i].files;

		st = dummy ? weights_open_dummy(w, &e->config, format, i, e->n_ranks, err)
			   : weights_open(
				     w, &e->config, e->o.model_dir, i, e->n_ranks, err);
	}
	return st;
}

/* Formats that linear, moe and head will meet on any rank; they are alike. */
static void find_formats(struct engine *e)
{
	const struct weights *w = e->rank[0].files;
	struct kernel_shapes *s = &e->shapes;

	for (uint32_t layer = 0; layer < e->config.n_layers; layer++)
		for (uint32_t role = WR_Q; role < WR__COUNT; role++) {
			struct weight_info info =
				weights_info(w, (enum weight_role)role, layer);

			if (!info.present)
				continue;
			if (role == WR_EXP_GATE || role == WR_EXP_UP ||
				role == WR_EXP_DOWN)
				s->moe_formats |= 1u << info.format;
			else if (info.k > 0)
				s->linear_formats |= 1u << info.format;
		}
	s->head_formats =
		1u << weights_info(w, e->config.tied ? WR_EMBED : WR_LM_HEAD, 0).format;
}

static void set_shapes(struct engine *e)
{
	const struct model_config *c = &e->config;
	const struct layout *l = &e->layout;
	uint32_t len_max = e->o.len_max != 0 ? e->o.len_max : c->max_position;
	uint32_t rows_max = MAX(e->o.rows_max, e->o.seqs_max);

	e->shapes = (struct kernel_shapes){
		/* A decode step has a row per sequence. */
		.rows_max = rows_max,
		.seqs_max = e->o.seqs_max,
		.out_max = e->o.logits ? rows_max : e->o.seqs_max,
		.len_max = len_max,
		.hidden = c->hidden,
		.vocab = c->vocab,
		.vocab_part = e->n_ranks > 1 ? c->vocab / e->n_ranks : 0,
		.n_valid = e->o.n_valid != 0 ? e->o.n_valid : c->vocab,
		.n_q = c->n_q / e->n_ranks,
		.n_kv = l->local_kv,
		.head_dim = c->head_dim,
		.rotary = c->rotary_dim,
		.page_tokens = l->page_tokens,
		.n_k = l->local_k,
		.n_v = l->local_v,
		.dk = c->gdn_k_dim,
		.dv = c->gdn_v_dim,
		.taps = c->conv_taps,
		.n_experts = c->n_experts,
		.top_k = c->top_k,
		.width = c->by_expert ? c->expert_width : c->expert_width / e->n_ranks,
		.expert_part =
			c->by_expert && e->n_ranks > 1 ? c->n_experts / e->n_ranks : 0,
		.shared_width = c->shared_width / e->n_ranks,
		.dense_width = c->dense_width / e->n_ranks,
		.kv_dtype = e->o.kv_dtype,
		.conv_dtype = e->o.conv_dtype,
		.eps = c->rms_eps,
		.sigmoid_gate = c->gdn_gate == GATE_SIGMOID,
	};
	find_formats(e);
}

static uint64_t place_pinned(struct engine *e, struct rank *r, void *base)
{
	struct carve c = {.base = base};

	if (r->index == 0)
		for (uint32_t i = 0; i < PASS_BUFFERS; i++)
			batch_place(&e->passes[i].batch, &c, &e->pass_bounds, false);
	else
		batch_place(&r->pass, &c, &e->pass_bounds, false);
	batch_place(&r->step, &c, &e->step_bounds, true);
	return c.used;
}

static uint64_t mirror_bytes(const struct batch_bounds *bounds)
{
	struct carve c = {.base = NULL};
	struct batch b;

	batch_place(&b, &c, bounds, true);
	return b.in_bytes;
}

static uint64_t place_workspace(struct rank *r, void *base)
{
	struct carve c = {.base = base};

	workspace_place(&r->ws, &c, &r->e->shapes, r->b->act,
		r->k != NULL ? r->k->work_bytes
			     : kernels_work_most(r->b->name, &r->e->shapes));
	if (r->b->ops->copy_list_by != NULL) {
		r->pass_mirror = carve_take(&c, mirror_bytes(&r->e->pass_bounds));
		r->step_mirror = carve_take(&c, mirror_bytes(&r->e->step_bounds));
	}
	return c.used;
}

static void set_bounds(struct engine *e, uint32_t len_max, uint32_t n_pages)
{
	uint32_t stride = CEIL_DIV(len_max, PAGE_TOKENS);
	/* A mask is host memory that the sampler reads. */
	bool near = strcmp(e->rank[0].b->name, "cpu") == 0;
	uint32_t words = near ? CEIL_DIV(e->shapes.vocab, 32u) : 0;

	e->pass_bounds = (struct batch_bounds){.rows_max = e->o.rows_max,
		.seqs_max = e->o.seqs_max,
		.out_max = e->o.rows_max + e->o.seqs_max + ENG_CHOICES_MAX,
		.pages_stride = stride,
		.zero_max = n_pages,
		.mask_words = words};
	e->step_bounds = (struct batch_bounds){.rows_max = e->o.seqs_max,
		.seqs_max = e->o.seqs_max,
		.out_max = e->o.seqs_max,
		.pages_stride = stride,
		.zero_max = e->o.seqs_max,
		.mask_words = words};
}

static status plan_memory(struct engine *e, struct err *err)
{
	struct eng_plan *p = &e->plan;
	status st;

	if (p->described && e->o.memory_bytes == 0)
		return err_set(err, ST_LIMIT,
			"gpus '%s': they are not here, so memory_bytes must say what a "
			"rank may use",
			e->o.gpus);
	/* Room for mirrors of the longest page tables, before it is known how many pages
	 * there are. */
	set_bounds(e, e->shapes.len_max, 0);
	for (uint32_t i = 0; i < e->n_ranks; i++) {
		struct rank *r = &e->rank[i];
		/* Ranks on one device and all CPU ranks live in the same memory. */
		uint64_t budget = eng_plan_budget(
			&e->o, r->b, strcmp(r->b->name, "cpu") == 0 ? e->n_ranks : 1);

		p->budget_bytes = i == 0 ? budget : MIN(p->budget_bytes, budget);
		p->weights_bytes = MAX(p->weights_bytes, engine_load_bytes(r));
		p->workspace_bytes = MAX(p->workspace_bytes, place_workspace(r, NULL));
	}
	st = eng_plan_arena(p, &e->o, &e->layout, e->shapes.len_max, err);
	if (st != ST_OK)
		return st;
	set_bounds(e, p->len_max, (uint32_t)p->n_pages);
	for (uint32_t i = 0; i < MIN(e->n_ranks, 2u); i++)
		p->pinned_bytes =
			MAX(p->pinned_bytes, place_pinned(e, &e->rank[i], NULL));
	return ST_OK;
}

static status check_options(const struct engine_options *o, struct err *err)
{
	if (o->rows_max == 0 || o->seqs_max == 0)
		return err_set(err, ST_INVALID,
			"rows_max %u and seqs_max %u: both at least 1", o->rows_max,
			o->seqs_max);
	return ST_OK;
}

/* A check speaks for the device that it ran on: each GPU has its own, all CPU ranks run
 * on one processor. */
static bool shares_kernels(const struct rank *r)
{
	return r->index > 0 && strcmp(r->b->name, "cpu") == 0;
}

static status choose_kernels(struct engine *e, struct err *err)
{
	status st = ST_OK;

	for (uint32_t i = 0; st == ST_OK && i < e->n_ranks; i++) {
		struct rank *r = &e->rank[i];

		if (backend_is_described(r->b))
			e->plan.described = true;
		else if (shares_kernels(r))
			r->k = e->rank[0].k;
		else
			st = kernels_select(&r->k, r->b, &e->shapes, e->o.kernels, err);
	}
	return st;
}

/* ST_LIMIT is the memory plan's; a file beyond what its reader takes is a bad file. */
static status open_model(struct engine *e, struct err *err)
{
	status st = engine_read_config(&e->o, &e->config, err);

	if (st == ST_OK && e->o.expert_parallel && e->config.n_experts == 0)
		return err_set(
			err, ST_INVALID, "expert_parallel: the model has no experts");
	e->config.by_expert = e->o.expert_parallel;
	if (st == ST_OK)
		st = open_devices(e, err);
	if (st == ST_OK)
		st = open_weights(e, err);
	if (st == ST_LIMIT)
		st = err->code = ST_INVALID;
	return st;
}

status engine_setup_prepare(
	struct engine *e, const struct engine_options *o, struct err *err)
{
	status st;

	e->o = *o;
	st = check_options(o, err);
	if (st == ST_OK)
		st = open_model(e, err);
	if (st == ST_OK)
		st = layout_compute(&e->layout, &e->config, 0, e->n_ranks, o->kv_dtype,
			o->conv_dtype, err);
	if (st != ST_OK)
		return st;
	/* Tools may look beyond what a model was made for; serving may not. */
	if (!o->logits && o->len_max > e->config.max_position)
		return err_set(err, ST_LIMIT,
			"max_model_len %u is more than the model was made for "
			"(max_position_embeddings %u in config.json)",
			o->len_max, e->config.max_position);
	set_shapes(e);
	if (e->shapes.n_valid > e->shapes.vocab)
		return err_set(err, ST_INVALID,
			"tokenizer.json: %u token ids, more than the %u rows of the "
			"vocabulary (vocab_size of config.json)",
			e->shapes.n_valid, e->shapes.vocab);
	st = choose_kernels(e, err);
	return st == ST_OK ? plan_memory(e, err) : st;
}

static status upload_frequencies(struct rank *r, struct err *err)
{
	const struct model_config *c = &r->e->config;
	float freq[MODEL_HEAD_DIM_MAX / 2];

	for (uint32_t i = 0; i < c->rotary_dim / 2; i++)
		freq[i] = (float)pow(c->rope_theta, -2.0 * i / c->rotary_dim);
	return r->b->ops->upload(
		r->s, r->ws.inv_freq, freq, c->rotary_dim / 2 * sizeof(freq[0]), err);
}

static status allocate_rank(struct engine *e, struct rank *r, struct err *err)
{
	const struct backend_ops *ops = r->b->ops;
	const struct eng_plan *p = &e->plan;
	status st;

	r->layer = mem_alloc(e->config.n_layers, sizeof(*r->layer));
	r->fused = mem_alloc(e->config.n_layers, sizeof(*r->fused));
	st = ops->stream_create(r->b, &r->s, err);
	if (st == ST_OK)
		st = ops->stream_create(r->b, &r->io, err);
	if (st == ST_OK)
		st = ops->alloc(r->b, MEM_DEVICE, p->weights_bytes, &r->weights_mem, err);
	if (st == ST_OK)
		st = ops->alloc(
			r->b, MEM_DEVICE, p->workspace_bytes, &r->workspace_mem, err);
	if (st == ST_OK)
		st = ops->alloc(r->b, MEM_PINNED, p->pinned_bytes, &r->pinned_mem, err);
	if (st == ST_OK)
		st = ops->arena_create(r->b, p->arena_bytes, &r->arena, err);
	if (st != ST_OK)
		return st;
	(void)place_workspace(r, r->workspace_mem);
	(void)place_pinned(e, r, r->pinned_mem);
	st = upload_frequencies(r, err);
	if (st == ST_OK)
		st = engine_load(r, err);
	if (st == ST_OK)
		st = engine_fuse(r, err);
	return st == ST_OK ? step_graph_capture(r, err) : st;
}

static uint32_t power_of_two(uint32_t at_least)
{
	uint32_t n = 1;

	while (n < at_least)
		n *= 2;
	return n;
}

static void allocate_host(struct engine *e)
{
	uint64_t seqs = e->o.seqs_max, vocab = e->shapes.vocab;

	for (uint32_t i = 0; i < PASS_BUFFERS; i++) {
		struct pass_buffer *p = &e->passes[i];
		uint64_t out = e->pass_bounds.out_max;

		p->tokens = mem_alloc(out, sizeof(*p->tokens));
		p->top = mem_alloc(out, sizeof(*p->top));
		p->past = mem_alloc(seqs, sizeof(*p->past));
		if (e->o.logits)
			e->passes[i].logits =
				mem_alloc(e->o.rows_max * vocab, sizeof(float));
	}
	for (uint32_t i = 0; i < STEP_BUFFERS; i++) {
		e->steps[i].tokens = mem_alloc(seqs, sizeof(struct eng_token));
		e->steps[i].top = mem_alloc(seqs, sizeof(*e->steps[i].top));
		if (e->o.logits)
			e->steps[i].logits = mem_alloc(seqs * vocab, sizeof(float));
	}
	e->tables = mem_alloc(seqs * e->step_bounds.pages_stride, sizeof(*e->tables));
	e->control.tables = mem_alloc(seqs, sizeof(struct table));
	rows_init(&e->rows, e->o.seqs_max, e->tables, e->step_bounds.pages_stride,
		e->plan.len_max);
	/* Per row one join, one leave and what it grows by between two steps. */
	e->commands = chan_create(
		power_of_two(8 * e->o.seqs_max + 256), sizeof(struct command));
	/* Every pass and step buffer, one LEFT per row, one FAILED. */
	e->outcomes =
		chan_create(power_of_two(e->o.seqs_max + PASS_BUFFERS + STEP_BUFFERS + 1),
			sizeof(struct outcome));
	for (uint32_t i = 1; i < e->n_ranks; i++)
		e->rank[i].work = chan_create(4, sizeof(struct work));
}

static void *allocate_thread(void *rank)
{
	struct rank *r = rank;

	r->started = allocate_rank(r->e, r, &r->err);
	return NULL;
}

/* Ranks read their parts of the files side by side. */
static status allocate_ranks(struct engine *e, struct err *err)
{
	status st = ST_OK;
	uint32_t n = 0;

	for (; st == ST_OK && n < e->n_ranks; n += st == ST_OK) {
		int rc = pthread_create(
			&e->rank[n].thread, NULL, allocate_thread, &e->rank[n]);

		if (rc != 0)
			st = err_set(
				err, ST_IO, "thread of rank %u: %s", n, strerror(rc));
	}
	for (uint32_t i = 0; i < n; i++)
		(void)pthread_join(e->rank[i].thread, NULL);
	for (uint32_t i = 0; st == ST_OK && i < n; i++) {
		st = e->rank[i].started;
		if (st != ST_OK)
			*err = e->rank[i].err;
	}
	return st;
}

status engine_setup_allocate(struct engine *e, struct err *err)
{
	struct backend *backends[RANKS_MAX];
	uint64_t digest = 0;
	status st;

	for (uint32_t i = 0; i < e->n_ranks; i++)
		backends[i] = e->rank[i].b;
	st = collective_create(&e->collective, backends, e->n_ranks, err);
	if (st == ST_OK)
		st = allocate_ranks(e, err);
	if (st != ST_OK)
		return st;
	for (uint32_t i = 0; i < e->n_ranks; i++) {
		weights_close(e->rank[i].files);
		e->rank[i].files = NULL;
		digest += e->rank[i].digest;
	}
	e->layout.model_hash = hash64_u64(engine_load_geometry(&e->config), digest);
	allocate_host(e);
	return ST_OK;
}

static void release_rank(struct rank *r)
{
	const struct backend_ops *ops;

	chan_destroy(r->work);
	weights_close(r->files);
	mem_free(r->layer);
	mem_free(r->fused);
	if (r->b == NULL)
		return;
	ops = r->b->ops;
	if (backend_is_described(r->b)) {
		ops->close(r->b);
		return;
	}
	if (r->k != NULL && !shares_kernels(r))
		kernels_release(r->k);
	step_graph_release(r);
	if (r->s != NULL)
		ops->stream_destroy(r->s);
	if (r->io != NULL)
		ops->stream_destroy(r->io);
	if (r->arena != NULL)
		ops->arena_destroy(r->b, r->arena);
	ops->free(r->b, MEM_PINNED, r->pinned_mem);
	ops->free(r->b, MEM_DEVICE, r->workspace_mem);
	ops->free(r->b, MEM_DEVICE, r->weights_mem);
	ops->close(r->b);
}

void engine_setup_release(struct engine *e)
{
	for (uint32_t i = 0; i < e->n_ranks; i++)
		release_rank(&e->rank[i]);
	for (uint32_t i = 0; i < PASS_BUFFERS; i++) {
		for (uint32_t k = 0; k < e->passes[i].n_past; k++)
			past_release(e->passes[i].past[k]);
		mem_free(e->passes[i].past);
		mem_free(e->passes[i].tokens);
		mem_free(e->passes[i].top);
		mem_free(e->passes[i].logits);
	}
	for (uint32_t i = 0; i < STEP_BUFFERS; i++) {
		mem_free(e->steps[i].tokens);
		mem_free(e->steps[i].top);
		mem_free(e->steps[i].logits);
	}
	for (uint32_t i = 0; e->control.tables != NULL && i < e->o.seqs_max; i++)
		if (e->control.tables[i].used)
			past_release(e->control.tables[i].past);
	mem_free(e->tables);
	mem_free(e->control.tables);
	rows_release(&e->rows);
	chan_destroy(e->commands);
	chan_destroy(e->outcomes);
	if (e->collective != NULL)
		e->collective->ops->destroy(e->collective);
	mem_give(e->tap.hidden);
	mem_give(e->tap.raw);
}
