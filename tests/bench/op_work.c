/* The formulas of op_work.h. Arguments on the device are read from the case's host
 * buffers, which are found by the pointer that they set. */
#include "tests/bench/op_work.h"

#include "common/base/attr.h"
#include "common/base/mem.h"

#include <assert.h>

static const struct check_buffer *buffer_of(const struct check_case *c, const void *field)
{
	for (uint32_t i = 0; i < c->n_buffers; i++) {
		if (c->buffers[i].field == field)
			return &c->buffers[i];
	}
	return NULL;
}

static bool has_buffer(const struct check_case *c, const void *field)
{
	return buffer_of(c, field) != NULL;
}

static const void *host_of(const struct check_case *c, const void *field)
{
	const struct check_buffer *b = buffer_of(c, field);

	assert(b != NULL);
	return b->host;
}

/* One matrix of a stack. */
static double matrix_bytes(const struct weight *w)
{
	double n = w->n, k = w->k, bytes = n * k * format_bits(w->format) / 8;

	if (w->format == WF_NVFP4)
		bytes += n * k / 16 + 4;
	if (w->format == WF_FP8)
		bytes += 4.0 * CEIL_DIV(w->n, w->block_n) * CEIL_DIV(w->k, w->block_k);
	return bytes;
}

static double matrix_flops(const struct weight *w)
{
	return 2.0 * w->n * w->k;
}

/* How many different values below `most` are among n. */
static double count_distinct(const uint32_t *at, uint64_t n, uint32_t most)
{
	uint8_t *seen = mem_alloc(MAX(most, 1), 1);
	double count = 0;

	for (uint64_t i = 0; i < n; i++) {
		assert(at[i] < most);
		count += !seen[at[i]];
		seen[at[i]] = 1;
	}
	mem_free(seen);
	return count;
}

static struct op_work work_embed(const struct check_case *c, double a)
{
	const struct op_embed *op = &c->args.embed;
	const uint32_t *ids = host_of(c, &op->ids);
	double row = matrix_bytes(op->table) / op->table->n;

	return (struct op_work){
		.read = 4.0 * op->n_rows +
			row * count_distinct(ids, op->n_rows, op->vocab),
		.written = a * op->n_rows * op->table->k,
	};
}

static struct op_work work_add_norm(const struct check_case *c, double a)
{
	const struct op_add_norm *op = &c->args.add_norm;
	double n = (double)op->n_rows * op->width;
	bool adds = has_buffer(c, &op->add);

	return (struct op_work){
		.read = a * n * (adds ? 2 : 1) + 4.0 * op->width,
		.written = a * n * (adds ? 2 : 1),
		.flops = n * (adds ? 6 : 5),
	};
}

static struct op_work work_linear(const struct check_case *c, double a)
{
	const struct op_linear *op = &c->args.linear;
	double t = op->n_rows;

	return (struct op_work){
		.read = a * t * op->w->k + matrix_bytes(op->w),
		.written = a * t * op->w->n,
		.flops = t * matrix_flops(op->w),
	};
}

static struct op_work work_attn_prep(const struct check_case *c, double a)
{
	const struct op_attn_prep *op = &c->args.attn_prep;
	double t = op->rows.n_rows, d = op->kv.head_dim;
	double element = (double)dtype_bytes(op->kv.dtype);

	return (struct op_work){
		.read = a * t * d * (op->n_q + 2.0 * op->kv.n_kv) + 2 * 4 * d +
			4 * op->rotary / 2.0,
		.written = a * t * op->n_q * d + element * t * 2 * op->kv.n_kv * d,
		.flops = t * (op->n_q + op->kv.n_kv) * (4 * d + 3.0 * op->rotary),
	};
}

/* Of the sequences of a pass. */
struct pass {
	double seqs;   /* that have rows */
	double tokens; /* of these, after the pass */
	double pairs;  /* of a row and a position that it sees */
};

static struct pass count_pass(const struct check_case *c, const struct op_rows *rows)
{
	const uint32_t *pos = host_of(c, &rows->pos);
	const uint32_t *first = host_of(c, &rows->first);
	struct pass p = {0};

	for (uint32_t q = 0; q < rows->n_seqs; q++) {
		if (first[q + 1] == first[q])
			continue;
		p.seqs++;
		p.tokens += pos[first[q + 1] - 1] + 1.0;
		for (uint32_t r = first[q]; r < first[q + 1]; r++)
			p.pairs += pos[r] + 1.0;
	}
	return p;
}

static struct op_work work_attn(const struct check_case *c, double a)
{
	const struct op_attn_prefill *op = &c->args.attn_prefill;
	struct pass p = count_pass(c, &op->rows);
	double d = op->kv.head_dim, queries = (double)op->rows.n_rows * op->n_q;

	return (struct op_work){
		.read = 2 * a * queries * d + (double)dtype_bytes(op->kv.dtype) *
						      p.tokens * 2 * op->kv.n_kv * d,
		.written = a * queries * d,
		.flops = 4 * op->n_q * d * p.pairs,
	};
}

static struct op_work work_gdn_prep(const struct check_case *c, double a)
{
	const struct op_gdn_prep *op = &c->args.gdn_prep;
	double keys = (double)op->n_k * op->dk, values = (double)op->n_v * op->dv;
	double t = op->rows.n_rows, channels = 2 * keys + values;
	double conv = count_pass(c, &op->rows).seqs * channels * (op->taps - 1.0) *
		      (double)dtype_bytes(op->state.conv_dtype);

