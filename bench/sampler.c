/* Times draws and acceptance on made-up logits, as rounds do them: best of several times.
 *
 *   make build/cuda-release/bench/sampler && build/cuda-release/bench/sampler [DEVICE [VOCABULARY [K]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "verify/verify.h"

enum { BATCH_MAX = 64, TIMES = 5 };

struct bench {
    struct device *device;
    struct stream *stream;
    struct pool *pool;
    struct event *start, *end;
    struct round_state b;
    struct sampler sampler;
    struct verify verify;
    struct slot slots[BATCH_MAX + 1];
    int32_t row_slot[BATCH_MAX];
    float *logits; /* [BATCH_MAX, K + 1, V] */
};

static void must(int rc) {
    if (rc == 0) return;
    fprintf(stderr, "%s\n", err_message());
    exit(1);
}

static void layout(struct bench *x, struct pool *pool) {
    must(round_layout(&x->b, pool));
    must(sampler_layout(&x->sampler, x->device, &x->b, pool));
    must(verify_layout(&x->verify, x->device, &x->b, pool));
}

static void create_buffers(struct bench *x, int vocab, int k) {
    struct pool *plan;
    x->b = (struct round_state){.slots = BATCH_MAX + 1,
                                .max_batch = BATCH_MAX,
                                .k_max = k,
                                .vocab_target = vocab,
                                .vocab_draft = vocab,
                                .target_stride = vocab,
                                .draft_stride = vocab,
                                .draft_positions = 1 << 20};
    must(pool_create_plan(&plan));
    layout(x, plan);
    must(pool_create(x->device, pool_used(plan), &x->pool));
    layout(x, x->pool);
    pool_destroy(plan);
}

/* Logits of a language model's kind: a few likely ids above many unlikely ones. */
static void fill_logits(struct bench *x) {
    size_t n = (size_t)BATCH_MAX * (size_t)(x->b.k_max + 1) * (size_t)x->b.vocab_target;
    x->logits = malloc(n * sizeof *x->logits);
    if (!x->logits) exit(1);
    srand(1);
    for (size_t i = 0; i < n; i++) {
        float u = (float)rand() / (float)RAND_MAX, v = (float)rand() / (float)RAND_MAX;
        x->logits[i] = 6 * (u + v) + (rand() % 4096 == 0 ? 12 * u : 0);
    }
    size_t drafted = (size_t)BATCH_MAX * (size_t)x->b.vocab_draft;
    must(stream_copy(x->stream, x->b.target_logits, x->logits, n * sizeof *x->logits));
    must(stream_copy(x->stream, x->b.draft_logits, x->logits, drafted * sizeof *x->logits));
}

static void reset_slots(struct bench *x, struct sampling how) {
    for (int i = 0; i <= BATCH_MAX; i++)
        x->slots[i] = (struct slot){.length = 10,
                                    .limit = 1 << 20,
                                    .status = i > 0 ? SLOT_LIVE : SLOT_IDLE,
                                    .sampling = how,
                                    .key = (uint64_t)i};
    for (int i = 0; i < BATCH_MAX; i++) x->row_slot[i] = i + 1;
    must(stream_copy(x->stream, x->b.slot, x->slots, sizeof x->slots));
    must(stream_copy(x->stream, x->b.row_slot, x->row_slot, sizeof x->row_slot));
    must(stream_sync(x->stream));
}

/* Microseconds of one draw (index >= 0) or acceptance. */
static double time_launch(struct bench *x, int batch, int k, int index) {
    const int launches = device_is_async(x->device) ? 20 : 1;
    double best = 1e30;
    for (int i = 0; i < TIMES; i++) {
        float ms;
        must(event_record(x->start, x->stream));
        for (int j = 0; j < launches; j++)
            must(index >= 0 ? sampler_draw(x->stream, &(struct sampler_draw){x->b, x->sampler, batch, index})
                            : verify_accept(x->stream, &(struct verify_accept){x->b, x->sampler, x->verify, batch, k}));
        must(event_record(x->end, x->stream));
        must(event_wait(x->end));
        must(event_elapsed_ms(x->start, x->end, &ms));
        if (ms * 1000.0 / launches < best) best = ms * 1000.0 / launches;
    }
    return best;
}

static void time_all(struct bench *x, const char *name, struct sampling how, int k) {
    static const int batches[] = {1, 4, 16, 32, 64};
    for (int i = 0; i < 5; i++) {
        reset_slots(x, how);
        double plain = time_launch(x, batches[i], 0, -1);
        reset_slots(x, how);
        double draw = time_launch(x, batches[i], k, 0);
        for (int j = 1; j < k; j++)
            must(sampler_draw(x->stream, &(struct sampler_draw){x->b, x->sampler, batches[i], j}));
        double accept = time_launch(x, batches[i], k, -1);
        printf("%-22s %5d %10.1f %10.1f %10.1f\n", name, batches[i], draw, accept, plain);
    }
}

int main(int argc, char **argv) {
    static struct bench x;
    int vocab = argc > 2 ? atoi(argv[2]) : 128256, k = argc > 3 ? atoi(argv[3]) : 5;
    must(device_open(&x.device, argc > 1 ? argv[1] : "auto", &(struct device_options){0}));
    must(stream_create(x.device, &x.stream));
    must(event_create(x.device, &x.start));
    must(event_create(x.device, &x.end));
    create_buffers(&x, vocab, k);
    fill_logits(&x);
    printf("%s, %d ids, us\n%-22s %5s %10s %7s%3d %10s\n", device_name(x.device), vocab, "", "batch", "draw", "accept",
           k, "accept 0");
    time_all(&x, "T 0", (struct sampling){.top_p = 1}, k);
    time_all(&x, "T 0.8", (struct sampling){.temperature = 0.8f, .top_p = 1}, k);
    time_all(&x, "T 0.8 top-p 0.95", (struct sampling){.temperature = 0.8f, .top_p = 0.95f}, k);
    time_all(&x, "T 0.8 top-k 40 top-p", (struct sampling){.temperature = 0.8f, .top_p = 0.95f, .top_k = 40}, k);
    free(x.logits);
    event_destroy(x.start), event_destroy(x.end);
    pool_destroy(x.pool);
    stream_destroy(x.stream);
    device_close(x.device);
    return 0;
}
