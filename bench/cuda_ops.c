/* Times the ops of the CUDA table one by one, and whole layers, on a named shape with made-up weights that the L2 cannot hold.
 * Prints microseconds and the GB/s of the weights alone.
 *
 *   make build/cuda-release/bench/cuda_ops && build/cuda-release/bench/cuda_ops SHAPE[:WEIGHTS] [POSITION [PASS...]]
 *
 * WEIGHTS are bf16, or one of packed_weights below, made up of random codes and scales near 1.
 * A pass is M, the rows of one sequence, or BxQ, Q rows of each of B sequences with contexts of their own. Of a shape with experts the router
 * is bf16 whatever WEIGHTS are; rows choose by made-up logits, not by the router's, so the same of all WEIGHTS; and the bytes are those of
 * the experts that a pass chooses, whose number it prints.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "model/files/shape.h"
#include "model/ops.h"
#include "model/packed.h"

enum { LAYERS = 12, REPEATS = 4, ROWS_MAX = 1088, PAGES = 64, SLOTS = 64, CACHE_PAGES = 256 };

static const struct named_packed {
    const char *name;
    struct packed packed;
} packed_weights[] = {
    {"fp8", {.code = PACKED_FP8}},
    {"fp8-128", {.code = PACKED_FP8, .group = 128}},
    {"int4-128", {.code = PACKED_INT4, .group = 128, .has_minima = true}},
    {"int4-32", {.code = PACKED_INT4, .group = 32}},
    {"q4_k", {.code = PACKED_INT4, .group = 32, .has_minima = true}},
    {"q6_k", {.code = PACKED_INT8, .group = 16}},
    {"q8_0", {.code = PACKED_INT8, .group = 32}},
    {"mxfp4", {.code = PACKED_FP4, .group = 32}},
    {"nf4", {.code = PACKED_TABLE, .group = 32}},
    {"nvfp4", {.code = PACKED_FP4, .group = 16}},
};

enum { SHAPE_EXPERTS_MAX = 128 };

struct layer {
    struct weight norm, head_norm, wq, wk, wv, wo, gate, up, down, router;
    struct weight gates[SHAPE_EXPERTS_MAX], ups[SHAPE_EXPERTS_MAX], downs[SHAPE_EXPERTS_MAX];
    struct kv_layer kv;
};

enum which { QKV, ATTENTION, OUT, GATE_UP, DOWN, ROUTER, ROUTE, EXPERTS_UP, EXPERTS_DOWN, LOGITS, LAYER, WHICH };
static const char *const names[WHICH] = {"qkv",        "attention",    "o",      "gate_up", "down", "router", "route",
                                         "experts_up", "experts_down", "logits", "layer"};
/* Has a layer of the shape the op? */
static bool has_op(const struct model_config *c, enum which which) {
    if (which == GATE_UP || which == DOWN) return c->experts == 0;
    return which < ROUTER || which > EXPERTS_DOWN || c->experts > 0;
}

struct bench {
    struct device *device;
    struct stream *stream;
    struct event *start, *end;
    struct model_config shape;
    const struct packed *packed; /* NULL: bf16 */
    char *arena;
    size_t used, size;
    struct layer layers[LAYERS];
    struct weight head;
    float *x, *normed, *q, *kv_rows, *attended, *partials, *h, *logits, *rope, *router_logits, *scores, *chosen_weights,
        *sums;
    int32_t *tokens, *positions, *row_slot, *page_table, *chosen, *lists;
    float logits_of_rows[ROWS_MAX * SHAPE_EXPERTS_MAX]; /* [rows, experts]: what scores are */
    size_t bytes[WHICH];
};

static void *cut(struct bench *b, size_t bytes) {
    void *at = b->arena + b->used;
    b->used += (bytes + 255) / 256 * 256;
    if (b->used <= b->size) return at;
    fprintf(stderr, "cuda_ops: the arena is too small\n");
    exit(1);
}

static size_t weight_bytes(const struct bench *b, int rows, int cols) {
    return b->packed && rows > 1 ? packed_bytes(b->packed, rows, cols) : (size_t)rows * (size_t)cols * 2;
}

static struct weight plain_weight(struct bench *b, int rows, int cols) {
    return (struct weight){
        .data = cut(b, (size_t)rows * (size_t)cols * 2), .format = DTYPE_BF16, .rows = rows, .cols = cols};
}

