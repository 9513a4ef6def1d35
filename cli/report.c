/* --alpha-report: the acceptance of a run as a table with a picture, and as JSON. */
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/report.h"

enum { BAR_MAX = 40, BAR_INDENT = 26 };

int alpha_report_open(struct alpha_report *r, const struct options *o, const struct models *m,
                      const struct output *output) {
    *r = (struct alpha_report){.wanted = o->alpha_report, .file = OUTPUT_CLOSED};
    if (!o->alpha_report_file) return 0;
    const char *dot = strrchr(o->alpha_report_file, '.');
    r->is_picture = dot && strcasecmp(dot, ".svg") == 0;
    TRY(output_open(&r->file, o->alpha_report_file));
    TRY(output_refuse_input(&r->file, o->input));
    TRY(output_refuse_models(&r->file, m));
    return output ? output_refuse_output(&r->file, output) : 0;
}

void alpha_report_close(struct alpha_report *r) {
    (void)output_close(&r->file);
}

static void print_bar(double share) {
    struct buf bar = {0};
    int most = terminal_width(2) - BAR_INDENT;
    terminal_put_bar(&bar, share, most > BAR_MAX ? BAR_MAX : most > 1 ? most : 1);
    fputs(buf_text(&bar), stderr);
    buf_free(&bar);
}

