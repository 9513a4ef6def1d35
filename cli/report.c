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

static void print_figures(const struct acceptance *a, int k) {
    double alpha = acceptance_alpha(a);
    fprintf(stderr, "acceptance at K = %d\n", k);
    fprintf(stderr,
            "  rounds %lld, drafted %lld, accepted %lld, rejected %lld, emitted %lld, cut %lld, plain rounds %lld\n",
            (long long)a->rounds, (long long)a->drafted, (long long)a->accepted, (long long)a->rejected,
            (long long)a->emitted, (long long)a->cut, (long long)a->plain_rounds);
    print_figure("alpha", alpha, "accepted / (accepted + rejected)");
    print_figure("alpha_tv", acceptance_alpha_tv(a), "mean of sum min(p_target, p_draft)");
    print_figure("draft_acceptance_rate", acceptance_draft_rate(a), "accepted / drafted");
    print_figure("mean_acceptance_length", acceptance_mean_length(a), "1 + accepted / rounds");
    if (!isnan(alpha))
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

static void print_launches(const struct engine *e, int k) {
    struct engine_counts c = engine_counts(e);
    if (!c.rounds) return;
    double rounds = (double)c.rounds;
    int graphs, kernels;
    engine_launches(e, k, &graphs, &kernels);
    fputs("launches a round\n", stderr);
    fprintf(stderr, "  graphs %.2f (%d at K = %d), kernels outside graphs %d, eager fallbacks %llu in all\n",
            (double)c.stream.graph_launches / rounds, graphs, k, kernels,
            (unsigned long long)(c.draft.eager_fallbacks + c.target.eager_fallbacks));
    fprintf(stderr, "  host time to enqueue %.1f us\n", (double)c.host_us / rounds);
}

static int write_json(struct alpha_report *r, const struct acceptance *a, int k) {
    struct buf text = {0};
    cJSON *object = acceptance_json(a, k);
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
    int k = a->rounds > 0 ? a->k : engine_info(e).k;
    progress_clear();
    fflush(stdout);
    print_figures(a, k);
    if (a->rounds > 0) {
        print_histogram(a, k);
        print_positions(a, k);
    }
    print_launches(e, k);
    return r->file ? write_json(r, a, k) : 0;
}
