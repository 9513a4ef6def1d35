#include "tests/support/statistics.h"

#include <math.h>

/* --- chi-square ------------------------------------------------------------------------------------------- */

/* Q(a, x), the regularised upper incomplete gamma function: series below a + 1, Lentz's continued fraction above. */
static double gamma_tail(double a, double x) {
    double scale = exp(a * log(x) - x - lgamma(a));
    if (x < a + 1) {
        double term = 1 / a, sum = term;
        for (int n = 1; n < 10000 && term > sum * 1e-16; n++) sum += term *= x / (a + n);
        return 1 - scale * sum;
    }
    double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int n = 1; n < 10000; n++) {
        double an = -n * (n - a);
        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        h *= d * c;
        if (fabs(d * c - 1) < 1e-15) break;
    }
    return scale * h;
}

double chi_square_tail(double x, int dof) {
    if (x == INFINITY) return 0;
    return x <= 0 ? 1 : gamma_tail(dof / 2.0, x / 2);
}

static void add_cell(struct chi_square *chi, double count, double expected) {
    chi->x += (count - expected) * (count - expected) / expected;
    chi->dof++;
}

void chi_square_add(struct chi_square *chi, const int64_t *counts, const double *p, int cells) {
    double total = 0, rare = 0, rare_expected = 0;
    int before = chi->dof;
    for (int i = 0; i < cells; i++) total += (double)counts[i];
    for (int i = 0; i < cells; i++) {
        if (p[i] == 0 && counts[i] > 0) chi->x = INFINITY;
        if (p[i] == 0) continue;
        if (p[i] * total < 5)
            rare += (double)counts[i], rare_expected += p[i] * total;
        else
            add_cell(chi, (double)counts[i], p[i] * total);
    }
    if (rare_expected >= 1) add_cell(chi, rare, rare_expected);
    if (chi->dof > before) chi->dof--; /* the total is given */
}

double chi_square_p(const struct chi_square *chi) {
    return chi_square_tail(chi->x, chi->dof > 0 ? chi->dof : 1);
}

/* --- total variation -------------------------------------------------------------------------------------- */

/* Of |X| and |Y| for normal X, Y of deviation 1 and correlation r. */
static double covariance_of_sizes(double r) {
    return 2 / M_PI * (r * asin(r) + sqrt(fmax(1 - r * r, 0)) - 1);
}

/* |count - n p| of a multinomial, by its normal approximation: mean sqrt(2 / pi) of its deviation. */
void distance_add(struct distance *d, const int64_t *counts, const double *p, int cells) {
    double total = 0;
    for (int i = 0; i < cells; i++) total += (double)counts[i];
    d->total += (int64_t)total;
    for (int i = 0; i < cells; i++) {
        double deviation = sqrt(total * p[i] * (1 - p[i]));
        d->sum += fabs((double)counts[i] - total * p[i]) / 2;
        d->expected += sqrt(2 / M_PI) * deviation / 2;
        for (int j = 0; j < cells && deviation > 0; j++) {
            double other = sqrt(total * p[j] * (1 - p[j]));
            double r = i == j ? 1 : -sqrt(p[i] * p[j] / ((1 - p[i]) * (1 - p[j])));
            if (other > 0) d->variance += covariance_of_sizes(fmax(r, -1)) * deviation * other / 4;
        }
    }
}

double distance_tv(const struct distance *d) {
    return d->total > 0 ? d->sum / (double)d->total : 0;
}

double distance_expected_tv(const struct distance *d) {
    return d->total > 0 ? d->expected / (double)d->total : 0;
}

double distance_z(const struct distance *d) {
    return d->variance > 0 ? (d->sum - d->expected) / sqrt(d->variance) : 0;
}
