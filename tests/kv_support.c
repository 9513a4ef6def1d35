#include "tests/kv_support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support.h"

static size_t position_floats(const struct model_config *c) {
    return 2 * (size_t)c->kv_heads * (size_t)c->head_dim;
}

/* [positions, 2, HKV, DH]: keys, then values of each position; malloc'ed. */
static float *read_layer(struct kv_owner o, enum probe_model which, int layer, int positions) {
    size_t n = position_floats(probe_config(o.engine, which));
    float *kv = malloc((size_t)positions * n * sizeof *kv + 1);
    ck_assert_ptr_nonnull(kv);
    for (int p = 0; p < positions; p++) {
        float *at = kv + (size_t)p * n;
        ck_ok(probe_read_kv(o.engine, o.sequence, which, layer, p, at, at + n / 2));
    }
    return kv;
}

static const char *model_name(enum probe_model which) {
    return which == PROBE_DRAFT ? "draft" : "target";
}

void must_equal_kv(struct kv_owner got, struct kv_owner expected, enum probe_model which, int positions,
                   const char *what) {
    const struct model_config *c = probe_config(got.engine, which);
    size_t n = position_floats(c);
    for (int l = 0; l < c->layers; l++) {
        float *a = read_layer(got, which, l, positions), *b = read_layer(expected, which, l, positions);
        for (size_t i = 0; i < (size_t)positions * n; i++)
            if (memcmp(&a[i], &b[i], sizeof *a) != 0)
                ck_abort_msg("%s: %s layer %d, position %zu: %s %zu is %g, expected %g", what, model_name(which), l,
                             i / n, i % n < n / 2 ? "key" : "value", i % (n / 2), (double)a[i], (double)b[i]);
        free(a);
        free(b);
    }
}

static double square(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (b ? (double)b[i] : 0);
        sum += d * d;
    }
    return sum;
}

void must_be_close_kv(struct kv_owner got, struct kv_owner expected, enum probe_model which, int positions,
                      double tolerance, const char *what) {
    const struct model_config *c = probe_config(got.engine, which);
    size_t n = position_floats(c), half = n / 2;
    for (int l = 0; l < c->layers; l++) {
        float *a = read_layer(got, which, l, positions), *b = read_layer(expected, which, l, positions);
        for (size_t part = 0; part < 2; part++) {
            double mean = 0;
            for (int p = 0; p < positions; p++) mean += square(b + (size_t)p * n + part * half, NULL, half) / positions;
            for (int p = 0; p < positions; p++) {
                size_t at = (size_t)p * n + part * half;
                double share = sqrt(square(a + at, b + at, half) / mean);
                ck_assert_msg(share <= tolerance, "%s: %s layer %d, position %d: %s are off by %g of their size", what,
                              model_name(which), l, p, part == 0 ? "keys" : "values", share);
            }
        }
        free(a);
        free(b);
    }
}
