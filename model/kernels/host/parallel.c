#include "model/kernels/host/parallel.h"

/* Multiply-adds that one thread does while others wake up and meet again. */
enum { WORK_MIN = 1 << 16, WORK_MIN_PER_THREAD = 1 << 13 };

void parallel_run(int threads, int64_t work, part_fn run, const void *op) {
    if (threads <= 1 || work < WORK_MIN + (int64_t)WORK_MIN_PER_THREAD * threads) {
        run(op, 0, 1);
        return;
    }
    /* Always the whole team: OpenMP runtimes end and restart threads when its size changes. */
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int part = 0; part < threads; part++) run(op, part, threads);
}
