/* A model's inside, for the files of model/ and model/families/. */
#ifndef DUET_MODEL_MODEL_INTERNAL_H
#define DUET_MODEL_MODEL_INTERNAL_H

#include "model/cache.h"
#include "model/files/safetensors.h"
#include "model/files/stored.h"
#include "model/model.h"
#include "model/pass.h"

/* A layer's weights, of which a family has some. */
struct layer {
    struct norm attn_norm, post_attn_norm, mlp_norm, post_mlp_norm;
    struct weight wq, wk, wv, wo; /* [H*DH, D], [HKV*DH, D] twice, [D, H*DH] */
    struct weight bq, bk, bv, bo; /* [1, rows of wq, wk, wv, wo] */
    struct norm q_norm, k_norm, v_norm;
    struct weight sinks;                /* [1, H] */
    struct weight gate, up, down;       /* [F, D] twice, [D, F] */
    struct weight gate_bias, down_bias; /* [1, F] of an MLP without up, [1, D] */
    struct weight router, router_bias;  /* [E, D], [1, E] */
    struct weight expert_scale;         /* [1, E] */
    struct weight choice_bias;          /* [1, E] */
    struct norm router_norm, expert_norm, post_dense_norm, post_expert_norm;
    struct experts expert_gate, expert_up, expert_down; /* [F, D] twice, [D, F] of each */
    struct experts expert_gate_bias, expert_up_bias, expert_down_bias;
    struct weight input_gate, input_projection; /* of per-layer inputs: [P, D], [D, P] */
    struct norm post_input_norm;
    struct weight layer_scale; /* [1, 1] */
    struct weight shared_gate; /* [1, D] of the MLP beside experts */
    struct weight inputs[PRODUCTS_MAX], conv, conv_bias, a_log, dt_bias,
        skip; /* of linear attention, whose output is wo */
    struct norm state_norm;
};

/* One expected tensor, or part of one, and where it goes. */
struct binding {
    char name[112];
    struct weight *weight; /* of [rows, cols] */
    int64_t rows, cols;
    int64_t all, first, step; /* rows of the tensor; which of them */
    int64_t stack, index;     /* experts in one tensor; 0: a matrix of its own */
    const int32_t *ids;       /* [rows] of a head that is cut: which rows of the tensor */
    bool is_transposed;
    bool is_conv;      /* its tensor is [rows, 1, cols] */
    struct norm *norm; /* that the weight is of; NULL: of none */
    float held;     /* what a norm's f32 numbers hold beside w: a copy of 16 bits goes without, and the norm adds it */
    bool is_exact;  /* a copy keeps the type of the file: few numbers of which every bit counts */
    bool is_copied; /* into `weights`; else it is read in the mapped file */
    const void *file; /* where it begins in the mapped file */
    enum dtype file_format;
    struct stored stored; /* of a quantised matrix: then `file` is not set */
    struct scales scales; /* of it, what `weight` points to */
    bool is_packed;       /* for a device that streams quantised weights (model/packed.h) */
    struct packed packed;
};
static inline bool binding_is_quantised(const struct binding *b) {
    return b->stored.form != STORED_PLAIN;
}

/* What a pass needs of scratch, each [T, numbers a row] f32 (or less). */
enum scratch {
    SCRATCH_RESIDUAL,
    SCRATCH_NORMED,
    SCRATCH_QUERIES,
    SCRATCH_ATTENDED,
    SCRATCH_PARTS, /* of graph_rows */
    SCRATCH_KV_ROWS,
    SCRATCH_GATED, /* of CUDA's prefill */
    SCRATCH_MLP,
    SCRATCH_SHARED_MLP, /* beside experts */
    SCRATCH_SHARED_GATE,
    SCRATCH_GATED_QUERIES,
    SCRATCH_RECURRENT,
    SCRATCH_STEPS,
    SCRATCH_JOINED,
    SCRATCH_TAPPED,
    SCRATCH_TAPPED_JOINED,
    SCRATCH_OUTPUT,
    SCRATCH_DENSE_OUTPUT,
    SCRATCH_ROUTER,
    SCRATCH_CHOSEN,
    SCRATCH_LISTS,
    SCRATCH_EXPERTS,
    SCRATCH_LAYER_INPUTS,
    SCRATCH_LAYER_INPUTS_PROJECTED,
    SCRATCHES
};

struct model {
    char name[16];
    const struct checkpoint *checkpoint;
    struct device *device;
    const struct ops *ops;
    struct model_config config;
    struct safetensors *files;

