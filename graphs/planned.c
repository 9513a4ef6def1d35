/* A device that is none: a plan is made for it, and nothing else. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "graphs/backend.h"

struct planned_device {
    struct device base;
    uint64_t bytes;
};

static void close_planned(struct device *d) {
    free(d);
}

static int planned_memory(const struct device *d, uint64_t *free_bytes, uint64_t *total_bytes) {
    *free_bytes = *total_bytes = ((const struct planned_device *)d)->bytes;
    return 0;
}

static const struct backend planned = {.close = close_planned, .memory = planned_memory};

int device_open_planned(struct device **out, enum device_kind kind, uint64_t bytes) {
    struct planned_device *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d) return err_set(ERR_MEMORY, "out of memory for a device");
    d->base = (struct device){.backend = &planned, .kind = kind, .is_async = kind == DEVICE_CUDA, .threads = 1};
    snprintf(d->base.name, sizeof d->base.name, "a GPU of %.4g GiB", (double)bytes * 0x1p-30);
    d->bytes = bytes;
    *out = &d->base;
    return 0;
}

bool device_is_planned(const struct device *d) {
    return d->backend == &planned;
}
