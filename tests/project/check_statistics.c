/* The statistics that other suites judge by. */
#include <math.h>

#include "base/philox.h"
#include "tests/support/statistics.h"
#include "tests/support/support.h"

START_TEST(chi_square_tail_agrees_with_tables)
{
    ck_assert(fabs(chi_square_tail(3.841459, 1) - 0.05) < 1e-7);
    ck_assert(fabs(chi_square_tail(18.307038, 10) - 0.05) < 1e-7);
    ck_assert(fabs(chi_square_tail(149.449253, 100) - 0.001) < 1e-8);
    ck_assert(fabs(chi_square_tail(2 * log(1e15), 2) / 1e-15 - 1) < 1e-6);
    ck_assert(chi_square_tail(0, 5) == 1 && chi_square_tail(INFINITY, 5) == 0);
}
END_TEST

START_TEST(a_counted_cell_of_probability_0_has_no_chance)
{
    struct chi_square chi = {0};
    chi_square_add(&chi, (const int64_t[]){50, 50, 1}, (const double[]){0.5, 0.5, 0}, 3);
    ck_assert(chi_square_p(&chi) == 0);
}
END_TEST

/* Many samples of 4 cells by inversion: the mean and the spread of their distances are those that are claimed. */
START_TEST(distance_of_exact_samples_is_the_expected_one)
{
    enum { SAMPLES = 2000, SIZE = 3000 };
    static const double p[] = {0.5, 0.3, 0.15, 0.05};
    double sum = 0, squares = 0;
    for (int s = 0; s < SAMPLES; s++) {
        int64_t counts[4] = {0};
        for (int i = 0; i < SIZE; i++) {
            double u = philox_word(5, (uint64_t)s, 0, (uint32_t)i) * 0x1p-32;
            counts[u < 0.5 ? 0 : u < 0.8 ? 1 : u < 0.95 ? 2 : 3]++;
        }
        struct distance d = {0};
        distance_add(&d, counts, p, 4);
        ck_assert(d.total == SIZE);
        sum += distance_z(&d), squares += distance_z(&d) * distance_z(&d);
    }
    ck_assert_msg(fabs(sum / SAMPLES) < 0.1, "mean of z %g", sum / SAMPLES);
    ck_assert_msg(fabs(squares / SAMPLES - 1) < 0.15, "variance of z %g", squares / SAMPLES);
}
END_TEST

START_TEST(a_biased_sample_is_far)
{
    struct distance d = {0};
    distance_add(&d, (const int64_t[]){6300, 3700}, (const double[]){0.6, 0.4}, 2);
    ck_assert(fabs(distance_tv(&d) - 0.03) < 1e-12);
    ck_assert(distance_expected_tv(&d) < 0.005);
    ck_assert(distance_z(&d) > 5);
}
END_TEST

Suite *check_statistics(void);
Suite *check_statistics(void) {
    Suite *suite = suite_create("statistics");
    TCase *c = tcase_create("statistics");
    tcase_add_test(c, chi_square_tail_agrees_with_tables);
    tcase_add_test(c, a_counted_cell_of_probability_0_has_no_chance);
    tcase_add_test(c, distance_of_exact_samples_is_the_expected_one);
    tcase_add_test(c, a_biased_sample_is_far);
    suite_add_tcase(suite, c);
    return suite;
}
