/* Hidden rows that are kept by position, and joined with embeddings: numbers against plain double precision, and nothing else is touched. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/pool.h"
#include "model/ops.h"
#include "tests/support/ops_lab.h"
#include "tests/support/support.h"

enum { BATCH = 2, Q_LEN = 3, ROWS = BATCH * Q_LEN, SLOTS = 3, PAGES = 5, SLOT_PAGES = 2, WIDTH_MAX = 1100 };

/* The second slot's rows end where a page does. */
static const int32_t positions[ROWS] = {0, 1, 2, -1, 254, 255}, slots[BATCH] = {2, 1},
                     table[SLOTS * SLOT_PAGES] = {0, 0, 3, 1, 2, 4};
static const int widths[] = {32, 36, 7, WIDTH_MAX};

struct world {
    struct lab lab; /* of the host: what is made up */
    struct device *device;
    struct stream *stream;
    struct pool *pool;
    int slices, width;
    enum dtype type;
    struct rows rows;
    float *x; /* [ROWS, width] host */
    const float *x_there;
    struct norm norm, other;
    float factors[2][WIDTH_MAX]; /* of the norms, offsets included */
    struct hidden_rows hidden;
    struct buffer out;
};

static void *upload(struct world *w, const void *from, size_t bytes) {
    char name[POOL_NAME_MAX];
    void *to;
    snprintf(name, sizeof name, "test %d", w->slices++);
    ck_ok(pool_slice(w->pool, POOL_SCRATCH, name, bytes, &to));
    ck_ok(from ? stream_copy(w->stream, to, from, bytes) : stream_fill(w->stream, to, 0xff, bytes));
    ck_ok(stream_sync(w->stream));
    return to;
}

static struct norm make_norm(struct world *w, float offset, float *factors) {
    struct norm norm = {.kind = NORM_RMS, .weight = lab_weight(&w->lab, 1, w->width, DTYPE_BF16, 1), .eps = 1e-6f};
    norm.offset = offset;
    for (int i = 0; i < w->width; i++) factors[i] = (float)lab_weight_at(&norm.weight, 0, i) + offset;
    norm.weight.data = upload(w, norm.weight.data, (size_t)w->width * 2);
    return norm;
}

static void open_world(struct world *w, int width) {
    memset(w, 0, sizeof *w);
    lab_open(&w->lab, 1);
    ck_ok(device_open(&w->device, test_device(), &(struct device_options){.threads = 2}));
    ck_ok(stream_create(w->device, &w->stream));
    ck_ok(pool_create(w->device, 16 << 20, &w->pool));
    w->width = width;
    w->type = test_device_is_host() ? DTYPE_F32 : DTYPE_BF16;
    w->rows = (struct rows){.batch = BATCH, .q_len = Q_LEN, .pages_per_slot = SLOT_PAGES};
    w->rows.positions = upload(w, positions, sizeof positions);
    w->rows.row_slot = upload(w, slots, sizeof slots);
    w->rows.page_table = upload(w, table, sizeof table);
    w->x = lab_random_floats(&w->lab, (size_t)(ROWS * width));
    w->x_there = upload(w, w->x, (size_t)(ROWS * width) * sizeof *w->x);
    w->norm = make_norm(w, 1, w->factors[0]), w->other = make_norm(w, 0, w->factors[1]);
    w->hidden = (struct hidden_rows){upload(w, NULL, (size_t)(PAGES * KV_PAGE * width) * sizeof(float)), w->type};
    w->out = (struct buffer){upload(w, NULL, (size_t)(2 * ROWS * width) * sizeof(float)), w->type};
}

static void close_world(struct world *w) {
    pool_destroy(w->pool);
    stream_destroy(w->stream);
    device_close(w->device);
    lab_close(&w->lab);
}