static struct weight weight(struct bench *b, int rows, int cols) {
    if (!b->packed || rows == 1) return plain_weight(b, rows, cols);
    return (struct weight){.data = cut(b, packed_bytes(b->packed, rows, cols)),
                           .format = DTYPE_PACKED,
                           .rows = rows,
                           .cols = cols,
                           .packed = b->packed};
}

/* Random bits with exponents near 2^-6, copied over everything. */
static int fill(struct bench *b) {
    enum { WORDS = 1 << 22 };
    uint16_t *noise = malloc(WORDS * sizeof *noise);
    if (!noise) return ERR_MEMORY;
    for (int i = 0; i < WORDS; i++) noise[i] = (uint16_t)(0x3C00 | (rand() & 0x80FF));
    int rc = 0;
    for (size_t at = 0; at < b->used && rc == 0; at += WORDS * sizeof *noise) {
        size_t left = b->used - at, bytes = WORDS * sizeof *noise;
        rc = stream_copy(b->stream, b->arena + at, noise, left < bytes ? left : bytes);
    }
    if (rc == 0) rc = stream_sync(b->stream);
    free(noise);
    return rc;
}

/* Logits by which every row chooses at random. */
static int score(struct bench *b) {
    const size_t count = ROWS_MAX * (size_t)b->shape.experts;
    uint32_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u; /* Numerical Recipes' generator, whose high bits are good enough */
        b->logits_of_rows[i] = (float)(state >> 8) * 0x1p-24f;
    }
    if (count == 0) return 0;
    TRY(stream_copy(b->stream, b->scores, b->logits_of_rows, count * sizeof(float)));
    return stream_sync(b->stream);
}

/* Sequences in slots of their own, as far as there are slots, with pages of their own, as far as there are pages. */
static int prepare(struct bench *b, int position, int batch, int q_len) {
    int32_t numbers[SLOTS * PAGES] = {0};
    for (int i = 0; i < batch * q_len; i++) numbers[i] = position + i % q_len;
    TRY(stream_copy(b->stream, b->positions, numbers, ROWS_MAX * sizeof *numbers));
    TRY(stream_sync(b->stream));
    for (int i = 0; i < batch; i++) numbers[i] = i % SLOTS;
    TRY(stream_copy(b->stream, b->row_slot, numbers, ROWS_MAX * sizeof *numbers));
    TRY(stream_sync(b->stream));
    const int used = (position + q_len + KV_PAGE - 1) / KV_PAGE;
    for (int i = 0; i < SLOTS * PAGES; i++) numbers[i] = (i / PAGES * used + i % PAGES) % CACHE_PAGES;
    TRY(stream_copy(b->stream, b->page_table, numbers, sizeof numbers));
    return stream_sync(b->stream);
}

static int make(struct bench *b) {
    const struct model_config *c = &b->shape;
    int d = c->width, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    b->size = (size_t)24 << 30;
    void *arena;
    TRY(device_alloc_arena(b->device, b->size, &arena));
    b->arena = arena;
    for (int l = 0; l < LAYERS; l++) {
        struct layer *y = &b->layers[l];
        y->norm = weight(b, 1, d), y->head_norm = weight(b, 1, c->head_dim), y->wq = weight(b, q, d),
        y->wk = weight(b, kv, d), y->wv = weight(b, kv, d);
        y->wo = weight(b, d, q);
        if (c->experts == 0) {
            y->gate = weight(b, c->hidden, d), y->up = weight(b, c->hidden, d);
            y->down = weight(b, d, c->hidden);
        } else {
            y->router = plain_weight(b, c->experts, d);
            for (int e = 0; e < c->experts; e++) {
                y->gates[e] = weight(b, c->expert_hidden, d), y->ups[e] = weight(b, c->expert_hidden, d);
                y->downs[e] = weight(b, d, c->expert_hidden);
            }
        }
        size_t cache = (size_t)CACHE_PAGES * (size_t)kv * KV_PAGE * 2;
        y->kv = (struct kv_layer){cut(b, cache), cut(b, cache), DTYPE_BF16};
    }
    b->head = weight(b, c->vocab, d);
    size_t t = ROWS_MAX * sizeof(float);
    b->x = cut(b, t * (size_t)d), b->normed = cut(b, t * (size_t)d), b->q = cut(b, t * (size_t)q);
    const size_t of_row = (size_t)c->experts_chosen,
                 h = c->experts ? of_row * (size_t)c->expert_hidden : (size_t)c->hidden;
    b->kv_rows = cut(b, t * 2 * (size_t)kv), b->attended = cut(b, t * (size_t)q), b->h = cut(b, t * h);
    b->router_logits = cut(b, t * (size_t)c->experts), b->scores = cut(b, t * (size_t)c->experts);
    b->chosen_weights = cut(b, t * of_row);
    b->chosen = cut(b, t * of_row), b->sums = cut(b, t * of_row * (size_t)d);
    b->lists = cut(b, sizeof(int32_t) * EXPERT_LISTS((size_t)c->experts, ROWS_MAX * of_row));
    b->partials = cut(b, t * (size_t)c->heads * ATTENTION_PARTS * ((size_t)c->head_dim + 2));
    b->logits = cut(b, 192 * sizeof(float) * (size_t)c->vocab);
    b->rope = cut(b, (size_t)PAGES * KV_PAGE * (size_t)c->head_dim * sizeof(float));
    b->tokens = cut(b, t), b->positions = cut(b, t), b->row_slot = cut(b, t);
    b->page_table = cut(b, SLOTS * PAGES * sizeof *b->page_table);
    b->bytes[QKV] = weight_bytes(b, q, d) + 2 * weight_bytes(b, kv, d), b->bytes[OUT] = weight_bytes(b, d, q);
    b->bytes[GATE_UP] = 2 * weight_bytes(b, c->hidden, d), b->bytes[DOWN] = weight_bytes(b, d, c->hidden);
    b->bytes[LOGITS] = weight_bytes(b, c->vocab, d);
    b->bytes[ROUTER] = (size_t)c->experts * (size_t)d * 2;
    const size_t weights = b->used;
    TRY(stream_set_workspace(b->stream, cut(b, WORKSPACE_BYTES), WORKSPACE_BYTES));
    b->used = weights;
    TRY(fill(b));
    return score(b);
}

