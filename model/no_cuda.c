/* What kernels/cuda defines, for a build without them. */
#include "model/ops.h"

const struct ops *ops_cuda(void) {
    return NULL;
}
