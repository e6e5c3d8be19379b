/* A case in the memory of a device: one allocation that holds every buffer between
 * bands of a pattern, so that one download shows everything that a kernel wrote. */
#include "kernels/selfcheck_rig.h"

#include "common/base/clock.h"
#include "common/base/mem.h"

#include <math.h>
#include <string.h>

#define BAND    256u /* bytes after every buffer, at least; also their alignment */
#define PATTERN 0xA5

uint64_t rig_element_bytes(const struct backend *b, enum check_type type)
{
	switch (type) {
	case CHECK_ACT:
		return dtype_bytes(b->act);
	case CHECK_BF16:
		return 2;
	case CHECK_F32:
	case CHECK_U32:
		return 4;
	case CHECK_BYTES:
		break;
	}
	return 1;
}

static uint64_t buffer_bytes(const struct check_rig *rig, const struct check_buffer *b)
{
	return b->rows * b->stride * rig_element_bytes(rig->backend, b->type);
}

/* The start of what follows `bytes` bytes at `at` and their band. */
static uint64_t after_band(uint64_t at, uint64_t bytes)
{
	return (at + bytes + BAND + BAND - 1) / BAND * BAND;
}

static bool is_narrow(const struct check_rig *rig, const struct check_buffer *b)
{
	return b->type == CHECK_BF16 ||
	       (b->type == CHECK_ACT && rig->backend->act == DT_BF16);
}

/* Host values in the device's format. The generator made them exact in BF16 where the
 * device is narrow, so cutting is rounding; a NaN keeps its upper half. */
static void encode(const struct check_rig *rig, const struct check_buffer *b)
{
	uint8_t *to = rig->image + b->at;
	uint64_t n = b->rows * b->stride;

	if (b->role == CHECK_OUT) {
		memset(to, POISON, buffer_bytes(rig, b));
	} else if (is_narrow(rig, b)) {
		for (uint64_t i = 0; i < n; i++)
			memcpy(to + 2 * i, (const uint8_t *)b->host + 4 * i + 2, 2);
	} else {
		memcpy(to, b->host, buffer_bytes(rig, b));
	}
}

void rig_decode(const struct check_rig *rig, const struct check_buffer *b,
	const uint8_t *from, uint64_t n, float *to)
{
	for (uint64_t i = 0; i < n; i++) {
		uint32_t u = 0;

		if (is_narrow(rig, b))
			memcpy((uint8_t *)&u + 2, from + 2 * i, 2);
		else
			memcpy(&u, from + 4 * i, 4);
		if (b->type == CHECK_U32)
			to[i] = u == UINT32_MAX ? NAN : (float)u;
		else
			memcpy(&to[i], &u, 4);
	}
}

static void set_pointer(void *field, void *value)
{
	memcpy(field, &value, sizeof(value));
}

status selfcheck_open(struct check_rig **out, struct backend *b, struct check_case *c,
	uint64_t work_bytes, struct err *err)
{
	struct check_rig *rig = mem_alloc(1, sizeof(*rig));
	uint64_t at = BAND;
	void *device = NULL;
	status st;

	*rig = (struct check_rig){.backend = b, .c = c, .work_bytes = work_bytes};
	for (uint32_t i = 0; i < c->n_buffers; i++) {
		c->buffers[i].at = at;
		at = after_band(at, buffer_bytes(rig, &c->buffers[i]));
	}
	rig->work_at = at;
	rig->bytes = after_band(at, work_bytes);
	st = b->ops->stream_create(b, &rig->stream, err);
	if (st == ST_OK)
		st = b->ops->alloc(b, MEM_DEVICE, rig->bytes, &device, err);
	rig->device = device;
	if (st != ST_OK) {
		selfcheck_close(rig);
		return st;
	}
	rig->image = mem_alloc(rig->bytes, 1);
	rig->after = mem_alloc(rig->bytes, 1);
	memset(rig->image, PATTERN, rig->bytes);
	for (uint32_t i = 0; i < c->n_buffers; i++) {
		encode(rig, &c->buffers[i]);
		set_pointer(c->buffers[i].field, rig->device + c->buffers[i].at);
	}
	*out = rig;
	return ST_OK;
}

void selfcheck_close(struct check_rig *rig)
{
	if (rig == NULL)
		return;
	mem_free(rig->image);
	mem_free(rig->after);
	rig_close_rows(rig);
	if (rig->device != NULL)
		rig->backend->ops->free(rig->backend, MEM_DEVICE, rig->device);
	if (rig->stream != NULL)
		rig->backend->ops->stream_destroy(rig->stream);
	mem_free(rig);
}

