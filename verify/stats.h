/* Acceptance statistics: sums over rounds, and the figures made from them (their names are those of vLLM and
 * AIPerf).
 *
 * A round counts for a row only if the row was live when it began. Accepted and evaluated positions count up to
 * the last emitted token. Sum of the histogram = rounds; drafted = sum of k; tokens cut by the host (stop
 * string, Ctrl-C) leave `emitted` and appear as `cut`. So emitted + cut = accepted + rounds + plain_rounds, less
 * the rounds that ended before their last token (an accepted end id, the limit, an error).
 *
 * This holds for every rule (enum accept_rule). Under `token` and `coupled` a position is evaluated when all before it were
 * accepted, and the rule decides it alone. Under `block` the whole block decides: the kept tokens are the accepted ones,
 * and the one at which the replacement is drawn, if there is one, is the rejected one, so that at most one position a
 * round is rejected here too; positions beyond it were looked at but are not evaluated. There `alpha` is a share of such
 * positions and estimates no single chance: it may be above or below `alpha_tv`, which is the chance under `token`. */
#ifndef DUET_VERIFY_STATS_H
#define DUET_VERIFY_STATS_H

#include "base/buf.h"
#include "round/state.h"

struct acceptance {
    int64_t rounds;       /* live rounds with k > 0 */
    int64_t plain_rounds; /* live rounds with k = 0 */
    int k;                /* the largest k of these rounds */
    int64_t drafted, accepted, rejected, emitted, cut;
    double overlap_sum, coupled_sum, expected_token, expected_block; /* sums of round_record's */
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
double acceptance_alpha(const struct acceptance *);    /* accepted / (accepted + rejected) */
double acceptance_alpha_tv(const struct acceptance *); /* overlap_sum / evaluated */
/* coupled_sum / evaluated: the mean of (1 - TV) / (1 + TV), below which coupled acceptance cannot fall. */
double acceptance_alpha_coupled(const struct acceptance *);
/* Accepted tokens a round that the rule is due on the blocks that were drafted; NAN for `coupled`, for which only a bound
 * is known. In the long run accepted / rounds is this figure of the run's own rule. */
double acceptance_expected(const struct acceptance *, enum accept_rule);
double acceptance_draft_rate(const struct acceptance *);  /* accepted / drafted */
double acceptance_mean_length(const struct acceptance *); /* 1 + accepted / rounds */
/* Rounds that accepted position j (0-based) / rounds: vLLM's per-position rate. */
double acceptance_position_rate(const struct acceptance *, int j);
/* Tokens a round that a constant acceptance `alpha` predicts: (1 - alpha^(K+1)) / (1 - alpha). */
double acceptance_predicted_length(double alpha, int k);

/* The members of --alpha-report=FILE, into an object of `out` that is open: the rule (`accept`), the sums and figures by these names, acceptance_histogram [k + 1],
 * per_position_acceptance_rate [k]; a figure is null where nothing was drafted. `k` is the run's K, the largest if
 * it changed. */
void acceptance_put(struct buf *out, const struct acceptance *, int k, enum accept_rule);

#endif
