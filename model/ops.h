/* The ops of a pass: what each computes, and one table of them a device.
 *
 * A family lists its pass as ops (model/pass.h); the list is written once for both devices. An op submits work to a stream and
 * returns at once; it neither allocates nor synchronises, and is capturable. The host table (kernels/host/) is the oracle; the
 * CUDA table (kernels/cuda/) is held to it by parity tests, op by op. The ops are cut where fused kernels end: five a layer of a
 * Llama.
 *
 * Row invariance: except with rows.prefill on CUDA, row r of a pass of T rows gets, bit for bit, what it gets in a pass of one
 * row: the order of every reduction depends on the weight's shape and the row's own position alone. */
#ifndef DUET_MODEL_OPS_H
#define DUET_MODEL_OPS_H

#include "model/operands.h"
#include "model/recurrence.h"

/* Rows of f32 that buffers of [T, numbers a row] have room for at least: CUDA keeps 16-bit numbers of rows in them by blocks of 8 or 16. */
enum { SCRATCH_ROWS = 4 };

/* out[t, :] = scale * table[tokens[t], :] */
struct op_embed {
    struct rows rows;
    struct weight table; /* [V, D] */
    float scale;
    float *out; /* [T, D] */
};

/* y = norm(x);  q = Wq y + bq, k and v alike;  norms of heads where present;  RoPE on q and k;  k and v to the pages of their
 * positions. */
struct op_qkv {
    struct rows rows;
    const float *x; /* [T, D] the residual stream */
    struct norm norm;
    struct weight wq, wk,
        wv; /* [H*DH, D], [HKV*DH, D] twice. wk absent: q alone, other layers' keys are used. wv absent:
                                            v is k before its norm and rotation */
    struct weight bq, bk, bv;           /* [1, H*DH], [1, HKV*DH] twice; may be absent */
    struct norm q_norm, k_norm, v_norm; /* of each head, [1, DH] (Qwen 3); v without a weight (Gemma 4) */
    bool
        norms_behind_rope; /* q_norm and k_norm are of heads that are rotated (HunYuan), where they are of heads at all */
    bool norms_all_heads; /* q_norm and k_norm are of all heads at once, [1, H*DH] and [1, HKV*DH] (OLMo 2) */
    struct rope rope;
    int32_t width, heads, kv_heads, head_dim;
    struct kv_layer kv;
    struct buffer normed; /* [T, D] scratch */
    float *q;             /* [T, H*DH] out */
    float *gated_q; /* NULL, or scratch of Wq with [2*H*DH] rows, of each head DH of q and then DH that op_gate takes */
    float *kv_rows; /* [T, 2*HKV*DH] scratch */
};

/* s = scale * q[t, h, :] . k_j, or cap * tanh(s / cap); out[t, h, :] = sum_j softmax(s)_j v_j over visible keys j: max(0, i -
 * window + 1) <= j <= i, i the row's position, or what rows.sees has in its place. A sink adds exp(sink[h]) to the softmax's sum and
 * nothing to the output. Splits of ATTENTION_SPLIT absolute positions, combined in a fixed order (online softmax, Milakov & Gimelshein
 * 2018); a split without a visible key changes no bit. Keys past the row are selected away, never multiplied by zero. */
struct op_attention {
    struct rows rows;
    const float *q; /* [T, H*DH] */
    struct kv_layer kv;
    struct buffer out;   /* [T, H*DH] */
    float *partials;     /* [T, H, ATTENTION_PARTS, DH + 2] scratch; NULL unless attention_needs_partials */
    float scale, cap;    /* cap 0: none */
    struct weight sinks; /* [1, H]; may be absent */
    int32_t heads, kv_heads, head_dim;
    int32_t window;       /* 0: none */
    struct weight reader; /* w of the op_project that alone reads `out`, for which CUDA may order it; absent: none */
};

