/* A pass: the list of ops that a family makes, and the one runner of such lists.
 *
 * The list is the same for every number of rows, for prefill and decoding; the rows are given at each run. So it is built once a
 * model, when its addresses are known. Under capture the runner's submissions are captured like any others; an op that is marked
 * eager becomes a break of the breakable graph that captures, and takes its rows anew at each replay. */
#ifndef DUET_MODEL_PASS_H
#define DUET_MODEL_PASS_H

#include "model/ops.h"

enum op_kind {
    OP_EMBED,
    OP_QKV,
    OP_ATTENTION,
    OP_PROJECT,
    OP_ADD_NORM,
    OP_GATE_UP,
    OP_LOGITS,
    OP_ROUTE,
    OP_EXPERTS_UP,
    OP_EXPERTS_DOWN,
    OP_PRODUCTS,
    OP_GATE,
    OP_GROUP_NORM,
    OP_STEPS,
    OP_LINEAR_ATTENTION,
    OP_SHORT_CONV,
    OP_KEEP,
    OP_JOIN,
    OP_TAP,
    OP_KINDS
};

struct op {
    enum op_kind kind;
    bool is_eager;
    union {
        struct rows rows; /* every op begins with them */
        struct op_embed embed;
        struct op_qkv qkv;
        struct op_attention attention;
        struct op_project project;
        struct op_add_norm add_norm;
        struct op_gate_up gate_up;
        struct op_logits logits;
        struct op_route route;
        struct op_experts_up experts_up;
        struct op_experts_down experts_down;
        struct op_products products;
        struct op_gate gate;
        struct op_group_norm group_norm;
        struct op_steps steps;
        struct op_linear_attention linear_attention;
        struct op_short_conv short_conv;
        struct op_keep keep;
        struct op_join join;
        struct op_tap tap;
    };
};

struct pass {
    struct op *ops; /* [count] */
    int count, cap;
};

/* Appends an op of zeros; the address holds until the next one is added. Ends the process where there is no memory. */
struct op *pass_add(struct pass *, enum op_kind);
void pass_free(struct pass *);
/* The same list without what comes after its last op that writes a cache: what ingests a prompt. */
void pass_copy_cache_part(struct pass *out, const struct pass *);
/* The same list whose head gives one row a graph row, its last. */
void pass_copy_last_only(struct pass *out, const struct pass *);

/* Tells ops what CUDA makes use of: of the op_project that alone reads what they make, or of the op before that they may do a part of. */
void pass_tell_neighbours(struct pass *);

/* Submits the ops in order. `live`, if not NULL, is read at each replay by the ops that are eager, in place of `rows`, and must
 * outlive the graph, as must the pass. Neither allocates nor synchronises (a capture's breaks excepted). */
int pass_run(const struct pass *, const struct ops *, struct stream *, const struct rows *rows,
             const struct rows *live);

#endif
