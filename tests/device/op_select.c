/* The registry as a worker meets it at start: checks and times every variant on the
 * model's shapes and chooses. */
#include "tests/device/op_test.h"

#include "common/base/attr.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "kernels/registry.h"

#include <stdio.h>

static bool select_for(struct backend *gpu, const char *name, struct kernel_shapes shapes)
{
	struct kernels *k = NULL;
	struct err err = {.text = ""};
	uint64_t start = clock_ns();
	struct sink out;

	if (kernels_select(&k, gpu, &shapes, NULL, &err) != ST_OK) {
		printf("%s: %s\n", name, err.text);
		return false;
	}
	sink_init(&out, 1u << 20);
	kernels_report(k, &out);
	printf("%s: chosen in %.2f s, %.1f MB of scratch\n%s", name,
		(double)(clock_ns() - start) * 1e-9, (double)k->work_bytes * 1e-6,
		sink_cstr(&out));
	sink_release(&out);
	kernels_release(k);
	return true;
}

bool op_select(struct backend *gpu)
{
	struct kernel_shapes demo = shapes_demo, large = shapes_35b;

	demo.linear_formats = demo.head_formats = 1u << WF_BF16;
	demo.moe_formats = 1u << WF_BF16 | 1u << WF_NVFP4;
	large.linear_formats = 1u << WF_BF16;
	large.head_formats = 1u << WF_BF16;
	large.moe_formats = 1u << WF_NVFP4;
	return select_for(gpu, "demo", demo) & select_for(gpu, "35B-A3B", large);
}
