/* One GPU as a device: plain allocations, streams, events, graphs. Every return code is
 * looked at; a failure of the device is ST_DEVICE and the process does not go on with
 * that device. A thread that comes from elsewhere has another current device, so every
 * entry sets it. */
#include "kernels/cuda/backend_impl.cuh"
#include "kernels/cuda/blas.cuh"

#include <stdio.h>
#include <string.h>

/* Architectures that the build has machine code for; the compiler says 900 for sm_90a. */
static const uint32_t built_for[] = {__CUDA_ARCH_LIST__};
#define BUILT_FOR_UNIT 10u

struct event {
	cudaEvent_t cuda;
	struct cuda_backend *backend;
};

struct graph {
	cudaGraphExec_t cuda;
	struct cuda_backend *backend;
};

static void close_backend(struct backend *b)
{
	blas_close(cuda_of(b)->blas);
	mem_give(cuda_of(b));
}

static status create_stream(struct backend *b, struct stream **out, struct err *err)
{
	struct stream *s = (struct stream *)mem_take(1, sizeof(*s));
	status st;

	if (s == NULL)
		return err_set(err, ST_NOMEM, "no memory for a stream of %s", b->device);
	s->backend = b;
	s->device = cuda_of(b)->index;
	st = cuda_enter(b, err);
	if (st == ST_OK)
		st = cuda_check(b, "cudaStreamCreate",
			cudaStreamCreateWithFlags(&s->cuda, cudaStreamNonBlocking), err);
	if (st != ST_OK) {
		mem_give(s);
		return st;
	}
	*out = s;
	return ST_OK;
}

static void destroy_stream(struct stream *s)
{
	if (s == NULL)
		return;
	cuda_log(s->backend, "cudaStreamDestroy", cudaStreamDestroy(s->cuda));
	mem_give(s);
}

static status sync_stream(struct stream *s, struct err *err)
{
	status st = cuda_enter(s->backend, err);

	if (st != ST_OK)
		return st;
	return cuda_check(s->backend, "a kernel or copy of this stream",
		cudaStreamSynchronize(s->cuda), err);
}

/* Waits: pinned memory is read until the copy has finished. */
static status copy_and_wait(
	struct stream *s, void *dst, const void *src, uint64_t bytes, struct err *err)
{
	status st = cuda_enter(s->backend, err);

	if (st != ST_OK || bytes == 0)
		return st;
	st = cuda_check(s->backend, "cudaMemcpyAsync",
		cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, s->cuda), err);
	return st == ST_OK ? sync_stream(s, err) : st;
}

static status zero_memory(struct stream *s, void *dst, uint64_t bytes, struct err *err)
{
	status st = cuda_enter(s->backend, err);

	if (st != ST_OK || bytes == 0)
		return st;
	return cuda_check(s->backend, "cudaMemsetAsync",
		cudaMemsetAsync(dst, 0, bytes, s->cuda), err);
}

static status create_event(struct backend *b, struct event **out, struct err *err)
{
	struct event *e = (struct event *)mem_take(1, sizeof(*e));
	status st;

	if (e == NULL)
		return err_set(err, ST_NOMEM, "no memory for an event of %s", b->device);
	e->backend = cuda_of(b);
	st = cuda_enter(b, err);
	if (st == ST_OK)
		st = cuda_check(b, "cudaEventCreate",
			cudaEventCreateWithFlags(&e->cuda, cudaEventDisableTiming), err);
	if (st != ST_OK) {
		mem_give(e);
		return st;
	}
	*out = e;
	return ST_OK;
}

static void destroy_event(struct event *e)
{
	if (e == NULL)
		return;
	cuda_log(&e->backend->base, "cudaEventDestroy", cudaEventDestroy(e->cuda));
	mem_give(e);
}

static status record_event(struct event *e, struct stream *s, struct err *err)
{
	status st = cuda_enter(s->backend, err);

	if (st != ST_OK)
		return st;
	return cuda_check(
		s->backend, "cudaEventRecord", cudaEventRecord(e->cuda, s->cuda), err);
}

