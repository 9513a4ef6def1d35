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
int bench_buckets(struct bench *);
int bench_stack(struct bench *);
int bench_overhead(struct bench *);
int bench_peers(struct bench *);
int bench_start(struct bench *);  /* opens the engine itself */
int bench_verify(struct bench *); /* likewise, for the target alone */
int bench_decode(struct bench *);

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

/* --- buckets: what each policy costs and saves ------------------------------------------------------------- */

enum { BENCH_POLICIES = BUCKETS_EXACT + 1, BENCH_BATCH_MAX = 256 };

/* How many rows run at a time: sizes 1..batch, each with its share of the time. */
struct batch_sizes {
    const char *name;
    int batch;
    double share[BENCH_BATCH_MAX + 1]; /* [batch + 1], which add up to 1; [0] is 0 */
};
/* Every size as often. */
void bench_sizes_uniform(struct batch_sizes *, int batch);
/* A day of a service with people behind it. Requests come at random (Poisson), so the number that runs at a time is a Poisson number
 * too, with the load of the hour as its mean, whatever the lengths of answers (the queue M/G/infinity). The load follows the day
 * of the conversation service in the Azure traces of 2024: its peak is 1.7 times its mean and 3.3 times its least (Stojkovic et al.:
 * DynamoLLM, HPCA 2025), on a curve of one hump. The machine is sized so that two deviations above the mean of the peak fill it; who
 * comes beyond `batch` waits, so these times count as `batch`, and times without a request do not count. */
void bench_sizes_day(struct batch_sizes *, int batch);
/* Of a moment of that day, 0..1 from its peak to its peak. */
void bench_sizes_hour(struct batch_sizes *, int batch, double time);
/* Mean load at a time of the day, 0..1 from its peak to its peak, as a share of the peak. */
double bench_day_load(double time);
/* The size at which the shares below it pass u, 0 <= u < 1. */
int bench_sizes_at(const struct batch_sizes *, double u);

/* Of the rows, or of the time, that rounds of these sizes take in buckets, the share that is padding. bucket [batch + 1]: of each
 * size; ms [batch + 1]: of a round in a bucket of that size. */
double bench_padding_rows(const struct batch_sizes *, const int *bucket);
double bench_padding_time(const struct batch_sizes *, const int *bucket, const double *ms);

/* --- overhead: where the time of a round goes --------------------------------------------------------------- */

/* Milliseconds of a round, as measured. */
struct round_measure {
    double whole;   /* by the host's clock, rounds one after the other */
    double limit;   /* what the bandwidth asks for the weights, keys and values that it reads */
    double alone;   /* its replays by themselves, back to back */
    double replays; /* the same by events in rounds, or what is submitted in their place */
    double sampler; /* draws and acceptance by events in rounds */
    double wait;    /* that the host waits */
};
enum round_part { PART_WEIGHTS, PART_KERNELS, PART_GAPS, PART_SAMPLER, PART_HOST, PART_WAITING, ROUND_PARTS };
/* The parts, which add up to the whole. Weights: the limit. Kernels: what the replays take beyond it, alone. Gaps: what they take
 * beyond that in a round. Sampler: as measured. The rest is time in which the device has no round: waiting, as far as the host waits,
 * else the host's. Where a part is longer than what it is cut from, it is all of that; events that add up to more than the round are
 * scaled to it. */
void bench_split_round(const struct round_measure *, double parts[ROUND_PARTS]);

/* --- verify: what rows cost the target, and whether there are cliffs ----------------------------------------- */

struct verify_bench {
    int batch[BENCH_BATCHES], batches; /* 1, 2, 4 and so on up to --batch */
    int rows_most;                     /* M goes from 1, a plain step, to K + 1 */
    /* By M: of a replay, and what it must take. */
    double ms[BENCH_BATCHES][K_MAX + 2], limit_ms[BENCH_BATCHES][K_MAX + 2];
};
/* What a replay must take: max(bytes / bandwidth, flops / rate) (Williams, Waterman, Patterson: Roofline, 2009), in ms. */
double bench_verify_limit(double bytes, double bandwidth, double flops, double rate);
/* Times that of M - 1 rows; NAN at M = 1. */
double bench_verify_growth(const struct verify_bench *, int which_batch, int m);
/* Times that of M + 1 rows, or of the next larger batch, whichever is the larger ratio: above 1 the smaller work takes longer. NAN: it
 * has neither. */
double bench_verify_over_larger(const struct verify_bench *, int which_batch, int m);
/* A cliff is a cell above 1.3 of its limit, or above 1.15 of a larger neighbour. */
enum { BEYOND_LIMIT = 1, BEYOND_NEIGHBOUR = 2 };
int bench_verify_beyond(const struct verify_bench *, int which_batch, int m);

/* --- decode: dependent greedy steps of one sequence ------------------------------------------------------------ */

/* Greedy steps behind a prompt, each an answer of one token, by plain decoding on an engine of batch 1: logits [steps, V] of each, V =
 * engine_info.vocab, host memory, and the chosen ids, tokens [steps]. With is_forced the history goes on with the tokens that are
 * given in place of those that were chosen, and they stay. Waits for every step. ERR_LIMIT where the context is too short. */
int bench_decode_logits(struct engine *, const struct ids *prompt, int steps, bool is_forced, int32_t *tokens,
                        float *logits);
/* max |logits - reference| / max |reference| over [n]; NAN where there is a NAN. */
double bench_logit_error(const float *logits, const float *reference, size_t n);

/* --- peers: what is installed beside duet (assets/peers.py) ------------------------------------------------- */

enum { PEER_ROWS_MAX = 4 * OPTION_INTS_MAX };

struct peers_bench {
    struct peer_row {
        char name[64];
        int k;
        double round_ms, tokens; /* of a round, of one row */
        double rate;             /* tokens a second, of all rows */
    } rows[PEER_ROWS_MAX];
    int count;
    struct buf missing; /* a line for each that is skipped */
};
/* A line that the script wrote: a row more, a sentence more, or a note. ERR_FORMAT for any other. alpha above 0: its tokens a round
 * are those that it predicts. */
int bench_peers_read(struct peers_bench *, const char *line, int batch, double alpha);

#endif
