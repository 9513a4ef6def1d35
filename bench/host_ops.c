/* Times the host ops on the shapes of SmolLM2-135M with made-up weights (bf16: 269 MB), against the memory's read
 * bandwidth measured in the same run. Best of several passes, since other programs may run. FORMAT is bf16, fp8, int4, fp4, nf4,
 * q8_0, q4_0, q4_1 or q5_0, of matrices; scales are one for 32 columns, of fp8 one for a row.
 *
 *   make build/host-release/bench/host_ops && build/host-release/bench/host_ops [THREADS [ISA [CONTEXT [FORMAT]]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/parallel.h"
#include "model/kernels/host/isa.h"

enum { D = 576, F = 1536, H = 9, HKV = 3, DH = 64, L = 30, V = 49152, T_MAX = 256, CONTEXT_MAX = 8192 };

struct layer {
    struct weight norm, wq, wk, wv, wo, post_norm, gate, up, down;
    struct kv_layer kv;
};

struct bench {
    struct device *device;
    struct stream *stream;
    struct layer layers[L];
    struct weight embedding, final_norm;
    float *x, *normed, *q, *kv_rows, *attended, *h, *logits, *rope;
    int32_t *tokens, *positions, *row_slot, *page_table;
    enum dtype format;
    int64_t weights, weight_bytes;
};

static void *must(void *p) {
    if (!p) abort();
    return p;
}

static float *floats(size_t n) {
    return must(calloc(n, sizeof(float)));
}

static struct weight random_quantised(struct bench *b, int rows, int cols) {
    static const float values[16] = {-1,   -0.7f, -0.5f, -0.4f, -0.3f, -0.2f, -0.1f, 0,
                                     0.1f, 0.2f,  0.3f,  0.4f,  0.5f,  0.6f,  0.7f,  1};
    const int group = b->format == DTYPE_FP8 ? cols : 32;
    const size_t n = (size_t)dtype_span_bytes(b->format, (int64_t)rows * cols),
                 cells = (size_t)rows * (size_t)(cols / group);
    unsigned char *data = must(malloc(n));
    uint16_t *scales = must(malloc(cells * sizeof *scales));
    struct scales *s = must(malloc(sizeof *s));
    for (size_t i = 0; i < n; i++) data[i] = (unsigned char)(rand() & 0xF7);
    for (size_t i = 0; i < cells; i++) scales[i] = 0x1800; /* f16: 2^-9 */
    *s = (struct scales){.data = scales,
                         .type = DTYPE_F16,
                         .rows = 1,
                         .group = group,
                         .stride = cols / group,
                         .factor = 1,
                         .values = values};
    b->weight_bytes += (int64_t)(n + cells * sizeof *scales);
    return (struct weight){.data = data, .format = b->format, .rows = rows, .cols = cols, .scales = s};
}

static struct weight random_blocks(struct bench *b, int rows, int cols) {
    const struct dtype_block block = dtype_block(b->format);
    const size_t n = (size_t)dtype_span_bytes(b->format, (int64_t)rows * cols), bytes = (size_t)block.bytes;
    const uint16_t scale = 0x1800; /* f16: 2^-9 */
    unsigned char *data = must(malloc(n));
    for (size_t i = 0; i < n; i++) data[i] = (unsigned char)(rand() & 0xB7);
    for (size_t at = 0; at < n; at += bytes) memcpy(data + at, &scale, sizeof scale);
    b->weight_bytes += (int64_t)n;
    return (struct weight){.data = data, .format = b->format, .rows = rows, .cols = cols};
}

static struct weight random_weight(struct bench *b, int rows, int cols) {
    b->weights += (int64_t)rows * cols;
    if (rows > 1 && dtype_block(b->format).numbers == 32) return random_blocks(b, rows, cols);
    if (rows > 1 && dtype_is_quantised(b->format)) return random_quantised(b, rows, cols);
    size_t n = (size_t)rows * (size_t)cols;
    uint16_t *data = must(malloc(n * sizeof *data));
    for (size_t i = 0; i < n; i++) data[i] = (uint16_t)(0x3C00 | (rand() & 0x80FF)); /* +-[2^-7, 2^-5) */
    b->weight_bytes += (int64_t)(n * sizeof *data);
    return (struct weight){.data = data, .format = DTYPE_BF16, .rows = rows, .cols = cols};
}

