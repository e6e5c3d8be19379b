/* Which backend serves a device spec. */
#include "kernels/backend.h"

#include "kernels/cpu/backend_cpu.h"
#ifdef BATON_HAVE_CUDA
#include "kernels/cuda/backend_cuda.h"
#endif

#include "common/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "cpu:" numbers have at most two digits, GPUs at most three. */
static bool parse_index(const char *text, size_t digits_max, uint32_t *out)
{
	size_t digits = strspn(text, "0123456789");

	if (digits == 0 || digits > digits_max || text[digits] != 0)
		return false;
	*out = (uint32_t)strtoul(text, NULL, 10);
	return true;
}

status backend_open(struct backend **out, const char *spec, struct err *err)
{
	uint32_t index;

	if (strncmp(spec, "cpu:", 4) == 0 && parse_index(spec + 4, 2, &index))
		return backend_cpu_open(out, index, err);
	if (!parse_index(spec, 3, &index))
		return err_set(err, ST_INVALID,
			"device \"%s\": expected cpu:N or the index of a GPU", spec);
#ifdef BATON_HAVE_CUDA
	return backend_cuda_open(out, index, err);
#else
	return err_set(
		err, ST_INVALID, "device \"%s\": this build has no CUDA backend", spec);
#endif
}

bool backend_is_absent(const char *spec)
{
	uint32_t index;

	return parse_index(spec, 3, &index) && index >= backend_gpu_count();
}

static void close_described(struct backend *b)
{
	mem_give(b);
}

static status copy_nothing(__attribute__((unused)) struct stream *s,
	__attribute__((unused)) const struct copy_method *how,
	__attribute__((unused)) const struct copy_piece *pieces,
	__attribute__((unused)) uint32_t n, struct err *err)
{
	return err_set(err, ST_INVALID, "a described device copies nothing");
}

/* That there is more than one way to copy is what an engine plans by. */
static const struct backend_ops described_ops = {
	.close = close_described,
	.copy_list_by = copy_nothing,
};

status backend_describe(struct backend **out, const char *spec, struct err *err)
{
	struct backend *b = mem_take(1, sizeof(*b));

	if (b == NULL)
		return err_set(err, ST_NOMEM, "no memory to describe a device");
	*b = (struct backend){
		.ops = &described_ops, .name = "cuda", .act = DT_BF16, .arch = 0};
	(void)snprintf(b->device, sizeof(b->device), "cuda:%s", spec);
	*out = b;
	return ST_OK;
}

bool backend_is_described(const struct backend *b)
{
	return b->ops == &described_ops;
}

bool backend_gpus_built(void)
{
#ifdef BATON_HAVE_CUDA
	return true;
#else
	return false;
#endif
}

uint32_t backend_gpu_count(void)
{
#ifdef BATON_HAVE_CUDA
	return backend_cuda_count();
#else
	return 0;
#endif
}