	return (struct op_work){
		.read = a * t * (channels + 2.0 * op->n_v) +
			4 * (channels * op->taps + 2.0 * op->n_v) + conv,
		.written = a * t * channels + 4 * t * 2 * op->n_v + conv,
		.flops = t * (2 * channels * op->taps + 2 * 3 * keys),
	};
}

static double chunk_flops(const struct op_gdn_prefill *op, double rows)
{
	double dk = op->dk, dv = op->dv;

	return op->n_k * 2 * rows * rows * dk +
	       op->n_v * (rows * rows * rows / 3 + 6 * rows * dk * dv +
				 2 * rows * rows * dv);
}

static double chunked_flops(const struct check_case *c, const struct op_gdn_prefill *op)
{
	const uint32_t *first = host_of(c, &op->rows.first);
	double flops = 0;

	for (uint32_t q = 0; q < op->rows.n_seqs; q++) {
		uint32_t rows = first[q + 1] - first[q];

		flops += rows / WORK_CHUNK * chunk_flops(op, WORK_CHUNK) +
			 chunk_flops(op, rows % WORK_CHUNK);
	}
	return flops;
}

static struct op_work work_gdn(const struct check_case *c, double a)
{
	const struct op_gdn_prefill *op = &c->args.gdn_prefill;
	double keys = (double)op->n_k * op->dk, values = (double)op->n_v * op->dv;
	double t = op->rows.n_rows;
	double state = count_pass(c, &op->rows).seqs * 4 * values * op->dk;

	return (struct op_work){
		.read = a * t * (2 * keys + 2 * values) + 4 * t * 2 * op->n_v +
			4.0 * op->dv + state,
		.written = a * t * values + state,
		.flops = c->op == OP_gdn_decode ? 7 * t * values * op->dk
						: chunked_flops(c, op),
	};
}

static struct op_work work_swiglu(const struct check_case *c, double a)
{
	const struct op_swiglu *op = &c->args.swiglu;
	double n = (double)op->n_rows * op->width;

	return (struct op_work){.read = 2 * a * n, .written = a * n, .flops = 2 * n};
}

static struct op_work work_moe_route(const struct check_case *c, double a)
{
	const struct op_moe_route *op = &c->args.moe_route;
	bool forced = has_buffer(c, &op->forced), shared = op->shared_router != NULL;
	double t = op->n_rows, h = op->router->k, choices = t * op->top_k;
	double experts = op->n_experts;
	double row = matrix_bytes(op->router) / op->router->n;

	if (forced)
		experts = count_distinct(host_of(c, &op->forced),
			(uint64_t)op->n_rows * op->top_k, op->n_experts);
	return (struct op_work){
		.read = a * t * h + row * experts +
			(shared ? matrix_bytes(op->shared_router) : 0) +
			(forced ? 4 * choices : 0),
		.written = 8 * choices + (shared ? 4 * t : 0),
		.flops = 2 * h *
			 ((forced ? choices : t * op->n_experts) + (shared ? t : 0)),
	};
}

static struct op_work work_moe(const struct check_case *c, double a)
{
	const struct op_moe *op = &c->args.moe;
	double t = op->n_rows, choices = t * op->top_k;
	double experts = count_distinct(
		host_of(c, &op->ids), (uint64_t)op->n_rows * op->top_k, op->down->count);
	struct op_work w = {
		.read = a * t * op->gate->k + 8 * choices +
			experts * (matrix_bytes(op->gate) + matrix_bytes(op->up) +
					  matrix_bytes(op->down)),
		.written = a * t * op->down->n,
		.flops = choices * (matrix_flops(op->gate) + matrix_flops(op->up) +
					   matrix_flops(op->down)),
	};

	if (op->sh_gate == NULL)
		return w;
	w.read += 4 * t + matrix_bytes(op->sh_gate) + matrix_bytes(op->sh_up) +
		  matrix_bytes(op->sh_down);
	w.flops += t * (matrix_flops(op->sh_gate) + matrix_flops(op->sh_up) +
			       matrix_flops(op->sh_down));
	return w;
}

static struct op_work work_head(const struct check_case *c, double a)
{
	const struct op_head *op = &c->args.head;

	return (struct op_work){
		.read = a * op->n_out * op->w->k + 4.0 * op->n_out + matrix_bytes(op->w),
		.written = 4.0 * op->n_out * op->w->n,
		.flops = op->n_out * matrix_flops(op->w),
	};
}

static struct op_work work_sample(const struct check_case *c, double a)
{
	const struct op_sample *op = &c->args.sample;
	const struct sample_row *rows = host_of(c, &op->rows);
	struct op_work w = {.written = 12.0 * op->n, .flops = 2.0 * op->n * op->n_valid};

	(void)a; /* logits are F32 everywhere */
	for (uint32_t r = 0; r < op->n; r++) {
		const struct sample_row *row = &rows[r];
		bool counts = row->line != 0 &&
			      (row->presence != 0 || row->frequency != 0 ||
				      (row->repetition != 0 && row->repetition != 1));

		w.read += sizeof(*row) + (counts ? 6.0 : 4.0) * op->n_valid;
	}
	return w;
}

#define work_attn_prefill work_attn
#define work_attn_decode  work_attn
#define work_gdn_prefill  work_gdn
#define work_gdn_decode   work_gdn

struct op_work op_work_of(const struct check_case *c, enum dtype act)
{
	static struct op_work (*const work[OP__COUNT])(
		const struct check_case *c, double a) = {
#define X(op, ...) [OP_##op] = work_##op,
		OP_MAP(X)
#undef X
	};

	return work[c->op](c, (double)dtype_bytes(act));
}
