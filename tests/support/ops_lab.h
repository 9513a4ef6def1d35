/* What the suites of the ops work with: a device, random weights and numbers. All memory ends, to the byte, where a page begins that nobody
 * may touch, so that a read or write past an end is a crash in every build: inner loops are compiled without sanitizers. */
#ifndef DUET_TESTS_OPS_LAB_H
#define DUET_TESTS_OPS_LAB_H

#include "model/ops.h"

enum { LAB_BLOCKS_MAX = 512 };

struct lab {
    struct device *device;
    struct stream *stream;
    struct lab_block {
        unsigned char *map;
        size_t bytes;  /* with the page behind */
        size_t before; /* of what was asked for, within the first page: not to be written, which freeing checks */
    } blocks[LAB_BLOCKS_MAX];
    int block_count;
    uint64_t draws;
};

void lab_open(struct lab *, int threads);
void lab_close(struct lab *);
void *lab_alloc(struct lab *, size_t bytes);      /* every byte 0xFF, before it too: NaN as f32, -1 as int32 */
void lab_free_last(struct lab *);                 /* what was allocated last */
float lab_random(struct lab *);                   /* uniform in [-1, 1) */
float *lab_random_floats(struct lab *, size_t n); /* likewise */
int lab_pick(struct lab *, int first, int end);   /* uniform in [first, end) */
/* Values in [-scale, scale), aligned to the size of an element and no better. rows = 0: an absent weight. */
struct weight lab_weight(struct lab *, int rows, int cols, enum dtype format, float scale);
double lab_weight_at(const struct weight *, int row, int col); /* decoded independently of the ops */

#endif
