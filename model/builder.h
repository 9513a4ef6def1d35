/* How a family lists its pass: each call appends one op with what the configuration and the layer's weights say, for the family to
 * adjust. For model/families/. An op's address holds until the next is added. */
#ifndef DUET_MODEL_BUILDER_H
#define DUET_MODEL_BUILDER_H

#include "model/model_internal.h"

struct builder {
    struct model *m;
    const struct model_config *c;
    struct pass *pass;
};

/* A sublayer's output [T, D] beside the residual stream, for norms that follow a sublayer. */
float *builder_output(struct builder *);
/* Scratch of `per_row` numbers for each row of a pass. What is asked for in the first, measuring run is there in the second. */
float *builder_scratch(struct builder *, enum scratch, size_t per_row);

/* The same of what feeds products, in their type. */
struct buffer builder_feed(struct builder *, enum scratch, size_t per_row);

struct op_embed *build_embed(struct builder *);
struct op_qkv *build_qkv(struct builder *, int layer);
struct op_attention *build_attention(struct builder *, int layer);
/* W h onto the residual stream (of the attention, of the MLP). */
struct op_project *build_output(struct builder *, int layer);
struct op_gate_up *build_gate_up(struct builder *, int layer);
struct op_project *build_down(struct builder *, int layer);
/* x = x + norm(y), y the sublayer's output. */
struct op_add_norm *build_add_norm(struct builder *, const struct norm *);
/* The last two with a norm behind them: W h to the side, then its norm onto the residual stream. */
struct op_add_norm *build_normed_output(struct builder *, int layer);
struct op_add_norm *build_normed_down(struct builder *, int layer);
/* W h + bias onto the residual stream; out = all of w[count] of the residual stream behind a norm. */
struct op_project *build_project(struct builder *, struct buffer h, const struct weight *w, const struct weight *bias);
struct op_products *build_products(struct builder *, const struct weight *w, int count, const struct norm *,
                                   enum scratch out);
/* From where recurrent states go on, once a pass; a recurrent layer's part in place of attention, norm before it, onto the residual stream. */
void build_steps(struct builder *);
void build_recurrent_block(struct builder *, int layer);
/* Router, choice, and the experts' sum onto the residual stream; `norm` is that of their input. Returns the last. */
struct op_experts_down *build_experts(struct builder *, int layer, const struct norm *router_norm,
                                      const struct norm *norm);
struct op_logits *build_head(struct builder *);

/* A layer's attention, norm before it, onto the residual stream; its MLP likewise; and the whole list of a family that consists of
 * these, one behind the other or side by side: embedding, layers, head. */
void build_attention_block(struct builder *, int layer);
void build_mlp_block(struct builder *, int layer);
void build_dense_layers(struct builder *);
/* The same with experts in place of every MLP, whose router and experts have the norm before an MLP. */
void build_expert_layers(struct builder *);
/* The first with experts in the layers that have some, beside an MLP where one is bound, and linear attention in those that are
 * recurrent. */
void build_mixed_layers(struct builder *);
/* EAGLE-3's, which is for another model. */
void build_eagle(struct builder *);
/* The hidden row of a position: norm(x), kept for a head; and read by it, beside the embedding of the token behind it. */
struct op_keep *build_keep(struct builder *, const struct cache *of, const float *x, const struct norm *);
struct op_join *build_join(struct builder *, const float *embedded, struct buffer out);
/* The first with norms behind attention and MLP as well (Gemma 2 and 3, GLM 4). */
void build_sandwiched_layers(struct builder *);

#endif
