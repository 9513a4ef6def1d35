/* Statistics of counted tokens: chi-square with chances down to 1e-300, and the total variation distance with the error
 * that sampling alone gives it. */
#ifndef DUET_TESTS_STATISTICS_H
#define DUET_TESTS_STATISTICS_H

#include <stdint.h>

/* The chance of a chi-square of `dof` degrees of freedom to be at least x. */
double chi_square_tail(double x, int dof);

struct chi_square {
    double x;
    int dof;
};
/* Adds the cells of one multinomial; cells expected below 5 are pooled. A counted cell of
 * probability 0 makes the chance 0. */
void chi_square_add(struct chi_square *, const int64_t *counts, const double *p, int cells);
double chi_square_p(const struct chi_square *);

/* Total variation distance between counted shares and p, a mean over multinomials weighted by their size; beside it what
 * exact sampling gives on average, and the variance of that. */
struct distance {
    int64_t total;
    double sum, expected, variance; /* all in counts */
};
void distance_add(struct distance *, const int64_t *counts, const double *p, int cells);
double distance_tv(const struct distance *);
double distance_expected_tv(const struct distance *);
/* Standard deviations above the expectation. */
double distance_z(const struct distance *);

#endif
