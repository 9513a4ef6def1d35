/* Linear attention, position by position: what lies between the settled state and the pass first, then the rows
 * of the pass. A thread has a value head of a graph row, its state on its stack as [DK, DV], so that columns go side by side. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/fmath.h"
#include "base/parallel.h"
#include "model/kernels/host/host_ops.h"
#include "model/kernels/host/isa.h"

/* --- where states go on --------------------------------------------------------------------------------------- */

static int run_steps(const void *args) {
    const struct op_steps *op = args;
    for (int b = 0; b < op->rows.batch; b++) {
        const int32_t *positions = op->rows.positions + (size_t)b * (size_t)op->rows.q_len;
        const int slot = op->rows.row_slot[b];
        int row = 0, count = 0;
        while (row < op->rows.q_len && positions[row] < 0) row++;
        while (row + count < op->rows.q_len && positions[row + count] >= 0) count++;
        op->steps[b] =
            recurrence_advance(&op->marks[slot], op->rows.standing, slot, row, count > 0 ? positions[row] : 0, count);
    }
    return 0;
}

int host_steps(struct stream *stream, const struct op_steps *op) {
    return stream_run_host(stream, run_steps, op, sizeof *op);
}

/* --- a position ----------------------------------------------------------------------------------------------- */

/* A value head of a graph row. */
struct head {
    const struct op_linear_attention *op;
    struct recurrence_step step;
    int graph_row, index, key_head, of_key;
    float *state, *kept;
    float rate, dt_bias, skip; /* exp(a_log) */
    float taps_q[RECURRENT_DIM_MAX * RECURRENT_TAPS_MAX], taps_k[RECURRENT_DIM_MAX * RECURRENT_TAPS_MAX],
        taps_v[RECURRENT_DIM_MAX * RECURRENT_TAPS_MAX]; /* of its channels, [.., taps] */
    float bias_q[RECURRENT_DIM_MAX], bias_k[RECURRENT_DIM_MAX], bias_v[RECURRENT_DIM_MAX];
};

/* What was projected of a position. */
struct projected {
    const float *q, *k, *v;
    float b, a;
};

/* Of a position and head: convolved, and by the delta rule q and k of unit length. `rate` is what change is multiplied with. */
struct inputs {
    float q[RECURRENT_DIM_MAX], k[RECURRENT_DIM_MAX], v[RECURRENT_DIM_MAX];
    float rate, decay;
};

static float *kept_record(const struct head *h, int position) {
    const struct op_linear_attention *op = h->op;
    return h->kept + (size_t)(position % op->state.kept_rows) * (size_t)recurrence_record(op->key_dim, op->value_dim);
}

static const float *row_of(const struct head *h, int position) {
    const size_t row =
        (size_t)h->graph_row * (size_t)h->op->rows.q_len + (size_t)(h->step.row + position - h->step.first);
    return h->op->inputs + row * (size_t)h->op->stride;
}

static struct projected projected_at(const struct head *h, int position) {
    const struct op_linear_attention *op = h->op;
    if (position < h->step.first) {
        const float *record = kept_record(h, position), *v = record + 2 * op->key_dim;
        return (struct projected){record, record + op->key_dim, v, v[op->value_dim], v[op->value_dim + 1]};
    }
    const float *in = row_of(h, position);
    const int of_key = h->of_key, head = h->key_head;
    return (struct projected){
        .q = in + op->q.first + head * op->q.apart,
        .k = in + op->k.first + head * op->k.apart,
        .v = in + op->v.first + head * op->v.apart + of_key * op->v.each,
        .b = in[op->b.first + head * op->b.apart + of_key * op->b.each],
        .a = in[op->a.first + head * op->a.apart + of_key * op->a.each],
    };
}

static float sigmoid(float x) {
    return 1 / (1 + fmath_exp(-x));
}

/* log(1 + exp(x)) */
static float softplus(float x) {
    return (x > 0 ? x : 0) + fmath_log1p(fmath_exp(-fabsf(x)));
}

/* out[d] = silu(bias[d] + sum over taps of taps[d, tap] x_(position - taps + 1 + tap)[d]), ascending. */
static void convolve(const struct head *h, const float *taps, const float *bias, const float *const *x, int count,
                     float *out) {
    const int each = h->op->conv.cols;
    memcpy(out, bias, (size_t)count * sizeof *out);
    for (int t = 0; t < each; t++)
        for (int d = 0; d < count && x[t]; d++) out[d] += taps[d * each + t] * x[t][d];
    for (int d = 0; d < count; d++) out[d] *= sigmoid(out[d]);
}