static status call(struct check_rig *rig, const struct variant *v, struct err *err)
{
	switch (v->op) {
#define X(name, ...)                                                                     \
	case OP_##name:                                                                  \
		return ((status(*)(struct stream *, const struct op_##name *,            \
			struct err *))v->run)(rig->stream, &rig->c->args.name, err);
		OP_MAP(X)
#undef X
	case OP__COUNT:
		break;
	}
	return err_set(err, ST_INVALID, "%s: op %d", v->name, (int)v->op);
}

/* What a right kernel changes: outputs, states, scratch. */
static status upload_written(struct check_rig *rig, struct err *err)
{
	const struct backend_ops *ops = rig->backend->ops;
	uint64_t at = rig->work_at;
	status st = ST_OK;

	for (uint32_t i = 0; i < rig->c->n_buffers && st == ST_OK; i++) {
		const struct check_buffer *b = &rig->c->buffers[i];

		if (b->role != CHECK_IN)
			st = ops->upload(rig->stream, rig->device + b->at,
				rig->image + b->at, buffer_bytes(rig, b), err);
	}
	if (st == ST_OK)
		st = ops->upload(rig->stream, rig->device + at, rig->image + at,
			rig->bytes - at, err);
	return st;
}

/* Everything at first; then only what may have changed. */
static status upload_image(struct check_rig *rig, struct err *err)
{
	if (rig->intact)
		return upload_written(rig, err);
	return rig->backend->ops->upload(
		rig->stream, rig->device, rig->image, rig->bytes, err);
}

/* Fresh inputs, poisoned scratch of the size the variant asked for, its weight layout. */
static status prepare(struct check_rig *rig, const struct variant *v, struct err *err)
{
	struct check_case *c = rig->c;
	uint64_t work = v->work_bytes(&c->shapes);
	status st;

	if (work > rig->work_bytes)
		return err_set(err, ST_INVALID, "%llu bytes of scratch in a rig for %llu",
			(unsigned long long)work, (unsigned long long)rig->work_bytes);
	memset(rig->image + rig->work_at, PATTERN, rig->bytes - rig->work_at);
	memset(rig->image + rig->work_at, POISON, work);
	if (c->work_field != NULL) {
		set_pointer(c->work_field, rig->device + rig->work_at);
		*c->work_bytes_field = work;
	}
	st = upload_image(rig, err);
	for (uint32_t i = 0; i < c->n_weights && st == ST_OK; i++) {
		c->weights[i].layout = 0;
		turn_take(rig->turn);
		st = v->repack(rig->backend, rig->stream, &c->weights[i], err);
		turn_give(rig->turn);
	}
	return st;
}

status selfcheck_begin(struct check_rig *rig, const struct variant *v, struct err *err)
{
	rig->intact = false;
	return prepare(rig, v, err);
}

/* Once more what a kernel may write, before a graph is launched. */
static status refresh(struct check_rig *rig, struct err *err)
{
	return rig->rows != NULL ? rig_poison_rows(rig, err) : upload_written(rig, err);
}

static status run_graph(struct check_rig *rig, const struct variant *v, struct err *err)
{
	const struct backend_ops *ops = rig->backend->ops;
	struct graph *g = NULL;
	status st = ops->capture_begin(rig->stream, err);

	if (st != ST_OK)
		return st;
	st = call(rig, v, err);
	if (st == ST_OK) {
		st = ops->capture_end(rig->stream, &g, err);
	} else {
		struct err ignored;

		(void)!ops->capture_end(rig->stream, &g, &ignored);
	}
	/* What ran during the capture, and not in the graph, does not count. */
	if (st == ST_OK)
		st = refresh(rig, err);
	if (st == ST_OK)
		st = ops->graph_launch(g, rig->stream, err);
	if (st == ST_OK)
		st = ops->stream_sync(rig->stream, err);
	if (g != NULL)
		ops->graph_destroy(g);
	return st;
}

status rig_launch(
	struct check_rig *rig, const struct variant *v, bool graph, struct err *err)
{
	status st;

	turn_take(rig->turn);
	if (graph) {
		st = run_graph(rig, v, err);
	} else {
		st = call(rig, v, err);
		if (st == ST_OK)
			st = rig->backend->ops->stream_sync(rig->stream, err);
	}
	turn_give(rig->turn);
	return st;
}

/* First byte in [from, to) that is not as it was uploaded, or `to`. */
static uint64_t first_change(const struct check_rig *rig, uint64_t from, uint64_t to)
{
	if (memcmp(rig->image + from, rig->after + from, to - from) == 0)
		return to;
	while (rig->image[from] == rig->after[from])
		from++;
	return from;
}

/* Weights in another layout are no longer what was uploaded. */
static bool is_repacked(const struct check_case *c, const struct check_buffer *b)
{
	const uint8_t *field = b->field;

	for (uint32_t i = 0; i < c->n_weights; i++) {
		const uint8_t *w = (const uint8_t *)&c->weights[i];

		if (field >= w && field < w + sizeof(c->weights[i]))
			return c->weights[i].layout != 0;
	}
	return false;
}

