/* duet bench: a table each. What was measured lies in a struct; what follows from it is pure, so that tests can compute it by hand. */
#ifndef DUET_CLI_BENCH_TABLES_H
#define DUET_CLI_BENCH_TABLES_H

#include "cli/bench.h"
#include "cli/plot.h"
#include "cli/sheet.h"

/* What every table starts from. */
struct bench {
    const struct options *o;
    struct models models;
    struct engine *engine; /* k_max covers every K of the options */
    struct bench_prompts prompts;
    double bandwidth; /* bytes a second; 0: the table has no use for it */
    struct output plot;
};

/* Measure and show. */
int bench_round(struct bench *); /* one K: every step of a round */
int bench_ks(struct bench *);    /* several K: a row each */
int bench_alpha(struct bench *);

/* What the runs were about, for the head and the facts of a sheet; context 0: none to tell. */
void bench_describe(struct sheet *, const struct bench *, int context);
int bench_needs_draft(const struct bench *); /* ERR_USAGE without one */
/* Draws to --plot's file, if there is one. */
int bench_draw(struct bench *, const char *title, const struct plot_panel *, int count);

/* --- alpha: what speculation brings, by measured times ------------------------------------------------------ */

enum { BENCH_ALPHAS = 10, BENCH_BATCHES = 9 };
extern const double bench_alphas[BENCH_ALPHAS];

struct alpha_bench {
    struct {
        int batch;
        double round_ms[K_MAX + 1]; /* by K: the sum of its launches */
    } costs[BENCH_BATCHES];         /* [batches]; 1, 2, 4 and so on up to --batch */
    int batches;
    int ks[OPTION_INTS_MAX], k_count; /* above 0 */
};
/* (1 - alpha^(K+1)) / (1 - alpha) tokens in a round of K against one in a round of K = 0 (Leviathan, Kalman, Matias: Fast inference from
 * transformers via speculative decoding, 2023, equation 1). */
double bench_alpha_speed_up(const struct alpha_bench *, int which_batch, double alpha, int k);
/* The K of the largest, 0 included. */
int bench_alpha_best(const struct alpha_bench *, int which_batch, double alpha);
/* The alpha at which a K runs as fast as plain decoding, the least of all K, which *k says; NAN: not even 1 is enough. */
double bench_alpha_break_even(const struct alpha_bench *, int which_batch, int *k);

#endif