/* x[t, :] += scale * (W h[t, :] + bias)      the residual add of the attention output and of the MLP; or, with `stores`, = */
struct op_project {
    struct rows rows;
    struct buffer h;    /* [T, w.cols]; scratch afterwards */
    bool h_is_for_w;    /* the op that made h has w as its reader */
    struct weight w;    /* [D, cols] */
    struct weight bias; /* [1, D]; may be absent */
    float scale;
    bool stores;
    float *x; /* [T, D] in and out */
};

/* x[i, :] = (x[i, :] + scale * norm(y[i, :])) * layer_scale, i < T * parts: the norm behind a sublayer; or, with `stores`, without
 * x[i, :] in the sum. */
struct op_add_norm {
    struct rows rows;
    float *y; /* [T * parts, D]; scratch afterwards */
    struct norm norm;
    float scale;
    struct weight layer_scale; /* [1, 1]; absent: 1 */
    float last_scale;          /* times this */
    int32_t width, parts;
    bool stores;
    float *x; /* [T * parts, D]; may be y */
};

/* h = activation(Wg y + bias, Wu y), y = norm(x); where Wu is absent, u = times[t, :], or without these 1 */
struct op_gate_up {
    struct rows rows;
    const float *x; /* [T, D] */
    struct norm norm;
    struct weight gate, up; /* [F, D] */
    struct weight bias;     /* [1, F], where neither up nor `times` is there; may be absent */
    const float *times;     /* [T, times_stride], the first F of a row */
    int32_t times_stride;
    enum activation activation;
    int32_t width, hidden;
    struct buffer normed; /* [T, D] scratch */
    float *gated;         /* [2, T, F] scratch on CUDA, of prefill and of one matrix; else NULL */
    struct buffer h;      /* [T, F] out */
    struct weight reader; /* as op_attention's */
};

/* out[i, :] = cap(scale * (W norm(x[row_i, :]) + bias)), cap(s) = cap * tanh(s / cap): the head, a router. With last_only, one row
 * a graph row (its last), else all T. */
struct op_logits {
    struct rows rows;
    const float *x; /* [T, D] */
    struct norm norm;
    struct weight w;    /* [V, D] */
    struct weight bias; /* [1, V]; may be absent */
    float scale, cap;   /* cap 0: none */
    int32_t width, vocab;
    bool last_only;
    struct buffer normed; /* [T, D] scratch */
    float *logits;        /* [batch or T, V] f32 out */
};

/* The `chosen` experts of the largest logits, the lowest id on a tie, in that order; or with a bias, which softmax over the chosen has not,
 * of the largest sums of score and bias, which counts for the choice alone. Their weights are their scores, then divided by their sum
 * (renormalise), then times `scale` and expert_scale of each. A row without a position chooses none: ids of -1, weights of 0, so that padding
 * reads no weights. */
struct op_route {
    struct rows rows;
    const float *logits; /* [T, E] */
    int32_t experts, chosen;
    enum router_scores scores;
    struct weight bias; /* [1, E] F32, BF16 or F16; may be absent */
    bool renormalise;
    float scale;
    struct weight expert_scale; /* [1, E]; may be absent */
    int32_t *ids;               /* [T, chosen] out */
    float *weights;             /* [T, chosen] out */
    bool is_told; /* the ops of experts that follow have this as their `route`, and CUDA may leave it to them */
};

/* Numbers that the lists of E experts and so many chosen pairs of row and expert take. */
#define EXPERT_LISTS(experts, entries) (2 + (experts) + 2 * ((entries) > (experts) ? (entries) : (experts)))

/* h[t, j, :] = activation(Wg_e y, Wu_e y) with biases, e = ids[t, j], y = norm(x[t, :]); nothing where e < 0. Where Wu is absent, u is 1. */
struct op_experts_up {
    struct rows rows;
    const float *x; /* [T, D] */
    struct norm norm;
    struct experts gate, up, gate_bias, up_bias; /* [F, D] each, [1, F] each or absent */
    enum activation activation;
    int32_t width, hidden, experts, chosen;
    const int32_t *ids;    /* [T, chosen] */
    struct op_route route; /* that chose them, of the same rows, if it is_told; else absent */
    int32_t *lists;        /* [EXPERT_LISTS(E, T chosen)] scratch: which rows chose each expert */
    struct buffer normed;  /* [T, D] scratch */
    struct buffer h;       /* [T, chosen, F] out */
};

