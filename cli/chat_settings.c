/* Settings of the chat: one table makes /NAME, /set and what Tab knows of them. */
#include <string.h>

#include "cli/chat.h"

/* --- what is more than an option -------------------------------------------------------------------------------- */

static int set_k(struct chat *c, const char *value) {
    struct options changed = c->options;
    int k_max = engine_info(c->engine).k_max;
    TRY(option_set(&changed, "k", value, "/k"));
    if (k_max == 0 && changed.k != 0)
        return err_set(ERR_USAGE, "/k: no draft is loaded; start with %s",
                       changed.target && !changed.draft ? "--draft MODEL, ngram or mtp" : "--k above 0");
    if (k_max > 0 && changed.k > k_max)
        return err_set(ERR_USAGE, "/k: memory was planned for %d at most; start with --k-max %d for more", k_max,
                       changed.k);
    TRY(engine_set_k(c->engine, changed.k));
    c->options = changed;
    return 0;
}

static int set_accept(struct chat *c, const char *value) {
    struct options changed = c->options;
    TRY(option_set(&changed, "accept", value, "/accept"));
    TRY(engine_set_accept(c->engine, (enum accept_rule)changed.accept));
    c->options = changed;
    return 0;
}

static int set_max_tokens(struct chat *c, const char *value) {
    if (strcmp(value, "0") == 0)
        c->options.max_tokens = 0;
    else if (option_set(&c->options, "max-tokens", value, "/max-tokens") != 0)
        return err_set(ERR_USAGE, "/max-tokens: '%s' is not a whole number in [0, 2147483647]", option_quote(value));
    return 0;
}

static int set_seed(struct chat *c, const char *value) {
    bool random = strcmp(value, "random") == 0;
    if (!random) TRY(option_set(&c->options, "seed", value, "/seed"));
    c->has_seed = !random;
    c->attempt = 0;
    return 0;
}

static const char footer_values[] = "off|short|full";

static int set_footer(struct chat *c, const char *value) {
    int index = option_choice_index(footer_values, value);
    if (index < 0) return err_set(ERR_USAGE, "/footer: '%s' is not one of %s", option_quote(value), footer_values);
    c->footer = (enum footer)index;
    return 0;
}

static int set_show(struct chat *c, const char *value) {
    int index = option_choice_index("off|on", value);
    if (index < 0) return err_set(ERR_USAGE, "/show: '%s' is not on or off", option_quote(value));
    c->show = index == 1;
    return 0;
}

/* --- what they are ---------------------------------------------------------------------------------------------- */

static void show_k(const struct chat *c, struct buf *out) {
    struct engine_info info = engine_info(c->engine);
    if (info.k_auto)
        buf_printf(out, "auto (0 to %d)", info.k_max);
    else
        buf_printf(out, "%d", info.k);
    if (!info.k_auto && info.k_max > 0) buf_printf(out, " (up to %d)", info.k_max);
}

static void show_accept(const struct chat *c, struct buf *out) {
    buf_puts(out, accept_rule_name(engine_info(c->engine).accept));
}

static void show_temperature(const struct chat *c, struct buf *out) {
    buf_printf(out, "%g", (double)c->options.sampling.temperature);
}

static void show_top_k(const struct chat *c, struct buf *out) {
    buf_printf(out, "%d%s", c->options.sampling.top_k, c->options.sampling.top_k == 0 ? " (off)" : "");
}

static void show_top_p(const struct chat *c, struct buf *out) {
    buf_printf(out, "%g%s", (double)c->options.sampling.top_p, c->options.sampling.top_p == 1 ? " (off)" : "");
}

static void show_min_p(const struct chat *c, struct buf *out) {
    buf_printf(out, "%g%s", (double)c->options.sampling.min_p, c->options.sampling.min_p == 0 ? " (off)" : "");
}

static void show_penalty(const struct chat *c, struct buf *out) {
    float penalty = c->options.sampling.repetition_penalty;
    buf_printf(out, "%g%s", (double)penalty, penalty == 1 ? " (off)" : "");
}

static void show_max_tokens(const struct chat *c, struct buf *out) {
    if (c->options.max_tokens > 0)
        buf_printf(out, "%d", c->options.max_tokens);
    else
        buf_puts(out, "what the context allows");
}

static void show_seed(const struct chat *c, struct buf *out) {
    if (c->has_seed)
        buf_printf(out, "%llu%s", (unsigned long long)c->options.seed,
                   chat_repeats(c) ? "" : " (repeats an answer with a fixed /k, or under /accept coupled)");
    else
        buf_puts(out, "a random one for every answer");
}

