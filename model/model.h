/* A model: configuration, weights, cache, scratch, and the passes that its family lists.
 *
 * Lifetime: model_open (files only) -> model_layout on a plan, then on the real pool -> model_upload -> any number
 * of model_forward. Belongs to one thread. */
#ifndef DUET_MODEL_MODEL_H
#define DUET_MODEL_MODEL_H

#include "base/progress.h"
#include "graphs/graph_set.h"
#include "graphs/pool.h"
#include "model/cache.h"
#include "model/config.h"
#include "model/files/checkpoint.h"
#include "model/ops.h"

struct model;

/* Sizes that the engine decides. */
struct model_limits {
    int max_rows;       /* T of the largest pass, a prefill's rounded up (prefill_padded) */
    int graph_rows;     /* T of the largest pass that is no prefill */
    int pages;          /* P, page 0 included */
    int slots;          /* of sequences, the dummy's included */
    int kept_rows;      /* of a recurrent layer: recurrence_kept_rows */
    int rope_positions; /* context and slack */
};

enum logits_rows { LOGITS_NONE, LOGITS_LAST, LOGITS_ALL };

/* What matrices of products are kept as: as the files have them, or quantised at loading, which makes another model of them. */
enum model_weights { WEIGHTS_AS_STORED, WEIGHTS_FP8, WEIGHTS_INT4 };

/* What is made of a checkpoint's numbers. */
struct model_numbers {
    enum model_weights weights;
    enum kv_numbers kv;
    /* The head is cut to the rows of these ids, ascending, and logits are theirs alone; the head is a copy then, and the embedding stays
     * whole. NULL: it is not. */
    const struct ids *head_ids;
};

/* Reads and validates configuration and tensors of a checkpoint, which must outlive the model; every tensor's shape and type is
 * checked, unknown tensors are refused by name. Without files the weights are random, bf16, made by model_upload. Allocates (heap).
 * `name` ("target", "draft") prefixes slice names. */
int model_open(struct model **out, const struct checkpoint *, const char *name, struct model_numbers, struct device *);
/* A head that proposes more tokens for `of`: the one in its files (multi-token prediction), or of a checkpoint of its own (EAGLE-3). A model of
 * one layer that reads the embedding of a token and a hidden row of `of` at the position before it, and may have the embedding and the head of
 * `of`, or a copy of the latter that is cut or quantised. Its row of token t[i] stands at position i - 1. To be opened before `of` is laid
 * out, whose passes then keep their hidden rows, uploaded behind it, and closed first. ERR_UNSUPPORTED where there is no such head, or
 * several. */
int model_open_head(struct model **out, struct model *of, const struct checkpoint *own, const char *name,
                    struct model_numbers);
/* Numbers of the head in its own files that model_open_head would take; 0: none. Opens and closes it; changes nothing. */
int64_t model_own_head(struct model *);
/* The ids that a head of a checkpoint of its own may propose, ascending, where it is cut to some; else none. Of a target's map of `vocab`
 * ids. Allocates. */
int model_head_ids(const struct model *, int vocab, struct ids *out);
void model_close(struct model *);
const struct model_config *model_get_config(const struct model *);
int model_add_end_token(struct model *, const struct tokenizer *); /* checkpoint_add_end_token */
struct cache *model_get_cache(struct model *);
int64_t model_parameters(const struct model *);
uint64_t model_mapped_bytes(const struct model *); /* weights read in place from the files; 0 where they are copied */
size_t model_device_bytes(const struct model *);   /* of weights in the pool */
const char *
model_rounded(const struct model
                  *); /* the types whose matrices are kept in another of 16 bits, "f32 and f16"; NULL: none (CUDA) */
/* How many matrices may be quantised at loading; `stored` of these the files have quantised, and they stay as they are. */
int model_products(const struct model *, int *stored);
/* Bytes that one row's pass reads from the weights: of experts those that it chooses, of the embedding only what is the head. */
uint64_t model_step_bytes(const struct model *);
uint64_t model_kv_bytes_per_token(const struct model *);
/* Floating-point operations of one row's pass that attends to `tokens` positions: 2 for each number of a matrix that it is multiplied by
 * (Kaplan et al. 2020, section 2.1), head included, of experts those that it chooses, of embeddings that are looked up none; and of
 * attention 4 H DH a layer and visible position, 2 for q k and 2 for the sum of v. */
