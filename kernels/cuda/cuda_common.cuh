/* What the CUDA files share: the shape of a launcher, error checks, conversions,
 * reductions and the tensor-core instruction.
 *
 * A launcher is written CUDA_KERNEL(op, variant) { ... }; it checks what its kernels
 * assume (ST_LIMIT with values), returns ST_OK for an empty batch, calls CUDA_ENTER, and
 * ends with `return cuda_launched("op/variant", err)`. Its line in CUDA_VARIANTS
 * (kernels/table.h) declares it and makes it a variant. */
#ifndef KERNELS_CUDA_CUDA_COMMON_CUH
#define KERNELS_CUDA_CUDA_COMMON_CUH
#include "common/base/attr.h"
#include "kernels/backend.h"
#include "kernels/cuda/backend_cuda.h"
#include "kernels/ops.h"
#include "kernels/registry.h"
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

/* A stream knows its device, because a thread launches on its current device only. */
struct stream {
	cudaStream_t cuda;
	int device;
	struct backend *backend;
};

typedef __nv_bfloat16 bf16;

/* Shared memory that a block may have on SM120 (SM90 has 232,448). */
#define CUDA_SMEM_MAX 101376u
#define WARP          32u
#define FULL_WARP     0xFFFFFFFFu

#define CUDA_KERNEL(name, variant)                                                       \
	extern "C" status k_##name##_cuda_##variant(                                     \
		struct stream *stream, const struct op_##name *op, struct err *err)

/* Give up with the name of the CUDA error; what: a printf format's first argument. The
 * error is told here, so the next launch, of another kernel, must not report it. */
#define CUDA_TRY(what, call)                                                             \
	do {                                                                             \
		cudaError_t rc_ = (call);                                                \
		if (rc_ != cudaSuccess) {                                                \
			(void)cudaGetLastError();                                        \
			return err_set(err, ST_DEVICE, "%s: %s (%s)", (what),            \
				cudaGetErrorString(rc_), cudaGetErrorName(rc_));         \
		}                                                                        \
	} while (0)

/* Before the launches of a launcher. */
#define CUDA_ENTER(what) CUDA_TRY((what), cudaSetDevice(stream->device))

/* More than 48 KB of dynamic shared memory must be asked for. */
#define CUDA_ALLOW_SMEM(what, kernel, bytes)                                             \
	CUDA_TRY((what),                                                                 \
		cudaFuncSetAttribute((const void *)(kernel),                             \
			cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes)))

static inline status cuda_launched(const char *what, struct err *err)
{
	CUDA_TRY(what, cudaGetLastError());
	return ST_OK;
}

static inline bool is_aligned(const void *p, uint64_t bytes)
{
	return (uintptr_t)p % bytes == 0;
}

/* Every launcher of the folder, and what its line says of scratch and weights. */
#define X(op, variant, formats, role, work, repack, inner)                               \
	CUDA_KERNEL(op, variant);                                                        \
	extern "C" uint64_t work(const struct kernel_shapes *shapes);                    \
	extern "C" status repack(struct backend *b, struct stream *stream,               \
		struct weight *w, struct err *err);                                      \
	extern "C" void inner(const void *op, char names[KERNEL_NAMES_MAX]);
CUDA_VARIANTS(X)
#undef X

/* ---- device code ---- */

static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
	for (int step = 16; step > 0; step >>= 1)
		x += __shfl_xor_sync(FULL_WARP, x, step);
	return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
	for (int step = 16; step > 0; step >>= 1)
		x = fmaxf(x, __shfl_xor_sync(FULL_WARP, x, step));
	return x;
}

/* Sum over a block of WARPS warps, in every thread; partial: WARPS floats. All threads
 * call it; partial may be used again after the next barrier. */
template <int WARPS>
static __device__ __forceinline__ float block_sum(float x, float *partial)
{
	float sum = 0.0f;

	x = warp_sum(x);
	if (threadIdx.x % WARP == 0)
		partial[threadIdx.x / WARP] = x;
	__syncthreads();
#pragma unroll
	for (int w = 0; w < WARPS; w++)
		sum += partial[w];
	return sum;
}

