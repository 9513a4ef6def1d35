/* GGUF's blocks before they are read: a scale that is no number would make numbers of a whole row so. */
#include <stdatomic.h>

#include "base/err.h"
#include "base/parallel.h"
#include "model/format_blocks.h"
#include "model/model_internal.h"

struct search {
    enum dtype type;
    const uint8_t *blocks;
    int64_t count;
    _Atomic int64_t *found; /* a bad one; INT64_MAX: none */
};

static void search_part(const void *context, int part, int parts) {
    const struct search *s = context;
    const int64_t first = s->count * part / parts, end = s->count * (part + 1) / parts;
    const int64_t bad = blocks_find_bad(s->type, s->blocks + first * dtype_block(s->type).bytes, end - first);
    int64_t least = atomic_load(s->found);
    while (bad >= 0 && first + bad < least && !atomic_compare_exchange_weak(s->found, &least, first + bad)) continue;
}

int model_check_blocks(const struct model *m, const struct binding *b, size_t first, size_t n) {
    /* Rows of such a binding lie one behind the other: those of GGUF files do. */
    if (!b->weight || !b->file || b->step != 1 || !block_reader(b->file_format)) return 0;
    _Atomic int64_t found = INT64_MAX;
    const struct dtype_block block = dtype_block(b->file_format);
    /* Of rows by their ids, all of the matrix, once. */
    if (b->ids) n = first == 0 ? (size_t)(b->all * b->cols) : 0;
    const int64_t before = (int64_t)first / block.numbers, count = (int64_t)n / block.numbers;
    struct search s = {b->file_format, (const uint8_t *)b->file + before * block.bytes, count, &found};
    parallel_run(device_threads(m->device), count, search_part, &s);
    const int64_t bad = atomic_load(&found);
    if (bad == INT64_MAX) return 0;
    return err_set(ERR_FORMAT, "%s: tensor '%s' has a scale that is not finite, in row %lld",
                   safetensors_find(m->files, b->name)->file, b->name,
                   (long long)((before + bad) * block.numbers / b->cols));
}
