/* Acceptance statistics: sums over rounds, and the figures made from them (TRAPS of mixed-up names: vLLM and
 * AIPerf use these words).
 *
 * A round counts for a row only if the row was live when it began. Accepted and evaluated positions count up to
 * the last emitted token. Sum of the histogram = rounds; drafted = sum of k; tokens cut by the host (stop
 * string, Ctrl-C) leave `emitted` and appear as `cut`. So emitted + cut = accepted + rounds + plain_rounds, less
 * the rounds that ended before their last token (an accepted end id, the limit, an error). */
#ifndef DUET_VERIFY_STATS_H
#define DUET_VERIFY_STATS_H

#include <cjson/cJSON.h>

#include "sampler/sampler.h"

struct acceptance {
    int64_t rounds;       /* live rounds with k > 0 */
    int64_t plain_rounds; /* live rounds with k = 0 */
    int k;                /* the largest k of these rounds */
    int64_t drafted, accepted, rejected, emitted, cut;
    double overlap_sum;
    int64_t evaluated;
    int64_t histogram[K_MAX + 1]; /* [a] rounds that accepted exactly a tokens */
    int64_t offered[K_MAX];       /* [j] rounds that evaluated position j (0-based), */
    int64_t hits[K_MAX];          /* and of these, accepted it */
};

void acceptance_add(struct acceptance *, const struct round_record *);
/* The host dropped the last `tokens` emitted ones. */
void acceptance_cut(struct acceptance *, int tokens);
void acceptance_merge(struct acceptance *, const struct acceptance *other);

/* Figures; NAN where nothing was drafted. */
double acceptance_alpha(const struct acceptance *);       /* accepted / (accepted + rejected) */
double acceptance_alpha_tv(const struct acceptance *);    /* overlap_sum / evaluated */
double acceptance_draft_rate(const struct acceptance *);  /* accepted / drafted */
double acceptance_mean_length(const struct acceptance *); /* 1 + accepted / rounds */
double acceptance_position_rate(const struct acceptance *,
                                int j); /* accepted at j / rounds (vLLM's per-position rate) */
/* Tokens a round that a constant acceptance `alpha` predicts: (1 - alpha^(K+1)) / (1 - alpha). */
double acceptance_predicted_length(double alpha, int k);

/* The object of --alpha-report=FILE: the sums and figures by these names, acceptance_histogram [k + 1],
 * per_position_acceptance_rate [k]; a figure is null where nothing was drafted. `k` is the run's K, the largest if
 * it changed. */
cJSON *acceptance_json(const struct acceptance *, int k);

#endif
