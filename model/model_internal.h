/* What model.c, forward.c and prefill.c share. */
#ifndef DUET_MODEL_MODEL_INTERNAL_H
#define DUET_MODEL_MODEL_INTERNAL_H

#include "model/model.h"
#include "model/safetensors.h"

struct layer {
    struct weight attn_norm;      /* [1, D] */
    struct weight wq, wk, wv, wo; /* [H*DH, D], [HKV*DH, D] twice, [D, H*DH] */
    struct weight bq, bk, bv;     /* [1, rows of wq, wk, wv] or absent */
    struct weight q_norm, k_norm; /* [1, DH] or absent */
    struct weight mlp_norm;       /* [1, D] */
    struct weight gate, up, down; /* [F, D] twice, [D, F] */
};

/* One expected tensor and where it goes. */
struct binding {
    char name[96];
    int64_t rows, cols;
    struct weight *weight;
};

struct model {
    char name[16];
    char *dir;
    struct device *device;
    const struct ops *ops;
    struct model_config config;
    struct safetensors *files;

    struct weight embedding, norm, head; /* [V, D], [1, D], [V, D] (the embedding when tied) */
    struct layer *layers;                /* [L] */
    struct binding *bindings;            /* [binding_count] sorted by name */
    int binding_count;

    bool is_mapped;         /* weights are read in the mapped files (host device), else they lie in `weights` */
    bool is_random;         /* there are no files */
    bool is_rounded;        /* the files hold f32, the device 16 bits */
    enum dtype type;        /* of keys and values */
    enum dtype weight_type; /* of `weights` */
    char *weights;          /* in the order of bindings, each aligned to POOL_ALIGN */
    float *partials;        /* [graph_rows, H, ATTENTION_PARTS, DH + 2] where attention needs them */

    struct model_limits limits;
    float *rope; /* [rope_positions, DH/2, 2] */
    char *k, *v; /* [L, P, HKV, PAGE, DH] */
    /* scratch of a pass */
    float *x, *normed;   /* [T, D] */
    float *q, *attended; /* [T, H*DH] */
    float *kv_rows;      /* [T, 2*HKV*DH] */
    float *gated;        /* [2, T, F] on CUDA */
    float *h;            /* [T, F] */
};

/* upload.c: the type that a device with its own memory keeps this model's weights in, F16 where all of the files is, else
 * BF16; the bytes they need; the copy (or the random numbers), which makes every struct weight point to the device.
 * Synchronises, allocates. */
enum dtype model_device_type(const struct model *);
size_t model_device_bytes(const struct model *);
int model_upload_weights(struct model *, struct stream *, const struct progress *);

#endif