static status query_event(struct event *e, struct err *err)
{
	struct backend *b = &e->backend->base;
	status st = cuda_enter(b, err);
	cudaError_t rc;

	if (st != ST_OK)
		return st;
	rc = cudaEventQuery(e->cuda);
	if (rc == cudaErrorNotReady) {
		(void)cudaGetLastError(); /* or the next launch would report it */
		return err_set(err, ST_AGAIN, "%s: still running", b->device);
	}
	return cuda_check(b, "the work before an event", rc, err);
}

static status wait_event(struct event *e, struct stream *s, struct err *err)
{
	status st = cuda_enter(s->backend, err);

	if (st != ST_OK)
		return st;
	return cuda_check(s->backend, "cudaStreamWaitEvent",
		cudaStreamWaitEvent(s->cuda, e->cuda, 0), err);
}

/* Thread-local: other threads of the process may allocate or copy meanwhile. */
static status begin_capture(struct stream *s, struct err *err)
{
	status st = cuda_enter(s->backend, err);

	if (st != ST_OK)
		return st;
	return cuda_check(s->backend, "cudaStreamBeginCapture",
		cudaStreamBeginCapture(s->cuda, cudaStreamCaptureModeThreadLocal), err);
}

static status end_capture(struct stream *s, struct graph **out, struct err *err)
{
	struct backend *b = s->backend;
	cudaGraph_t made = NULL;
	struct graph *g;
	status st = cuda_check(
		b, "cudaStreamEndCapture", cudaStreamEndCapture(s->cuda, &made), err);

	if (st != ST_OK) {
		(void)cudaGetLastError();
		return st;
	}
	g = (struct graph *)mem_take(1, sizeof(*g));
	if (g == NULL) {
		st = err_set(err, ST_NOMEM, "no memory for a graph of %s", b->device);
		goto out;
	}
	g->backend = cuda_of(b);
	st = cuda_check(
		b, "cudaGraphInstantiate", cudaGraphInstantiate(&g->cuda, made, 0), err);
	if (st == ST_OK)
		*out = g;
	else
		mem_give(g);
out:
	cuda_log(b, "cudaGraphDestroy", cudaGraphDestroy(made));
	return st;
}

static status launch_graph(struct graph *g, struct stream *s, struct err *err)
{
	status st = cuda_enter(s->backend, err);

	if (st != ST_OK)
		return st;
	return cuda_check(
		s->backend, "cudaGraphLaunch", cudaGraphLaunch(g->cuda, s->cuda), err);
}

static void destroy_graph(struct graph *g)
{
	if (g == NULL)
		return;
	cuda_log(
		&g->backend->base, "cudaGraphExecDestroy", cudaGraphExecDestroy(g->cuda));
	mem_give(g);
}

static const struct backend_ops cuda_ops = {
	.close = close_backend,
	.alloc = cuda_memory_alloc,
	.free = cuda_memory_free,
	.arena_create = cuda_arena_create,
	.arena_destroy = cuda_arena_destroy,
	.arena_export = cuda_arena_export,
	.arena_open = cuda_arena_open,
	.arena_close = cuda_arena_close,
	.host_map = cuda_host_map,
	.host_unmap = cuda_host_unmap,
	.peer_check = cuda_peer_check,
	.stream_create = create_stream,
	.stream_destroy = destroy_stream,
	.stream_sync = sync_stream,
	.upload = copy_and_wait,
	.download = copy_and_wait,
	.zero = zero_memory,
	.copy_list = cuda_copy_list,
	.copy_list_by = cuda_copy_list_by,
	.event_create = create_event,
	.event_destroy = destroy_event,
	.event_record = record_event,
	.event_query = query_event,
	.event_wait = wait_event,
	.capture_begin = begin_capture,
	.capture_end = end_capture,
	.graph_launch = launch_graph,
	.graph_destroy = destroy_graph,
};

