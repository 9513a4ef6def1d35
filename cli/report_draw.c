/* --alpha-report=FILE.svg: the acceptance of a run as a picture; and what it forecasts. */
#include <math.h>
#include <stdio.h>

#include "cli/plot.h"
#include "cli/report.h"

struct forecast forecast_make(double alpha, int rows, const double *ms) {
    struct forecast f = {.rows = rows};
    for (int k = 0; k <= FORECAST_K; k++) {
        f.ms[k] = ms[k];
        f.speed_up[k] = isnan(alpha) ? NAN : acceptance_predicted_length(alpha, k) * ms[0] / ms[k];
        if (!isnan(f.speed_up[k])) f.largest = k;
        if (f.speed_up[k] > f.speed_up[f.best]) f.best = k;
    }
    return f;
}

/* What the panels show, by accepted tokens, position and K. */
struct picture {
    double x[K_MAX + 1], position[K_MAX]; /* 0, 1, 2 and so on; 1, 2, 3 and so on */
    double share[K_MAX + 1], rate[K_MAX], chosen[K_MAX + 1];
    char best_name[64];
};

static void fill(struct picture *p, const struct acceptance *a, int k, const struct forecast *f,
                 const uint64_t *rounds_by_k) {
    double all = 0;
    for (int i = 0; i <= K_MAX; i++) p->x[i] = i;
    for (int i = 0; i < K_MAX; i++) p->position[i] = i + 1;
    for (int i = 0; i <= k; i++) p->share[i] = a->rounds > 0 ? (double)a->histogram[i] / (double)a->rounds : NAN;
    for (int i = 0; i < k; i++) p->rate[i] = acceptance_position_rate(a, i);
    for (int i = 0; rounds_by_k && i <= k; i++) all += (double)rounds_by_k[i];
    for (int i = 0; rounds_by_k && i <= k; i++) p->chosen[i] = (double)rounds_by_k[i] / all;
    snprintf(p->best_name, sizeof p->best_name, "best: K = %d, %.2f times", f->best, f->speed_up[f->best]);
}

void report_draw(struct buf *out, const struct acceptance *a, int k, const struct forecast *f,
                 const uint64_t *rounds_by_k) {
    struct picture p;
    char title[128], k_text[32] = "K auto";
    fill(&p, a, k, f, rounds_by_k);
    const bool has_forecast = isfinite(f->speed_up[f->best]);
    const struct plot_series shares = {NULL, PLOT_BARS, 0, p.x, p.share, NULL, k + 1};
    const struct plot_series rates = {NULL, PLOT_BARS, 1, p.position, p.rate, NULL, k};
    const struct plot_series chosen = {NULL, PLOT_BARS, 3, p.x, p.chosen, NULL, k + 1};
    const struct plot_series forecasts[] = {
        {NULL, PLOT_LINE, 0, p.x, f->speed_up, NULL, FORECAST_K + 1},
        {has_forecast ? p.best_name : NULL, PLOT_LINE, 2, &p.x[f->best], &f->speed_up[f->best], NULL, 1}};
    const struct plot_panel panels[] = {
        {"rounds by accepted tokens", "accepted tokens", "share of rounds", &shares, 1, NAN},
        {"acceptance by position", "position among the drafted tokens", "share of rounds", &rates, 1, NAN},
        {"speed-up, by rounds as measured", "K", "times plain decoding", forecasts, 2, has_forecast ? 1 : NAN},
        {"K that auto chose", "K", "share of rounds", &chosen, 1, NAN}};
    if (!rounds_by_k) snprintf(k_text, sizeof k_text, "K = %d", k);
    snprintf(title, sizeof title,
             a->rounds > 0 ? "acceptance at %s: alpha %.4f, mean acceptance length %.2f" : "nothing was drafted",
             k_text, acceptance_alpha(a), acceptance_mean_length(a));
    plot_svg(out, title, panels, rounds_by_k ? 4 : 3);
}