/* x[t, :] += sum_j weights[t, j] (W_e h[t, j, :] + b_e), j ascending; or, with `stores`, = */
struct op_experts_down {
    struct rows rows;
    struct buffer h;           /* [T, chosen, F] */
    struct experts down, bias; /* [D, F], [1, D] or absent */
    const int32_t *ids;        /* [T, chosen] */
    const float *weights;      /* [T, chosen] */
    struct op_route route;     /* as op_experts_up's */
    const int32_t *lists;      /* that op_experts_up made */
    float *sums;               /* [T, chosen, D] scratch */
    int32_t width, hidden, experts, chosen;
    bool stores;
    float *x; /* [T, D] */
};

/* out[t, :] = W_0 y, then W_1 y and so on behind it, y = norm(x): what is projected for an op that is no product. */
enum { PRODUCTS_MAX = 4 };
struct op_products {
    struct rows rows;
    const float *x; /* [T, D] */
    struct norm norm;
    struct weight w[PRODUCTS_MAX]; /* [.., D]; the first absent one ends them */
    int32_t width, stride;         /* rows of all */
    struct buffer normed;          /* [T, D] scratch */
    float *out;                    /* [T, stride] */
};

/* h[t, i] *= 1 / (1 + exp(-g)), g = gate[t, i / group * apart + i % group]; group 1 and apart 0: one number for all */
struct op_gate {
    struct rows rows;
    const float *gate; /* [T, stride] */
    int32_t stride, group, apart;
    int32_t width;
    struct buffer h; /* [T, width] in and out */
};

/* h[t, g * group + i] = norm of the group's numbers, whose weights are [1, width]: of each row by groups */
struct op_group_norm {
    struct rows rows;
    struct norm norm;
    int32_t width, group;
    struct buffer h; /* [T, width] in and out */
};

/* From where each sequence's recurrent states go on in this pass, and how far they are settled by it (recurrence_advance). */
struct op_steps {
    struct rows rows;
    struct recurrence_mark *marks; /* [slots] in and out */
    struct recurrence_step *steps; /* [batch] out */
};

/* Where a key head's numbers lie in a row: from first + head * apart on; those of its value heads `each` further. */
struct heads_at {
    int32_t first, apart, each;
};

/* The key head of a value head, and which of that one's it is. */
OPERAND_INLINE int recurrence_key_head(int value_head, int key_heads, int value_heads, bool is_tiled) {
    return is_tiled ? value_head % key_heads : value_head / (value_heads / key_heads);
}
OPERAND_INLINE int recurrence_of_key(int value_head, int key_heads, int value_heads, bool is_tiled) {
    return is_tiled ? value_head / key_heads : value_head % (value_heads / key_heads);
}

/* Linear attention, a state S [DK, DV] each value head. With q, k and v what was projected of position i, causally convolved by `conv`,
 * with its bias, and through silu:
 *   S_i = S' + k change^T,  S' = exp(-exp(a_log) dt) S_(i-1),  dt = softplus(a + dt_bias)
 *   out[t, :] = norm(S_i^T q + skip v) silu(z), each value head by itself; zeros for rows without a position.
 * RULE_DELTA is the gated delta rule (Yang, Kautz & Hatamizadeh 2024): q and k of unit length, q / sqrt(DK), change = (v - S'^T k) / (1 + exp(-b)).
 * RULE_DECAY is Mamba 2's (Dao & Gu 2024), whose C is q, B is k and x is v: change = dt v.
 * Value heads share key heads in groups of HV / HK: side by side, or as GGUF files have them in tiles, one of each group after the other.
 * a_log may hold -exp(a_log) itself. */
