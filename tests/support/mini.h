/* One made-up transformer layer with embedding and head, for the suites of the ops: random weights, pages in random order, and
 * every op's arguments. What families have and a Llama has not is asked for by the shape. */
#ifndef DUET_TESTS_MINI_H
#define DUET_TESTS_MINI_H

#include "model/pass.h"
#include "tests/support/ops_lab.h"

/* Norms before attention and MLP (Llama), behind them (OLMo 2), or both (Gemma). */
enum mini_norms { NORMS_BEFORE, NORMS_BEHIND, NORMS_AROUND };

/* Zeros are a Llama. */
struct mini_shape {
    const char *name;
    enum dtype type;
    int packed; /* on a GPU: 1 + the form (tests/support/quantised_support.h) of the matrices of products; 0: of `type` */
    int width, hidden, heads, kv_heads, head_dim, vocab, window;
    bool has_bias, has_qk_norm;
    enum mini_norms norms;
    float norm_offset;
    bool lacks_norm_weights;     /* those of the residual stream */
    bool centres, has_norm_bias; /* norms before products are of kind LAYER */
    bool norms_all_heads, has_v_norm;
    int rope_dims; /* 0: all */
    bool pairs_neighbours, has_rope_choice, lacks_rope;
    bool norms_behind_rope;
    bool has_query_rope;   /* where there is no choice */
    bool lacks_k, lacks_v; /* q alone; v is k */
    float attention_scale; /* 0: 1 / sqrt(DH) */
    float attention_cap;
    bool has_sinks, has_output_bias, has_head_bias, has_layer_scale;
    float embedding_scale, residual_scale, logits_scale; /* 0: 1 */
    float logits_cap;
    enum activation activation;
    bool lacks_up;       /* of the MLP, and of experts, which have no biases then */
    bool has_mlp_bias;   /* where it lacks up */
    int layer_inputs;    /* P: an input of the layer besides the residual stream, behind the MLP; 0: none */
    int experts, chosen; /* in place of the MLP; 0: none */
    bool experts_beside; /* beside it */
    bool has_expert_bias, has_expert_scale, has_choice_bias, renormalises;
    enum router_scores scores;
    int slots, pages_per_slot, max_rows; /* slot 0 included */
};

/* What the families of model/families/ have, small: rows of all of these are compared on both devices. */
extern const struct mini_shape mini_families[];
extern const int mini_family_count;

/* Adds what families have, each in one shape of three; nothing makes numbers so large that f32 sums are off. */
void mini_add_features(struct lab *, struct mini_shape *);

/* All experts' matrices in one block, `apart` elements from one to the next, with NaN between. */
struct mini_experts {
    struct experts experts;
    struct weight *each;
    void *block;
    size_t bytes;
};

enum { MINI_WEIGHTS_MAX = 64, MINI_EXPERTS_MAX = 8 };

struct mini {
    struct mini_shape shape;
    struct weight embedding, wq, wk, wv, bq, bk, bv, wo, bo, sinks, gate, gate_bias, up, down, down_bias, head,
        head_bias;
    struct weight layer_embedding, layer_projection, input_gate, input_projection, layer_scale;
    struct weight router, router_bias, expert_scale, choice_bias;
    struct norm norm, q_norm, k_norm, v_norm, post_attn_norm, mlp_norm, post_mlp_norm, head_norm;
    struct norm input_norm, post_input_norm, router_norm, post_dense_norm, post_expert_norm;
    struct mini_experts expert_gate, expert_up, expert_down, expert_gate_bias, expert_up_bias, expert_down_bias;
    int pages;
    size_t kv_floats; /* of keys, and of values */
    struct kv_layer kv;
    int32_t *tokens, *positions, *row_slot, *page_table, *rope_choice;
    float *partials, *gated; /* of a device that needs them */
    float *rope, *x, *output, *dense, *normed, *q, *kv_rows, *attended, *h, *logits, *inputs, *projected;
    float *router_logits, *expert_weights, *expert_h, *expert_sums;
    int32_t *expert_ids, *expert_lists;
};

void mini_make(struct lab *, struct mini *, struct mini_shape);
/* Every weight that is there, experts' apart. */
int mini_weights(struct mini *, struct weight *out[MINI_WEIGHTS_MAX]);
int mini_experts(struct mini *, struct mini_experts *out[MINI_EXPERTS_MAX]);
/* All that a pass writes, as large as the shape says, from `allocate`. */
void mini_make_buffers(struct mini *, void *(*allocate)(void *from, size_t bytes), void *from);
struct rows mini_rows(const struct mini *, int batch, int q_len);
/* Where position `position` of a slot keeps key/value head `head`: a float index into keys or values. */
size_t mini_cell(const struct mini *, int slot, int position, int head);

/* What feeds a product, of the type of the device that `m` lies on. */
struct buffer mini_buffer(const struct mini *m, void *data);
struct op_embed mini_embed(const struct mini *, struct rows);
struct op_qkv mini_qkv(const struct mini *, struct rows);
struct op_attention mini_attention(const struct mini *, struct rows);
struct op_project mini_project(const struct mini *, struct rows);                        /* wo */
struct op_add_norm mini_add_norm(const struct mini *, struct rows, const struct norm *); /* of the output beside */
struct op_gate_up mini_gate_up(const struct mini *, struct rows);
struct op_project mini_down(const struct mini *, struct rows);
struct op_logits mini_router(const struct mini *, struct rows);
struct op_route mini_route(const struct mini *, struct rows);
struct op_experts_up mini_experts_up(const struct mini *, struct rows);
struct op_experts_down mini_experts_down(const struct mini *, struct rows);
struct op_gate_up mini_input_gate(const struct mini *, struct rows); /* `times` in place of up */
struct op_logits mini_logits(const struct mini *, struct rows);

/* The layer as a list of ops, and a pass over it; checks each result. Returns the number of ops. */
int mini_forward(struct lab *, const struct mini *, struct rows);

#endif
