/* The configuration table of the workers and the checks that span several keys. */
#include "common/worker/worker_conf.h"

#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/loop/runtime.h"
#include "common/model/weights_dummy.h"
#include "common/xfer/xfer.h"
#include "kernels/registry.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define ID_BYTES_MAX 48 /* hello.id */

#define CONF_TYPE struct worker_conf
static const struct conf_key keys[] = {CONF_KEYS(WORKER_CONF)};

static bool on_cpu(const struct worker_conf *c)
{
	return strncmp(c->gpus, "cpu", 3) == 0;
}

/* word: of DTYPE_WORDS. */
static enum dtype dtype_of(const struct worker_conf *c, const char *word)
{
	if (strcmp(word, "auto") == 0)
		return on_cpu(c) ? DT_F32 : DT_BF16;
	return strcmp(word, "f32") == 0 ? DT_F32 : DT_BF16;
}

static status check_id(const char *id, struct err *err)
{
	size_t n = strlen(id);

	if (n == 0)
		return err_set(err, ST_INVALID, "id is not given and has no default");
	if (n > ID_BYTES_MAX)
		return err_set(
			err, ST_INVALID, "id has %zu bytes (1 to %d)", n, ID_BYTES_MAX);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)id[i]) && strchr("._-", id[i]) == NULL)
			return err_set(err, ST_INVALID,
				"id '%s': only letters, digits, '.', '_' and '-'", id);
	return ST_OK;
}

/* "cpu:0,cpu:1" or "0,1": fills index[] and returns how many; 0 when it is neither. */
static uint32_t parse_gpus(const char *text, bool *cpu, unsigned index[RANKS_MAX])
{
	uint32_t n = 0;

	*cpu = strncmp(text, "cpu:", 4) == 0;
	while (n < RANKS_MAX) {
		char *end;

		if (*cpu && strncmp(text, "cpu:", 4) != 0)
			return 0;
		text += *cpu ? 4 : 0;
		if (!isdigit((unsigned char)*text))
			return 0;
		index[n++] = (unsigned)strtoul(text, &end, 10);
		if (*end == 0)
			return n;
		if (*end != ',')
			return 0;
		text = end + 1;
	}
	return 0;
}

status worker_conf_devices(const struct worker_conf *c, struct err *err)
{
	unsigned index[RANKS_MAX];
	uint32_t seen = backend_gpu_count();
	bool cpu;
	uint32_t n = parse_gpus(c->gpus, &cpu, index);

	if (!cpu && !backend_gpus_built())
		return err_set(err, ST_DEVICE,
			"gpus '%s': this build has no backend for GPUs (WITH_CUDA)",
			c->gpus);
	for (uint32_t i = 0; i < n && !cpu; i++)
		if (index[i] >= seen)
			return err_set(err, ST_DEVICE,
				"gpus '%s': GPU %u is not there, this process sees %u",
				c->gpus, index[i], seen);
	return ST_OK;
}

/* A plan may be made of what is not served. */
static status check_gpus(const struct worker_conf *c, struct err *err)
{
	const char *text = c->gpus;
	unsigned index[RANKS_MAX];
	bool cpu;
	uint32_t n = parse_gpus(text, &cpu, index);

	if (n == 0)
		return err_set(err, ST_INVALID,
			"gpus '%s': 1 to %u of cpu:N, or of GPU numbers, with commas",
			text, RANKS_MAX);
	if (n > 1 && !cpu && !c->plan)
		return err_set(err, ST_INVALID,
			"gpus '%s': tensor parallelism over %u GPUs is not served by "
			"this version; give each worker one GPU",
			text, n);
	return ST_OK;
}

static bool is_dummy(const struct worker_conf *c)
{
	return strcmp(c->load_format, "dummy") == 0;
}