static status check_borders(
	const struct check_rig *rig, const struct variant *v, struct err *err)
{
	const struct check_case *c = rig->c;
	uint64_t work = v->work_bytes(&c->shapes);
	uint64_t from = 0;

	for (uint32_t i = 0; i <= c->n_buffers; i++) {
		const struct check_buffer *b = i < c->n_buffers ? &c->buffers[i] : NULL;
		uint64_t at = b != NULL ? b->at : rig->work_at;
		uint64_t end = at + (b != NULL ? buffer_bytes(rig, b) : work);
		uint64_t bad = first_change(rig, from, at);

		if (bad < at)
			return err_set(err, ST_DEVICE, "wrote %llu bytes before %s",
				(unsigned long long)(at - bad),
				b != NULL ? b->name : "its scratch");
		if (b != NULL && b->role == CHECK_IN && !is_repacked(c, b)) {
			bad = first_change(rig, at, end);
			if (bad < end)
				return err_set(err, ST_DEVICE,
					"changed its input %s at byte %llu", b->name,
					(unsigned long long)(bad - at));
		}
		from = end;
	}
	if (first_change(rig, from, rig->bytes) < rig->bytes)
		return err_set(err, ST_DEVICE,
			"wrote past the end of its scratch (%llu bytes)",
			(unsigned long long)work);
	return ST_OK;
}

/* All but the scratch, of which only the end matters. */
static status download_all(struct check_rig *rig, uint64_t work, struct err *err)
{
	const struct backend_ops *ops = rig->backend->ops;
	uint64_t end = rig->work_at + work;
	status st =
		ops->download(rig->stream, rig->after, rig->device, rig->work_at, err);

	if (st == ST_OK)
		st = ops->download(rig->stream, rig->after + end, rig->device + end,
			rig->bytes - end, err);
	return st == ST_OK ? ops->stream_sync(rig->stream, err) : st;
}

status selfcheck_run(struct check_rig *rig, const struct variant *v, bool graph,
	float *out, struct err *err)
{
	status st = prepare(rig, v, err);

	rig->intact = false;
	if (st == ST_OK)
		st = rig_launch(rig, v, graph, err);
	if (st == ST_OK)
		st = download_all(rig, v->work_bytes(&rig->c->shapes), err);
	if (st == ST_OK)
		st = check_borders(rig, v, err);
	if (st != ST_OK)
		return st;
	rig->intact = true;
	for (uint32_t i = 0; i < rig->c->n_weights; i++)
		rig->intact &= rig->c->weights[i].layout == 0;
	for (uint32_t i = 0; i < rig->c->n_buffers; i++) {
		const struct check_buffer *b = &rig->c->buffers[i];

		if (b->role == CHECK_IN)
			continue;
		rig_decode(rig, b, rig->after + b->at, b->rows * b->stride, out);
		out += b->rows * b->stride;
	}
	return ST_OK;
}

uint64_t selfcheck_outputs(const struct check_case *c)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < c->n_buffers; i++) {
		if (c->buffers[i].role != CHECK_IN)
			n += c->buffers[i].rows * c->buffers[i].stride;
	}
	return n;
}

/* A GPU is timed over several launches between two waits; the CPU over one call. */
static status time_calls(
	struct check_rig *rig, const struct variant *v, uint64_t *ns, struct err *err)
{
	uint32_t launches = rig->backend->ops->capture_begin != NULL ? 10 : 1;
	uint64_t best = UINT64_MAX;

	/* A slow one, which the oracles are, is measured well enough by one round. */
	for (uint32_t round = 0; round < 3 && (round == 0 || best < 2 * NS_PER_MS);
		round++) {
		uint64_t start = clock_ns();
		status st = ST_OK;

		for (uint32_t i = 0; i < launches && st == ST_OK; i++)
			st = call(rig, v, err);
		if (st == ST_OK)
			st = rig->backend->ops->stream_sync(rig->stream, err);
		if (st != ST_OK)
			return st;
		best = MIN(best, (clock_ns() - start) / launches);
	}
	*ns = MAX(1, best);
	return ST_OK;
}

status selfcheck_time(
	struct check_rig *rig, const struct variant *v, uint64_t *ns, struct err *err)
{
	status st;

	turn_take(rig->turn);
	st = time_calls(rig, v, ns, err);
	turn_give(rig->turn);
	return st;
}

void selfcheck_turns(struct check_rig *rig, struct turn *turn)
{
	rig->turn = turn;
}

struct check_limits selfcheck_limits(const struct backend *b)
{
	if (strcmp(b->name, "cpu") == 0)
		return (struct check_limits){.weight_elements = 1u << 20,
			.products = 8u << 20,
			.round_acts = b->act == DT_BF16};
	return (struct check_limits){.weight_elements = 32u << 20,
		.products = 1u << 30,
		.round_acts = b->act == DT_BF16};
}
