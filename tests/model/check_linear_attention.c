/* Linear attention, by the gated delta rule and by Mamba 2's, and short convolutions: their numbers against plain double precision; and that
 * whatever speculation makes of a sequence's positions leaves no trace: drafted and rejected rows, rounds that the host takes back, prompts in
 * pieces, neighbours, padding. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/pool.h"
#include "model/ops.h"
#include "tests/support/ops_lab.h"
#include "tests/support/support.h"

enum { POSITIONS = 60, SLOTS = 4, K_MAX = 4, ROWS_MAX = 64, BATCH_MAX = 3 };

struct shape {
    int key_heads, value_heads, key_dim, value_dim, taps;
    enum { PLAIN, BY_HEAD, TILED, MAMBA, NO_STATE } order; /* of projections; of TILED a_log is a rate */
};
/* Of some a GPU gives a head to one block or to several, by the rows. */
static const struct shape shapes[] = {
    {2, 4, 16, 8, 4, PLAIN},    {1, 3, 48, 24, 3, BY_HEAD},  {2, 2, 128, 128, 4, PLAIN}, {3, 6, 8, 16, 2, BY_HEAD},
    {1, 1, 32, 40, 1, PLAIN},   {2, 6, 16, 24, 4, TILED},    {24, 48, 8, 32, 4, TILED},  {3, 3, 8, 16, 4, TILED},
    {24, 48, 8, 32, 4, PLAIN},  {1, 6, 128, 64, 4, MAMBA},   {2, 4, 16, 8, 3, MAMBA},    {2, 6, 32, 80, 4, MAMBA},
    {1, 1, 0, 24, 3, NO_STATE}, {1, 1, 0, 200, 4, NO_STATE}, {1, 1, 0, 256, 1, NO_STATE}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct world {
    struct lab lab; /* of the host: what is made up */
    struct device *device;
    struct stream *stream;
    struct pool *pool;
    int slices;
    struct op_steps steps;
    struct op_linear_attention op; /* without a state what a short convolution needs of it */
    bool has_state;
    int stride, width;
    float *truth, *wrong; /* [POSITIONS, stride] */
    int32_t *row_slot;    /* device */
    float conv[8192], conv_bias[2048], a_log[64], dt_bias[64], skip[64], norm[RECURRENT_DIM_MAX]; /* decoded */
};

/* --- the world ------------------------------------------------------------------------------------------------ */

static void *upload(struct world *w, const void *from, size_t bytes) {
    char name[POOL_NAME_MAX];
    void *to;
    snprintf(name, sizeof name, "test %d", w->slices++);
    ck_ok(pool_slice(w->pool, POOL_SCRATCH, name, bytes, &to));
    if (from) ck_ok(stream_copy(w->stream, to, from, bytes));
    ck_ok(stream_sync(w->stream));
    return to;
}

static struct weight make_weight(struct world *w, int rows, int cols, enum dtype format, float *decoded) {
    struct weight made = lab_weight(&w->lab, rows, cols, format, 1);
    for (int i = 0; i < rows * cols; i++) decoded[i] = (float)lab_weight_at(&made, i / cols, i % cols);
    made.data = upload(w, made.data, (size_t)(rows * cols * dtype_bytes(format)));
    return made;
}

/* Projections side by side, or of each key head all together; value heads of a key head side by side, or in tiles. */
static void place_heads(struct world *w, const struct shape *s) {
    const int share = s->value_heads / s->key_heads, dim = s->value_dim, value = share * dim,
              keys = s->key_heads * s->key_dim, values = s->key_heads * value,
              group = 2 * (s->key_dim + value) + 2 * share, all = 2 * (keys + values);
    const bool is_tiled = s->order == TILED;
    const int apart = is_tiled ? 1 : share, each = is_tiled ? s->key_heads : 1;
    struct op_linear_attention *op = &w->op;
    w->stride = s->key_heads * group;
    if (!w->has_state) w->stride = 3 * dim;
    op->is_tiled = op->is_rate = is_tiled;
    op->conv_k = keys, op->conv_v = 2 * keys;
    if (s->order == MAMBA) { /* the gate, x, B, C, steps */
        op->rule = RULE_DECAY;
        op->z = op->v = (struct heads_at){0, value, dim}, op->v.first = values;
        op->k = op->q = (struct heads_at){2 * values, s->key_dim, 0}, op->q.first += keys;
        op->a = op->b = (struct heads_at){all, share, 1};
        op->conv_v = 0, op->conv_k = values, op->conv_q = values + keys;
        w->stride = all + s->value_heads;
        return;
    }
    if (s->order == BY_HEAD) {
        op->q = (struct heads_at){0, group, 0}, op->k = (struct heads_at){s->key_dim, group, 0};
        op->v = (struct heads_at){2 * s->key_dim, group, dim};
        op->z = (struct heads_at){2 * s->key_dim + value, group, dim};
        op->b = (struct heads_at){group - 2 * share, group, 1}, op->a = (struct heads_at){group - share, group, 1};
        return;
    }
    op->q = (struct heads_at){0, s->key_dim, 0}, op->k = (struct heads_at){keys, s->key_dim, 0};
    op->v = (struct heads_at){2 * keys, apart * dim, each * dim};
    op->z = (struct heads_at){2 * keys + values, apart * dim, each * dim};
    op->b = (struct heads_at){all, apart, each}, op->a = (struct heads_at){all + s->value_heads, apart, each};
}

static void open_world(struct world *w, const struct shape *s) {
    memset(w, 0, sizeof *w);
    lab_open(&w->lab, 1);
    ck_ok(device_open(&w->device, test_device(), &(struct device_options){.threads = 2}));
    ck_ok(stream_create(w->device, &w->stream));
    ck_ok(pool_create(w->device, 16 << 20, &w->pool));
    const int channels = 2 * s->key_heads * s->key_dim + s->value_heads * s->value_dim;
    struct op_linear_attention *op = &w->op;
    op->key_heads = s->key_heads, op->value_heads = s->value_heads, op->key_dim = s->key_dim,
    op->value_dim = s->value_dim;
    w->has_state = s->order != NO_STATE;
    place_heads(w, s);
    w->width = s->value_heads * s->value_dim;
    ck_assert_int_le(channels * s->taps, (int)(sizeof w->conv / sizeof *w->conv));
    op->conv = make_weight(w, channels, s->taps, DTYPE_BF16, w->conv);
    op->a_log = make_weight(w, 1, s->value_heads, DTYPE_F32, w->a_log);
    for (int i = 0; op->is_rate && i < s->value_heads; i++) w->a_log[i] = -fabsf(w->a_log[i]); /* states decay */
    if (op->is_rate) op->a_log.data = upload(w, w->a_log, (size_t)s->value_heads * sizeof *w->a_log);
    op->dt_bias = make_weight(w, 1, s->value_heads, DTYPE_F16, w->dt_bias);
    if (s->order == MAMBA) {
        op->conv_bias = make_weight(w, 1, channels, DTYPE_F32, w->conv_bias);
        op->skip = make_weight(w, 1, s->value_heads, DTYPE_BF16, w->skip);
    } else if (w->has_state) {
        op->norm = (struct norm){.kind = NORM_RMS, .eps = 1e-6f};
        op->norm.weight = make_weight(w, 1, s->value_dim, DTYPE_BF16, w->norm);
    }
    const size_t rows = recurrence_kept_rows(K_MAX), heads = (size_t)(SLOTS * s->value_heads);
    op->state.kept_rows = (int32_t)rows;
    if (w->has_state) op->state.states = upload(w, NULL, heads * (size_t)(s->key_dim * s->value_dim) * sizeof(float));
    const int record = w->has_state ? recurrence_record(s->key_dim, s->value_dim) : s->value_dim;
    op->state.kept = upload(w, NULL, heads * rows * (size_t)record * sizeof(float));
    op->out = (struct buffer){upload(w, NULL, (size_t)(ROWS_MAX * w->width) * sizeof(float)),
                              test_device_is_host() ? DTYPE_F32 : DTYPE_BF16};
    op->inputs = upload(w, NULL, (size_t)(ROWS_MAX * w->stride) * sizeof(float)), op->stride = w->stride;
    w->steps.marks = upload(w, NULL, SLOTS * sizeof *w->steps.marks);
    w->steps.steps = upload(w, NULL, BATCH_MAX * sizeof *w->steps.steps);
    op->steps = w->steps.steps;
    op->rows.positions = upload(w, NULL, ROWS_MAX * sizeof(int32_t));
    w->row_slot = upload(w, NULL, BATCH_MAX * sizeof(int32_t));
    op->rows.row_slot = w->row_slot;
    w->truth = lab_random_floats(&w->lab, (size_t)(POSITIONS * w->stride));
    w->wrong = lab_random_floats(&w->lab, (size_t)(POSITIONS * w->stride));
}

static void close_world(struct world *w) {
    pool_destroy(w->pool);
    stream_destroy(w->stream);
    device_close(w->device);
    lab_close(&w->lab);
}

/* --- passes ---------------------------------------------------------------------------------------------------- */

/* Rows of one slot: `padding` rows without a position, then positions [first, end), the last `guesses` of which are wrong. */
struct part {
    int slot, padding, first, end, guesses;
    bool pads_behind;
};

static int submit(struct world *w) {
    const struct ops *ops = ops_for(w->device);
    const struct op_linear_attention *op = &w->op;
    TRY(ops->steps(w->stream, &w->steps));
    if (w->has_state) return ops->linear_attention(w->stream, op);
    const struct op_short_conv conv = {
        op->rows, op->steps, op->inputs, w->width, op->conv, op->state, op->out,
    };
    return ops->short_conv(w->stream, &conv);
}

/* out [batch * q_len, width] */
static void run_pass(struct world *w, enum rows_standing standing, const struct part *parts, int batch, int q_len,
                     float *out) {
    int32_t positions[ROWS_MAX], slots[BATCH_MAX];
    float *inputs = calloc((size_t)(ROWS_MAX * w->stride), sizeof *inputs);
    ck_assert_int_le(batch * q_len, ROWS_MAX);
    for (int b = 0; b < batch; b++) {
        const struct part *p = &parts[b];
        const int count = p->end - p->first, before = p->pads_behind ? 0 : p->padding;
        ck_assert_int_eq(count + p->padding, q_len);
        slots[b] = p->slot;
        for (int i = 0; i < q_len; i++) {
            const int at = p->first + i - before, row = b * q_len + i;
            const bool is_there = i >= before && i < before + count;
            positions[row] = is_there ? at : -1;
            if (is_there)
                memcpy(inputs + row * w->stride, (at >= p->end - p->guesses ? w->wrong : w->truth) + at * w->stride,
                       (size_t)w->stride * sizeof *inputs);
        }
    }
    struct rows rows = w->op.rows;
    rows.batch = batch, rows.q_len = q_len, rows.standing = standing;
    w->op.rows = w->steps.rows = rows;
    ck_ok(stream_copy(w->stream, (void *)(uintptr_t)rows.positions, positions,
                      (size_t)(batch * q_len) * sizeof *positions));
    ck_ok(stream_copy(w->stream, w->row_slot, slots, (size_t)batch * sizeof *slots));
    ck_ok(stream_copy(w->stream, (void *)(uintptr_t)w->op.inputs, inputs,
                      (size_t)(batch * q_len * w->stride) * sizeof *inputs));
    ck_ok(stream_fill(w->stream, w->op.out.data, 0xff, (size_t)(ROWS_MAX * w->width) * sizeof(float)));
    ck_ok(submit(w));
    const int numbers = batch * q_len * w->width;
    uint16_t *halves = calloc((size_t)numbers, sizeof *halves);
    const bool is_wide = w->op.out.type == DTYPE_F32;
    ck_ok(
        stream_copy(w->stream, is_wide ? (void *)out : halves, w->op.out.data, (size_t)(numbers * (is_wide ? 4 : 2))));
    ck_ok(stream_sync(w->stream));
    for (int i = 0; i < numbers && !is_wide; i++) {
        const uint32_t bits = (uint32_t)halves[i] << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
    free(inputs), free(halves);
}

/* A sequence alone, one row a pass. */
static void run_alone(struct world *w, int slot, float *out) {
    for (int p = 0; p < POSITIONS; p++)
        run_pass(w, ROWS_SCORED, &(struct part){.slot = slot, .first = p, .end = p + 1}, 1, 1, out + p * w->width);
}

/* --- numbers --------------------------------------------------------------------------------------------------- */

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static void convolve(const struct world *w, int position, int at, int channel, int count, double *out) {
    const int taps = w->op.conv.cols;
    for (int d = 0; d < count; d++) {
        double sum = (double)w->conv_bias[channel + d];
        for (int t = 0; t < taps; t++) {
            const int p = position - taps + 1 + t;
            if (p >= 0) sum += (double)w->conv[(channel + d) * taps + t] * (double)w->truth[p * w->stride + at + d];
        }
        out[d] = sum * sigmoid(sum);
    }
}

static void scale_to(double *x, int count, double length) {
    double sum = 1e-6;
    for (int i = 0; i < count; i++) sum += x[i] * x[i];
    for (int i = 0; i < count; i++) x[i] *= length / sqrt(sum);
}

/* A value head over all positions. */
static void expect_head(const struct world *w, int head, double *out) {
    const struct op_linear_attention *op = &w->op;
    const int dk = op->key_dim, dv = op->value_dim, share = op->value_heads / op->key_heads,
              key = op->is_tiled ? head % op->key_heads : head / share,
              i_of = op->is_tiled ? head / op->key_heads : head % share;
    const bool is_mamba = op->rule == RULE_DECAY;
    const double rate = op->is_rate ? -(double)w->a_log[head] : exp((double)w->a_log[head]);
    double *s = calloc((size_t)(dk * dv), sizeof *s), q[RECURRENT_DIM_MAX], k[RECURRENT_DIM_MAX], v[RECURRENT_DIM_MAX];
    for (int p = 0; p < POSITIONS; p++) {
        const float *in = w->truth + p * w->stride;
        const double a = (double)in[op->a.first + key * op->a.apart + i_of * op->a.each] + (double)w->dt_bias[head],
                     dt = log1p(exp(a)), decay = exp(-rate * dt),
                     beta = is_mamba ? dt : sigmoid((double)in[op->b.first + key * op->b.apart + i_of * op->b.each]);
        convolve(w, p, op->q.first + key * op->q.apart, op->conv_q + key * dk, dk, q);
        convolve(w, p, op->k.first + key * op->k.apart, op->conv_k + key * dk, dk, k);
        convolve(w, p, op->v.first + key * op->v.apart + i_of * op->v.each, op->conv_v + head * dv, dv, v);
        if (!is_mamba) scale_to(q, dk, 1 / sqrt(dk)), scale_to(k, dk, 1);
        double o[RECURRENT_DIM_MAX], squares = 0;
        for (int j = 0; j < dv; j++) {
            double known = 0;
            for (int i = 0; i < dk; i++) known += k[i] * (s[i * dv + j] *= decay);
            if (is_mamba) known = 0;
            o[j] = (double)w->skip[head] * v[j];
            for (int i = 0; i < dk; i++) o[j] += q[i] * (s[i * dv + j] += k[i] * beta * (v[j] - known));
            squares += o[j] * o[j];
        }
        for (int j = 0; j < dv; j++) {
            const double z = (double)in[op->z.first + key * op->z.apart + i_of * op->z.each + j];
            const double norm = is_mamba ? 1 : (double)w->norm[j] / sqrt(squares / dv + 1e-6);
            out[p * w->width + head * dv + j] = o[j] * norm * z * sigmoid(z);
        }
    }
    free(s);
}

/* Of a short convolution over all positions. */
static void expect_conv(const struct world *w, double *out) {
    const int taps = w->op.conv.cols;
    for (int p = 0; p < POSITIONS; p++)
        for (int d = 0; d < w->width; d++) {
            double sum = 0;
            for (int t = 0; t < taps; t++) {
                const int at = p - taps + 1 + t;
                const float *in = w->truth + at * w->stride + d;
                if (at >= 0) sum += (double)w->conv[d * taps + t] * (double)in[0] * (double)in[2 * w->width];
            }
            out[p * w->width + d] = (double)w->truth[p * w->stride + w->width + d] * sum;
        }
}

START_TEST(numbers_are_those_of_double_precision)
{
    struct world w;
    open_world(&w, &shapes[_i]);
    float *got = calloc((size_t)(POSITIONS * w.width), sizeof *got);
    double *expected = calloc((size_t)(POSITIONS * w.width), sizeof *expected);
    run_alone(&w, 1, got);
    for (int h = 0; h < w.op.value_heads && w.has_state; h++) expect_head(&w, h, expected);
    if (!w.has_state) expect_conv(&w, expected);
    const double tolerance = test_device_is_host() ? 1e-4 : 1e-2;
    for (int i = 0; i < POSITIONS * w.width; i++)
        ck_assert_msg(fabs((double)got[i] - expected[i]) <= tolerance * (1 + fabs(expected[i])),
                      "position %d, number %d: %g, expected %g", i / w.width, i % w.width, (double)got[i], expected[i]);
    free(got), free(expected);
    close_world(&w);
}
END_TEST

/* --- speculation ------------------------------------------------------------------------------------------------ */

struct play {
    struct world *w;
    const float *alone; /* [POSITIONS, width] */
    float *out;
    int slot, length; /* positions that are committed: passes may begin there */
    int begun[2];     /* where the last two passes that settled began */
};

static void must_be_alone_s(const struct play *p, const struct part *part, int row, int q_len) {
    const int before = part->pads_behind ? 0 : part->padding, count = part->end - part->first, width = p->w->width;
    for (int i = 0; i < q_len; i++) {
        const float *got = p->out + (row + i) * width;
        const int position = part->first + i - before;
        if (i < before || i >= before + count) {
            for (int j = 0; j < width; j++) ck_assert(got[j] == 0);
        } else if (position < part->end - part->guesses) {
            ck_assert_msg(memcmp(got, p->alone + position * width, (size_t)width * sizeof *got) == 0,
                          "slot %d: position %d differs", part->slot, position);
        }
    }
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* A round: as a target's, K + 1 rows of which the last are wrong, or as a draft's, two rows and then one each pass. It begins `back`
 * positions before what is committed. Between rows of other slots, one of them the dummy's. */
static void play_round(struct play *p, struct play *other, int k, int accepted, bool drafts) {
    const int back = drafts && p->length > 0, first = p->length - back;
    struct part parts[BATCH_MAX] = {
        {.slot = 0, .padding = 0}, {.slot = p->slot, .first = first}, {.slot = other->slot}};
    const int q_len = drafts ? 1 + back : k + 1;
    parts[1].end = first + q_len, parts[1].guesses = drafts ? 0 : k - accepted;
    parts[0].padding = q_len;
    parts[2].first = other->length, parts[2].end = least(other->length + q_len, POSITIONS - 8);
    if (parts[2].end < parts[2].first) parts[2].end = parts[2].first;
    parts[2].padding = q_len - (parts[2].end - parts[2].first);
    run_pass(p->w, ROWS_SCORED, parts, BATCH_MAX, q_len, p->out);
    for (int b = 0; b < BATCH_MAX; b++) must_be_alone_s(p, &parts[b], b * q_len, q_len);
    other->length = parts[2].end; /* a plain neighbour: all of its rows stay */
    for (int i = 1; drafts && i < k; i++) {
        struct part step = {.slot = p->slot, .first = p->length + i, .end = p->length + i + 1, .guesses = i > accepted};
        run_pass(p->w, ROWS_DRAFTED, &step, 1, 1, p->out);
        if (i <= accepted) must_be_alone_s(p, &step, 0, 1);
    }
    p->begun[0] = p->begun[1], p->begun[1] = first;
    p->length += accepted + 1;
}

/* A prompt's piece, padded. */
static void play_known(struct play *p, int first, int count) {
    struct part part = {.slot = p->slot,
                        .padding = lab_pick(&p->w->lab, 0, 5),
                        .first = first,
                        .end = first + count,
                        .pads_behind = true};
    run_pass(p->w, ROWS_KNOWN, &part, 1, count + part.padding, p->out);
    must_be_alone_s(p, &part, 0, count + part.padding);
    p->length = first + count;
    p->begun[0] = p->begun[1] = p->length - 1;
}

static void play(struct world *w, const float *alone, float *out, bool drafts) {
    struct play p = {.w = w, .alone = alone, .out = out, .slot = 2},
                other = {.w = w, .alone = alone, .out = out, .slot = 3};
    /* Perhaps longer than what is kept. */
    if (lab_pick(&w->lab, 0, 4)) play_known(&p, 0, lab_pick(&w->lab, 1, lab_pick(&w->lab, 2, 50)));
    while (p.length + 2 * K_MAX + 2 < POSITIONS) {
        const int k = lab_pick(&w->lab, 1, K_MAX + 1), before = p.length;
        play_round(&p, &other, k, lab_pick(&w->lab, 0, k + 1), drafts);
        if (lab_pick(&w->lab, 0, 4) > 0) continue;
        /* The host ends the answer in the last round but one, and goes on from there with a new prompt. */
        if (p.begun[0] > 0 && before > 1)
            play_known(&p, lab_pick(&w->lab, p.begun[0], least(before, p.begun[1]) + 1), lab_pick(&w->lab, 1, 9));
    }
}

START_TEST(what_speculation_tries_leaves_no_trace)
{
    struct world w;
    open_world(&w, &shapes[_i]);
    float *alone = calloc((size_t)(POSITIONS * w.width), sizeof *alone),
          *out = calloc((size_t)(ROWS_MAX * w.width), sizeof *out);
    run_alone(&w, 1, alone);
    for (int i = 0; i < 12; i++) play(&w, alone, out, i % 2 == 1);
    free(alone), free(out);
    close_world(&w);
}
END_TEST

DEVICE_SUITE(check_linear_attention);
Suite *check_linear_attention(void) {
    Suite *suite = suite_create("linear attention");
    TCase *tc = tcase_create("linear attention");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, numbers_are_those_of_double_precision, 0, SHAPES);
    tcase_add_loop_test(tc, what_speculation_tries_leaves_no_trace, 0, SHAPES);
    suite_add_tcase(suite, tc);
    return suite;
}