/* How many experts the first rows choose together. */
static int count_chosen(const struct bench *b, int rows) {
    const struct model_config *c = &b->shape;
    bool is_chosen[SHAPE_EXPERTS_MAX] = {0};
    int count = 0;
    for (int row = 0; row < rows; row++) {
        const float *its = b->logits_of_rows + (size_t)row * (size_t)c->experts;
        for (int e = 0; e < c->experts; e++) {
            int better = 0;
            for (int other = 0; other < c->experts; other++) better += its[other] > its[e];
            if (better >= c->experts_chosen || is_chosen[e]) continue;
            is_chosen[e] = true, count++;
        }
    }
    return count;
}

/* The bytes of what a pass reads of a layer with experts, of which it chooses so many; those of its other ops are there. */
static void count_bytes(struct bench *b, int experts) {
    const struct model_config *c = &b->shape;
    b->bytes[EXPERTS_DOWN] = (size_t)experts * weight_bytes(b, c->width, c->expert_hidden);
    b->bytes[EXPERTS_UP] = 2 * b->bytes[EXPERTS_DOWN];
    b->bytes[LAYER] = 0;
    for (enum which i = QKV; i <= EXPERTS_DOWN; i++)
        if (has_op(c, i)) b->bytes[LAYER] += b->bytes[i];
}

/* Of one kind, each as far behind the one before. */
static struct experts of_experts(const struct weight *each) {
    const int64_t bytes = (const char *)each[1].data - (const char *)each[0].data;
    return (struct experts){each, each->packed ? bytes : bytes / 2};
}

static int run_expert_op(struct bench *b, enum which which, const struct layer *y, struct rows rows,
                         const struct norm *norm) {
    const struct ops *ops = ops_cuda();
    const struct model_config *c = &b->shape;
    const struct buffer normed = {b->normed, DTYPE_BF16}, h = {b->h, DTYPE_BF16};
    const struct op_route route = {.rows = rows,
                                   .logits = b->scores,
                                   .experts = c->experts,
                                   .chosen = c->experts_chosen,
                                   .renormalise = true,
                                   .scale = 1,
                                   .ids = b->chosen,
                                   .weights = b->chosen_weights,
                                   .is_told = true};
    switch (which) {
    case ROUTER:
        return ops->logits(b->stream, &(struct op_logits){.rows = rows,
                                                          .x = b->x,
                                                          .norm = *norm,
                                                          .w = y->router,
                                                          .scale = 1,
                                                          .width = c->width,
                                                          .vocab = c->experts,
                                                          .normed = normed,
                                                          .logits = b->router_logits});
    case ROUTE:
        return ops->route(b->stream, &route);
    case EXPERTS_UP:
        return ops->experts_up(b->stream, &(struct op_experts_up){.rows = rows,
                                                                  .x = b->x,
                                                                  .norm = *norm,
                                                                  .gate = of_experts(y->gates),
                                                                  .up = of_experts(y->ups),
                                                                  .width = c->width,
                                                                  .hidden = c->expert_hidden,
                                                                  .experts = c->experts,
                                                                  .chosen = c->experts_chosen,
                                                                  .ids = b->chosen,
                                                                  .route = route,
                                                                  .lists = b->lists,
                                                                  .normed = normed,
                                                                  .h = h});
    default:
        return ops->experts_down(b->stream, &(struct op_experts_down){.rows = rows,
                                                                      .h = h,
                                                                      .down = of_experts(y->downs),
                                                                      .ids = b->chosen,
                                                                      .weights = b->chosen_weights,
                                                                      .route = route,
                                                                      .lists = b->lists,
                                                                      .sums = b->sums,
                                                                      .width = c->width,
                                                                      .hidden = c->expert_hidden,
                                                                      .experts = c->experts,
                                                                      .chosen = c->experts_chosen,
                                                                      .x = b->x});
    }
}

