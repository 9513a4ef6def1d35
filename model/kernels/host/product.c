#include "model/kernels/host/product.h"

#include "base/parallel.h"

/* Weight rows that are never split between threads: the largest tile. */
enum { UNIT_ROWS = 8 };

static int product_units(const struct product *p) {
    return (p->w.rows + UNIT_ROWS - 1) / UNIT_ROWS;
}

static int at_most(int a, int limit) {
    return a < limit ? a : limit;
}

static void products_part(const void *op, int part, int parts) {
    const struct products *all = op;
    const struct host_isa *isa = host_isa();
    int units = 0;
    for (int i = 0; i < all->count; i++) units += product_units(&all->each[i]);
    struct range mine = parallel_range(units, part, parts);
    for (int i = 0, before = 0; i < all->count; i++) {
        const struct product *p = &all->each[i];
        int first = mine.first - before, end = mine.end - before;
        before += product_units(p);
        first = at_most(first < 0 ? 0 : first * UNIT_ROWS, p->w.rows);
        end = at_most(end < 0 ? 0 : end * UNIT_ROWS, p->w.rows);
        if (first < end) isa->product(p, first, end);
    }
}

void products_run(const struct products *all, int threads) {
    int64_t work = 0;
    for (int i = 0; i < all->count; i++) {
        const struct product *p = &all->each[i];
        work += (int64_t)p->w.rows * p->w.cols * p->tokens * (p->up.data ? 2 : 1);
    }
    parallel_run(threads, work, products_part, all);
}

static void norm_part(const void *op, int part, int parts) {
    const struct norm_rows *n = op;
    const struct host_isa *isa = host_isa();
    const size_t width = (size_t)n->width;
    struct range mine = parallel_range(n->count, part, parts);
    for (int i = mine.first; i < mine.end; i++)
        isa->norm(n->normed + (size_t)i * width, n->x + ((size_t)n->first + (size_t)i * (size_t)n->step) * width,
                  &n->norm, n->width);
}

void norm_rows_run(const struct norm_rows *n, int threads) {
    parallel_run(threads, (int64_t)n->count * n->width, norm_part, n);
}
