/* --alpha-report: the acceptance of a run as a table with a picture, and as JSON. */
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/io.h"

enum { REPORT_BAR = 40 };

int alpha_report_open(struct alpha_report *r, const struct options *o) {
    *r = (struct alpha_report){.wanted = o->alpha_report, .path = o->alpha_report_file};
    if (!r->path) return 0;
    struct output file;
    TRY(output_open(&file, r->path, o->input));
    r->file = file.file;
    struct stat output, report;
    if (o->output && stat(o->output, &output) == 0 && fstat(fileno(r->file), &report) == 0 && S_ISREG(report.st_mode) &&
        output.st_dev == report.st_dev && output.st_ino == report.st_ino)
        return err_set(ERR_USAGE, "%s: is the output file too", r->path);
    return 0;
}

void alpha_report_close(struct alpha_report *r) {
    if (r->file && r->file != stdout) fclose(r->file);
    r->file = NULL;
}

/* A bar of `share` in [0, 1], in eighths of a cell where the terminal has them. */
static void print_bar(double share) {
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    if (!(share > 0)) return;
    int parts = (int)lround(share * REPORT_BAR * 8);
    for (int i = 0; i < parts / 8; i++) fputs(terminal_has_unicode() ? "█" : "#", stderr);
    if (terminal_has_unicode()) fputs(eighths[parts % 8], stderr);
}

static void print_figure(const char *name, double value, const char *meaning) {
    if (isnan(value))
        fprintf(stderr, "  %-24s    -     %s\n", name, meaning);
    else
        fprintf(stderr, "  %-24s %8.4f  %s\n", name, value, meaning);
}

static void print_figures(const struct acceptance *a, int k, enum accept_rule rule) {
    double alpha = acceptance_alpha(a);
    fprintf(stderr, "acceptance at K = %d, rule %s\n", k, accept_rule_name(rule));
    fprintf(stderr,
            "  rounds %lld, drafted %lld, accepted %lld, rejected %lld, emitted %lld, cut %lld, plain rounds %lld\n",
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

/* Means over the rounds of the engine; NAN where there was none. */
struct round_means {
    double graph_launches, kernel_launches, host_us, wait_us; /* over all rounds */
    double draft_ms, verify_ms, sampling_ms, device_ms;       /* over those that were timed */
    uint64_t rounds, timed_rounds, eager_fallbacks;
};

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

static void print_rounds(const struct engine *e, int k) {
    struct round_means m = round_means(e);
    int graphs, kernels;
    if (!m.rounds) return;
    engine_launches(e, k, &graphs, &kernels);
    fprintf(stderr, "a round of the engine, mean of %llu\n", (unsigned long long)m.rounds);
    if (m.timed_rounds)
        fprintf(stderr, "  device %.3f ms: draft %.3f, verify %.3f, sampling %.3f (events, in %llu rounds)\n",
                m.device_ms, m.draft_ms, m.verify_ms, m.sampling_ms, (unsigned long long)m.timed_rounds);
    fprintf(stderr, "  host %.1f us to enqueue%s, %.1f us of waiting\n", m.host_us,
            engine_info(e).is_async ? "" : " and run", m.wait_us);
    fprintf(stderr,
            "  launches: graphs %.2f (%d at K = %d), kernels outside graphs %.2f (%d), eager fallbacks %llu in all\n",
            m.graph_launches, graphs, k, m.kernel_launches, kernels, (unsigned long long)m.eager_fallbacks);
}

static void add_mean(cJSON *object, const char *name, double value) {
    cJSON_AddItemToObject(object, name, isnan(value) ? cJSON_CreateNull() : cJSON_CreateNumber(value));
}

static void add_rounds(cJSON *object, const struct engine *e) {
    struct round_means m = round_means(e);
    cJSON_AddNumberToObject(object, "engine_rounds", (double)m.rounds);
    cJSON_AddNumberToObject(object, "timed_rounds", (double)m.timed_rounds);
    add_mean(object, "device_ms_per_round", m.device_ms);
    add_mean(object, "draft_ms_per_round", m.draft_ms);
    add_mean(object, "verify_ms_per_round", m.verify_ms);
    add_mean(object, "sampling_ms_per_round", m.sampling_ms);
    add_mean(object, "host_us_per_round", m.host_us);
    add_mean(object, "wait_us_per_round", m.wait_us);
    add_mean(object, "graph_launches_per_round", m.graph_launches);
    add_mean(object, "eager_launches_per_round", m.kernel_launches);
    cJSON_AddNumberToObject(object, "eager_fallbacks", (double)m.eager_fallbacks);
}

/* --- the report --------------------------------------------------------------------------------------------- */

static int write_json(struct alpha_report *r, const struct engine *e, int k) {
    struct buf text = {0};
    cJSON *object = acceptance_json(engine_stats(e), k, engine_info(e).accept);
    add_rounds(object, e);
    json_print(object, &text);
    cJSON_Delete(object);
    struct output file = {r->file, r->path};
    r->file = NULL;
    int rc = output_begin(&file);
    if (rc == 0) rc = output_line(&file, buf_text(&text), text.len);
    int closed = output_close(&file);
    buf_free(&text);
    return rc != 0 ? rc : closed;
}

int alpha_report_write(struct alpha_report *r, const struct engine *e) {
    if (!r->wanted) return 0;
    const struct acceptance *a = engine_stats(e);
    struct engine_info info = engine_info(e);
    int k = a->rounds > 0 ? a->k : info.k;
    progress_clear();
    fflush(stdout);
    print_figures(a, k, info.accept);
    if (a->rounds > 0) {
        print_histogram(a, k);
        print_positions(a, k);
    }
    print_rounds(e, k);
    return r->file ? write_json(r, e, k) : 0;
}