static int run_op(struct bench *b, enum which which, int layer, struct rows rows) {
    const struct ops *ops = ops_cuda();
    const struct model_config *c = &b->shape;
    const struct layer *y = &b->layers[layer];
    const struct norm norm = {.kind = NORM_RMS, .weight = y->norm, .eps = 1e-5f},
                      of_heads = {.kind = c->qk_norm ? NORM_RMS : NORM_NONE, .weight = y->head_norm, .eps = 1e-5f};
    const struct buffer normed = {b->normed, DTYPE_BF16}, attended = {b->attended, DTYPE_BF16}, h = {b->h, DTYPE_BF16};
    switch (which) {
    case QKV:
        return ops->qkv(b->stream,
                        &(struct op_qkv){.rows = rows,
                                         .x = b->x,
                                         .norm = norm,
                                         .q_norm = of_heads,
                                         .k_norm = of_heads,
                                         .wq = y->wq,
                                         .wk = y->wk,
                                         .wv = y->wv,
                                         .rope = {.table = b->rope, .positions = PAGES * KV_PAGE, .dims = c->head_dim},
                                         .width = c->width,
                                         .heads = c->heads,
                                         .kv_heads = c->kv_heads,
                                         .head_dim = c->head_dim,
                                         .kv = y->kv,
                                         .normed = normed,
                                         .q = b->q,
                                         .kv_rows = b->kv_rows});
    case ATTENTION:
        return ops->attention(b->stream, &(struct op_attention){.rows = rows,
                                                                .q = b->q,
                                                                .kv = y->kv,
                                                                .out = attended,
                                                                .partials = b->partials,
                                                                .scale = 0.088f,
                                                                .heads = c->heads,
                                                                .kv_heads = c->kv_heads,
                                                                .head_dim = c->head_dim,
                                                                .reader = y->wo});
    case OUT:
        return ops->project(
            b->stream,
            &(struct op_project){.rows = rows, .h = attended, .h_is_for_w = true, .w = y->wo, .scale = 1, .x = b->x});
    case GATE_UP:
        return ops->gate_up(b->stream, &(struct op_gate_up){.rows = rows,
                                                            .x = b->x,
                                                            .norm = norm,
                                                            .gate = y->gate,
                                                            .up = y->up,
                                                            .width = c->width,
                                                            .hidden = c->hidden,
                                                            .normed = normed,
                                                            .h = h,
                                                            .reader = y->down});
    case DOWN:
        return ops->project(
            b->stream,
            &(struct op_project){.rows = rows, .h = h, .h_is_for_w = true, .w = y->down, .scale = 1, .x = b->x});
    case LOGITS:
        return ops->logits(b->stream, &(struct op_logits){.rows = rows,
                                                          .x = b->x,
                                                          .norm = norm,
                                                          .w = b->head,
                                                          .scale = 1,
                                                          .width = c->width,
                                                          .vocab = c->vocab,
                                                          .normed = normed,
                                                          .logits = b->logits});
    case ROUTER:
    case ROUTE:
    case EXPERTS_UP:
    case EXPERTS_DOWN:
        return run_expert_op(b, which, y, rows, &norm);
    default:
        for (enum which i = QKV; i <= EXPERTS_DOWN; i++)
            if (has_op(c, i)) TRY(run_op(b, i, layer, rows));
        return 0;
    }
}

