/* What does not depend on the device: scratch, launch counts. */
#include "verify/verify.h"

#include "base/err.h"
#include "sampler/penalty.h"
#include "verify/internal.h"

int verify_layout(struct verify *v, const struct device *device, const struct round_state *b, struct pool *pool) {
    size_t block = (size_t)b->max_batch * (size_t)(b->k_max + 1);
    void *overlap = NULL, *verdicts = NULL;
    if (device_kind(device) == DEVICE_CUDA) {
        TRY(pool_slice(pool, POOL_SCRATCH, "overlap sums", block * sizeof *v->overlap, &overlap));
        TRY(pool_slice(pool, POOL_SCRATCH, "verdicts", block * sizeof *v->verdicts, &verdicts));
    }
    *v = (struct verify){overlap, verdicts};
    return 0;
}

int verify_accept(struct stream *stream, const struct verify_accept *op) {
    TRY(round_check_shape("accept", &op->b, op->batch, op->k));
    if (op->b.penalises) TRY(sampler_penalise(stream, &(struct penalise){op->b, .batch = op->batch, .k = op->k}));
    bool on_gpu = device_kind(stream_device(stream)) == DEVICE_CUDA;
    return on_gpu ? verify_accept_cuda(stream, op) : verify_accept_host(stream, op);
}

int verify_logprobs(struct stream *stream, const struct verify_accept *op) {
    TRY(round_check_shape("logprobs", &op->b, op->batch, op->k));
    bool on_gpu = device_kind(stream_device(stream)) == DEVICE_CUDA;
    return on_gpu ? verify_logprobs_cuda(stream, op) : verify_logprobs_host(stream, op);
}

/* One on the host. On CUDA two, p_target and the rule, and between them, for blocks of more than one token, what the carries
 * leave of p_target. */
int verify_launches(const struct device *device, const struct round_state *b, int k) {
    if (device_kind(device) != DEVICE_CUDA) return 1;
    return is_by_block(b) && k > 1 ? 3 : 2;
}