uint32_t backend_cuda_count(void)
{
	int n = 0;

	/* No driver, a driver older than the toolkit, no GPU: nothing to serve with. */
	if (cudaGetDeviceCount(&n) != cudaSuccess) {
		(void)cudaGetLastError();
		return 0;
	}
	return (uint32_t)n;
}

void cuda_uuid_text(const cudaDeviceProp *p, char *out, size_t size)
{
	const uint8_t *u = (const uint8_t *)p->uuid.bytes;
	int n = snprintf(out, size, "GPU-");

	for (int i = 0; i < 16; i++)
		n += snprintf(out + n, size - (size_t)n, "%s%02x",
			i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
}

static void describe(struct backend *b, const cudaDeviceProp *p, uint32_t index)
{
	cuda_uuid_text(p, b->uuid, sizeof(b->uuid));
	(void)snprintf(b->device, sizeof(b->device), "cuda:%u %.50s", index, p->name);
	b->arch = (uint32_t)(10 * p->major + p->minor);
}

status backend_cuda_judge(const struct cuda_facts *f, struct err *err)
{
	char built[64] = "";
	bool right = false;
	size_t n = 0;

	for (uint32_t i = 0; i < f->n_built_for && n < sizeof(built); i++) {
		right |= f->arch == f->built_for[i];
		n += (size_t)snprintf(built + n, sizeof(built) - n, "%ssm_%ua",
			i > 0 ? " and " : "", f->built_for[i]);
	}
	if (!right)
		return err_set(err, ST_DEVICE,
			"%s is sm_%u; this build has machine code for %s", f->device,
			f->arch, built);
	/* The driver shows each instance as a device with this word in its name. */
	if (strstr(f->name, " MIG ") != NULL)
		return err_set(err, ST_DEVICE,
			"%s is a MIG instance: other processes cannot map its memory "
			"(CUDA IPC); use a whole GPU",
			f->device);
	return ST_OK;
}

static status check_device(
	const struct backend *b, const cudaDeviceProp *p, struct err *err)
{
	uint32_t archs[COUNT(built_for)];
	struct cuda_facts facts = {.device = b->device,
		.name = p->name,
		.arch = b->arch,
		.built_for = archs,
		.n_built_for = COUNT(archs)};

	for (uint32_t i = 0; i < COUNT(archs); i++)
		archs[i] = built_for[i] / BUILT_FOR_UNIT;
	return backend_cuda_judge(&facts, err);
}

status backend_cuda_open(struct backend **out, uint32_t index, struct err *err)
{
	uint32_t n = backend_cuda_count();
	struct cuda_backend *cuda;
	cudaDeviceProp prop;
	size_t mem_free, mem_total;
	struct backend *b;
	status st;

	if (index >= n)
		return err_set(err, ST_DEVICE,
			"device \"%u\": the CUDA driver shows %u GPUs%s", index, n,
			n == 0 ? " (is it there, and new enough for CUDA 13?)" : "");
	cuda = (struct cuda_backend *)mem_take(1, sizeof(*cuda));
	if (cuda == NULL)
		return err_set(
			err, ST_NOMEM, "cuda:%u: no memory for the backend", index);
	b = &cuda->base;
	cuda->index = (int)index;
	b->ops = &cuda_ops;
	b->name = "cuda";
	b->act = DT_BF16;
	(void)snprintf(b->device, sizeof(b->device), "cuda:%u", index);
	st = cuda_enter(b, err);
	if (st == ST_OK)
		st = cuda_check(b, "cudaGetDeviceProperties",
			cudaGetDeviceProperties(&prop, cuda->index), err);
	if (st == ST_OK) {
		describe(b, &prop, index);
		st = check_device(b, &prop, err);
	}
	if (st == ST_OK)
		st = cuda_check(
			b, "cudaMemGetInfo", cudaMemGetInfo(&mem_free, &mem_total), err);
	if (st != ST_OK) {
		mem_give(cuda);
		return st;
	}
	b->mem_free = mem_free;
	b->mem_total = mem_total;
	*out = b;
	return ST_OK;
}
