/* Configuration of both worker programs: one table gives keys, defaults, bounds, file
 * and --help (common/base/conf.h). */
#ifndef COMMON_WORKER_WORKER_CONF_H
#define COMMON_WORKER_WORKER_CONF_H
#include "common/base/conf.h"
#include "common/base/dtype.h"
#include "common/engine/engine.h"

#define DTYPE_WORDS "auto|f32|bf16"
// clang-format off
#define WORKER_CONF(U64, F64, STR, BOOL, WORD) \
STR(id, "", "name of this worker, unique in the cluster: letters, digits, . _ -")          \
STR(model, "", "directory of the checkpoint; of the tokenizer, with dummy weights") \
STR(gpus, "cpu:0", "devices, one rank each: 0,1 or cpu:0,cpu:1") \
BOOL(expert_parallel, "false", "ranks share the experts by expert, not by width") \
U64(max_num_seqs, "32", 1, 4096, "sequences in one pass or step") \
U64(max_num_batched_tokens, "2048", 1, 1048576, "prompt tokens in one prefill pass") \
U64(max_model_len, "0", 0, UINT32_MAX, "tokens of a sequence; 0: as the model allows") \
U64(max_queued, "128", 0, 65536, "requests that wait for pages and slots") \
U64(kv_pages, "0", 0, UINT32_MAX, "KV pages of 64 tokens; 0: from memory_bytes") \
U64(state_slots, "0", 0, 65536, "recurrent states; 0: one per sequence") \
U64(memory_bytes, "0", 0, 9e15, "weights, workspace and state; 0: 80 % of what is free, on CPUs at most 2 GiB a rank") \
WORD(kv_dtype, "auto", DTYPE_WORDS, "auto: f32 on CPUs, bf16 on GPUs") \
WORD(state_dtype, "auto", DTYPE_WORDS, "of the convolution inputs of the state") \
STR(kernels, "", "kernel variants to force, op/name,...") \
STR(transport, "auto", "hand-over: auto, or the only one allowed (shm, cuda_ipc, ...)") \
WORD(load_format, "auto", "auto|dummy", "auto: safetensors files; dummy: random weights") \
STR(model_config, "", "with dummy: config.json of the model; empty: that of model") \
STR(dummy_format, "nvfp4", "with dummy: nvfp4 (experts, or MLPs, so; else bf16), released (head so, too; projections fp8) or bf16") \
U64(lease_ms, "10000", 100, 3600000, "life of a lease after its router was last heard") \
U64(nan_limit, "3", 1, 1000, "requests in a row with NaN logits that end the service") \
U64(device_timeout_s, "60", 1, 86400, "a layer that takes longer is a device that hangs") \
BOOL(plan, "false", "print the memory plan and exit") \
BOOL(doctor, "false", "load, check the kernels, print their table and exit") \
CONF_SHARED(U64, F64, STR, BOOL, WORD)
// clang-format on

struct worker_conf {
	CONF_STRUCT(WORKER_CONF)
};

/* conf_load with one of them also checks what one key alone cannot say: names, pairs of
 * values, combinations that this version does not serve. Sets the log level. */
extern const struct conf_table worker_conf_prefill, worker_conf_decode;

/* Every GPU of `gpus` can be seen by this process; ST_DEVICE otherwise. */
MUST_CHECK status worker_conf_devices(const struct worker_conf *c, struct err *err);
/* n_valid: ids of the tokenizer, beyond which nothing is sampled. */
struct engine_options worker_conf_engine(const struct worker_conf *c, uint32_t n_valid);

#endif