static void read_taps_of(const struct op_linear_attention *op, int row, int rows, float *taps, float *bias) {
    host_isa()->widen(taps, weight_row(&op->conv, row), op->conv.format, rows * op->conv.cols);
    for (int i = 0; i < rows; i++) bias[i] = op->conv_bias.data ? host_number(&op->conv_bias, row + i) : 0;
}

static void read_taps(struct head *h) {
    const struct op_linear_attention *op = h->op;
    const int dk = op->key_dim, dv = op->value_dim;
    read_taps_of(op, op->conv_q + h->key_head * dk, dk, h->taps_q, h->bias_q);
    read_taps_of(op, op->conv_k + h->key_head * dk, dk, h->taps_k, h->bias_k);
    read_taps_of(op, op->conv_v + h->index * dv, dv, h->taps_v, h->bias_v);
}

static void to_length(float *x, int count, float length) {
    float sum = 0;
    for (int i = 0; i < count; i++) sum += x[i] * x[i];
    const float scale = length / sqrtf(sum + 1e-6f);
    for (int i = 0; i < count; i++) x[i] *= scale;
}

static void read_inputs(const struct head *h, int position, struct inputs *in) {
    const struct op_linear_attention *op = h->op;
    const int dk = op->key_dim, dv = op->value_dim, taps = op->conv.cols;
    const float *q[RECURRENT_TAPS_MAX] = {0}, *k[RECURRENT_TAPS_MAX] = {0}, *v[RECURRENT_TAPS_MAX] = {0};
    const struct projected now = projected_at(h, position);
    for (int t = 0; t < taps; t++) {
        const int at = position - taps + 1 + t;
        if (at < 0) continue;
        const struct projected p = projected_at(h, at);
        q[t] = p.q, k[t] = p.k, v[t] = p.v;
    }
    convolve(h, h->taps_q, h->bias_q, q, dk, in->q);
    convolve(h, h->taps_k, h->bias_k, k, dk, in->k);
    convolve(h, h->taps_v, h->bias_v, v, dv, in->v);
    const float dt = softplus(now.a + h->dt_bias);
    in->decay = fmath_exp(-h->rate * dt);
    in->rate = op->rule == RULE_DELTA ? sigmoid(now.b) : dt;
    if (op->rule != RULE_DELTA) return;
    to_length(in->q, dk, 1 / sqrtf((float)dk));
    to_length(in->k, dk, 1);
}

/* known [DV] = S'^T k, what the state knows of k once it has decayed. */
static void decay_and_ask(const struct op_linear_attention *op, float *state, const struct inputs *in, float *known) {
    for (int i = 0; i < op->key_dim; i++) {
        float *row = state + i * op->value_dim;
#pragma omp simd
        for (int j = 0; j < op->value_dim; j++) {
            row[j] *= in->decay;
            known[j] += in->k[i] * row[j];
        }
    }
}

/* The state goes one position on; out [DV] = S^T q + skip v. */
static void go_on(const struct op_linear_attention *op, float skip, float *state, const struct inputs *in, float *out) {
    const int dk = op->key_dim, dv = op->value_dim;
    float change[RECURRENT_DIM_MAX] = {0};
    float decay = in->decay;
    if (op->rule == RULE_DELTA) {
        decay_and_ask(op, state, in, change);
        decay = 1;
    }
    for (int j = 0; j < dv; j++) {
        change[j] = (in->v[j] - change[j]) * in->rate;
        out[j] = skip * in->v[j];
    }
    for (int i = 0; i < dk; i++) {
        float *row = state + i * dv;
#pragma omp simd
        for (int j = 0; j < dv; j++) {
            row[j] = row[j] * decay + in->k[i] * change[j];
            out[j] += in->q[i] * row[j];
        }
    }
}

/* --- a head --------------------------------------------------------------------------------------------------- */

static void store_row(const struct head *h, int position, float *out) {
    const struct op_linear_attention *op = h->op;
    const float *in = row_of(h, position), *z = in + op->z.first + h->key_head * op->z.apart + h->of_key * op->z.each;
    const size_t row = (size_t)(in - op->inputs) / (size_t)op->stride;
    float *to = (float *)op->out.data + (row * (size_t)op->value_heads + (size_t)h->index) * (size_t)op->value_dim;
    host_isa()->norm(to, out, &op->norm, op->value_dim);
    for (int j = 0; j < op->value_dim; j++) to[j] *= z[j] * sigmoid(z[j]);
}

