/* --alpha-report=FILE.svg: the acceptance of a run as a picture; and what it forecasts. */
#include <math.h>
#include <stdio.h>

#include "cli/plot.h"
#include "cli/report.h"

struct forecast forecast_make(double alpha, int k, const struct round_means *m) {
    struct forecast f = {.best = 0};
    double token_ms = m->sampling_ms / (k + 1), drafted_ms = m->draft_ms / k + token_ms;
    double plain_ms = m->verify_ms + token_ms;
    for (int i = 0; i <= FORECAST_K; i++) {
        double length = isnan(alpha) ? NAN : acceptance_predicted_length(alpha, i);
        f.speed_up[i] = length * plain_ms / (plain_ms + i * drafted_ms);
        if (f.speed_up[i] > f.speed_up[f.best]) f.best = i;
    }
    return f;
}

/* What the panels show, by accepted tokens, position and K. */
struct picture {
    double x[K_MAX + 1], position[K_MAX]; /* 0, 1, 2 and so on; 1, 2, 3 and so on */
    double share[K_MAX + 1], rate[K_MAX];
    struct forecast forecast;
    char best_name[64];
};

static void fill(struct picture *p, const struct acceptance *a, int k, const struct round_means *m) {
    for (int i = 0; i <= K_MAX; i++) p->x[i] = i;
    for (int i = 0; i < K_MAX; i++) p->position[i] = i + 1;
    for (int i = 0; i <= k; i++) p->share[i] = a->rounds > 0 ? (double)a->histogram[i] / (double)a->rounds : NAN;
    for (int i = 0; i < k; i++) p->rate[i] = acceptance_position_rate(a, i);
    p->forecast = forecast_make(acceptance_alpha(a), k, m);
    snprintf(p->best_name, sizeof p->best_name, "best: K = %d, %.2f times", p->forecast.best,
             p->forecast.speed_up[p->forecast.best]);
}

void report_draw(struct buf *out, const struct acceptance *a, int k, const struct round_means *m) {
    struct picture p;
    char title[128];
    fill(&p, a, k, m);
    const int best = p.forecast.best;
    const bool has_forecast = isfinite(p.forecast.speed_up[best]);
    const struct plot_series shares = {NULL, PLOT_BARS, 0, p.x, p.share, NULL, k + 1};
    const struct plot_series rates = {NULL, PLOT_BARS, 1, p.position, p.rate, NULL, k};
    const struct plot_series forecasts[] = {
        {NULL, PLOT_LINE, 0, p.x, p.forecast.speed_up, NULL, FORECAST_K + 1},
        {has_forecast ? p.best_name : NULL, PLOT_LINE, 2, &p.x[best], &p.forecast.speed_up[best], NULL, 1}};
    const struct plot_panel panels[] = {
        {"rounds by accepted tokens", "accepted tokens", "share of rounds", &shares, 1, NAN},
        {"acceptance by position", "position among the drafted tokens", "share of rounds", &rates, 1, NAN},
        {"speed-up, if every K took the target as long", "K", "times plain decoding", forecasts, 2,
         has_forecast ? 1 : NAN}};
    snprintf(title, sizeof title,
             a->rounds > 0 ? "acceptance at K = %d: alpha %.4f, %.2f tokens a round" : "nothing was drafted", k,
             acceptance_alpha(a), acceptance_mean_length(a));
    plot_svg(out, title, panels, 3);
}
