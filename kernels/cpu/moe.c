/* The chosen experts and the shared one, plain: row by row, expert by expert in the
 * order of the router's list. Scratch: gate, up and result of one expert. */
#include "kernels/cpu/cpu.h"

static uint64_t scratch_floats(uint32_t width, uint32_t shared_width, uint32_t hidden)
{
	return 2 * (uint64_t)MAX(width, shared_width) + hidden;
}

uint64_t moe_work_plain(const struct kernel_shapes *shapes)
{
	return sizeof(float) *
	       scratch_floats(shapes->width, shapes->shared_width, shapes->hidden);
}

/* The matrices of one expert. */
struct expert {
	const struct weight *gate, *up, *down;
	uint32_t index;
};

/* y += times * expert(x). */
static void add_expert(
	const struct expert *e, const float *x, float times, float *work, float *y)
{
	float *gate = work;
	float *up = gate + e->gate->n;
	float *out = up + e->up->n;

	product_plain(&(struct product){
		.y = gate, .x = x, .n_rows = 1, .w = e->gate, .index = e->index});
	product_plain(&(struct product){
		.y = up, .x = x, .n_rows = 1, .w = e->up, .index = e->index});
	for (uint32_t i = 0; i < e->gate->n; i++)
		gate[i] = silu(gate[i]) * up[i];
	product_plain(&(struct product){
		.y = out, .x = gate, .n_rows = 1, .w = e->down, .index = e->index});
	for (uint32_t i = 0; i < e->down->n; i++)
		y[i] += times * out[i];
}

/* What both CPU variants refuse. */
status moe_check(const struct op_moe *op, const char *what, struct err *err)
{
	const struct weight *all[] = {
		op->gate, op->up, op->down, op->sh_gate, op->sh_up, op->sh_down};

	for (size_t i = 0; i < COUNT(all); i++) {
		status st = all[i] != NULL ? product_check(all[i], what, err) : ST_OK;

		if (st != ST_OK)
			return st;
	}
	if (op->first > op->n_experts || op->down->count > op->n_experts - op->first)
		return err_set(err, ST_INVALID, "%s: experts %u .. %u of %u", what,
			op->first, op->first + op->down->count, op->n_experts);
	for (uint64_t i = 0; i < (uint64_t)op->n_rows * op->top_k; i++) {
		if (op->ids[i] >= op->n_experts)
			return err_set(err, ST_INVALID, "%s: expert %u of %u", what,
				op->ids[i], op->n_experts);
	}
	return ST_OK;
}

CPU_KERNEL(moe, plain)
{
	uint32_t hidden = op->down->n;
	uint64_t need =
		sizeof(float) * scratch_floats(op->gate->n,
					op->sh_gate != NULL ? op->sh_gate->n : 0, hidden);
	status st = moe_check(op, "moe/plain", err);

	if (st != ST_OK)
		return st;
	if (op->work_bytes < need)
		return err_set(err, ST_LIMIT,
			"moe/plain: %llu bytes of scratch, %llu needed",
			(unsigned long long)op->work_bytes, (unsigned long long)need);
	for (uint64_t t = 0; t < op->n_rows; t++) {
		const float *x = (const float *)op->x + t * hidden;
		float *y = (float *)op->y + t * hidden;

		for (uint32_t i = 0; i < hidden; i++)
			y[i] = 0.0f;
		for (uint32_t j = 0; j < op->top_k; j++) {
			/* Ids below `first` wrap. */
			struct expert e = {op->gate, op->up, op->down,
				op->ids[t * op->top_k + j] - op->first};

			if (e.index >= op->down->count)
				continue;
			add_expert(&e, x, op->weights[t * op->top_k + j], op->work, y);
		}
		if (op->sh_gate != NULL) {
			struct expert e = {op->sh_gate, op->sh_up, op->sh_down, 0};

			add_expert(&e, x, op->shared[t], op->work, y);
		}
	}
	return ST_OK;
}
