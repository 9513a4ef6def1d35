/* Times the loading of a device that has memory of its own, run over the host device: files to pinned buffers to memory, where the copy
 * is the host's too. Best of several passes, since other programs may run; the files are in the page cache after the first.
 *
 *   make build/host-release/bench/load && build/host-release/bench/load DIR [THREADS]
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "model/model_internal.h"

enum { PASSES = 5 };

static void must(int rc) {
    if (rc == 0) return;
    fprintf(stderr, "load: %s\n", err_message());
    exit(1);
}

static struct model *open_model(const struct checkpoint *c, struct device *device) {
    struct model *m;
    must(model_open(&m, c, "model", WEIGHTS_AS_STORED, device));
    m->is_mapped = m->keeps_quantised = false;
    for (int i = 0; i < m->binding_count; i++) m->bindings[i].is_copied = m->bindings[i].weight != NULL;
    return m;
}

/* Into memory that was written once already: new pages of it are no part of a device's loading. */
static double load(struct model *m, struct device *device, void *memory) {
    struct stream *stream;
    must(stream_create(device, &stream));
    m->weights = memory;
    const int64_t start_us = clock_us();
    must(model_upload_weights(m, stream, NULL));
    const double seconds = (double)(clock_us() - start_us) * 1e-6;
    stream_destroy(stream);
    return seconds;
}

int main(int argc, char **argv) {
    struct device *device;
    double best = 0;
    void *memory = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: load DIR [THREADS]\n");
        return 2;
    }
    must(device_open(&device, "host", &(struct device_options){.threads = argc > 2 ? atoi(argv[2]) : 0}));
    struct checkpoint *c = checkpoint_open(argv[1]);
    size_t bytes = 0;
    for (int pass = 0; pass <= PASSES; pass++) {
        struct model *m = open_model(c, device);
        bytes = model_device_bytes(m);
        if (!memory) must(device_alloc_arena(device, bytes, &memory));
        const double seconds = load(m, device, memory);
        if (pass == 1 || (pass > 1 && seconds < best)) best = seconds;
        model_close(m);
    }
    printf("%s, %s: %.2f GB in %.3f s, %.2f GB/s\n", argv[1], device_name(device), (double)bytes * 1e-9, best,
           (double)bytes * 1e-9 / best);
    device_free_arena(device, memory, bytes);
    checkpoint_close(c);
    device_close(device);
    return 0;
}
