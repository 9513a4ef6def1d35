/* What the CUDA files here define, for a build without them. */
#include "sampler/sampler.h"

const struct sampler_ops *sampler_cuda(void) {
    return NULL;
}