/* Who serves needs a tokenizer, whatever the weights are. */
static status check_model(const struct worker_conf *c, struct err *err)
{
	bool serves = !c->plan && !c->doctor;
	enum dummy_format format;

	if (!is_dummy(c) && c->model_config[0] != 0)
		return err_set(err, ST_INVALID,
			"model_config '%s' is for load_format dummy; a checkpoint has "
			"its own config.json",
			c->model_config);
	if (c->model[0] == 0 && (!is_dummy(c) || serves || c->model_config[0] == 0))
		return err_set(err, ST_INVALID,
			"model is not set; only plan and doctor of load_format dummy do "
			"without, given model_config");
	return dummy_format_of(c->dummy_format, &format, err);
}

/* The longest of the paths is that of the link. */
static status check_paths(const struct worker_conf *c, struct err *err)
{
	char path[RUNTIME_PATH_BYTES];
	struct runtime rt;
	status st = runtime_name(&rt, c->runtime_dir, err);

	if (st == ST_OK)
		st = runtime_path(&rt, path, err, XFER_LINK_NAME, c->id, (uint64_t)0);
	return st == ST_OK ? ST_OK : err_wrap(err, "runtime_dir");
}

/* What the keys hold by themselves. */
static status check_values(const struct worker_conf *c, struct err *err)
{
	/* A plan or a kernel table belongs to no cluster, so it needs no name. */
	bool nameless = (c->plan || c->doctor) && c->id[0] == 0;
	status st = nameless ? ST_OK : check_id(c->id, err);

	if (st == ST_OK)
		st = check_paths(c, err);
	if (st == ST_OK)
		st = check_gpus(c, err);
	if (st == ST_OK)
		st = transport_check(c->transport, on_cpu(c) ? "cpu" : "cuda", err);
	if (st != ST_OK)
		return st;
	st = kernels_known(c->kernels, on_cpu(c) ? "cpu" : "cuda", err);
	if (st != ST_OK)
		return err_wrap(err, "kernels");
	return conf_shared_apply(c->log_level, c->debug_fault, err);
}

static status check_all(const void *values, struct err *err)
{
	const struct worker_conf *c = values;
	status st = check_values(c, err);

	if (st == ST_OK)
		st = check_model(c, err);
	if (st != ST_OK)
		return st;
	if (c->lost_ms < 2 * c->beat_ms)
		return err_set(err, ST_INVALID,
			"lost_ms %llu is less than two beats of %llu ms",
			(unsigned long long)c->lost_ms, (unsigned long long)c->beat_ms);
	if (c->kv_pages == 1)
		return err_set(err, ST_INVALID,
			"kv_pages 1: page 0 is never handed out, so at least 2");
	if (c->state_slots == 1)
		return err_set(err, ST_INVALID,
			"state_slots 1: slot 0 is never handed out, so at least 2");
	if (c->plan && c->doctor)
		return err_set(err, ST_INVALID, "plan and doctor exclude each other");
	return ST_OK;
}

const struct conf_table worker_conf_prefill = {
	.keys = keys,
	.n_keys = COUNT(keys),
	.program = "baton-prefill",
	.purpose = "reads prompts, builds their state and offers it to decode workers",
	.check = check_all,
};

const struct conf_table worker_conf_decode = {
	.keys = keys,
	.n_keys = COUNT(keys),
	.program = "baton-decode",
	.purpose = "takes over the state of prompts and writes the answers",
	.check = check_all,
};

struct engine_options worker_conf_engine(const struct worker_conf *c, uint32_t n_valid)
{
	return (struct engine_options){
		.model_dir = c->model,
		.config_file = c->model_config,
		.dummy = is_dummy(c) ? c->dummy_format : "",
		.gpus = c->gpus,
		.kernels = c->kernels,
		.rows_max = (uint32_t)c->max_num_batched_tokens,
		.seqs_max = (uint32_t)c->max_num_seqs,
		.len_max = (uint32_t)c->max_model_len,
		.n_pages = c->kv_pages,
		.n_slots = c->state_slots,
		.memory_bytes = c->memory_bytes,
		.kv_dtype = dtype_of(c, c->kv_dtype),
		.conv_dtype = dtype_of(c, c->state_dtype),
		.n_valid = n_valid,
		.expert_parallel = c->expert_parallel,
	};
}
