/* Times the host's half of loading for a device with memory of its own: from the files into the buffers that the device copies from. Its
 * copies take no time here, so this is the rate that such a device can be given. Best of several passes, and their least processor
 * time, which other programs lengthen less; the files are in the page cache after the first.
 *
 *   make build/host-release/bench/load && build/host-release/bench/load DIR [THREADS]
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "graphs/backend.h"
#include "model/model_internal.h"

enum { PASSES = 7 };

static void must(int rc) {
    if (rc == 0) return;
    fprintf(stderr, "load: %s\n", err_message());
    exit(1);
}

static int copy_nothing(struct stream *s, void *to, const void *from, size_t bytes) {
    (void)s, (void)to, (void)from, (void)bytes;
    return 0;
}

static struct device *open_device(int threads) {
    static struct backend backend;
    struct device *device;
    must(device_open(&device, "host", &(struct device_options){.threads = threads}));
    backend = *device->backend;
    backend.copy = copy_nothing;
    device->backend = &backend;
    return device;
}

static struct model *open_model(const struct checkpoint *c, struct device *device) {
    struct model *m;
    must(model_open(&m, c, "model", (struct model_numbers){0}, device));
    m->is_mapped = m->keeps_quantised = false;
    model_choose_packed(m);
    for (int i = 0; i < m->binding_count; i++) m->bindings[i].is_copied = m->bindings[i].weight != NULL;
    return m;
}

struct times {
    double seconds, cpu_seconds;
};

static struct times load(struct model *m, struct device *device) {
    struct stream *stream;
    must(stream_create(device, &stream));
    const int64_t start_us = clock_us(), start_cpu_us = clock_process_us();
    must(model_upload_weights(m, stream, NULL));
    const struct times times = {(double)(clock_us() - start_us) * 1e-6,
                                (double)(clock_process_us() - start_cpu_us) * 1e-6};
    stream_destroy(stream);
    return times;
}

int main(int argc, char **argv) {
    struct times best = {0};
    double gb = 0;
    if (argc < 2) {
        fprintf(stderr, "usage: load DIR [THREADS]\n");
        return 2;
    }
    struct device *device = open_device(argc > 2 ? atoi(argv[2]) : 0);
    struct checkpoint *c = checkpoint_open(argv[1]);
    for (int pass = 0; pass <= PASSES; pass++) {
        struct model *m = open_model(c, device);
        const struct times times = load(m, device);
        gb = (double)model_device_bytes(m) * 1e-9;
        if (pass == 1 || (pass > 1 && times.seconds < best.seconds)) best.seconds = times.seconds;
        if (pass == 1 || (pass > 1 && times.cpu_seconds < best.cpu_seconds)) best.cpu_seconds = times.cpu_seconds;
        model_close(m);
    }
    printf("%s, %s: %.2f GB, %.2f GB/s; %.0f ms of processor time a GB\n", argv[1], device_name(device), gb,
           gb / best.seconds, best.cpu_seconds * 1e3 / gb);
    checkpoint_close(c);
    device_close(device);
    return 0;
}
