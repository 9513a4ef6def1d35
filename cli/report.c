/* --alpha-report: the acceptance of a run as a table with a picture, and as JSON. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/report.h"
#include "cli/speed.h"

enum { BAR_MAX = 40, BAR_INDENT = 26 };

int alpha_report_open(struct alpha_report *r, const struct options *o, const struct models *m,
                      const struct output *output) {
    *r = (struct alpha_report){.wanted = o->alpha_report, .file = OUTPUT_CLOSED};
    if (!o->alpha_report_file) return 0;
    const char *dot = strrchr(o->alpha_report_file, '.');
    r->is_picture = dot && text_is_same_in_any_case(dot, ".svg");
    TRY(output_open(&r->file, o->alpha_report_file));
    TRY(output_refuse_input(&r->file, o->input));
    TRY(output_refuse_models(&r->file, m));
    return output ? output_refuse_output(&r->file, output) : 0;
}

void alpha_report_close(struct alpha_report *r) {
    (void)output_close(&r->file);
}

/* A line at once, so that a sentence about what failed begins one: what the format says, and a bar behind it. */
static void print_bar(double share, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print_bar(double share, const char *format, ...) {
    struct buf bar = {0};
    char head[128];
    int most = terminal_width(2) - BAR_INDENT;
    va_list args;
    va_start(args, format);
    vsnprintf(head, sizeof head, format, args);
    va_end(args);
    terminal_put_bar(&bar, share, most > BAR_MAX ? BAR_MAX : most > 1 ? most : 1);
    fprintf(stderr, "%s%s\n", head, buf_text(&bar));
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
    char head[64];
    int column = snprintf(head, sizeof head, "  %-24s %8s  ", name, number);
    struct buf text = {0};
    terminal_wrap(&text, terminal_width(2), column, column, meaning);
    fprintf(stderr, "%s%s\n", head, buf_text(&text));
    buf_free(&text);
}

static void print_figures(const struct acceptance *a, int k, const struct engine *e) {
    enum accept_rule rule = engine_info(e).accept;
    const char *proposer = engine_graphs(e, 0) ? NULL : engine_info(e).proposer; /* a draft model goes without saying */
    double alpha = acceptance_alpha(a);
    char vocab[64] = "";
    if (engine_info(e).draft_vocab > 0)
        snprintf(vocab, sizeof vocab, ", draft cut to %d ids", engine_info(e).draft_vocab);
    say(0, "acceptance at %s %d, rule %s%s%s%s", engine_info(e).k_auto ? "K auto, at most" : "K =", k,
        accept_rule_name(rule), proposer ? ", " : "", proposer ? proposer : "", vocab);
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
        print_bar((double)a->histogram[i] / (double)most, "  %3d %9lld %5.1f %%  ", i, (long long)a->histogram[i],
                  100.0 * (double)a->histogram[i] / (double)a->rounds);
    }
}

