/* How a family names its tensors: each goes to a weight, as it lies in the file or as a part of a larger tensor. For
 * model/families/. Names are formats relative to the model's body ("layers.%d.mlp.up_proj.weight"). */
#ifndef DUET_MODEL_BINDER_H
#define DUET_MODEL_BINDER_H

#include "model/model_internal.h"

/* What files have in place of a part of a name, before whose first part a dot is thought. */
struct renaming {
    const char *from, *to;
};

struct binder {
    struct model *m;
    const struct model_config *c;
    const char *body, *outer; /* prefixes of the body's names and of the head's */
    const struct renaming
        *renamings; /* of the body's names, one after the other, up to one without `from`; may be NULL */
    char layer[32]; /* not "": of a model of one layer, the prefix of names in place of the body and "layers.0." */
};

/* Where the text model lies: under "model.", and `is_wrapped` also where files of several parts have it, whose other parts (vision,
 * audio) are then ignored. */
void binder_find_text(struct binder *, bool is_wrapped);
bool binder_has(const struct binder *, const char *name); /* of the body */
/* Is there a stack of experts [E, rows, ..] of a layer? 0 rows: of any number. */
bool binder_has_stack(const struct binder *, int64_t rows, int layer, const char *format);

/* A weight [rows, cols] by its name; of a vector (rows 1) the file has [cols]. */
void bind_weight(struct binder *, struct weight *, int64_t rows, int64_t cols, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* A vector [cols], in the file perhaps [1, cols], of which a device's copy keeps every bit. */
void bind_exact(struct binder *, struct weight *, int64_t cols, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A row [1, cols] of a product. */
void bind_row(struct binder *, struct weight *, int64_t cols, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A convolution of each channel by itself, [channels, 1, taps] in the file, which keeps every bit. */
void bind_conv(struct binder *, struct weight *, int64_t channels, int64_t taps, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* A norm of `cols` dimensions whose factor is weight + offset, with the configuration's eps; of the kind, and with the bias beside the weight,
 * that it says. */
void bind_norm(struct binder *, struct norm *, float offset, int64_t cols, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Rows first, first + step, ... of a tensor [all, cols]: fused projections. */
struct row_range {
    int64_t all, first, step;
};
void bind_rows(struct binder *, struct weight *, int64_t rows, int64_t cols, struct row_range, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* The same matrix of every expert, one tensor each; `format` takes the layer and the expert. */
void bind_experts(struct binder *, struct experts *, int64_t rows, int64_t cols, int layer, const char *format);
/* All experts in one tensor [E, all, cols], or [E, cols, all] where it is transposed, of which an expert has some rows. `format`
 * takes the layer. Biases have rows 1: [E, all], an expert's numbers first, first + step, ... */
void bind_stacked(struct binder *, struct experts *, int64_t rows, int64_t cols, struct row_range, bool is_transposed,
                  int layer, const char *format);

/* The embedding, the norm before the head, and the head, which all families have. */
void bind_ends(struct binder *, float norm_offset);
/* Of a head that proposes more tokens, whose `layer` is set: the embedding and the head, of its own where the layer (or files of its own)
 * have them, else its model's, of the latter perhaps a copy. */
void bind_head_ends(struct binder *);
/* The same and what joins them, of one that lies behind its model's last layer, all but that layer's own tensors. */
void bind_head_behind(struct binder *, float norm_offset);
/* The norms before attention and MLP, or the one of both, as a Llama's files call them; those behind, as an OLMo 2's do; and those of q and k,
 * of each head or, where the configuration says so, of all at once. */
void bind_norms_before(struct binder *, float offset, int layer);
void bind_norms_behind(struct binder *, int layer);
void bind_qk_norms(struct binder *, float offset, int layer);
/* What most layers have: q, k, v, o under self_attn, gate, up and down under mlp; biases of q, k, v by the configuration. */
void bind_attention(struct binder *, int layer);
void bind_mlp(struct binder *, int layer);
/* The bias of o, where q, k and v have theirs. */
void bind_output_bias(struct binder *, int layer);
/* An MLP without a gate, under `module`: what its activation is of, up_proj, stands where others have theirs. */
void bind_ungated_mlp(struct binder *, int layer, const char *module, bool has_bias);
/* The MLP beside experts, under mlp and this name. */
void bind_shared_mlp(struct binder *, int layer, const char *name);
void bind_fused_mlp(struct binder *, int layer); /* gate_up_proj: rows of gate, then of up */

/* A tensor that files hold and nobody reads. */
void bind_unused(struct binder *, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Tensors whose names begin so belong to other parts of the files (vision). */
void bind_ignore(struct binder *, const char *prefix);

#endif
