/* What the ops of a pass work on: buffers, weights, norms, rotary tables, the rows of a pass, keys and values.
 *
 * Dimensions: T rows of this pass = batch * q_len, D width, H query heads, HKV key/value heads, DH head size, F MLP width, V
 * vocabulary rows, E experts, P pages. All addresses are device memory. */
#ifndef DUET_MODEL_OPERANDS_H
#define DUET_MODEL_OPERANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graphs/device.h"
#include "model/dtype.h"

enum { KV_PAGE = 256, ATTENTION_SPLIT = 64, ATTENTION_PARTS = 16, PREFILL_PAD_LEAST = 8, PREFILL_PAD = 64 };
enum { EXPERTS_MAX = 1024, CHOSEN_MAX = 32 }; /* of a layer; of a row, on CUDA */

/* What the weights of experts are made of: softmax over the chosen, softmax over all, or each expert's logit alone. */
enum router_scores { SCORES_OF_CHOSEN, SCORES_OF_ALL, SCORES_SIGMOID };

/* What one op writes and another reads. The residual stream, q and logits are f32 everywhere; what feeds a product is f32 on the
 * host and has the weights' 16-bit type on CUDA. */
struct buffer {
    void *data;
    enum dtype type;
};

/* The scales of a quantised weight that lie beside it: weight row r, column c has the scale at row (first + r) / rows and column
 * c / group, or group_of[c], times `factor`. */
struct scales {
    const void *data; /* [.., stride] */
    enum dtype type;  /* F32, BF16, F16, FP8 or E8M0 */
    int32_t rows, first, group;
    int64_t stride;
    float factor;
    const uint8_t *zeros;    /* INT4: subtracted before the scale, one for each as they lie; NULL: 8 */
    const int32_t *group_of; /* [cols], where the groups' columns do not lie side by side; else NULL */
    const float *values;     /* NF4: [16], what an index stands for */
};

/* What a packed weight's codes stand for (model/packed.h): q - 8, E2M1, values[q], q - 128, E4M3. */
enum packed_code { PACKED_INT4, PACKED_FP4, PACKED_TABLE, PACKED_INT8, PACKED_FP8 };
struct packed {
    enum packed_code code;
    int32_t group; /* columns that share a scale: 16, 32 or 128; 0: all of a row */
    bool has_minima;
    uint64_t order;   /* what tells the order of columns apart; 0: their own */
    float values[16]; /* TABLE */
    void *room; /* of 16-bit numbers, where prefill unpacks some rows for one product; of room_numbers, whole rows */
    int64_t room_numbers;
};

/* A weight, row-major [rows, cols]. A vector has rows = 1. */
struct weight {
    const void *data; /* NULL: absent */
    enum dtype format;
    int32_t rows, cols;
    int64_t stride;              /* numbers between rows; 0: cols, one behind the other */
    const struct scales *scales; /* NULL: none, or inside the blocks */
    const struct packed *packed; /* of DTYPE_PACKED */
};
static inline int64_t weight_stride(const struct weight *w) {
    return w->stride ? w->stride : w->cols;
}
static inline const void *weight_row(const struct weight *w, int row) {
    return (const char *)w->data + dtype_span_bytes(w->format, (int64_t)row * weight_stride(w));
}

/* The same matrix of each of E experts; `each` is host memory. On CUDA expert e begins e * apart elements, of packed ones bytes, behind
 * expert 0. */
struct experts {
    const struct weight *each; /* [E]; NULL: absent */
    int64_t apart;
};

/* The gate of an MLP: silu(g) u with silu(g) = g / (1 + exp(-g)); gelu(g) u in its tanh form (Hendrycks & Gimpel 2016); gpt-oss's
 * (u + 1) g / (1 + exp(-1.702 g)) with g <= 7 and -7 <= u <= 7; max(g, 0)^2 u (So et al. 2021). Without a second matrix u is 1. */
enum activation { ACTIVATION_SILU, ACTIVATION_GELU, ACTIVATION_CLAMPED, ACTIVATION_RELU2 };

/* RMS: y = x / sqrt(mean(x^2) + eps) * (weight + offset) (Zhang & Sennrich 2019); a weight that is absent counts as 1 - offset.
 * LAYER: the same of x - mean(x), plus bias (Ba et al. 2016); for rows that products or a head read, not those of heads, groups and add_norm. */
enum norm_kind { NORM_NONE, NORM_RMS, NORM_LAYER }; /* NONE: y = x */
struct norm {
    enum norm_kind kind;
    struct weight weight; /* [1, D] */
    struct weight bias;   /* [1, D], of LAYER; may be absent */
    float offset, eps;
};

/* RoPE (Su et al. 2021): pair i of a head, (a, b), becomes (a cos - b sin, b cos + a sin) with cos and sin of (position, i), so
 * that the types of frequencies, scalings and how many dimensions stand still (cos 1, sin 0) live in the table alone. */