static void clear_rows(const struct head *h) {
    const struct op_linear_attention *op = h->op;
    const int count = h->step.end - h->step.first;
    for (int i = 0; i < op->rows.q_len; i++) {
        if (i >= h->step.row && i < h->step.row + count) continue;
        const size_t row = (size_t)h->graph_row * (size_t)op->rows.q_len + (size_t)i;
        memset((float *)op->out.data + (row * (size_t)op->value_heads + (size_t)h->index) * (size_t)op->value_dim, 0,
               (size_t)op->value_dim * sizeof(float));
    }
}

/* What later passes may need, in place of what was kept kept_rows positions before. */
static void keep_rows(const struct head *h) {
    const struct op_linear_attention *op = h->op;
    const int dk = op->key_dim, dv = op->value_dim, oldest = h->step.end - op->state.kept_rows;
    for (int p = h->step.first > oldest ? h->step.first : oldest; p < h->step.end; p++) {
        const struct projected now = projected_at(h, p);
        float *record = kept_record(h, p);
        memcpy(record, now.q, (size_t)dk * sizeof *record);
        memcpy(record + dk, now.k, (size_t)dk * sizeof *record);
        memcpy(record + 2 * dk, now.v, (size_t)dv * sizeof *record);
        record[2 * dk + dv] = now.b, record[2 * dk + dv + 1] = now.a;
    }
}

static void run_head(struct head *h) {
    const struct op_linear_attention *op = h->op;
    const size_t bytes = (size_t)op->key_dim * (size_t)op->value_dim * sizeof(float);
    float state[RECURRENT_DIM_MAX * RECURRENT_DIM_MAX], out[RECURRENT_DIM_MAX];
    clear_rows(h);
    if (h->step.end == 0) return;
    read_taps(h);
    if (h->step.from > 0)
        memcpy(state, h->state, bytes);
    else
        memset(state, 0, bytes);
    for (int p = h->step.from; p < h->step.end; p++) {
        struct inputs in;
        if (p == h->step.settle) memcpy(h->state, state, bytes);
        read_inputs(h, p, &in);
        go_on(op, h->skip, state, &in, out);
        if (p >= h->step.first) store_row(h, p, out);
    }
    keep_rows(h);
}

static void heads_part(const void *args, int part, int parts) {
    const struct op_linear_attention *op = args;
    const struct range mine = parallel_range(op->rows.batch * op->value_heads, part, parts);
    const size_t numbers = (size_t)op->key_dim * (size_t)op->value_dim,
                 records = (size_t)op->state.kept_rows * (size_t)recurrence_record(op->key_dim, op->value_dim);
    for (int i = mine.first; i < mine.end; i++) {
        const int index = i % op->value_heads;
        const struct recurrence_step step = op->steps[i / op->value_heads];
        const size_t at = (size_t)step.slot * (size_t)op->value_heads + (size_t)index;
        const float a_log = host_number(&op->a_log, index);
        struct head head = {.op = op,
                            .step = step,
                            .graph_row = i / op->value_heads,
                            .index = index,
                            .key_head = recurrence_key_head(index, op->key_heads, op->value_heads, op->is_tiled),
                            .of_key = recurrence_of_key(index, op->key_heads, op->value_heads, op->is_tiled),
                            .state = op->state.states + at * numbers,
                            .kept = op->state.kept + at * records,
                            .rate = op->is_rate ? -a_log : fmath_exp(a_log),
                            .dt_bias = host_number(&op->dt_bias, index),
                            .skip = op->skip.data ? host_number(&op->skip, index) : 0};
        run_head(&head);
    }
}

struct args {
    struct op_linear_attention op;
    int threads;
};

static int run(const void *args) {
    const struct args *a = args;
    const int64_t each = 6 * (int64_t)a->op.key_dim * a->op.value_dim * a->op.rows.q_len;
    parallel_run(a->threads, each * a->op.rows.batch * a->op.value_heads, heads_part, &a->op);
    return 0;
}

int host_linear_attention(struct stream *stream, const struct op_linear_attention *op) {
    if (op->key_dim > RECURRENT_DIM_MAX || op->value_dim > RECURRENT_DIM_MAX || op->conv.cols > RECURRENT_TAPS_MAX ||
        op->value_heads % op->key_heads != 0)
        return err_set(ERR_INTERNAL, "linear attention: heads of %d and %d dimensions, %d taps, %d heads of %d",
                       op->key_dim, op->value_dim, op->conv.cols, op->value_heads, op->key_heads);
    struct args args = {*op, device_threads(stream_device(stream))};
    return stream_run_host(stream, run, &args, sizeof args);
}
