#include "cli/speed.h"

#include <math.h>

int speed_rows(const struct engine *e) {
    const struct acceptance *a = engine_stats(e);
    const double rounds = (double)engine_counts(e).rounds;
    const int rows = rounds > 0 ? (int)lround((double)(a->rounds + a->plain_rounds) / rounds) : 1;
    const int most = engine_info(e).max_batch;
    return rows < 1 ? 1 : rows > most ? most : rows;
}

double speed_up_of_rounds(const struct engine *e, int rows, int64_t tokens, const uint64_t *rounds_by_k) {
    const double plain_ms = engine_round_ms(e, rows, 0) / rows;
    double spent_ms = 0;
    for (int k = 0; k <= engine_info(e).k_max; k++) spent_ms += (double)rounds_by_k[k] * engine_round_ms(e, rows, k);
    return spent_ms > 0 ? (double)tokens * plain_ms / spent_ms : NAN;
}

double speed_up_of_run(struct engine *e) {
    const struct engine_counts counts = engine_counts(e);
    const int rows = speed_rows(e);
    if (engine_stats(e)->drafted == 0 || engine_measure(e) != 0) return NAN;
    return speed_up_of_rounds(e, rows, engine_stats(e)->emitted, counts.rounds_by_k);
}
