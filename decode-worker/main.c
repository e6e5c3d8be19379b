/* baton-decode. */
#include "common/worker/role.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
	/* Read by libraries at their first call. Multicast between GPUs can take shared
	 * ones out of service; kernels loaded late can deadlock with a collective that
	 * waits on the device. */
	setenv("NCCL_NVLS_ENABLE", "0", 1);
	setenv("CUDA_MODULE_LOADING", "EAGER", 1);
	return worker_main(argc, argv, &role_decode);
}