/* A line of its own, broken between words. */
static void say(int indent, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(int indent, const char *format, ...) {
    struct buf text = {0};
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    buf_printf(&text, "%*s%s", indent, "", line);
    terminal_print(stderr, terminal_width(2), 0, 2 * indent, buf_text(&text));
    buf_free(&text);
}

static void print_figure(const char *name, double value, const char *meaning) {
    char number[32] = "-    ";
    if (!isnan(value)) snprintf(number, sizeof number, "%.4f", value);
    int column = fprintf(stderr, "  %-24s %8s  ", name, number);
    terminal_print(stderr, terminal_width(2), column, column, meaning);
}

static void print_figures(const struct acceptance *a, int k, const struct engine *e) {
    enum accept_rule rule = engine_info(e).accept;
    const char *proposer = engine_graphs(e, 0) ? NULL : engine_info(e).proposer; /* a draft model goes without saying */
    double alpha = acceptance_alpha(a);
    say(0, "acceptance at K = %d, rule %s%s%s", k, accept_rule_name(rule), proposer ? ", " : "",
        proposer ? proposer : "");
    say(2, "rounds %lld, drafted %lld, accepted %lld, rejected %lld, emitted %lld, cut %lld, plain rounds %lld",
        (long long)a->rounds, (long long)a->drafted, (long long)a->accepted, (long long)a->rejected,
        (long long)a->emitted, (long long)a->cut, (long long)a->plain_rounds);
    print_figure("alpha", alpha, "accepted / (accepted + rejected)");
    print_figure("alpha_tv", acceptance_alpha_tv(a), "mean of sum min(p_target, p_draft)");
    print_figure("alpha_coupled", acceptance_alpha_coupled(a),
                 "mean of (1 - TV) / (1 + TV): the least of the rule coupled");
    print_figure("draft_acceptance_rate", acceptance_draft_rate(a), "accepted / drafted");
    print_figure("mean_acceptance_length", acceptance_mean_length(a), "1 + accepted / rounds");
    print_figure("expected_token", acceptance_expected(a, ACCEPT_TOKEN),
                 "accepted a round, as the rule token would have it");
    print_figure("expected_block", acceptance_expected(a, ACCEPT_BLOCK),
                 "accepted a round, as the rule block would have it");
    if (!isnan(alpha) && rule != ACCEPT_BLOCK)
        print_figure("predicted length", acceptance_predicted_length(alpha, k), "(1 - alpha^(K+1)) / (1 - alpha)");
}

static void print_histogram(const struct acceptance *a, int k) {
    int64_t most = 1;
    for (int i = 0; i <= k; i++)
        if (a->histogram[i] > most) most = a->histogram[i];
    fputs("rounds by accepted tokens\n", stderr);
    for (int i = 0; i <= k; i++) {
        fprintf(stderr, "  %3d %9lld %5.1f %%  ", i, (long long)a->histogram[i],
                100.0 * (double)a->histogram[i] / (double)a->rounds);
        print_bar((double)a->histogram[i] / (double)most);
        fputc('\n', stderr);
    }
}

static void print_positions(const struct acceptance *a, int k) {
    fputs("acceptance by position\n", stderr);
    for (int j = 0; j < k; j++) {
        double rate = acceptance_position_rate(a, j);
        fprintf(stderr, "  %3d %17.4f  ", j + 1, rate);
        print_bar(rate);
        fputc('\n', stderr);
    }
}

/* --- the engine's rounds ------------------------------------------------------------------------------------ */

static struct round_means round_means(const struct engine *e) {
    struct engine_counts c = engine_counts(e);
    double rounds = c.rounds ? (double)c.rounds : NAN, timed = c.times.rounds ? (double)c.times.rounds : NAN;
    return (struct round_means){
        .graph_launches = (double)c.graph_launches / rounds,
        .kernel_launches = (double)c.kernel_launches / rounds,
        .host_us = (double)c.host_us / rounds,
        .wait_us = (double)c.wait_us / rounds,
        .draft_ms = c.times.draft_ms / timed,
        .verify_ms = c.times.verify_ms / timed,
        .sampling_ms = c.times.sampling_ms / timed,
        .device_ms = (c.times.draft_ms + c.times.verify_ms + c.times.sampling_ms) / timed,
        .rounds = c.rounds,
        .timed_rounds = c.times.rounds,
        .eager_fallbacks = c.draft.eager_fallbacks + c.target.eager_fallbacks,
    };
}

/* Of an answer, all rounds of it: those at K = 0 too. */
static double tokens_a_round(const struct acceptance *a) {
    int64_t rounds = a->rounds + a->plain_rounds;
    return rounds > 0 ? (double)a->emitted / (double)rounds : NAN;
}

/* In the time that the engine spent in rounds: neither prompts nor what was done with the tokens count. */
static double tokens_a_second(const struct acceptance *a, const struct round_means *m) {
    return (double)a->emitted * 1e6 / ((m->host_us + m->wait_us) * (double)m->rounds);
}

static void print_forecast(const struct acceptance *a, int k, const struct round_means *m) {
    struct forecast f = forecast_make(acceptance_alpha(a), k, m);
    struct buf line = {0};
    if (isnan(f.speed_up[f.best])) return;
    for (int i = 0; i <= FORECAST_K; i++) buf_printf(&line, "%s%.2f", i ? ", " : "", f.speed_up[i]);
    say(0, "forecast of the speed-up at K = 0 to %d, if the target took as long for every K: %s; the best is K = %d",
        FORECAST_K, buf_text(&line), f.best);
    buf_free(&line);
}

static void print_rounds(const struct engine *e, int k) {
    struct round_means m = round_means(e);
    int graphs, kernels;
    if (!m.rounds) return;
    engine_launches(e, k, &graphs, &kernels);
    say(0, "a round of the engine, mean of %llu", (unsigned long long)m.rounds);
    say(2, "%.2f tokens of an answer; %.1f tok/s in rounds", tokens_a_round(engine_stats(e)),
        tokens_a_second(engine_stats(e), &m));
    if (m.timed_rounds)
        say(2, "device %.3f ms: draft %.3f, verify %.3f, sampling %.3f (events, in %llu rounds)", m.device_ms,
            m.draft_ms, m.verify_ms, m.sampling_ms, (unsigned long long)m.timed_rounds);
    say(2, "host %.1f us to enqueue%s, %.1f us of waiting", m.host_us, engine_info(e).is_async ? "" : " and run",
        m.wait_us);
    say(2, "launches: graphs %.2f (%d at K = %d), kernels outside graphs %.2f (%d), eager fallbacks %llu in all",
        m.graph_launches, graphs, k, m.kernel_launches, kernels, (unsigned long long)m.eager_fallbacks);
    print_forecast(engine_stats(e), k, &m);
}

static void put_figure(struct buf *out, const char *name, double value) {
    json_put_name(out, name);
    json_put_number(out, value);
}

static void put_rounds(struct buf *out, const struct engine *e) {
    struct round_means m = round_means(e);
    put_figure(out, "tokens_per_round", tokens_a_round(engine_stats(e)));
    put_figure(out, "tok_per_second", tokens_a_second(engine_stats(e), &m));
    put_figure(out, "engine_rounds", (double)m.rounds);
    put_figure(out, "timed_rounds", (double)m.timed_rounds);
    put_figure(out, "device_ms_per_round", m.device_ms);
    put_figure(out, "draft_ms_per_round", m.draft_ms);
    put_figure(out, "verify_ms_per_round", m.verify_ms);
    put_figure(out, "sampling_ms_per_round", m.sampling_ms);
    put_figure(out, "host_us_per_round", m.host_us);
    put_figure(out, "wait_us_per_round", m.wait_us);
    put_figure(out, "graph_launches_per_round", m.graph_launches);
    put_figure(out, "eager_launches_per_round", m.kernel_launches);
    put_figure(out, "eager_fallbacks", (double)m.eager_fallbacks);
}

/* null where nothing was drafted or timed */
static void put_forecast(struct buf *out, const struct engine *e, int k) {
    struct round_means m = round_means(e);
    struct forecast f = forecast_make(acceptance_alpha(engine_stats(e)), k, &m);
    json_put_name(out, "forecast_speed_up");
    buf_putc(out, '[');
    for (int i = 0; i <= FORECAST_K; i++) json_put_element(out), json_put_number(out, f.speed_up[i]);
    buf_putc(out, ']');
}

/* --- the report --------------------------------------------------------------------------------------------- */

static void put_report(struct buf *out, const struct engine *e, int k) {
    buf_putc(out, '{');
    acceptance_put(out, engine_stats(e), k, engine_info(e).accept);
    put_rounds(out, e);
    put_forecast(out, e, k);
    buf_putc(out, '}');
}

static int write_file(struct alpha_report *r, const struct engine *e, int k) {
    struct buf text = {0};
    struct round_means m = round_means(e);
    if (r->is_picture)
        report_draw(&text, engine_stats(e), k, &m);
    else
        put_report(&text, e, k);
    int rc = output_begin(&r->file);
    if (rc == 0) rc = output_line(&r->file, buf_text(&text), text.len);
    buf_free(&text);
    return rc;
}

static void print_report(const struct acceptance *a, int k, const struct engine *e) {
    progress_clear();
    fflush(stdout);
    print_figures(a, k, e);
    if (a->rounds > 0) {
        print_histogram(a, k);
        print_positions(a, k);
    }
    print_rounds(e, k);
}

int alpha_report_write(struct alpha_report *r, const struct engine *e) {
    if (!r->wanted) return 0;
    const struct acceptance *a = engine_stats(e);
    int k = a->rounds > 0 ? a->k : engine_info(e).k;
    if (r->file.fd < 0 || !terminal_is_quiet()) print_report(a, k, e);
    if (r->file.fd >= 0) TRY(write_file(r, e, k));
    return output_close(&r->file);
}
