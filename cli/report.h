/* What the files of --alpha-report share. */
#ifndef DUET_CLI_REPORT_H
#define DUET_CLI_REPORT_H

#include "engine/engine.h"

/* Means over the rounds of the engine; NAN where there was none. */
struct round_means {
    double graph_launches, kernel_launches, host_us, wait_us; /* over all rounds */
    double draft_ms, verify_ms, sampling_ms, device_ms;       /* over those that were timed */
    uint64_t rounds, timed_rounds, eager_fallbacks;
};

/* Speed-up against K = 0 for K = 0..FORECAST_K, if each drafted token were accepted by the chance `alpha` and a round of K took ms [K]:
 * (1 - alpha^(K+1)) / (1 - alpha) tokens a round. NAN where nothing was drafted, or a round of K or of 0 was not measured. */
enum { FORECAST_K = 8 };
struct forecast {
    int rows; /* of the rounds that were measured */
    double ms[FORECAST_K + 1], speed_up[FORECAST_K + 1];
    int best, largest; /* K, of those that were measured */
};
struct forecast forecast_make(double alpha, int rows, const double *ms);

/* Histogram, acceptance by position, and the forecast, as one picture; of K_AUTO also rounds_by_k [k + 1], else NULL. */
void report_draw(struct buf *out, const struct acceptance *, int k, const struct forecast *,
                 const uint64_t *rounds_by_k);

#endif