static void show_footer(const struct chat *c, struct buf *out) {
    buf_puts(out, (const char *const[]){"off", "short", "full"}[c->footer]);
}

static void show_show(const struct chat *c, struct buf *out) {
    const char *how = terminal_has_color(1) ? "coloured" : "in brackets";
    buf_printf(out, c->show ? "on (accepted draft tokens are %s)" : "off", how);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const struct setting {
    struct chat_row row; /* without `run` */
    const char *option;  /* that the value is one of, and that `name` may be called; NULL: `set` knows */
    int (*set)(struct chat *, const char *value);
    void (*show)(const struct chat *, struct buf *out);
} settings[] = {
    {{"/k", "[N|auto]", "auto", "tokens drafted a round; 0: none; auto: what is fastest", NULL}, NULL, set_k, show_k},
    {{"/accept", "[RULE]", "token|coupled|block", "how they are accepted: token, coupled or block", NULL},
     NULL,
     set_accept,
     show_accept},
    {{"/temp", "[X]", NULL, "temperature; 0 takes the most probable token", NULL},
     "temperature",
     NULL,
     show_temperature},
    {{"/top-k", "[N]", NULL, "keep the N most probable tokens; 0: all", NULL}, "top-k", NULL, show_top_k},
    {{"/top-p", "[X]", NULL, "keep the most probable that sum to X; 1: all", NULL}, "top-p", NULL, show_top_p},
    {{"/min-p", "[X]", NULL, "keep those at least X times the best; 0: all", NULL}, "min-p", NULL, show_min_p},
    {{"/penalty", "[X]", NULL, "hold back tokens that the text has; 1: off", NULL},
     "repetition-penalty",
     NULL,
     show_penalty},
    {{"/max-tokens", "[N]", NULL, "longest answer; 0: what the context allows", NULL},
     NULL,
     set_max_tokens,
     show_max_tokens},
    {{"/seed", "[N|random]", "random", "the same seed repeats an answer (/stats shows it)", NULL},
     NULL,
     set_seed,
     show_seed},
    {{"/footer", "[WORD]", footer_values, "the line behind an answer: off, short or full", NULL},
     NULL,
     set_footer,
     show_footer},
    {{"/show", "[on|off]", "on|off", "mark accepted draft tokens; alone: in the last answer", NULL},
     NULL,
     set_show,
     show_show},
};
enum { SETTING_COUNT = sizeof settings / sizeof *settings };

const struct chat_row *chat_setting_row(int i) {
    return i < SETTING_COUNT ? &settings[i].row : NULL;
}

/* "top-k" or "top_k"; "temperature" too. */
static const struct setting *find_setting(const char *name, size_t n) {
    for (int i = 0; i < SETTING_COUNT; i++) {
        const char *const names[] = {settings[i].row.name + 1, settings[i].option};
        for (int k = 0; k < 2 && names[k]; k++) {
            size_t at = 0;
            while (at < n && names[k][at] == (name[at] == '_' ? '-' : name[at])) at++;
            if (at == n && !names[k][n]) return &settings[i];
        }
    }
    return NULL;
}

const struct chat_row *chat_find_setting(const char *name, size_t n) {
    const struct setting *s = find_setting(name, n);
    return s ? &s->row : NULL;
}

/* Who asks gets an answer, in a pipe too; that something was set is a note. */
static void say(struct chat *c, const struct setting *s, bool was_asked) {
    const char *name = s->option ? s->option : s->row.name + 1;
    struct buf text = {0};
    s->show(c, &text);
    if (was_asked && !c->interactive)
        printf("%s %s\n", name, buf_text(&text));
    else
        chat_note(c, "%s %s", name, buf_text(&text));
    buf_free(&text);
}

static int apply(struct chat *c, const struct setting *s, const char *value) {
    if (*value && s->set) TRY(s->set(c, value));
    if (*value && !s->set) TRY(option_set(&c->options, s->option, value, s->row.name));
    say(c, s, !*value);
    return 0;
}

static void list(const struct chat *c) {
    struct buf text = {0};
    for (int i = 0; i < SETTING_COUNT; i++) {
        buf_clear(&text);
        settings[i].show(c, &text);
        printf("  %-12s%s\n", settings[i].row.name + 1, buf_text(&text));
    }
    buf_free(&text);
}

int chat_set(struct chat *c, const char *argument) {
    size_t n = strcspn(argument, " \t\n=");
    if (n == 0) {
        list(c);
        return 0;
    }
    const struct setting *s = find_setting(argument, n);
    if (!s)
        return err_set(ERR_USAGE, "/set: there is no setting '%s'; /set lists them", option_quote_part(argument, n));
    return apply(c, s, argument + n + strspn(argument + n, " \t\n="));
}
