#include "model/random_weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "model/format.h"

struct filling {
    const uint16_t *table; /* NULL: the table itself is made */
    uint16_t *to;
    size_t start, n;
};

static void make_part(const void *context, int part, int parts) {
    const struct filling *f = context;
    const struct range blocks = parallel_range((int)(f->n / 4), part, parts);
    for (int b = blocks.first; b < blocks.end; b++) {
        const struct philox_block block = philox_block(1, 0, (uint64_t)b);
        for (int j = 0; j < 4; j++)
            f->to[4 * b + j] = format_to_bf16(((float)(block.w[j] >> 8) * 0x1p-24f - 0.5f) * 0.06f);
    }
}

int random_weights_create(uint16_t **table) {
    *table = malloc(RANDOM_CHUNK * sizeof **table);
    if (!*table) return err_set(ERR_MEMORY, "out of memory for random weights");
    make_part(&(struct filling){.to = *table, .n = RANDOM_CHUNK}, 0, 1);
    return 0;
}

static void copy_part(const void *context, int part, int parts) {
    const struct filling *f = context;
    const struct range mine = parallel_range((int)f->n, part, parts);
    for (size_t i = (size_t)mine.first, count; i < (size_t)mine.end; i += count) {
        const size_t at = (f->start + i) % RANDOM_CHUNK, left = (size_t)mine.end - i;
        count = RANDOM_CHUNK - at < left ? RANDOM_CHUNK - at : left;
        memcpy(f->to + i, f->table + at, count * sizeof *f->to);
    }
}

void random_weights_fill(const uint16_t *table, int64_t done, uint16_t *to, size_t n, int threads) {
    enum { STRIDE = 1000003 };
    const size_t start = (size_t)done / RANDOM_CHUNK * STRIDE % RANDOM_CHUNK;
    parallel_run(threads, (int64_t)n, copy_part, &(struct filling){table, to, start, n});
}