struct rope {
    const float *table; /* [positions, DH/2, 2] f32; NULL: nothing is rotated */
    int32_t positions;
    int32_t queries; /* so many positions further is the table of queries; 0: it is this one */
    int32_t
        dims; /* R, of DH: those that pairs are formed of, first; the others pair among themselves and stand still */
    bool pairs_neighbours; /* (2i, 2i + 1) of all DH dimensions, else (i, i + R/2) */
    const int32_t
        *choice; /* [slots]: a slot whose number is not 0 takes the table behind this one; NULL: there is one table */
};
/* The dimension of the first and of the second half of pair i. */
#ifdef __CUDACC__
#define OPERAND_INLINE static __host__ __device__ __forceinline__
#else
#define OPERAND_INLINE static inline
#endif
OPERAND_INLINE int rope_dim(const struct rope *r, int head_dim, int pair, int second) {
    if (r->pairs_neighbours) return 2 * pair + second;
    const int half = r->dims / 2;
    if (pair < half) return pair + second * half;
    return r->dims + (pair - half) + second * (head_dim - r->dims) / 2;
}

/* What may become of a pass's rows, for what cannot be written over later (struct recurrent_layer): SCORED may be taken back, and what
 * came before them is there to stay; DRAFTED, and so may what came before them; KNOWN are there to stay. */
enum rows_standing { ROWS_SCORED, ROWS_DRAFTED, ROWS_KNOWN };

/* The rows of a pass. Row r belongs to graph row b = r / q_len. Everything that changes from round to round
 * is read from device memory. */
struct rows {
    int32_t batch, q_len;
    bool
        prefill; /* one sequence's chunk: batch = 1; CUDA takes kernels for many rows, and cuBLAS where its stream has a
                     workspace */
    enum rows_standing standing;
    const int32_t *tokens; /* [T]; ids outside [0, V) read row 0 of the embedding */
    /* [T]; consecutive within a graph row; < 0: a row without a position, which writes K and V to the dummy page and attends to nothing:
     * zeros. In a prefill such rows come last. */
    const int32_t *positions;
    const int32_t *sees;       /* [T] the last position whose key a row sees, < 0 where it has none; NULL: its own */
    const int32_t *row_slot;   /* [batch]: row of the page table, each once but 0, which is the dummy sequence */
    const int32_t *page_table; /* [slots, pages_per_slot]: page numbers; row 0 is all page 0 */
    int32_t pages_per_slot;
};
/* Up to which key each row sees. */
OPERAND_INLINE const int32_t *rows_sight(const struct rows *r) {
    return r->sees ? r->sees : r->positions;
}
static inline int rows_count(const struct rows *r) {
    return r->batch * r->q_len;
}
/* The size to which a prefill of so many rows is padded, where it is: a power of two from 8 on, or a multiple of 64. */
static inline int prefill_padded(int rows) {
    int size = PREFILL_PAD_LEAST;
    while (size < rows && size < PREFILL_PAD) size *= 2;
    return size < rows ? (rows + PREFILL_PAD - 1) / PREFILL_PAD * PREFILL_PAD : size;
}

/* One layer's keys and values, as model/kv_pages.h says: f32 on the host, 16 bits on CUDA, or FP8 on either. Page 0 belongs to padding
 * rows. */
struct kv_layer {
    void *k, *v;
    enum dtype type;
};
/* How a recurrent state goes on (struct op_linear_attention): the gated delta rule, or Mamba 2's. Without a state there is a short
 * convolution alone (struct op_short_conv). */
enum recurrence_rule { RULE_DELTA, RULE_DECAY, RULE_NONE };

/* One layer's recurrent states, f32: of each sequence and value head the sum S [DK, DV] over all positions before one, and of positions
 * from there on, and a few before, what was projected, by position modulo their number (model/recurrence.h). Without a state (RULE_NONE)
 * there is no S, and [slots, kept_rows, D] of what is convolved. */
struct recurrent_layer {
    float *states; /* [slots, HV, DK * DV], in an order of the device's own */
    float *kept;   /* [slots, HV, kept_rows, recurrence_record(DK, DV)] */
    int32_t kept_rows;
};

/* The hidden rows of a model, by position, as keys are by the page table: f32 on the host, the weights' 16 bits on CUDA. */
struct hidden_rows {
    void *data; /* [P, PAGE, D] */
    enum dtype type;
};

/* Bytes of a position's key, or value, of one head, with its scale. */
OPERAND_INLINE size_t kv_vector_bytes(enum dtype type, int head_dim) {
    return (size_t)head_dim * (type == DTYPE_F32 ? 4 : type == DTYPE_FP8 ? 1 : 2) + (type == DTYPE_FP8);
}
/* Where a key/value head's part of a page begins, in bytes from the layer's keys, or values: [PAGE, DH] numbers, then FP8's [PAGE]
 * scales. */
OPERAND_INLINE size_t kv_part_start(enum dtype type, int page, int kv_heads, int head, int head_dim) {
    return ((size_t)page * (size_t)kv_heads + (size_t)head) * KV_PAGE * kv_vector_bytes(type, head_dim);
}

#endif
