/* What a sweep found: a table with bars and a sentence, CSV, JSON, a picture. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/json_number.h"
#include "cli/plot.h"
#include "cli/sheet.h"
#include "cli/tune.h"

enum { BAR_COLUMNS = 10, COLUMNS = 10 };

/* "any" where temperature 0 makes them one; none of K = 0. */
static const char *rule_name(const struct tune_results *r, const struct tune_setting *s) {
    return s->k == 0 ? "" : r->is_greedy ? "any" : accept_rule_name(s->rule);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static void add_bar(struct table *t, double share) {
    struct buf bar = {0};
    terminal_put_bar(&bar, share, BAR_COLUMNS);
    table_add(t, "%s", buf_text(&bar));
    buf_free(&bar);
}

static void add_setting(struct table *t, const struct tune_results *r, const struct tune_setting *s, double most) {
    double speed_up = tune_speed_up(r, s);
    table_add(t, "%d", s->k);
    table_add(t, "%s", rule_name(r, s));
    sheet_add_figure(t, tune_rate(s), 1);
    sheet_add_figure(t, 100 * tune_spread(s), 1);
    sheet_add_figure(t, speed_up, 3);
    add_bar(t, speed_up / most);
    sheet_add_figure(t, tune_predict_own(r, s), 3);
    sheet_add_figure(t, acceptance_alpha(&s->stats), 4);
    sheet_add_figure(t, acceptance_mean_length(&s->stats), 3);
    table_add(t, "%d", s->runs);
}

static struct table tabulate(const struct tune_results *r) {
    static const char *const heading[COLUMNS] = {"K",   "accept",    "tok/s", "+- %",   "speed-up",
                                                 "bar", "predicted", "alpha", "length", "runs"};
    struct table t = table_create("rlrrrlrrrr", "96375");
    double most = 0;
    for (int i = 0; i < COLUMNS; i++) table_add(&t, "%s", heading[i]);
    for (int i = 0; i < r->count; i++) most = fmax(most, tune_speed_up(r, &r->settings[i]));
    for (int i = 0; i < r->count; i++) add_setting(&t, r, &r->settings[i], most);
    return t;
}

/* Without bars, under the names that programs see. */
static void print_csv(const struct tune *t) {
    static const char *const names[COLUMNS] = {"k",
                                               "accept",
                                               "tok_per_second",
                                               "spread_percent",
                                               "speed_up",
                                               NULL,
                                               "predicted_speed_up",
                                               "alpha",
                                               "mean_acceptance_length",
                                               "runs"};
    struct table table = tabulate(&t->results);
    table_print_csv(&table, names);
}

static void print_text(const struct tune *t) {
    struct engine_info info = engine_info(t->engine);
    struct table table = tabulate(&t->results);
    struct buf text = {0};
    const int width = terminal_width(1);
    buf_printf(&text, "%s; %s; batch %d, %d prompts, temperature %g%s\n", info.device, info.proposer, t->o->batch,
               t->prompts.count, (double)t->o->sampling.temperature,
               t->results.is_greedy ? ", where every rule of acceptance does the same" : "");
    terminal_print(stdout, width, 0, 0, buf_text(&text));
    table_print(&table, width);
    buf_clear(&text);
    tune_put_sentence(&text, &t->results);
    printf("\n%s", terminal_style(1, STYLE_BOLD));
    terminal_print(stdout, width, 0, 0, buf_text(&text));
    fputs(terminal_style(1, STYLE_RESET), stdout);
    buf_free(&text);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void put_figure(struct buf *out, const char *name, double value) {
    json_put_name(out, name);
    json_put_number(out, value);
}

static void put_word(struct buf *out, const char *name, const char *word) {
    json_put_name(out, name);
    json_put_string(out, word, strlen(word));
}

static void put_setting(struct buf *out, const struct tune_results *r, const struct tune_setting *s) {
    json_put_element(out);
    buf_putc(out, '{');
    acceptance_put(out, &s->stats, s->k, s->rule);
    put_figure(out, "tok_per_second", tune_rate(s));
    put_figure(out, "spread_percent", 100 * tune_spread(s));
    put_figure(out, "speed_up", tune_speed_up(r, s));
    put_figure(out, "predicted_speed_up", tune_predict_own(r, s));
    put_figure(out, "runs", s->runs);
    buf_putc(out, '}');
}

static void put_recommendation(struct buf *out, const struct tune_results *r) {
    static const char *const verdicts[] = {
        [TUNE_PAYS] = "pays", [TUNE_UNCLEAR] = "unclear", [TUNE_PLAIN] = "does not pay"};
    struct tune_choice c = tune_choose(r);
    const bool pays = c.verdict == TUNE_PAYS;
    struct buf sentence = {0};
    tune_put_sentence(&sentence, r);
    json_put_name(out, "recommendation");
    buf_putc(out, '{');
    put_word(out, "verdict", verdicts[c.verdict]);
    put_figure(out, "k", pays ? c.best->k : 0);
    if (pays) put_word(out, "accept", accept_rule_name(c.best->rule));
    put_figure(out, "speed_up", pays ? c.speed_up : 1);
    put_figure(out, "noise_percent", 100 * c.noise);
    put_word(out, "sentence", buf_text(&sentence));
    buf_putc(out, '}');
    buf_free(&sentence);
}

static void print_json(const struct tune *t) {
    const struct tune_results *r = &t->results;
    struct engine_info info = engine_info(t->engine);
    struct buf text = {0};
    buf_putc(&text, '{');
    put_word(&text, "device", info.device);
    put_word(&text, "proposer", info.proposer);
    put_figure(&text, "batch", t->o->batch);
    put_figure(&text, "prompts", t->prompts.count);
    put_figure(&text, "max_tokens", t->o->max_tokens);
    put_figure(&text, "temperature", json_number_of_float(t->o->sampling.temperature));
    put_figure(&text, "k_max", r->k_max);
    json_put_name(&text, "round_ms");
    buf_putc(&text, '[');
    for (int k = 0; k <= r->k_max; k++) json_put_element(&text), json_put_number(&text, r->round_ms[k]);
    buf_putc(&text, ']');
    json_put_name(&text, "settings");
    buf_putc(&text, '[');
    for (int i = 0; i < r->count; i++) put_setting(&text, r, &r->settings[i]);
    buf_putc(&text, ']');
    put_recommendation(&text, r);
    printf("%s}\n", buf_text(&text));
    buf_free(&text);
}

void tune_print(const struct tune *t) {
    if (t->o->json) {
        print_json(t);
    } else if (t->o->csv) {
        print_csv(t);
    } else {
        print_text(t);
    }
}

/* --- the picture -------------------------------------------------------------------------------------------------- */

/* What is drawn of a rule. */
struct curve {
    double k[K_MAX + 1], speed_up[K_MAX + 1], spread[K_MAX + 1], predicted[K_MAX + 1]; /* by K */
    double position[K_MAX], rate[K_MAX];                                               /* of the largest K */
    int largest_k;
    char measured_name[64], predicted_name[64], position_name[64];
};

/* K = 0 belongs to every rule. */
static void trace(struct curve *c, const struct tune_results *r, enum accept_rule rule) {
    const char *word = r->is_greedy ? "any rule" : accept_rule_name(rule);
    double alpha = tune_alpha(r, rule);
    for (int k = 0; k <= r->k_max; k++) {
        c->k[k] = k;
        c->speed_up[k] = c->spread[k] = NAN;
        c->predicted[k] = tune_predict(r, alpha, k);
    }
    for (int i = 0; i < r->count; i++) {
        const struct tune_setting *s = &r->settings[i];
        if (s->k > 0 && s->rule != rule) continue;
        c->largest_k = s->k;
        c->speed_up[s->k] = tune_speed_up(r, s);
        c->spread[s->k] = c->speed_up[s->k] * tune_spread(s);
        for (int j = 0; j < s->k; j++) c->position[j] = j + 1, c->rate[j] = acceptance_position_rate(&s->stats, j);
    }
    snprintf(c->measured_name, sizeof c->measured_name, "%s", word);
    snprintf(c->predicted_name, sizeof c->predicted_name, "predicted, alpha %.2f", alpha);
    snprintf(c->position_name, sizeof c->position_name, "%s, K = %d", word, c->largest_k);
}

static void draw(struct buf *out, const struct tune *t) {
    const struct tune_results *r = &t->results;
    static struct curve curves[TUNE_RULES];
    struct plot_series speed[2 * TUNE_RULES], positions[TUNE_RULES];
    const int rules = r->is_greedy ? 1 : TUNE_RULES;
    struct buf title = {0};
    for (int i = 0; i < rules; i++) {
        struct curve *c = &curves[i];
        trace(c, r, (enum accept_rule)i);
        speed[2 * i] = (struct plot_series){c->measured_name, PLOT_LINE, i, c->k, c->speed_up, c->spread, r->k_max + 1};
        speed[2 * i + 1] =
            (struct plot_series){c->predicted_name, PLOT_DASHES, i, c->k, c->predicted, NULL, r->k_max + 1};
        positions[i] = (struct plot_series){c->position_name, PLOT_BARS, i, c->position, c->rate, NULL, c->largest_k};
    }
    struct plot_panel panels[] = {
        {"speed-up over K", "K, tokens drafted a round", "times plain decoding", speed, 2 * rules, 1},
        {"acceptance by position", "position among the drafted tokens", "share of rounds", positions, rules, NAN}};
    tune_put_sentence(&title, r);
    buf_puts(&title, ";"); /* the first part is what there is room for */
    title.data[strcspn(title.data, ";")] = 0;
    plot_svg(out, title.data, panels, 2);
    buf_free(&title);
}

int tune_write_plot(struct tune *t) {
    struct buf text = {0};
    if (t->plot.fd < 0) return 0;
    draw(&text, t);
    int rc = plot_file_write(&t->plot, &text);
    buf_free(&text);
    return rc;
}