static void print_positions(const struct acceptance *a, int k) {
    fputs("acceptance by position\n", stderr);
    for (int j = 0; j < k; j++) {
        double rate = acceptance_position_rate(a, j);
        print_bar(rate, "  %3d %17.4f  ", j + 1, rate);
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

/* Rounds of the engine by the K that auto chose. */
static void print_choices(const struct engine *e) {
    struct engine_counts c = engine_counts(e);
    uint64_t most = 1;
    const int k_max = engine_info(e).k_max;
    if (!engine_info(e).k_auto || c.rounds == 0) return;
    for (int k = 0; k <= k_max; k++) most = c.rounds_by_k[k] > most ? c.rounds_by_k[k] : most;
    fputs("rounds by the K that auto chose\n", stderr);
    for (int k = 0; k <= k_max; k++) {
        print_bar((double)c.rounds_by_k[k] / (double)most, "  %3d %9llu %5.1f %%  ", k,
                  (unsigned long long)c.rounds_by_k[k], 100.0 * (double)c.rounds_by_k[k] / (double)c.rounds);
    }
}

/* Those that were replayed. */
static void print_graphs(const struct graph_set *set, const char *name, int *others) {
    for (int i = 0; set && i < graph_set_count(set); i++) {
        struct graph_info g = graph_set_info(set, i);
        *others += g.replays == 0;
        if (g.replays > 0)
            say(2, "%s %s of %d x %d: replays %llu, bytes %zu", name, graph_set_kind_name(set, g.key.kind), g.key.batch,
                g.key.q_len, (unsigned long long)g.replays, g.bytes);
    }
}

static void print_replays(const struct engine *e) {
    int others = 0;
    if (engine_counts(e).target.replays == 0) return;
    say(0, "replays of graphs, by rows and tokens of each");
    print_graphs(engine_graphs(e, 0), "draft", &others);
    print_graphs(engine_graphs(e, 1), "target", &others);
    if (others > 0) say(2, "%d more were not replayed", others);
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

static void put_numbers(struct buf *out, const char *name, const double *numbers, int count) {
    json_put_name(out, name);
    buf_putc(out, '[');
    for (int i = 0; i < count; i++) json_put_element(out), json_put_number(out, numbers[i]);
    buf_putc(out, ']');
}

static void put_choices(struct buf *out, const struct engine *e) {
    struct engine_counts c = engine_counts(e);
    double rounds[K_MAX + 1];
    for (int k = 0; k <= K_MAX; k++) rounds[k] = (double)c.rounds_by_k[k];
    put_numbers(out, "rounds_by_k", rounds, engine_info(e).k_max + 1);
}

static void put_graphs(struct buf *out, const struct graph_set *set, const char *name) {
    for (int i = 0; set && i < graph_set_count(set); i++) {
        struct graph_info g = graph_set_info(set, i);
        const char *kind = graph_set_kind_name(set, g.key.kind);
        json_put_element(out);
        buf_putc(out, '{');
        json_put_name(out, "set"), json_put_string(out, name, strlen(name));
        json_put_name(out, "role"), json_put_string(out, kind, strlen(kind));
        put_figure(out, "batch", g.key.batch);
        put_figure(out, "q_len", g.key.q_len);
        put_figure(out, "bytes", (double)g.bytes);
        put_figure(out, "replays", (double)g.replays);
        buf_putc(out, '}');
    }
}

/* --- the forecast ------------------------------------------------------------------------------------------- */

/* Measures rounds, where they were not. Of as many rows as those of the run had. */
static int forecast(struct forecast *out, struct engine *e) {
    const double alpha = acceptance_alpha(engine_stats(e));
    const int rows = speed_rows(e), rc = isnan(alpha) || !engine_info(e).proposer ? 0 : engine_measure(e);
    double ms[FORECAST_K + 1];
    for (int k = 0; k <= FORECAST_K; k++) ms[k] = engine_round_ms(e, rows, k);
    *out = forecast_make(alpha, rows, ms);
    return rc;
}

static void print_forecast(const struct forecast *f) {
    const double most = f->speed_up[f->best];
    if (isnan(most)) return;
    say(0, "speed-up by K as alpha and measured rounds forecast it (rows: %d; * best)", f->rows);
    for (int k = 0; k <= f->largest; k++) {
        print_bar(f->speed_up[k] / most, "  %3d %8.3f ms %5.2f%c  ", k, f->ms[k], f->speed_up[k],
                  k == f->best ? '*' : ' ');
    }
    if (f->largest < FORECAST_K) say(2, "K above %d was not measured: --k-max %d would", f->largest, FORECAST_K);
}

/* null where nothing was drafted or measured */
static void put_forecast(struct buf *out, const struct forecast *f) {
    put_numbers(out, "forecast_speed_up", f->speed_up, FORECAST_K + 1);
    put_numbers(out, "round_ms_by_k", f->ms, FORECAST_K + 1);
    put_figure(out, "forecast_rows", f->rows);
    put_figure(out, "forecast_best_k", isnan(f->speed_up[f->best]) ? NAN : f->best);
}

/* --- the report --------------------------------------------------------------------------------------------- */

static void put_report(struct buf *out, const struct engine *e, int k) {
    buf_putc(out, '{');
    acceptance_put(out, engine_stats(e), k, engine_info(e).accept);
    put_rounds(out, e);
    put_choices(out, e);
    put_figure(out, "draft_vocab", engine_info(e).draft_vocab > 0 ? engine_info(e).draft_vocab : NAN);
    json_put_name(out, "graphs");
    buf_putc(out, '[');
    put_graphs(out, engine_graphs(e, 0), "draft");
    put_graphs(out, engine_graphs(e, 1), "target");
    buf_putc(out, ']');
}

static int write_file(struct alpha_report *r, const struct buf *text) {
    TRY(output_begin(&r->file));
    return output_line(&r->file, buf_text(text), text->len);
}

static void print_report(const struct acceptance *a, int k, const struct engine *e) {
    progress_clear();
    fflush(stdout);
    print_figures(a, k, e);
    if (a->rounds > 0) {
        print_histogram(a, k);
        print_positions(a, k);
    }
    print_choices(e);
    print_rounds(e, k);
    print_replays(e);
}

/* What the run was comes before the forecast, which replays graphs to measure them. */
int alpha_report_write(struct alpha_report *r, struct engine *e) {
    if (!r->wanted) return 0;
    const struct acceptance *a = engine_stats(e);
    const int k = a->rounds > 0 ? a->k : engine_info(e).k;
    const bool prints = r->file.fd < 0 || !terminal_is_quiet();
    const struct engine_counts counts = engine_counts(e);
    struct forecast f;
    struct buf text = {0};
    if (prints) print_report(a, k, e);
    if (!r->is_picture) put_report(&text, e, k);
    int rc = forecast(&f, e);
    if (prints) print_forecast(&f);
    if (r->is_picture) {
        report_draw(&text, a, k, &f, engine_info(e).k_auto ? counts.rounds_by_k : NULL);
    } else {
        put_forecast(&text, &f);
        buf_putc(&text, '}');
    }
    if (rc == 0 && r->file.fd >= 0) rc = write_file(r, &text);
    buf_free(&text);
    return rc == 0 ? output_close(&r->file) : rc;
}
