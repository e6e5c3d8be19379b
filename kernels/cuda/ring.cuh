/* Barriers in shared memory (mbarrier) and bulk copies that arrive at them. A barrier has
 * phases; phase n has ended when all its arrivals and all bytes that were announced are
 * there, and a wait for parity n % 2 returns once it has. */
#ifndef KERNELS_CUDA_RING_CUH
#define KERNELS_CUDA_RING_CUH
#include "kernels/cuda/cuda_common.cuh"

static __device__ __forceinline__ void barrier_init(uint64_t *bar, uint32_t arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)),
		     "r"(arrivals)
		     : "memory");
}

/* After the inits, before the barrier of the block that makes them known. */
static __device__ __forceinline__ void barrier_init_done(void)
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *bar)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar))
		     : "memory");
}

/* Arrives, and announces bytes of bulk copies. */
static __device__ __forceinline__ void barrier_arrive_bytes(uint64_t *bar, uint32_t bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
			     shared_address(bar)),
		     "r"(bytes)
		     : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint64_t *bar, uint32_t parity)
{
	asm volatile("{\n\t.reg .pred done;\n"
		     "again%=:\n\t"
		     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
		     "@!done bra again%=;\n\t}" ::"r"(shared_address(bar)),
		     "r"(parity)
		     : "memory");
}

/* This thread's accesses to shared memory come before bulk copies that are asked for
 * after the next barrier. */
static __device__ __forceinline__ void fence_async(void)
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Both addresses and bytes: multiples of 16. What is copied is read once, so it may leave
 * L2 first. */
static __device__ __forceinline__ void copy_bulk(
	void *shared, const void *global, uint32_t bytes, uint64_t *bar)
{
	uint64_t policy;

	asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;"
		     : "=l"(policy));
	asm volatile(
		"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes."
		"L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
		"l"(global), "r"(bytes), "r"(shared_address(bar)), "l"(policy)
		: "memory");
}

/* True in one lane of a whole warp. */
static __device__ __forceinline__ bool elect_lane(void)
{
	uint32_t chosen;

	asm volatile("{\n\t.reg .pred p;\n\t"
		     "elect.sync _|p, 0xFFFFFFFF;\n\t"
		     "selp.u32 %0, 1, 0, p;\n\t}"
		     : "=r"(chosen));
	return chosen != 0;
}

#endif