    struct weight embedding, head; /* [V, D] (the head is the embedding when tied; that of fewer rows is a copy) */
    struct norm norm;              /* [1, D] */
    struct model *of;              /* of a head that proposes more tokens (model_open_head): its model; else NULL */
    const struct model *tapped_by; /* the head that reads the rows before some layers; NULL: none */
    bool shares_embedding, shares_head;      /* with that */
    struct norm embedding_norm, hidden_norm; /* of it, [1, D] */
    /* [D, 2D]; of EAGLE-3 of what is tapped, [D, 3 * the model's], of DFlash likewise; of an assistant [D, 2 * the model's] */
    struct weight join;
    struct weight leave;                             /* of an assistant, [the model's D, D] */
    struct weight layer_embedding, layer_projection; /* of per-layer inputs: [V, L*P], [L*P, D] */
    struct norm layer_input_norm;
    struct layer *layers;     /* [L] */
    struct binding *bindings; /* [binding_count] in the order in which they were named */
    int binding_count, binding_cap;
    struct weight **expert_lists; /* [expert_list_count] what struct experts point to */
    int expert_list_count;
    const char *ignored[16]; /* [ignored_count] prefixes */
    int ignored_count;

    bool is_mapped;         /* weights are read in the mapped files where they lie there as they are (host device) */
    bool is_random;         /* there are no files */
    bool rounds_f32;        /* the files hold matrices in it, the device bf16 */
    bool rounds_f16;        /* likewise */
    bool rounds_bf16;       /* of a head whose model is f16: into that */
    bool is_quantised;      /* some matrices are */
    bool makes_quantised;   /* at loading */
    int products;           /* matrices that may be quantised at loading */
    int products_stored;    /* those of them that the files have quantised */
    bool keeps_quantised;   /* and the device reads them as they are (host) */
    bool packs_quantised;   /* and the device reads some packed (CUDA); the others in 16 bits */
    enum dtype type;        /* of what feeds products, and of keys and values */
    enum dtype weight_type; /* of `weights` on a device that does not read the files */
    char *weights;          /* copied ones in the order of bindings, each aligned to POOL_ALIGN */
    struct ids head_ids;    /* of a head that is cut to their rows; none: it is whole */
    char *cut_head;         /* where it lies */

    struct model_limits limits;
    struct cache cache;
    float *rope[ROPES_MAX]; /* [1 or 2, rope_positions, DH/2, 2]: a second one of long sequences, or of queries */
    int32_t *rope_choice;   /* [slots]: not 0: a long sequence. NULL: no rope asks */
    size_t scratch_per_row[SCRATCHES];
    float *scratch[SCRATCHES];
    void *room;                         /* of packed weights that prefill unpacks */
    float *logits;                      /* where the head writes */
    struct pass passes[LOGITS_ALL + 1]; /* by enum logits_rows */
    struct graph_set *prefill_graphs;   /* NULL: chunks run eagerly */
    int prefill_kind;
    struct prefill_buffers *prefill_inputs;
};

/* binder.c: looks every binding up in the files, and sets its weight; with random weights, its shape alone. Refuses tensors of the
 * files that no binding names. */
int model_resolve_bindings(struct model *);
size_t binding_elements(const struct binding *);
int binding_tensor_shape(const struct binding *,
                         int64_t shape[3]);              /* that its tensor must have; returns the dimensions */
struct stored_rows binding_rows(const struct binding *); /* of a quantised matrix */

/* head.c: the configuration of a head that proposes more tokens, its own or made of its model's; and what it reads of that model's weights,
 * where they lie by now. */
int model_configure_head(struct model *);
void model_share_ends(struct model *);
static inline bool model_is_own_head(const struct model *m) { /* in the files of its model */
    return m->of && m->checkpoint == m->of->checkpoint;
}

/* builder.c: runs the family's list once to learn what scratch it needs; makes the passes when all addresses are known. */
void model_measure_pass(struct model *);
void model_build_passes(struct model *);

/* quantise.c: chooses the matrices that are quantised at loading, and those that are packed; quantises one into the memory that its
 * weight points to. ERR_USAGE if some are to be and the files have quantised all of them. */
int model_choose_quantised(struct model *, enum model_weights);
void model_choose_packed(struct model *);
int model_quantise(const struct model *, const struct binding *, int threads);

static inline bool model_is_tied(const struct model *m) { /* and the head no copy of its own */
    return m->config.tied && m->head_ids.len == 0 && !m->of;
}
/* Is it read as it was quantised? Of a cut head's rows the scales may lie for several at once: unless they were made for these rows
 * alone, it is kept as the numbers that it stands for. */
static inline bool model_reads_quantised(const struct model *m, const struct binding *b) {
    return m->keeps_quantised && binding_is_quantised(b) && (!b->ids || b->stored.form == STORED_MADE);
}

/* gather.c: where an element lies in the mapped file. */
const char *binding_element(const struct binding *, size_t);

/* upload.c: the type that a device with its own memory keeps this model's weights in, F16 where all of the files is, else
 * BF16; the copy (or the random numbers), which makes every struct weight point to it.
 * Synchronises, allocates. */
enum dtype model_device_type(const struct model *);
enum dtype model_copied_type(const struct model *, const struct binding *); /* of one that is copied, not quantised */
size_t model_cut_head_bytes(const struct model *);                          /* in the pool; 0: the head is whole */
/* check_blocks.c: the scales inside the blocks of elements [first, first + n), whole rows, are finite; reads them. 0 for what has no
 * blocks. */
int model_check_blocks(const struct model *, const struct binding *, size_t first, size_t n);
int model_upload_weights(struct model *, struct stream *, const struct progress *);

#endif
