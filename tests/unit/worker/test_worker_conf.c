/* The configuration of the workers: defaults, what is refused, what the engine gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/worker/worker_conf.h"

#include <string.h>

/* Strings of a configuration live until the process ends, so each one is kept. */
static struct worker_conf kept[32];
static unsigned n_kept;

/* args: NULL-terminated flags after --id and --model. */
static status load(struct worker_conf *c, const char *const *args, struct err *err)
{
	char *argv[32] = {"baton-prefill", "--id", "p0", "--model", "/nowhere"};
	int argc = 5;
	bool stop;
	status st;

	for (; *args != NULL; args++)
		argv[argc++] = (char *)(uintptr_t)*args;
	assert_true(n_kept < COUNT(kept));
	st = conf_load(&worker_conf_prefill, argc, argv, &kept[n_kept], &stop, err);
	*c = kept[n_kept++];
	return st;
}

static void defaults_are_those_of_the_protocol(void **state)
{
	struct worker_conf c;
	struct err err;

	(void)state;
	assert_int_equal(load(&c, (const char *[]){NULL}, &err), ST_OK);
	assert_int_equal(c.beat_ms, 500);
	assert_int_equal(c.lost_ms, 4000);
	assert_int_equal(c.lease_ms, 10000);
	assert_string_equal(c.gpus, "cpu:0");
}

static void state_types_follow_the_device(void **state)
{
	struct worker_conf c;
	struct engine_options o;
	struct err err;

	(void)state;
	assert_int_equal(load(&c, (const char *[]){NULL}, &err), ST_OK);
	o = worker_conf_engine(&c, 100);
	assert_int_equal(o.kv_dtype, DT_F32);
	assert_int_equal(o.conv_dtype, DT_F32);
	assert_int_equal(o.n_valid, 100);
	assert_int_equal(load(&c, (const char *[]){"--gpus=1", NULL}, &err), ST_OK);
	o = worker_conf_engine(&c, 0);
	assert_int_equal(o.kv_dtype, DT_BF16);
	assert_int_equal(o.conv_dtype, DT_BF16);
	assert_int_equal(
		load(&c,
			(const char *[]){"--kv-dtype=bf16", "--max-num-batched-tokens=77",
				"--max-num-seqs=5", "--max-model-len=99", "--kv-pages=11",
				"--state-slots=6", "--memory-bytes=1234", NULL},
			&err),
		ST_OK);
	o = worker_conf_engine(&c, 0);
	assert_int_equal(o.kv_dtype, DT_BF16);
	assert_int_equal(o.conv_dtype, DT_F32);
	assert_int_equal(o.rows_max, 77);
	assert_int_equal(o.seqs_max, 5);
	assert_int_equal(o.len_max, 99);
	assert_int_equal(o.n_pages, 11);
	assert_int_equal(o.n_slots, 6);
	assert_int_equal(o.memory_bytes, 1234);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
	static const struct {
		const char *flag, *names;
	} bad[] = {
		{"--id=a#b", "id"},
		{"--id=a/b", "id"},
		{"--gpus=cpu:x", "gpus"},
		{"--gpus=0,cpu:1", "gpus"},
		{"--gpus=cpu:0,1", "gpus"},
		{"--gpus=", "gpus"},
		{"--gpus=0,", "gpus"},
		{"--gpus=0,1,2,3,4,5,6,7,8", "gpus"},
		{"--kv-dtype=f16", "kv_dtype"},
		{"--state-dtype=int8", "state_dtype"},
		{"--log-level=loud", "log_level"},
		{"--load-format=gguf", "load_format"},
		{"--transport=cuda_ipc", "transport"},
		{"--gpus=0,1", "tensor parallelism over 2 GPUs"},
		{"--lost-ms=999", "lost_ms"},
		{"--kv-pages=1", "kv_pages"},
		{"--state-slots=1", "state_slots"},
		{"--max-num-seqs=0", "max_num_seqs"},
		{"--beat-ms=9", "beat_ms"},
		{"--dummy-format=q4", "dummy_format"},
		{"--runtime-dir=here", "runtime_dir"},
		{"--debug-fault=pause@nowhere", "debug_fault"},
		{"--debug-fault=step_delay_ms=60001", "debug_fault"},
		{"--kernels=linear/best",
			"kernels: no variant for cpu is named \"linear/best\""},
		{"--kernels=linear/plain,,moe/plain", "kernels"},
		{"--max-model-len=4294967296", "max_model_len"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct worker_conf *c = &kept[n_kept++];
		struct err err = {0};
		char *argv[] = {"baton-decode", "--model", "m",
			(char *)(uintptr_t)bad[i].flag, "--id", "d0"};
		int argc = strncmp(bad[i].flag, "--id", 4) == 0 ? 4 : 6;
		bool stop;
		status st = conf_load(&worker_conf_decode, argc, argv, c, &stop, &err);

		assert_int_equal(st, ST_INVALID);
		assert_non_null(strstr(err.text, bad[i].names));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_those_of_the_protocol),
		cmocka_unit_test(state_types_follow_the_device),
		cmocka_unit_test(what_cannot_be_is_refused_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