static void make_model(struct bench *b) {
    for (int l = 0; l < L; l++) {
        struct layer *y = &b->layers[l];
        y->norm = random_weight(b, 1, D), y->post_norm = random_weight(b, 1, D);
        y->wq = random_weight(b, H * DH, D), y->wk = random_weight(b, HKV * DH, D);
        y->wv = random_weight(b, HKV * DH, D), y->wo = random_weight(b, D, H * DH);
        y->gate = random_weight(b, F, D), y->up = random_weight(b, F, D), y->down = random_weight(b, D, F);
        size_t cache = (size_t)(CONTEXT_MAX / KV_PAGE + 1) * HKV * KV_PAGE * DH;
        y->kv.k = floats(cache), y->kv.v = floats(cache);
    }
    b->embedding = random_weight(b, V, D), b->final_norm = random_weight(b, 1, D);
    b->x = floats(T_MAX * D), b->normed = floats(T_MAX * D), b->q = floats(T_MAX * H * DH);
    b->kv_rows = floats(T_MAX * 2 * HKV * DH), b->attended = floats(T_MAX * H * DH);
    b->h = floats(T_MAX * F), b->logits = floats((size_t)T_MAX * V), b->rope = floats(CONTEXT_MAX * DH);
    b->tokens = (int32_t *)floats(T_MAX), b->positions = (int32_t *)floats(T_MAX);
    b->row_slot = (int32_t *)floats(1), b->page_table = (int32_t *)floats(CONTEXT_MAX / KV_PAGE);
    for (int i = 0; i < CONTEXT_MAX / KV_PAGE; i++) b->page_table[i] = i + 1;
}

static struct norm norm_by(struct weight weight) {
    return (struct norm){.kind = NORM_RMS, .weight = weight, .eps = 1e-5f};
}

static struct buffer f32(float *data) {
    return (struct buffer){data, DTYPE_F32};
}

static int layer_ops(struct bench *b, const struct ops *ops, const struct layer *y, struct rows rows) {
    struct op_qkv qkv = {.rows = rows,
                         .x = b->x,
                         .norm = norm_by(y->norm),
                         .wq = y->wq,
                         .wk = y->wk,
                         .wv = y->wv,
                         .rope = {.table = b->rope, .positions = CONTEXT_MAX, .dims = DH},
                         .width = D,
                         .heads = H,
                         .kv_heads = HKV,
                         .head_dim = DH,
                         .kv = y->kv,
                         .normed = f32(b->normed),
                         .q = b->q,
                         .kv_rows = b->kv_rows};
    struct op_attention attention = {.rows = rows,
                                     .q = b->q,
                                     .kv = y->kv,
                                     .out = f32(b->attended),
                                     .scale = 0.125f,
                                     .heads = H,
                                     .kv_heads = HKV,
                                     .head_dim = DH};
    struct op_project o = {.rows = rows, .h = f32(b->attended), .w = y->wo, .scale = 1, .x = b->x};
    struct op_gate_up mlp = {.rows = rows,
                             .x = b->x,
                             .norm = norm_by(y->post_norm),
                             .gate = y->gate,
                             .up = y->up,
                             .width = D,
                             .hidden = F,
                             .normed = f32(b->normed),
                             .h = f32(b->h)};
    struct op_project down = {.rows = rows, .h = f32(b->h), .w = y->down, .scale = 1, .x = b->x};
    TRY(ops->qkv(b->stream, &qkv));
    TRY(ops->attention(b->stream, &attention));
    TRY(ops->project(b->stream, &o));
    TRY(ops->gate_up(b->stream, &mlp));
    return ops->project(b->stream, &down);
}

static int forward(struct bench *b, int tokens, int context, int with_logits) {
    const struct ops *ops = ops_host();
    struct rows rows = {.batch = 1,
                        .q_len = tokens,
                        .tokens = b->tokens,
                        .positions = b->positions,
                        .row_slot = b->row_slot,
                        .page_table = b->page_table,
                        .pages_per_slot = CONTEXT_MAX / KV_PAGE};
    for (int t = 0; t < tokens; t++) b->positions[t] = context + t, b->tokens[t] = t * 31 + 7;
    TRY(ops->embed(b->stream, &(struct op_embed){.rows = rows, .table = b->embedding, .scale = 1, .out = b->x}));
    for (int l = 0; l < L; l++) TRY(layer_ops(b, ops, &b->layers[l], rows));
    struct op_logits head = {.rows = rows,
                             .x = b->x,
                             .norm = norm_by(b->final_norm),
                             .w = b->embedding,
                             .scale = 1,
                             .width = D,
                             .vocab = V,
                             .normed = f32(b->normed),
                             .logits = b->logits};
    return with_logits ? ops->logits(b->stream, &head) : 0;
}

