/* How many rows run at a time, and what padding them to buckets wastes. Pure. */
#include <math.h>

#include "cli/bench_tables.h"

static const double DAY_PEAK_BY_LEAST = 3.3, DAY_PEAK_BY_MEAN = 1.7;
enum { MINUTES = 24 * 60 };
static const double PI = 3.14159265358979323846;

void bench_sizes_uniform(struct batch_sizes *s, int batch) {
    *s = (struct batch_sizes){.name = "uniform", .batch = batch};
    for (int b = 1; b <= batch; b++) s->share[b] = 1.0 / batch;
}

/* Mean over the day of ((1 + cos 2 pi t) / 2)^p: Gamma(p + 1/2) / (sqrt(pi) Gamma(p + 1)). */
static double mean_of_hump(double p) {
    return exp(lgamma(p + 0.5) - lgamma(p + 1)) / sqrt(PI);
}

/* The hump is as narrow as the mean asks for. */
static double day_power(void) {
    const double least = 1 / DAY_PEAK_BY_LEAST, mean = (1 / DAY_PEAK_BY_MEAN - least) / (1 - least);
    double low = 0, high = 64;
    for (int i = 0; i < 60; i++) {
        double p = (low + high) / 2;
        if (mean_of_hump(p) > mean)
            low = p;
        else
            high = p;
    }
    return low;
}

double bench_day_load(double time) {
    const double least = 1 / DAY_PEAK_BY_LEAST;
    return least + (1 - least) * pow((1 + cos(2 * PI * time)) / 2, day_power());
}

/* m + 2 sqrt(m) = batch. */
static double peak_of(int batch) {
    double root = sqrt(1.0 + batch) - 1;
    return root * root;
}

static double poisson(double mean, int n) {
    return exp(n * log(mean) - mean - lgamma(n + 1.0));
}

/* Without those times in which nothing runs. */
static void add_moment(struct batch_sizes *s, double mean) {
    double left = 1 - poisson(mean, 0);
    for (int b = 1; b < s->batch; b++) {
        double share = poisson(mean, b);
        s->share[b] += share;
        left -= share;
    }
    s->share[s->batch] += left > 0 ? left : 0;
}

static void scale_to_1(struct batch_sizes *s) {
    double sum = 0;
    for (int b = 1; b <= s->batch; b++) sum += s->share[b];
    for (int b = 1; b <= s->batch; b++) s->share[b] /= sum;
}

void bench_sizes_day(struct batch_sizes *s, int batch) {
    *s = (struct batch_sizes){.name = "day", .batch = batch};
    for (int minute = 0; minute < MINUTES; minute++)
        add_moment(s, peak_of(batch) * bench_day_load((double)minute / MINUTES));
    scale_to_1(s);
}

void bench_sizes_hour(struct batch_sizes *s, int batch, double time) {
    *s = (struct batch_sizes){.name = "hour", .batch = batch};
    add_moment(s, peak_of(batch) * bench_day_load(time));
    scale_to_1(s);
}

int bench_sizes_at(const struct batch_sizes *s, double u) {
    double below = s->share[1];
    int b = 1;
    while (b < s->batch && below <= u) below += s->share[++b];
    return b;
}

double bench_padding_rows(const struct batch_sizes *s, const int *bucket) {
    double live = 0, all = 0;
    for (int b = 1; b <= s->batch; b++) live += s->share[b] * b, all += s->share[b] * bucket[b];
    return 1 - live / all;
}

double bench_padding_time(const struct batch_sizes *s, const int *bucket, const double *ms) {
    double live = 0, all = 0;
    for (int b = 1; b <= s->batch; b++) live += s->share[b] * ms[b], all += s->share[b] * ms[bucket[b]];
    return 1 - live / all;
}