struct op_linear_attention {
    struct rows rows;
    const struct recurrence_step *steps; /* [batch] */
    const float *inputs;                 /* [T, stride] */
    int32_t stride;
    enum recurrence_rule rule;
    struct heads_at q, k, v, z, b, a;
    struct weight conv, conv_bias;      /* [2 HK DK + HV DV, taps], [1, 2 HK DK + HV DV] or absent */
    int32_t conv_q, conv_k, conv_v;     /* rows of it where those of all q, all k, all v begin */
    struct weight a_log, dt_bias, skip; /* [1, HV]; skip may be absent */
    struct norm norm;                   /* [1, DV] */
    int32_t key_heads, value_heads, key_dim, value_dim;
    bool is_tiled, is_rate; /* value head i has key head i mod HK, else i / (HV / HK); a_log holds -exp(a_log) */
    struct recurrent_layer state;
    struct buffer out; /* [T, HV*DV] */
};

/* A short convolution between two gates (LFM2: Liquid AI 2025). Of position i a row of inputs has B, C and x [D] one behind the other:
 *   out[t, :] = C_i sum_j conv[:, j] (B x)_(i - taps + 1 + j), each number by itself, j ascending; zeros for rows without a position. */
struct op_short_conv {
    struct rows rows;
    const struct recurrence_step *steps; /* [batch] */
    const float *inputs;                 /* [T, 3D] */
    int32_t width;
    struct weight conv; /* [D, taps] */
    struct recurrent_layer state;
    struct buffer out; /* [T, D] */
};

/* hidden[position + ahead, :] = norm(x[t, :]), rows with a position; with last_only the last of each graph row. */
struct op_keep {
    struct rows rows;
    const float *x; /* [T, D] */
    struct norm norm;
    int32_t width, ahead;
    bool last_only;
    struct hidden_rows hidden;
};

/* out[t, :] = norm(x[t, :]), then hidden_norm(hidden[at, :]) behind it, and residual[t, :] = hidden[at, :], or its norm; zeros for rows
 * without a position. at = position, and + ahead in a pass of drafted rows. */
struct op_join {
    struct rows rows;
    const float *x; /* [T, D] */
    struct norm norm, hidden_norm;
    int32_t width, ahead;
    struct hidden_rows hidden;
    struct buffer out; /* [T, 2D], f32 on CUDA too, if it is another op's x */
    float *residual;   /* [T, D] out, or NULL */
    bool norms_residual;
};

/* out[t, first + i] = x[t, i] */
struct op_tap {
    struct rows rows;
    const float *x; /* [T, D] */
    int32_t width, first, stride;
    struct buffer out; /* [T, stride] */
};

struct ops {
    int (*embed)(struct stream *, const struct op_embed *);
    int (*qkv)(struct stream *, const struct op_qkv *);
    int (*attention)(struct stream *, const struct op_attention *);
    int (*project)(struct stream *, const struct op_project *);
    int (*add_norm)(struct stream *, const struct op_add_norm *);
    int (*gate_up)(struct stream *, const struct op_gate_up *);
    int (*logits)(struct stream *, const struct op_logits *);
    int (*route)(struct stream *, const struct op_route *);
    int (*experts_up)(struct stream *, const struct op_experts_up *);
    int (*experts_down)(struct stream *, const struct op_experts_down *);
    int (*products)(struct stream *, const struct op_products *);
    int (*gate)(struct stream *, const struct op_gate *);
    int (*group_norm)(struct stream *, const struct op_group_norm *);
    int (*steps)(struct stream *, const struct op_steps *);
    int (*linear_attention)(struct stream *, const struct op_linear_attention *);
    int (*short_conv)(struct stream *, const struct op_short_conv *);
    int (*keep)(struct stream *, const struct op_keep *);
    int (*join)(struct stream *, const struct op_join *);
    int (*tap)(struct stream *, const struct op_tap *);
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