struct reading {
    const uint64_t *data;
    size_t blocks; /* of BLOCK words */
    uint64_t sums[1024];
};

static void read_part(const void *context, int part, int parts) {
    enum { BLOCK = 4096 };
    struct reading *r = *(struct reading *const *)context;
    struct range mine = parallel_range((int)r->blocks, part, parts);
    uint64_t sums[16] = {0};
    const uint64_t *end = r->data + (size_t)mine.end * BLOCK;
    for (const uint64_t *p = r->data + (size_t)mine.first * BLOCK; p < end; p += 16)
        for (int j = 0; j < 16; j++) sums[j] += p[j];
    for (int j = 0; j < 16; j++) r->sums[part % 1024] += sums[j];
}

/* Best of several reads of 512 MiB, in GB/s. */
static double read_bandwidth(int threads) {
    const size_t n = (size_t)64 << 20;
    uint64_t *data = must(malloc(n * sizeof *data)), total = 0;
    memset(data, 1, n * sizeof *data);
    struct reading reading = {.data = data, .blocks = n / 4096}, *r = &reading;
    double best = 0;
    for (int repeat = 0; repeat < 12; repeat++) {
        int64_t start = clock_us();
        parallel_run(threads, INT64_MAX, read_part, &r);
        double rate = (double)(n * sizeof *data) / (double)(clock_us() - start) / 1e3;
        best = rate > best ? rate : best;
    }
    for (int i = 0; i < 1024; i++) total += reading.sums[i];
    if (total == 1) puts("");
    free(data);
    return best;
}

/* One thread counts its own time, which other programs do not lengthen. */
static int64_t now_us(const struct bench *b) {
    return device_threads(b->device) == 1 ? clock_thread_us() : clock_us();
}

static int run(struct bench *b, int context) {
    const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 32, 64, 256};
    double bandwidth = read_bandwidth(device_threads(b->device));
    printf("%s, %s, context %d, weights %.1f MB, read bandwidth %.1f GB/s\n", device_name(b->device), host_isa()->name,
           context, (double)b->weight_bytes / 1e6, bandwidth);
    double one = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t best = INT64_MAX, spent = 0;
        for (int repeat = 0; repeat < 40 && (repeat < 3 || spent < 1500000); repeat++) {
            int64_t start = now_us(b);
            TRY(forward(b, sizes[i], context, 1));
            int64_t took = now_us(b) - start;
            spent += took;
            best = took < best ? took : best;
        }
        double rate = (double)b->weight_bytes / (double)best / 1e3;
        one = i == 0 ? (double)best : one;
        printf("T %3d  %8.2f ms  %5.2f of one row  %5.1f GB/s (%3.0f %%)  %6.1f GFLOP/s\n", sizes[i],
               (double)best / 1e3, (double)best / one, rate, 100 * rate / bandwidth,
               2 * (double)b->weights * sizes[i] / (double)best / 1e3);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv) {
    static struct bench b;
    struct device_options options = {.threads = argc > 1 ? atoi(argv[1]) : 0};
    for (int i = 0; argc > 2 && host_isa_at(i); i++)
        if (strcmp(host_isa_at(i)->name, argv[2]) == 0) host_isa_force(host_isa_at(i));
    static const char *const names[] = {
        [DTYPE_BF16] = "bf16", [DTYPE_FP8] = "fp8",   [DTYPE_INT4] = "int4", [DTYPE_FP4] = "fp4",  [DTYPE_NF4] = "nf4",
        [DTYPE_Q8_0] = "q8_0", [DTYPE_Q4_0] = "q4_0", [DTYPE_Q4_1] = "q4_1", [DTYPE_Q5_0] = "q5_0"};
    b.format = DTYPE_BF16;
    for (int i = 0; argc > 4 && i < (int)(sizeof names / sizeof *names); i++)
        if (names[i] && strcmp(names[i], argv[4]) == 0) b.format = (enum dtype)i;
    make_model(&b);
    if (device_open(&b.device, "host", &options) || stream_create(b.device, &b.stream) ||
        run(&b, argc > 3 ? atoi(argv[3]) : 0)) {
        fprintf(stderr, "host_ops: %s\n", err_message());
        return 1;
    }
    return 0;
}