static float *download(struct world *w, enum dtype type, const void *from, size_t count) {
    float *out = malloc(count * sizeof *out);
    uint16_t *halves = malloc(count * sizeof *halves);
    const bool is_wide = type == DTYPE_F32;
    ck_ok(stream_copy(w->stream, is_wide ? (void *)out : halves, from, count * (is_wide ? 4 : 2)));
    ck_ok(stream_sync(w->stream));
    for (size_t i = 0; i < count && !is_wide; i++) {
        const uint32_t bits = (uint32_t)halves[i] << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
    free(halves);
    return out;
}

static void must_be_normed(const struct world *w, const float *got, const float *x, int norm, const char *what, int t) {
    double squares = 0;
    for (int i = 0; i < w->width; i++) squares += (double)x[i] * x[i];
    const double scale = 1 / sqrt(squares / w->width + 1e-6), bound = w->type == DTYPE_F32 ? 1e-5 : 0x1p-8;
    for (int i = 0; i < w->width; i++) {
        const double due = x[i] * scale * w->factors[norm][i];
        ck_assert_msg(fabs(got[i] - due) <= bound * fabs(due) + 1e-7, "%s, row %d: %d is %g, expected %g", what, t, i,
                      (double)got[i], due);
    }
}

static int cell_of(int slot, int position) {
    return table[slot * SLOT_PAGES + position / KV_PAGE] * KV_PAGE + position % KV_PAGE;
}

/* Rows that nobody kept are as they were: NaN. */
static void must_hold(struct world *w, int ahead, bool last_only) {
    float *all = download(w, w->type, w->hidden.data, (size_t)(PAGES * KV_PAGE * w->width));
    int kept = 0, due = 0;
    for (int t = 0; t < ROWS; t++) {
        if (positions[t] < 0 || (last_only && t % Q_LEN != Q_LEN - 1)) continue;
        const int cell = cell_of(slots[t / Q_LEN], positions[t] + ahead);
        must_be_normed(w, all + (size_t)(cell * w->width), w->x + (size_t)(t * w->width), 0, "kept", t);
        due++;
    }
    for (int cell = 0; cell < PAGES * KV_PAGE; cell++) kept += !isnan(all[(size_t)(cell * w->width)]);
    ck_assert_int_eq(kept, due);
    free(all);
}

/* The last join: rows of `type`, and a residual stream that begins with the hidden rows, or their norms. */
static void must_be_joined(struct world *w, enum dtype type, const float *residual, bool norms_residual) {
    const size_t width = (size_t)w->width;
    float *hidden = download(w, w->type, w->hidden.data, PAGES * KV_PAGE * width),
          *out = download(w, type, w->out.data, 2 * ROWS * width),
          *stream = residual ? download(w, DTYPE_F32, residual, ROWS * width) : calloc(ROWS, width * sizeof *stream);
    for (int t = 0; t < ROWS; t++) {
        const float *row = out + 2 * (size_t)t * width, *first = stream + (size_t)t * width;
        for (size_t i = 0; i < width && positions[t] < 0; i++)
            ck_assert(row[i] == 0 && row[width + i] == 0 && first[i] == 0);
        if (positions[t] < 0) continue;
        const float *kept = hidden + (size_t)cell_of(slots[t / Q_LEN], positions[t]) * width;
        must_be_normed(w, row, w->x + (size_t)t * width, 0, "embedding", t);
        must_be_normed(w, row + width, kept, 1, "hidden row", t);
        if (residual && norms_residual) must_be_normed(w, first, kept, 1, "residual", t);
        for (size_t i = 0; i < width && residual && !norms_residual; i++) ck_assert(first[i] == kept[i]);
    }
    free(hidden), free(out), free(stream);
}

START_TEST(rows_are_kept_where_they_belong_and_joined_from_there)
{
    struct world w;
    open_world(&w, widths[_i]);
    const struct ops *ops = ops_for(w.device);
    struct op_keep keep = {.rows = w.rows, .x = w.x_there, .norm = w.norm, .width = w.width, .hidden = w.hidden};
    struct op_join join = {.rows = w.rows, .x = w.x_there, .norm = w.norm, .hidden_norm = w.other, .width = w.width};
    join.hidden = w.hidden, join.out = w.out;
    keep.ahead = 1, keep.last_only = true;
    ck_ok(ops->keep(w.stream, &keep));
    must_hold(&w, 1, true);
    ck_ok(stream_fill(w.stream, w.hidden.data, 0xff, (size_t)(PAGES * KV_PAGE * w.width) * sizeof(float)));
    keep.ahead = 0, keep.last_only = false;
    ck_ok(ops->keep(w.stream, &keep));
    must_hold(&w, 0, false);
    ck_ok(ops->join(w.stream, &join));
    must_be_joined(&w, w.type, NULL, false);
    for (int norms = 0; norms < 2; norms++) { /* beside a residual stream, in f32 */
        join.out.type = DTYPE_F32, join.norms_residual = norms;
        join.residual = upload(&w, NULL, (size_t)(ROWS * w.width) * sizeof(float));
        ck_ok(ops->join(w.stream, &join));
        must_be_joined(&w, DTYPE_F32, join.residual, norms);
    }
    close_world(&w);
}
END_TEST

START_TEST(rows_are_tapped_side_by_side)
{
    enum { TAPS = 3 };
    struct world w;
    open_world(&w, widths[_i]);
    const int stride = TAPS * w.width;
    struct op_tap tap = {.rows = w.rows, .x = w.x_there, .width = w.width, .stride = stride};
    tap.out = (struct buffer){upload(&w, NULL, (size_t)(ROWS * stride) * sizeof(float)), w.type};
    for (int i = TAPS - 1; i > 0; i--) {
        tap.first = i * w.width;
        ck_ok(ops_for(w.device)->tap(w.stream, &tap));
    }
    float *out = download(&w, w.type, tap.out.data, (size_t)(ROWS * stride));
    for (int at = 0; at < ROWS * stride; at++) {
        const float due = w.x[at / stride * w.width + at % w.width];
        if (at % stride < w.width)
            ck_assert(isnan(out[at])); /* which nobody wrote */
        else
            ck_assert_double_le(fabsf(out[at] - due), (w.type == DTYPE_F32 ? 0 : 0x1p-8) * fabsf(due));
    }
    free(out);
    close_world(&w);
}
END_TEST

DEVICE_SUITE(check_hidden);
Suite *check_hidden(void) {
    Suite *suite = suite_create("hidden");
    TCase *tc = tcase_create("hidden");
    tcase_add_loop_test(tc, rows_are_kept_where_they_belong_and_joined_from_there, 0, sizeof widths / sizeof *widths);
    tcase_add_loop_test(tc, rows_are_tapped_side_by_side, 0, sizeof widths / sizeof *widths);
    suite_add_tcase(suite, tc);
    return suite;
}
