/* Matrices that are quantised at loading, against the numbers of the files. */
#include <math.h>
#include <stdlib.h>

#include "engine/internal.h"
#include "model/format.h"
#include "model/model_internal.h"
#include "tests/support/engine_support.h"
#include "tests/support/support.h"

static struct engine *open_as(enum model_weights weights) {
    return must_open(&(struct engine_options){
        .target = test_checkpoint(asset_path("target")), .device = "host", .context = 64, .target_weights = weights});
}

/* Half the distance to the next number: FP8 has three bits behind the first, and steps of 2^-9 below 2^-6; int4 has steps of the
 * scale, of which the eighth to the side of the group's other sign is missing. */
static double largest_error(const struct weight *w, int row, int col, float x) {
    const double scale = fabs((double)scales_at(w->scales, row, col / w->scales->group));
    if (w->format == DTYPE_FP8) return fmax(fabs((double)x) / 16, scale * 0x1p-10) * 1.001;
    return scale * (fabs((double)x) > 7.4 * scale ? 1.01 : 0.501);
}

static void compare(const struct weight *w, const struct weight *original) {
    float *got = malloc((size_t)w->cols * sizeof *got), *x = malloc((size_t)w->cols * sizeof *x);
    double error = 0, power = 0;
    for (int r = 0; r < w->rows; r++) {
        format_of(w->format)->dequantise(got, w, r, 0, w->cols);
        format_of(original->format)->dequantise(x, original, r, 0, w->cols);
        for (int c = 0; c < w->cols; c++) {
            const double off = fabs((double)got[c] - (double)x[c]);
            require(off <= largest_error(w, r, c, x[c]), "%s [%d, %d]: %g became %g", format_of(w->format)->name, r, c,
                    (double)x[c], (double)got[c]);
            error += off * off, power += (double)x[c] * (double)x[c];
        }
    }
    ck_assert_msg(error < (w->format == DTYPE_FP8 ? 1.2e-3 : 1e-2) * power, "%s: a noise of %g",
                  format_of(w->format)->name, error / power);
    free(got), free(x);
}

/* Loop index: fp8, int4. */
START_TEST(matrices_become_the_nearest_numbers_and_the_rest_stays)
{
    struct engine *stored = open_as(WEIGHTS_AS_STORED), *e = open_as(_i == 0 ? WEIGHTS_FP8 : WEIGHTS_INT4);
    const struct model *a = stored->target_model, *b = e->target_model;
    const enum dtype format = _i == 0 ? DTYPE_FP8 : DTYPE_INT4;
    for (int l = 0; l < a->config.layers; l++) {
        const struct layer *from = &a->layers[l], *to = &b->layers[l];
        const struct weight *matrices[][2] = {{&to->wq, &from->wq},    {&to->wk, &from->wk}, {&to->wv, &from->wv},
                                              {&to->wo, &from->wo},    {&to->up, &from->up}, {&to->gate, &from->gate},
                                              {&to->down, &from->down}};
        for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
            ck_assert_int_eq(matrices[i][0]->format, format);
            compare(matrices[i][0], matrices[i][1]);
        }
        ck_assert_int_eq(to->attn_norm.weight.format, from->attn_norm.weight.format);
    }
    ck_assert_int_eq(b->head.format, DTYPE_FP8);
    compare(&b->head, &a->head);
    ck_assert_int_eq(b->embedding.format, a->config.tied ? DTYPE_FP8 : a->embedding.format);
    engine_destroy(stored), engine_destroy(e);
}
END_TEST

START_TEST(a_quantised_checkpoint_stays_as_it_is)
{
    const char *dir = shared_path("fixtures/formats/awq-g128");
    if (!dir) {
        skip("no test data beside the checkout");
        return;
    }
    struct engine *e = must_open(&(struct engine_options){
        .target = test_checkpoint(dir), .device = "host", .context = 64, .target_weights = WEIGHTS_FP8});
    ck_assert_int_eq(e->target_model->layers[0].wq.format, DTYPE_INT4);
    ck_assert_int_eq(e->target_model->head.format, DTYPE_FP8);
    ck_assert_int_eq(engine_info(e).target_products_stored, 7 * engine_config(e)->layers);
    ck_assert_int_eq(engine_info(e).target_products, 1 + 7 * engine_config(e)->layers);
    engine_destroy(e);
}
END_TEST

START_TEST(a_checkpoint_of_which_nothing_is_left_to_quantise_is_refused)
{
    const char *dir = shared_path("fixtures/formats/gguf-q8_0");
    struct engine *e;
    if (!dir) {
        skip("no test data beside the checkout");
        return;
    }
    struct engine_options options = {
        .target = test_checkpoint(dir), .device = "host", .context = 64, .target_weights = WEIGHTS_INT4};
    ck_assert_int_eq(engine_create(&e, &options), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err_message(), "is quantised already, and all of it would stay as it is (--target-w"));
    options = (struct engine_options){.target = test_checkpoint(dir),
                                      .draft = test_checkpoint(dir),
                                      .device = "host",
                                      .context = 64,
                                      .k = 2,
                                      .draft_weights = WEIGHTS_FP8};
    ck_assert_int_eq(engine_create(&e, &options), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err_message(), "is quantised already, and all of it would stay as it is (--draft-w"));
}
END_TEST

Suite *check_quantise(void) {
    Suite *suite = suite_create("quantise");
    TCase *tc = tcase_create("quantise");
    tcase_add_loop_test(tc, matrices_become_the_nearest_numbers_and_the_rest_stays, 0, 2);
    tcase_add_test(tc, a_quantised_checkpoint_stays_as_it_is);
    tcase_add_test(tc, a_checkpoint_of_which_nothing_is_left_to_quantise_is_refused);
    suite_add_tcase(suite, tc);
    return suite;
}
