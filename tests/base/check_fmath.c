/* base/fmath.h: accuracy against libm in double, limits, and the bits themselves. */
#include <float.h>

#include "base/fmath.h"
#include "tests/support/support.h"

/* |y - reference| in units of the f32 spacing at `reference`. */
static double error_ulp(float y, double reference) {
    int exponent;
    frexp(reference, &exponent);
    double spacing = fmax(ldexp(1, exponent - 24), 0x1p-149);
    return fabs(y - reference) / spacing;
}

START_TEST(exp_is_within_1_1_ulp_of_libm)
{
    for (uint64_t bits = 0; bits < 0x100000000u; bits += 5003) {
        float x = fmath_from_bits((uint32_t)bits);
        if (!(fabsf(x) < 110)) continue;
        double reference = exp(x);
        bool is_close = reference > 0x1.ffffffp127 ? isinf(fmath_exp(x)) : error_ulp(fmath_exp(x), reference) < 1.1;
        if (!is_close) ck_abort_msg("exp(%a) is %a", (double)x, (double)fmath_exp(x));
    }
}
END_TEST

START_TEST(exp_limits)
{
    ck_assert(fmath_exp(0) == 1);
    ck_assert(fmath_exp(-0.0f) == 1);
    ck_assert(fmath_exp(-INFINITY) == 0);
    ck_assert(fmath_exp(-FLT_MAX) == 0);
    ck_assert(fmath_exp(-104) == 0);
    ck_assert(fmath_exp(-103) == 0x1p-149f);
    ck_assert(fmath_exp(INFINITY) == INFINITY);
    ck_assert(fmath_exp(FLT_MAX) == INFINITY);
    ck_assert(isnan(fmath_exp(NAN)));
    ck_assert(isnan(fmath_exp(-NAN)));
}
END_TEST

START_TEST(exp_never_decreases)
{
    float last = 0;
    for (float x = -105; x < 89; x += 0x1p-13f) {
        float y = fmath_exp(x);
        if (y < last) ck_abort_msg("exp(%a)", (double)x);
        last = y;
    }
}
END_TEST

START_TEST(exp_negative_is_exp)
{
    for (uint32_t bits = 0x80000000u; bits <= 0xC2D40000u; bits += 401) { /* -0 to -106 */
        float x = fmath_from_bits(bits);
        if (fmath_bits(fmath_exp_negative(x)) != fmath_bits(fmath_exp(x))) ck_abort_msg("exp(%a)", (double)x);
    }
    ck_assert(fmath_exp_negative(0) == 1);
}
END_TEST

static void must_divide(float a, float b) {
    float q = fmath_quotient(a, b, 1 / b);
    if (q != a / b) ck_abort_msg("%a / %a is %a, not %a", (double)a, (double)b, (double)(a / b), (double)q);
}

/* Every 16th odd mantissa of b with those of a whose quotient lies closest to the middle of two floats: a 2^24 or a 2^25 is a
 * multiple of b and a little. And numbers of all allowed sizes. */
START_TEST(quotient_is_division)
{
    for (int64_t b = (1 << 23) + 1; b < 1 << 24; b += 32)
        for (int shift = 24; shift <= 25; shift++) {
            int64_t inverse = 1; /* of 2^shift, modulo b */
            for (int i = 0; i < shift; i++) inverse = inverse % 2 ? (inverse + b) / 2 : inverse / 2;
            for (int64_t little = -2; little <= 2; little++) {
                int64_t a = (little + b) * inverse % b;
                if (a < 1 << 23) a += b;
                if (a < 1 << 24) must_divide((float)a * 0x1p-23f, (float)b * 0x1p-23f);
            }
        }
    uint64_t state = 1;
    for (int i = 0; i < 1000000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        float a = ldexpf((float)(state >> 40 | 1u << 23), (int)(state >> 8 & 127) - 23 - 90);
        float b = ldexpf((float)((state >> 16 & 0xFFFFFF) | 1u << 23), (int)(state & 255) % 40 - 23 - 20);
        must_divide(a, b), must_divide(-a, b);
    }
    must_divide(0, 3), must_divide(0x1p-100f, 0x1.fffffep19f), must_divide(0x1p100f, 0x1p-20f);
}
END_TEST

START_TEST(log1p_is_within_1_6_ulp_of_libm)
{
    for (uint64_t bits = 0; bits < 0x100000000u; bits += 5003) {
        float x = fmath_from_bits((uint32_t)bits);
        if (!(x > -1 && x < 0x1p100f)) continue;
        if (error_ulp(fmath_log1p(x), log1p(x)) >= 1.6) ck_abort_msg("log1p(%a)", (double)x);
    }
    ck_assert(fmath_log1p(-0x1p-33f) == -0x1p-33f);
    ck_assert(error_ulp(fmath_log1p(-0x1.fffffep-1f), log1p(-0x1.fffffep-1)) < 1.6);
}
END_TEST

/* Other compilers, optimisation levels and CPUs must give these bits; so must the GPU. */
START_TEST(bits_are_the_same_in_every_build)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < 200000; i++) {
        float x = (float)i * -0x1.1p-11f; /* 0 ... -103.8 */
        float v = fmaf((float)(i * 21474u), -0x1p-32f, -0x1p-33f);
        hash = (hash ^ fmath_bits(fmath_exp(x))) * 0x100000001b3u;
        hash = (hash ^ fmath_bits(fmath_exp(-x))) * 0x100000001b3u;
        hash = (hash ^ fmath_bits(fmath_log1p(v))) * 0x100000001b3u;
    }
    ck_assert_msg(hash == 0x665f3eec5118e505u, "hash of results is 0x%016llx", (unsigned long long)hash);
}
END_TEST

Suite *check_fmath(void);
Suite *check_fmath(void) {
    Suite *suite = suite_create("fmath");
    TCase *c = tcase_create("fmath");
    tcase_add_test(c, exp_is_within_1_1_ulp_of_libm);
    tcase_add_test(c, exp_limits);
    tcase_add_test(c, exp_never_decreases);
    tcase_add_test(c, exp_negative_is_exp);
    tcase_add_test(c, quotient_is_division);
    tcase_add_test(c, log1p_is_within_1_6_ulp_of_libm);
    tcase_add_test(c, bits_are_the_same_in_every_build);
    suite_add_tcase(suite, c);
    return suite;
}