static __device__ __forceinline__ float dev_sigmoid(float x)
{
	return __fdividef(1.0f, 1.0f + __expf(-x));
}

static __device__ __forceinline__ float dev_silu(float x)
{
	return __fdividef(x, 1.0f + __expf(-x));
}

/* Two BF16 in one register; lo stands at the lower address. */
static __device__ __forceinline__ uint32_t pack2(float lo, float hi)
{
	__nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);

	return *reinterpret_cast<uint32_t *>(&v);
}

static __device__ __forceinline__ float low2(uint32_t v)
{
	return __uint_as_float(v << 16);
}

static __device__ __forceinline__ float high2(uint32_t v)
{
	return __uint_as_float(v & 0xFFFF0000u);
}

/* Eight BF16 of one 16-byte access. */
static __device__ __forceinline__ void unpack8(uint4 raw, float *to)
{
	const uint32_t part[4] = {raw.x, raw.y, raw.z, raw.w};

#pragma unroll
	for (int i = 0; i < 4; i++) {
		to[2 * i] = low2(part[i]);
		to[2 * i + 1] = high2(part[i]);
	}
}

static __device__ __forceinline__ uint4 pack8(const float *from)
{
	return make_uint4(pack2(from[0], from[1]), pack2(from[2], from[3]),
		pack2(from[4], from[5]), pack2(from[6], from[7]));
}

/* d += a b: a 16x16 row-major, b 16x8 column-major, both BF16; d 16x8 F32. With
 * g = lane / 4, c = 2 * (lane % 4): a[0] = (g, c..c+1), a[1] = (g + 8, c..), a[2] =
 * (g, c + 8..), a[3] = (g + 8, c + 8..); b[0] = k c..c+1 of column g, b[1] = k c + 8..;
 * d[0..1] = (g, c..c+1), d[2..3] = (g + 8, c..c+1). */
static __device__ __forceinline__ void mma_bf16(
	float *d, const uint32_t *a, uint32_t b0, uint32_t b1)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
		     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 16 bytes, or zeros without a read if !valid. Several of these before the first use of
 * one are in flight together: the compiler puts no branch between them. */
static __device__ __forceinline__ uint4 load16_if(const void *p, bool valid)
{
	uint4 v = make_uint4(0, 0, 0, 0);

	asm volatile("{\n\t.reg .pred valid;\n\t"
		     "setp.ne.u32 valid, %5, 0;\n\t"
		     "@valid ld.global.v4.u32 {%0,%1,%2,%3}, [%4];\n\t}"
		     : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
		     : "l"(p), "r"((uint32_t)valid));
	return v;
}

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* Four 8x8 tiles of BF16; lane l gives the address of row l % 8 of tile l / 8. */
static __device__ __forceinline__ void ldmatrix4(uint32_t *r, const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(shared_address(row))
		     : "memory");
}

static __device__ __forceinline__ void ldmatrix4_trans(uint32_t *r, const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(shared_address(row))
		     : "memory");
}

/* 16 bytes from global to shared memory behind the thread's back; zeros if !valid. */
static __device__ __forceinline__ void copy16_async(
	void *shared, const void *global, bool valid)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
			     shared_address(shared)),
		     "l"(global), "r"(valid ? 16 : 0)
		     : "memory");
}

static __device__ __forceinline__ void copy_async_commit(void)
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until at most N groups of this thread are in flight. */
template <int N> static __device__ __forceinline__ void copy_async_wait(void)
{
	asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* First byte of the page that holds the token at pos. */
static __device__ __forceinline__ uint8_t *dev_page(
	const struct op_kv &kv, const struct op_rows &rows, uint32_t seq, uint32_t pos)
{
	uint64_t page =
		rows.pages[(uint64_t)seq * rows.pages_stride + pos / kv.page_tokens];

	return (uint8_t *)kv.base + page * kv.page_bytes;
}

#endif
