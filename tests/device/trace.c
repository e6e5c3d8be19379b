/* Preloaded into a CUDA process: while the file $TRACE_ON exists, every kernel, also
 * those of graphs, is written to $TRACE_OUT as "start_ns end_ns grid_blocks name"; "--
 * end" follows when the file is gone. $TRACE_CUPTI: the library of that name. A process
 * without these words in its environment is left alone. */
#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BUFFER_BYTES (8u << 20)
#define POLL_US      20000

static CUptiResult (*get_next)(uint8_t *, size_t, CUpti_Activity **);
static CUptiResult (*flush_all)(uint32_t);
static FILE *out;
static const char *switch_file;
static atomic_bool on;

static void CUPTIAPI want_buffer(uint8_t **buffer, size_t *bytes, size_t *records)
{
	*buffer = aligned_alloc(8, BUFFER_BYTES);
	*bytes = *buffer != NULL ? BUFFER_BYTES : 0;
	*records = 0;
}

static void write_kernel(const CUpti_ActivityKernel9 *k)
{
	(void)fprintf(out, "%llu %llu %lld %s\n", (unsigned long long)k->start,
		(unsigned long long)k->end, (long long)k->gridX * k->gridY * k->gridZ,
		k->name);
}

static void CUPTIAPI take_buffer(
	CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
	CUpti_Activity *record = NULL;

	(void)context;
	(void)stream;
	(void)bytes;
	while (valid > 0 && get_next(buffer, valid, &record) == CUPTI_SUCCESS)
		if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL &&
			atomic_load(&on))
			write_kernel((const void *)record);
	free(buffer);
}

static void *watch(void *unused)
{
	for (;;) {
		bool wanted = access(switch_file, F_OK) == 0;

		if (wanted != atomic_load(&on)) {
			(void)flush_all(1);
			atomic_store(&on, wanted);
			if (!wanted)
				(void)fprintf(out, "-- end\n");
			(void)fflush(out);
		}
		(void)usleep(POLL_US);
	}
	return unused;
}

__attribute__((constructor)) static void start(void)
{
	const char *file = getenv("TRACE_OUT"), *library = getenv("TRACE_CUPTI");
	CUptiResult (*add)(
		CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc);
	CUptiResult (*enable)(CUpti_ActivityKind);
	pthread_t thread;
	void *cupti;

	switch_file = getenv("TRACE_ON");
	if (switch_file == NULL || file == NULL || library == NULL)
		return;
	out = fopen(file, "a");
	cupti = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
	if (out == NULL || cupti == NULL) {
		(void)fprintf(
			stderr, "trace: %s or %s cannot be opened\n", file, library);
		return;
	}
	*(void **)&add = dlsym(cupti, "cuptiActivityRegisterCallbacks");
	*(void **)&enable = dlsym(cupti, "cuptiActivityEnable");
	*(void **)&get_next = dlsym(cupti, "cuptiActivityGetNextRecord");
	*(void **)&flush_all = dlsym(cupti, "cuptiActivityFlushAll");
	if (add == NULL || enable == NULL || get_next == NULL || flush_all == NULL ||
		add(want_buffer, take_buffer) != CUPTI_SUCCESS ||
		enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS ||
		pthread_create(&thread, NULL, watch, NULL) != 0)
		(void)fprintf(stderr, "trace: CUPTI refuses\n");
}
