/* Which kernel runs for each (op, weight format) on a device: every candidate that fits
 * the device is run on the model's shapes against the oracle with poisoned outputs and
 * timed; the fastest one that is right is chosen. None right = the worker does not
 * start. The table of what was chosen, its error and time, and why others were refused
 * is printed by --doctor and at start. */
#ifndef KERNELS_REGISTRY_H
#define KERNELS_REGISTRY_H
#include "kernels/backend.h"
#include "kernels/ops.h"
#ifdef __cplusplus
extern "C" {
#endif

/* CPU features as bits of backend->arch. */
enum { KERNEL_CPU_PLAIN = 1u, KERNEL_CPU_AVX2 = 2u };

typedef void (*op_fn)(void); /* cast to the op's own type by the dispatch below */

#define KERNEL_NAMES_MAX     192u
#define KERNEL_NAMES_BETWEEN " + "

struct variant {
	const char *name; /* "linear/avx2" */
	enum op_id op;
	uint32_t formats;    /* of weights that it serves, as bits 1 << WF_x */
	const char *backend; /* "cpu", "cuda" */
	/* CPU: bit that the machine must have; CUDA: lowest and highest arch. */
	uint32_t arch_min, arch_max;
	op_fn run;
	bool oracle; /* the plain one that the others are checked against */
	/* Bytes of scratch that this variant needs at these shapes, or no_work. */
	uint64_t (*work_bytes)(const struct kernel_shapes *shapes);
	/* Repack weights once at load, in place, on a stream (same bytes); sets
	 * w->layout. no_repack: takes layout 0. w is one matrix or stack; scratch: host
	 * staging is the variant's own business. */
	status (*repack)(
		struct backend *b, struct stream *s, struct weight *w, struct err *err);
	/* Names of the kernels or tiles inside that would serve this call, by its host
	 * numbers: kernel_named for each. A range of row counts between two changes of
	 * them is a class of rows; the self-check runs every class. */
	void (*inner)(const void *op, char names[KERNEL_NAMES_MAX]);
	bool by_name; /* tried only when forced */
};

/* A variant of every format, or of an op without one. */
#define FORMATS_ANY UINT32_MAX

static inline bool variant_takes(const struct variant *v, enum weight_format format)
{
	return (v->formats >> format & 1u) != 0;
}

uint64_t no_work(const struct kernel_shapes *shapes);
status no_repack(struct backend *b, struct stream *s, struct weight *w, struct err *err);

void one_kernel(const void *op, char names[KERNEL_NAMES_MAX]);
/* Adds one; a name has no '+' and fits 40 bytes. */
void kernel_named(char names[KERNEL_NAMES_MAX], const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Tables of the backends; the second exists in builds with CUDA. */
extern const struct variant cpu_variants[];
extern const uint32_t n_cpu_variants;
extern const struct variant cuda_variants[];
extern const uint32_t n_cuda_variants;

struct variant_table {
	const struct variant *at;
	uint32_t n;
};

/* Where to choose from. reference: a backend whose oracles check this backend's oracles
 * on small cases (the CPU for a GPU); NULL: this backend's oracles stand alone. */
struct variant_source {
	const struct variant_table *tables;
	uint32_t n_tables;
	struct backend *reference;
	uint32_t threads; /* at most; 0: as many as help */
};

struct kernels {
	op_fn run[OP__COUNT][WF__COUNT];
	const struct variant *chosen[OP__COUNT][WF__COUNT];
	uint64_t work_bytes; /* the largest of the chosen */
	void *report;        /* rows of the table, owned */
};

/* Whether each name of forced ("linear/plain,moe/avx2") is that of a variant of the
 * backend ("cpu", "cuda"), on whatever device. ST_INVALID names one that is not. */
MUST_CHECK status kernels_known(const char *forced, const char *backend, struct err *err);
/* Scratch of the built-in variant of a backend that needs the most: at least what any
 * choice among them will. 0: this build has none, or none needs any. */
uint64_t kernels_work_most(const char *backend, const struct kernel_shapes *shapes);
/* forced: pins variants (refused when one fails its check). */
MUST_CHECK status kernels_select(struct kernels **out, struct backend *b,
	const struct kernel_shapes *shapes, const char *forced, struct err *err);
/* The same from given tables; kernels_select passes those that are built in. */
MUST_CHECK status kernels_select_from(struct kernels **out, struct backend *b,
	const struct kernel_shapes *shapes, const char *forced,
	const struct variant_source *from, struct err *err);
void kernels_release(struct kernels *k);
/* The table: op, format, variant, error in % of tolerance, time, refusals; text. */
void kernels_report(const struct kernels *k, struct sink *out);

/* kernel_linear(k, format, stream, &op, err) and so on, one per op. Ops without a
 * weight format are filed under every format; pass WF_F32. */
#define X(op, ...)                                                                       \
	MUST_CHECK static inline status kernel_##op(const struct kernels *k,             \
		enum weight_format format, struct stream *s, const struct op_##op *args, \
		struct err *err)                                                         \
	{                                                                                \
		typedef status (*fn)(                                                    \
			struct stream *, const struct op_##op *, struct err *);          \
		return ((fn)k->run[OP_##op][format])(s, args, err);                      \
	}
OP_MAP(X)
#undef X

const char *op_name(enum op_id op);

#ifdef __cplusplus
}
#endif
#endif
