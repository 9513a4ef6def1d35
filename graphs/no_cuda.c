/* What the CUDA files here define, for a build without them. */
#include "base/err.h"
#include "graphs/backend.h"

bool device_cuda_is_built(void) {
    return false;
}

int device_open_cuda(struct device **out, const struct device_options *options) {
    (void)options;
    *out = NULL;
    return err_set(ERR_DEVICE, "no CUDA device in this build");
}
