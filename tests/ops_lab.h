/* One made-up transformer layer with embedding and head, for the suites of the ops: random weights, pages in random
 * order, and every op's arguments. All memory is malloc'ed to the byte, so that sanitizers see a read past an end. */
#ifndef DUET_TESTS_OPS_LAB_H
#define DUET_TESTS_OPS_LAB_H

#include "model/ops.h"

enum { LAB_BLOCKS_MAX = 256 };

struct lab {
    struct device *device;
    struct stream *stream;
    void *blocks[LAB_BLOCKS_MAX];
    int block_count;
    uint64_t draws;
};

void lab_open(struct lab *, int threads);
void lab_close(struct lab *);
void *lab_alloc(struct lab *, size_t bytes);      /* every byte 0xFF: NaN as f32, -1 as int32 */
float lab_random(struct lab *);                   /* uniform in [-1, 1) */
float *lab_random_floats(struct lab *, size_t n); /* likewise */
int lab_pick(struct lab *, int first, int end);   /* uniform in [first, end) */
/* Values in [-scale, scale), aligned to the size of an element and no better. rows = 0: an absent weight. */
struct weight lab_weight(struct lab *, int rows, int cols, enum dtype format, float scale);
double lab_weight_at(const struct weight *, int row, int col); /* decoded independently of the ops */

struct mini_shape {
    enum dtype type;
    int width, hidden, heads, kv_heads, head_dim, vocab, window;
    bool has_bias, has_qk_norm;
    int slots, pages_per_slot, max_rows; /* slot 0 included */
};

struct mini {
    struct mini_shape shape;
    struct weight embedding, wq, wk, wv, bq, bk, bv, wo, gate, up, down, head;
    struct norm norm, q_norm, k_norm, post_norm;
    int pages;
    size_t kv_floats; /* of keys, and of values */
    struct kv_layer kv;
    int32_t *tokens, *positions, *row_slot, *page_table;
    float *partials, *gated; /* of a device that needs them */
    float *rope, *x, *normed, *q, *kv_rows, *attended, *h, *logits;
};

void mini_make(struct lab *, struct mini *, struct mini_shape);
struct rows mini_rows(const struct mini *, int batch, int q_len);
/* Where position `position` of a slot keeps key/value head `head`: a float index into keys or values. */
size_t mini_cell(const struct mini *, int slot, int position, int head);

/* What feeds a product, of the type of the device that `m` lies on. */
struct buffer mini_buffer(const struct mini *m, void *data);
struct op_embed mini_embed(const struct mini *, struct rows);
struct op_qkv mini_qkv(const struct mini *, struct rows);
struct op_attention mini_attention(const struct mini *, struct rows);
struct op_project mini_project(const struct mini *, struct rows); /* wo */
struct op_gate_up mini_gate_up(const struct mini *, struct rows);
struct op_project mini_down(const struct mini *, struct rows);
struct op_logits mini_logits(const struct mini *, struct rows);
/* All of them in order; checks each result. */
void mini_forward(struct lab *, const struct mini *, struct rows);

#endif
