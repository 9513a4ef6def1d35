#include "model/pass.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/memory.h"
#include "graphs/breakable.h"

struct op *pass_add(struct pass *p, enum op_kind kind) {
    if (p->count == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 64;
        p->ops = memory_resize(p->ops, (size_t)p->cap * sizeof *p->ops);
    }
    struct op *op = &p->ops[p->count++];
    memset(op, 0, sizeof *op);
    op->kind = kind;
    return op;
}

void pass_free(struct pass *p) {
    free(p->ops);
    *p = (struct pass){0};
}

static void copy(struct pass *out, const struct pass *p, int count) {
    *out = (struct pass){0};
    for (int i = 0; i < count; i++) *pass_add(out, p->ops[i].kind) = p->ops[i];
}

static bool writes_cache(const struct op *op) {
    return op->kind == OP_LINEAR_ATTENTION || op->kind == OP_SHORT_CONV || (op->kind == OP_QKV && op->qkv.wk.data) ||
           (op->kind == OP_KEEP && !op->keep.last_only);
}

void pass_copy_cache_part(struct pass *out, const struct pass *p) {
    int count = p->count;
    while (count > 0 && !writes_cache(&p->ops[count - 1])) count--;
    copy(out, p, count);
}

void pass_copy_last_only(struct pass *out, const struct pass *p) {
    copy(out, p, p->count);
    struct op *head = &out->ops[out->count - 1];
    if (head->kind == OP_LOGITS) head->logits.last_only = true;
}

static bool tell_of_product(struct op *writer, struct op_project *reader) {
    if (writer->kind == OP_ATTENTION && writer->attention.out.data == reader->h.data)
        writer->attention.reader = reader->w, reader->h_is_for_w = true;
    if (writer->kind == OP_GATE_UP && writer->gate_up.h.data == reader->h.data)
        writer->gate_up.reader = reader->w, reader->h_is_for_w = true;
    return reader->h_is_for_w;
}

/* Between who writes rows and who reads them may lie attention and its projection, which read others. */
static void tell_writer(struct op *reader, int before) {
    for (int i = 1; i <= before && !tell_of_product(reader - i, &reader->project); i++)
        if (reader[-i].kind != OP_ATTENTION && reader[-i].kind != OP_PROJECT) return;
}

void pass_tell_neighbours(struct pass *p) {
    for (int i = 1; i < p->count; i++) {
        struct op *before = &p->ops[i - 1], *op = &p->ops[i];
        if (op->kind == OP_PROJECT) tell_writer(op, i);
        if (op->kind == OP_EXPERTS_UP && before->kind == OP_ROUTE && before->route.ids == op->experts_up.ids)
            before->route.is_told = true, op->experts_up.route = before->route;
        if (op->kind == OP_EXPERTS_DOWN && before->kind == OP_EXPERTS_UP &&
            before->experts_up.ids == op->experts_down.ids)
            op->experts_down.route = before->experts_up.route;
    }
}

static int submit(const struct ops *ops, struct stream *s, const struct op *op, const struct rows *rows) {
    struct op now = *op;
    now.rows = *rows;
    switch (op->kind) {
    case OP_EMBED:
        return ops->embed(s, &now.embed);
    case OP_QKV:
        return ops->qkv(s, &now.qkv);
    case OP_ATTENTION:
        return ops->attention(s, &now.attention);
    case OP_PROJECT:
        return ops->project(s, &now.project);
    case OP_ADD_NORM:
        return ops->add_norm(s, &now.add_norm);
    case OP_GATE_UP:
        return ops->gate_up(s, &now.gate_up);
    case OP_LOGITS:
        return ops->logits(s, &now.logits);
    case OP_ROUTE:
        return ops->route(s, &now.route);
    case OP_EXPERTS_UP:
        return ops->experts_up(s, &now.experts_up);
    case OP_EXPERTS_DOWN:
        return ops->experts_down(s, &now.experts_down);
    case OP_PRODUCTS:
        return ops->products(s, &now.products);
    case OP_GATE:
        return ops->gate(s, &now.gate);
    case OP_GROUP_NORM:
        return ops->group_norm(s, &now.group_norm);
    case OP_STEPS:
        return ops->steps(s, &now.steps);
    case OP_LINEAR_ATTENTION:
        return ops->linear_attention(s, &now.linear_attention);
    case OP_SHORT_CONV:
        return ops->short_conv(s, &now.short_conv);
    case OP_KEEP:
        return ops->keep(s, &now.keep);
    case OP_JOIN:
        return ops->join(s, &now.join);
    case OP_TAP:
        return ops->tap(s, &now.tap);
    case OP_KINDS:
        break;
    }
    return err_set(ERR_INTERNAL, "a pass holds an op of kind %d", (int)op->kind);
}

/* An eager op's arguments: what is read when it runs. */
struct eager {
    const struct ops *ops;
    const struct op *op;
    const struct rows *live;
};

static int run_eager(struct stream *s, const void *args) {
    const struct eager *e = args;
    return submit(e->ops, s, e->op, e->live);
}

int pass_run(const struct pass *p, const struct ops *ops, struct stream *s, const struct rows *rows,
             const struct rows *live) {
    for (int i = 0; i < p->count; i++) {
        const struct op *op = &p->ops[i];
        struct eager eager = {ops, op, live};
        if (op->is_eager && live)
            TRY(graph_run_eager(s, run_eager, &eager, sizeof eager));
        else
            TRY(submit(ops, s, op, rows));
    }
    return 0;
}
