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

/* Speed-up against K = 0 for K = 0..FORECAST_K, if each drafted token were accepted by the chance `alpha`, and the target's pass took
 * as long for every K as in these rounds of K = k: each drafted token costs draft_ms / k, each token of a round sampling_ms / (k + 1).
 * So it says too much where a pass grows with its rows, as on the host. NAN where nothing was drafted or timed. */
enum { FORECAST_K = 8 };
struct forecast {
    double speed_up[FORECAST_K + 1];
    int best; /* K */
};
struct forecast forecast_make(double alpha, int k, const struct round_means *);

/* Histogram, acceptance by position, and the forecast, as one picture. */
void report_draw(struct buf *out, const struct acceptance *, int k, const struct round_means *);

#endif