uint64_t model_row_flops(const struct model *, int tokens);

/* Cuts weights (where the device does not read the mapped file), KV pages, rope table, scratch. */
int model_layout(struct model *, const struct model_limits *, struct pool *);
/* Copies weights (CUDA), fills the rope table. Synchronises. */
int model_upload(struct model *, struct stream *, const struct progress *);

/* A sequence of up to `length` positions takes `slot`: which frequencies its rope takes, for all its passes. In stream order. */
int model_open_sequence(struct model *, struct stream *, int slot, int length);

/* Numbers of a row of logits: the rows of the head. */
int model_logits_width(const struct model *);

/* Submits one pass over `rows`; logits [batch or T, model_logits_width] f32 device, NULL with LOGITS_NONE.
 * Capturable; neither allocates nor synchronises. With LOGITS_NONE it stops after the last K and V. */
int model_forward(struct model *, struct stream *, const struct rows *, enum logits_rows, float *logits);

/* Declares the graphs of passes of `q_len` tokens a row in `set`, and which of them run every kernel once (graph_set_warm_up). */
int model_add_graphs(const struct model *, struct graph_set *set, int kind, int max_batch, int q_len);

/* Rows of a prefill's chunks: a multiple of KV_PAGE and of PREFILL_PAD. On CUDA enough to keep tensor cores busy. */
enum { PREFILL_CHUNK_MAX = 512 };
static inline int prefill_chunk(const struct device *d) {
    if (device_kind(d) == DEVICE_CUDA) return PREFILL_CHUNK_MAX;
    return KV_PAGE;
}

/* What the prefill of both models works with. Staging is pinned and reused after its event. */
struct prefill_buffers {
    int32_t *tokens, *positions, *slots; /* [PREFILL_CHUNK_MAX] device; a slot for each graph row */
    void *workspace;                     /* for stream_set_workspace; NULL on the host */
    size_t workspace_bytes;
    void *staging; /* pinned: 2 * 3 * PREFILL_CHUNK_MAX int32, used in turn */
    struct event *staged[2];
    int turn;
    const int32_t *page_table; /* device */
    int32_t pages_per_slot;
    bool row_invariant; /* for tests: the decode's kernels, in chunks of at most graph_rows, which changes no bit */
    bool replays;       /* chunks replay graphs: models are to declare them */
    struct rows live;   /* of the chunk that is being submitted */
};
int prefill_create(struct prefill_buffers *, struct device *); /* pinned memory and events; allocates */
void prefill_destroy(struct prefill_buffers *, struct device *);
int prefill_layout(struct prefill_buffers *, const struct device *, struct pool *); /* cuts inputs and workspace */
int prefill_clear(struct prefill_buffers *, struct stream *); /* inputs of the dummy sequence, once page_table is set */

/* Ingests one chunk of tokens[*first..last) (host memory, absolute positions) of one slot, without logits: up to the next absolute
 * multiple of prefill_chunk, which is *first then. May wait for the staging of the chunk before the last; nothing else waits or
 * allocates. */
int model_prefill_chunk(struct model *, struct stream *, struct prefill_buffers *, int32_t slot, const int32_t *tokens,
                        int *first, int last);

/* Tokens [first, last) of one slot, absolute positions; host memory. */
struct prefill_span {
    int32_t slot;
    const int32_t *tokens;
    int first, last;
};
/* Ingests spans of up to q_len tokens of `count` slots in one pass without logits, by the kernels that decode: what a few tokens of each
 * of many sequences take is little more than what those of one take. Where q_len is at most prefill_q_len(m, count). May wait as
 * model_prefill_chunk does. */
int model_prefill_spans(struct model *, struct stream *, struct prefill_buffers *, const struct prefill_span *,
                        int count, int q_len);
enum { PREFILL_SPAN_MAX = 32 };
int prefill_q_len(const struct model *, int count);
/* Each kernel of such passes of up to `batch` slots once, for the dummy sequence. */
int model_warm_up_spans(struct model *, struct stream *, struct prefill_buffers *, int batch);

/* From here on model_prefill_chunk replays graphs of `set`, one for every size that prefill_padded tells; the same bits as
 * without. The set's build function calls model_build_prefill for keys of `kind`. All must outlive the model. */
int model_add_prefill_graphs(struct model *, struct prefill_buffers *, struct graph_set *set, int kind);
int model_build_prefill(struct model *, struct stream *, int count);

#endif