/* Best of REPEATS replays of a graph of all layers' op, per op. */
static int time_op(struct bench *b, enum which which, struct rows rows, float *us) {
    struct recording *graph;
    TRY(run_op(b, which, 0, rows));
    TRY(stream_sync(b->stream));
    TRY(stream_begin_capture(b->stream));
    for (int l = 0; l < LAYERS; l++) TRY(run_op(b, which, l, rows));
    TRY(stream_end_capture(b->stream, &graph));
    *us = 1e30f;
    for (int i = 0; i < REPEATS; i++) {
        float ms;
        TRY(event_record(b->start, b->stream));
        TRY(recording_launch(graph, b->stream));
        TRY(event_record(b->end, b->stream));
        TRY(event_wait(b->end));
        TRY(event_elapsed_ms(b->start, b->end, &ms));
        if (ms * 1e3f / LAYERS < *us) *us = ms * 1e3f / LAYERS;
    }
    recording_destroy(graph);
    return 0;
}

static int run(struct bench *b, int position, int batch, int q_len) {
    const int m = batch * q_len;
    struct rows rows = {.batch = batch,
                        .q_len = q_len,
                        .tokens = b->tokens,
                        .positions = b->positions,
                        .row_slot = b->row_slot,
                        .page_table = b->page_table,
                        .pages_per_slot = PAGES};
    TRY(prepare(b, position, batch, q_len));
    const int experts = count_chosen(b, m);
    count_bytes(b, experts);
    printf("%3d x %-4d", batch, q_len);
    if (experts > 0) printf("  experts %d", experts);
    for (enum which i = QKV; i < WHICH; i++) {
        float us = 0;
        if ((i == LOGITS && m > 192) || !has_op(&b->shape, i)) continue;
        TRY(time_op(b, i, rows, &us));
        const size_t bytes = b->bytes[i];
        printf("  %s %.1f", names[i], (double)us);
        if (bytes) printf(" (%.0f)", (double)bytes / (double)us / 1e3);
    }
    printf("\n");
    fflush(stdout);
    return 0;
}

/* "M" or "BxQ" */
static int run_named(struct bench *b, int position, const char *pass) {
    int first = 0, second = 0, fields = sscanf(pass, "%dx%d", &first, &second);
    int batch = fields == 2 ? first : 1, q_len = fields == 2 ? second : first;
    if (batch < 1 || q_len < 1 || batch > ROWS_MAX || q_len > ROWS_MAX / batch)
        return err_set(ERR_USAGE, "pass '%s' is not M or BxQ of up to %d rows", pass, ROWS_MAX);
    return run(b, position, batch, q_len);
}

/* "SHAPE" or "SHAPE:WEIGHTS" */
static int choose_shape(struct bench *b, char *shape) {
    char *weights = strchr(shape, ':');
    if (weights) *weights++ = 0;
    for (size_t i = 0; weights && i < sizeof packed_weights / sizeof *packed_weights; i++)
        if (strcmp(weights, packed_weights[i].name) == 0) b->packed = &packed_weights[i].packed;
    if (weights && !b->packed) return err_set(ERR_USAGE, "weights '%s' are unknown", weights);
    TRY(model_shape_load(&b->shape, shape));
    if (b->shape.experts > SHAPE_EXPERTS_MAX)
        return err_set(ERR_USAGE, "shape '%s' has %d experts, more than the %d that are timed", shape, b->shape.experts,
                       SHAPE_EXPERTS_MAX);
    return 0;
}

int main(int argc, char **argv) {
    static struct bench b;
    static char usual_shape[] = "llama-3.1-8b";
    const int usual[] = {1, 2, 6, 8, 16, 17, 32, 48, 64, 96, 128, 192};
    int position = argc > 2 ? atoi(argv[2]) : 256, rc = choose_shape(&b, argc > 1 ? argv[1] : usual_shape);
    if (rc == 0) rc = device_open(&b.device, "cuda", NULL);
    if (rc == 0) rc = stream_create(b.device, &b.stream);
    if (rc == 0) rc = event_create(b.device, &b.start);
    if (rc == 0) rc = event_create(b.device, &b.end);
    if (rc == 0) rc = make(&b);
    if (rc == 0) printf("us (GB/s of weights) an op; %s\n", device_name(b.device));
    for (size_t i = 0; rc == 0 && i < (argc > 3 ? (size_t)argc - 3 : sizeof usual / sizeof *usual); i++)
        rc = argc > 3 ? run_named(&b, position, argv[3 + i]) : run(&b, position, 1, usual[i]);
    if (rc != 0) fprintf(stderr, "cuda_ops: %s\n", err_message());
    return rc != 0;
}
