/* The ops of the forward pass: one table a device.
 *
 * The forward pass (model/forward.c) is written once over this table. An op submits work to a stream and
 * returns at once; it neither allocates nor synchronises, and is capturable. All tensors are device
 * memory. The host table (kernels/host/) is the oracle; the CUDA table (kernels/cuda/) is held to it by
 * parity tests, op by op. The ops are cut where fused kernels end: five a layer.
 *
 * Row invariance: except with rows.prefill on CUDA, row r of a pass of T rows gets, bit for bit, what it
 * gets in a pass of one row: the order of every reduction depends on the weight's shape and the row's own
 * position alone.
 *
 * Dimensions: T rows of this pass = batch * q_len, D width, H query heads, HKV key/value heads, DH head
 * size, F MLP width, V vocabulary rows, P pages. PAGE tokens a page. */
#ifndef DUET_MODEL_OPS_H
#define DUET_MODEL_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "graphs/device.h"

enum { KV_PAGE = 256, ATTENTION_SPLIT = 64, ATTENTION_PARTS = 16, PREFILL_PAD = 64 };

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };
static inline int dtype_bytes(enum dtype t) {
    return t == DTYPE_F32 ? 4 : 2;
}

/* A weight in device memory, row-major [rows, cols]; cols contiguous. A vector has rows = 1. */
struct weight {
    const void *data; /* NULL: absent (no bias, no q/k norm) */
    enum dtype type;
    int32_t rows, cols;
};

/* The rows of a pass. Row r belongs to graph row b = r / q_len. Everything that changes from round to round
 * is read from device memory. */
struct rows {
    int32_t batch, q_len;
    bool prefill;              /* CUDA takes kernels for many rows, and cuBLAS where its stream has a workspace; one
                                   sequence, batch = 1; buffers hold T rounded up to PREFILL_PAD rows, those past T
                                   being scratch */
    const int32_t *tokens;     /* [T] device; ids outside [0, V) read row 0 of the embedding */
    const int32_t *positions;  /* [T] device; consecutive within a graph row; < 0: a row without a position,
                                   which writes K and V to the dummy page and attends to nothing: zeros */
    const int32_t *row_slot;   /* [batch] device: row of the page table; 0 is the dummy sequence */
    const int32_t *page_table; /* [slots, pages_per_slot] device: page numbers; row 0 is all page 0 */
    int32_t pages_per_slot;
};
static inline int rows_count(const struct rows *r) {
    return r->batch * r->q_len;
}

/* One layer's keys and values: [P, HKV, PAGE, DH] each. f32 on the host; the weights' 16-bit type on CUDA.
 * Page 0 belongs to padding rows. */
struct kv_layer {
    void *k, *v;
    enum dtype type;
};

/* out[t, :] = table[tokens[t], :]      out [T, D] f32 */
struct op_embed {
    struct rows rows;
    struct weight table; /* [V, D] */
    float *out;
};

/* y = RMSNorm(x) * norm;  q = y Wq^T + bq, k, v alike;  q/k norm per head (Qwen3) where present;  RoPE on q
 * and k;  k and v written to the pages of their positions.
 *   RMSNorm: x / sqrt(mean(x^2) + eps) (Zhang & Sennrich 2019).
 *   RoPE, rotate-half form: (a, b) = (x[i], x[i + DH/2]) -> (a cos - b sin, b cos + a sin) (Su et al. 2021);
 *   cos and sin from rope [positions, DH/2, 2] f32, so that scaling types live in the table alone. */
struct op_qkv {
    struct rows rows;
    const float *x;               /* [T, D] the residual stream */
    struct weight norm;           /* [1, D] */
    struct weight wq, wk, wv;     /* [H*DH, D], [HKV*DH, D] twice */
    struct weight bq, bk, bv;     /* [1, H*DH], [1, HKV*DH] twice; may be absent */
    struct weight q_norm, k_norm; /* [1, DH]; may be absent */
    const float *rope;            /* [rope_positions, DH/2, 2] */
    float eps;
    int32_t width, heads, kv_heads, head_dim, rope_positions;
    struct kv_layer kv;
    float *normed;  /* [T, D] scratch */
    float *q;       /* [T, H*DH] out */
    float *kv_rows; /* [T, 2*HKV*DH] scratch */
};

/* out[t, h, :] = softmax(scale * q[t, h, :] . K) V over visible keys j: max(0, i - window + 1) <= j <= i, i
 * the row's position. Splits of ATTENTION_SPLIT absolute positions, combined in a fixed order (online
 * softmax, Milakov & Gimelshein 2018); a split without a visible key changes no bit. Keys past the row are
 * selected away, never multiplied by zero. */
struct op_attention {
    struct rows rows;
    const float *q; /* [T, H*DH] */
    struct kv_layer kv;
    float *out;      /* [T, H*DH] */
    float *partials; /* [T, H, ATTENTION_PARTS, DH + 2] scratch; NULL unless attention_needs_partials */
    float scale;
    int32_t heads, kv_heads, head_dim;
    int32_t window; /* 0: none */
};

/* x[t, :] += W h[t, :]      the residual add of the attention output and of the MLP */
struct op_project {
    struct rows rows;
    const float *h;  /* [T, w.cols] */
    struct weight w; /* [D, cols] */
    float *x;        /* [T, D] in and out */
};

/* h = silu(y Wg^T) * (y Wu^T), y = RMSNorm(x) * norm;  silu(z) = z / (1 + exp(-z)) */
struct op_gate_up {
    struct rows rows;
    const float *x;         /* [T, D] */
    struct weight norm;     /* [1, D] */
    struct weight gate, up; /* [F, D] */
    float eps;
    int32_t width, hidden;
    float *normed; /* [T, D] scratch */
    float *gated;  /* [2, T, F] scratch of prefill on the CUDA device, else NULL */
    float *h;      /* [T, F] out */
};

/* logits[i, :] = W RMSNorm(x[row_i, :]) * norm. With last_only, one row a graph row (its last), else all T. */
struct op_logits {
    struct rows rows;
    const float *x;     /* [T, D] */
    struct weight norm; /* [1, D] */
    struct weight w;    /* [V, D] */
    float eps;
    int32_t width, vocab;
    bool last_only;
    float *normed; /* [T, D] scratch */
    float *logits; /* [batch or T, V] f32 out */
};

struct ops {
    int (*embed)(struct stream *, const struct op_embed *);
    int (*qkv)(struct stream *, const struct op_qkv *);
    int (*attention)(struct stream *, const struct op_attention *);
    int (*project)(struct stream *, const struct op_project *);
    int (*gate_up)(struct stream *, const struct op_gate_up *);
    int (*logits)(struct stream *, const struct op_logits *);
    bool (*attention_needs_partials)(const struct device *, int head_dim); /* NULL: never */
    /* Passes of one class launch the same kernels, those of a larger class others; by the number of rows. NULL: one class. */
    int (*kernel_class)(int rows);
};

const struct ops *ops_host(void);
/* The CUDA table, or NULL in a build without CUDA. */
const struct ops *ops_cuda(void);
static inline const struct ops *ops_for(const struct device *d) {
    return device_kind(d) == DEVICE_CUDA ? ops_cuda() : ops_host();
}

#endif
