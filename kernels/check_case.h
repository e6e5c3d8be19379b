/* One set of inputs for one op, generated on the host from a seed, independent of any
 * backend: the self-check uploads it to a device in the device's own number formats.
 * What a kernel may write is poisoned before it runs. */
#ifndef KERNELS_CHECK_CASE_H
#define KERNELS_CHECK_CASE_H
#include "kernels/ops.h"

enum check_type {
	CHECK_ACT,   /* host F32, on the device the backend's activation type */
	CHECK_F32,   /* F32 on both sides */
	CHECK_BF16,  /* host F32, BF16 on the device */
	CHECK_U32,   /* the same on both sides */
	CHECK_BYTES, /* the same on both sides */
};

enum check_role {
	CHECK_IN,    /* must not change */
	CHECK_OUT,   /* poisoned; `width` of every `stride` elements must be written */
	CHECK_STATE, /* filled; compared as a whole, so what must stay is seen too */
};

#define CHECK_NO_ROW UINT64_MAX

struct check_buffer {
	const char *name;
	enum check_type type;
	enum check_role role;
	uint64_t rows, width, stride; /* in elements */
	uint64_t skipped_row;         /* whose values mean nothing; CHECK_NO_ROW: none */
	void *host;                   /* rows * stride elements */
	void *field;                  /* the pointer inside args or weights to set */
	uint64_t at;                  /* place in device memory, set by the self-check */
};

union check_args {
#define X(op, ...) struct op_##op op;
	OP_MAP(X)
#undef X
};

#define CHECK_BUFFERS_MAX 32u
#define CHECK_WEIGHTS_MAX 6u

struct check_case {
	enum op_id op;
	enum weight_format format;
	char name[64];               /* "67 rows of 128 to 1024" */
	struct kernel_shapes shapes; /* of this case, for work_bytes */
	union check_args args;
	struct weight weights[CHECK_WEIGHTS_MAX];
	uint32_t n_weights;
	struct check_buffer buffers[CHECK_BUFFERS_MAX];
	uint32_t n_buffers;
	void *work_field; /* NULL: the op takes no scratch */
	uint64_t *work_bytes_field;
	uint64_t seed; /* state of the generator */
	bool round_acts, thin;
};

/* Rows of a pass: tokens that each sequence has before it, and rows in it. Ops whose
 * rows belong to no sequence have all rows together. */
#define CHECK_SEQS_MAX 768u
struct check_layout {
	uint32_t n_seqs;
	uint32_t past[CHECK_SEQS_MAX], rows[CHECK_SEQS_MAX];
};

/* How much a case may cost: the CPU's plain kernels do about 10^9 products a second. */
struct check_limits {
	uint64_t weight_elements;
	uint64_t products;
	const struct check_layout *layout; /* instead of the rows of case i, or NULL */
	/* Activations are exact in BF16, so that backends with different activation types
	 * start equal. */
	bool round_acts;
	bool thin;    /* weights have shapes and no values: nothing can be run */
	bool aligned; /* rows of results begin where kernels of many rows want them */
};

/* How the rows of an op are counted (table.h). */
enum check_rows { CHECK_TOGETHER, CHECK_PASS, CHECK_STEP };

/* How many cases an op has. */
uint32_t check_case_count(enum op_id op);
/* Case number i. Never NULL; memory is start-up memory. */
struct check_case *check_case_create(enum op_id op, enum weight_format format,
	const struct kernel_shapes *shapes, uint32_t i,
	const struct check_limits *limits);
void check_case_destroy(struct check_case *c);

enum check_rows check_rows_of(enum op_id op);
/* How many rows the engine may ask for, as far as a layout has room for them. */
uint32_t check_rows_most(enum op_id op, const struct kernel_shapes *shapes);
/* Host numbers of the arguments that say how many rows there are. CHECK_TOGETHER: the
 * first so many of those that the case has can be run. Otherwise what they say of one
 * sequence, or of so many sequences of one row; only variant.inner may look at them. */
uint32_t check_get_rows(const struct check_case *c);
void check_set_rows(struct check_case *c, uint32_t rows);
/* A pass of so many rows; of CHECK_STEP: one long sequence among short ones. */
struct check_layout check_layout_of(
	enum op_id op, const struct kernel_shapes *shapes, uint32_t rows);

/* For check_dense.c and check_seq.c. */
struct check_buffer *check_add(struct check_case *c, const char *name,
	enum check_role role, enum check_type type, void *field);
void check_shape(struct check_buffer *b, uint64_t rows, uint64_t width, uint64_t stride);
uint64_t check_random(struct check_case *c);
/* Uniform in [low, high). */
float check_uniform(struct check_case *c, float low, float high);
/* Approximately normal values times scale; activations rounded if the case says so. */
void check_fill(struct check_case *c, struct check_buffer *b, float scale);
/* What check_fill does at its end, for values that were changed since. */
void check_round(const struct check_case *c, struct check_buffer *b);
void check_fill_uniform(
	struct check_case *c, struct check_buffer *b, float low, float high);
/* A matrix or stack with random values of variance 1 / k in its format. */
struct weight *check_add_weight(struct check_case *c, enum weight_format format,
	uint32_t count, uint32_t n, uint32_t k);

/* Builds case number i; op, format, shapes and the generator are set. */
#define CHECK_BUILDER(op)                                                                \
	void check_build_##op(struct check_case *c, const struct kernel_shapes *s,       \
		uint32_t i, const struct check_limits *limits)
#define X(op, ...) CHECK_BUILDER(op);
OP_MAP(X)
#undef X

#endif
