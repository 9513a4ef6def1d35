/* What the chat prints besides the answers' text. */
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "cli/chat.h"
#include "cli/speed.h"

static const char *styled(enum style style) {
    return terminal_style(STDOUT_FILENO, style);
}

/* --- the banner ------------------------------------------------------------------------------------------------ */

static void name_model(struct buf *line, const char *role, const char *name, int64_t parameters) {
    double millions = (double)parameters / 1e6;
    if (millions >= 1000)
        buf_printf(line, "%s %s (%.1fB)", role, name, millions / 1000);
    else
        buf_printf(line, "%s %s (%.1fM)", role, name, millions);
}

void chat_banner(struct chat *c) {
    const struct options *o = &c->options;
    struct engine_info info = engine_info(c->engine);
    struct buf line = {0};
    buf_printf(&line, " %s: ", DUET_VERSION);
    name_model(&line, "target", o->target ? o->target : "embedded", info.target_parameters);
    if (c->models.draft) name_model(&line, ", draft", o->draft ? o->draft : "embedded", info.draft_parameters);
    if (c->models.proposer) buf_printf(&line, ", draft %s", info.proposer);
    if (info.k_auto)
        buf_puts(&line, ", K auto");
    else
        buf_printf(&line, ", K %d", info.k);
    buf_printf(&line, ", context %d, %s\n", info.context, info.device);
    buf_puts(&line, "/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends the chat\n");
    fputs(styled(STYLE_BOLD), stdout);
    chat_print(c, STYLE_RESET, "duet", 4);
    printf("%s%s", styled(STYLE_RESET), styled(STYLE_DIM));
    chat_print(c, STYLE_RESET, buf_text(&line), line.len);
    chat_print_end(c);
    fputs(styled(STYLE_RESET), stdout);
    buf_free(&line);
}

/* --- notes and errors ------------------------------------------------------------------------------------------ */

void chat_note(const struct chat *c, const char *format, ...) {
    char line[1024], shown[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (c->interactive)
        printf("%s%s%s\n", styled(STYLE_DIM), err_escape(line, shown, sizeof shown), styled(STYLE_RESET));
    else
        cli_note("%s", line);
}

void chat_fail(struct chat *c, int rc) {
    cli_fail(rc);
    c->failed = true;
}

/* --- text of a model ------------------------------------------------------------------------------------------- */

/* C0 and DEL but newline and tab, and C1 (C2 80 .. C2 9F). Returns the bytes that the control character takes, 0: none. */
static size_t control_at(const char *text, size_t n) {
    unsigned char c = (unsigned char)text[0];
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) return 1;
    return n > 1 && c == 0xc2 && (unsigned char)text[1] < 0xa0 ? 2 : 0;
}

static void wrap_tame(struct wrap *w, const char *text, size_t n) {
    size_t from = 0, at = 0;
    while (at < n) {
        size_t control = control_at(text + at, n - at);
        if (control > 0) {
            char shown[2] = {'^', (char)((text[at + control - 1] & 0x7f) ^ 0x40)};
            wrap_push(w, text + from, at - from);
            wrap_push(w, shown, sizeof shown);
            from = at + control;
        }
        at += control > 0 ? control : 1;
    }
    wrap_push(w, text + from, n - from);
}

static void print_wrapped(struct wrap *w) {
    fwrite(buf_text(&w->out), 1, w->out.len, stdout);
    buf_clear(&w->out);
}

void chat_print(struct chat *c, enum style style, const char *text, size_t n) {
    struct wrap *w = &c->wrap;
    if (!terminal_is_tty(STDOUT_FILENO)) {
        fwrite(text, 1, n, stdout);
        return;
    }
    w->columns = terminal_columns(STDOUT_FILENO);
    w->style = style == STYLE_RESET ? NULL : styled(style);
    w->reset = styled(STYLE_RESET);
    wrap_tame(w, text, n);
    print_wrapped(w);
}

/* Blanks before a word stay outside of the bracket. */
static void print_bracketed(struct chat *c, bool accepted, const char *text, size_t n) {
    size_t blanks = 0;
    if (n > 0 && c->marked && !accepted) chat_print(c, STYLE_RESET, "]", 1), c->marked = false;
    while (blanks < n && accepted && !c->marked && strchr(" \t\n", text[blanks])) blanks++;
    chat_print(c, STYLE_RESET, text, blanks);
    if (blanks < n && accepted && !c->marked) chat_print(c, STYLE_RESET, "[", 1), c->marked = true;
    chat_print(c, STYLE_RESET, text + blanks, n - blanks);
}

void chat_print_marked(struct chat *c, bool accepted, const char *text, size_t n) {
    if (terminal_has_color(STDOUT_FILENO))
        chat_print(c, accepted ? STYLE_GREEN : STYLE_RESET, text, n);
    else
        print_bracketed(c, accepted, text, n);
}

void chat_print_end(struct chat *c) {
    if (c->marked) chat_print(c, STYLE_RESET, "]", 1);
    c->marked = false;
    wrap_finish(&c->wrap);
    print_wrapped(&c->wrap);
}

/* --- figures --------------------------------------------------------------------------------------------------- */

/* Tokens a second after the first round, which holds the prompt's ingestion; of a single round, with that. */
static double tokens_per_second(const struct answer_figures *f) {
    int tokens = f->tokens - f->first_tokens;
    int64_t us = f->last_us - f->first_us;
    if (tokens == 0) tokens = f->tokens, us = f->last_us - f->start_us;
    return us > 0 ? 1e6 * tokens / (double)us : 0;
}

static void put_context(const struct chat *c, struct buf *line) {
    int used, context = engine_info(c->engine).context;
    engine_tokens(conversation_sequence(c->conversation), &used);
    buf_printf(line, ", context %d/%d", used, context);
    if (c->footer == FOOTER_FULL)
        buf_printf(line, " (%d left), seed %llu", context - used, (unsigned long long)c->answer_seed);
}

static void put_figures(const struct chat *c, const struct answer_figures *f, struct buf *line) {
    const struct acceptance *s = engine_sequence_stats(conversation_sequence(c->conversation));
    buf_printf(line, "%d token%s", f->tokens, f->tokens == 1 ? "" : "s");
    if (f->tokens > 0) {
        double wait_ms = (double)(f->first_us - f->start_us) / 1e3;
        buf_printf(line, ", %.1f tok/s, first after %.*f ms", tokens_per_second(f), wait_ms < 10 ? 1 : 0, wait_ms);
    }
    if (s->drafted > 0) buf_printf(line, ", %lld/%lld accepted", (long long)s->accepted, (long long)s->drafted);
    if (!isnan(f->speed_up)) buf_printf(line, ", %.2f times plain", f->speed_up);
    put_context(c, line);
}

void chat_print_figures(struct chat *c, const struct answer_figures *f) {
    struct buf line = {0};
    if (c->footer != FOOTER_OFF) put_figures(c, f, &line);
    if (f->cut) buf_printf(&line, "%s%s", line.len > 0 ? ", " : "", f->cut);
    if (line.len == 0) return;
    buf_putc(&line, '\n');
    fputs(styled(STYLE_DIM), stdout);
    chat_print(c, STYLE_RESET, buf_text(&line), line.len);
    chat_print_end(c);
    fputs(styled(STYLE_RESET), stdout);
    buf_free(&line);
}

static void print_rate(const char *name, double value) {
    if (isnan(value))
        printf("  %-24s -\n", name);
    else
        printf("  %-24s %.3f\n", name, value);
}

bool chat_repeats(const struct chat *c) {
    const struct engine_info info = engine_info(c->engine);
    return !info.k_auto || info.accept == ACCEPT_COUPLED || c->options.sampling.temperature == 0;
}

void chat_print_stats(const struct chat *c) {
    const struct acceptance *s = engine_stats(c->engine);
    struct engine_info info = engine_info(c->engine);
    struct engine_counts counts = engine_counts(c->engine);
    int used;
    engine_tokens(conversation_sequence(c->conversation), &used);
    printf("  %-24s %d of %d tokens, %d left, %d turn%s\n", "context", used, info.context, info.context - used,
           conversation_turns(c->conversation), conversation_turns(c->conversation) == 1 ? "" : "s");
    if (c->answer_ids.len > 0)
        printf("  %-24s %llu, of the last answer;\n  %-24s %s\n", "seed", (unsigned long long)c->answer_seed, "",
               chat_repeats(c) ? "/undo, /seed and the question repeat it"
                               : "it repeats with a fixed K (/k) or /accept coupled");
    if (info.k_auto)
        printf("  %-24s auto\n", "k");
    else
        printf("  %-24s %d\n", "k", info.k);
    printf("  %-24s %s\n", "accept", accept_rule_name(info.accept));
    printf("  %-24s %lld drafting, %lld plain\n", "rounds", (long long)s->rounds, (long long)s->plain_rounds);
    printf("  %-24s %lld\n", "emitted", (long long)s->emitted);
    printf("  %-24s %lld of %lld\n", "accepted", (long long)s->accepted, (long long)s->drafted);
    print_rate("draft_acceptance_rate", acceptance_draft_rate(s));
    print_rate("mean_acceptance_length", acceptance_mean_length(s));
    print_rate("alpha", acceptance_alpha(s));
    print_rate("alpha_tv", acceptance_alpha_tv(s));
    print_rate("speed_up", s->drafted > 0 ? speed_up_of_rounds(c->engine, 1, s->emitted, counts.rounds_by_k) : NAN);
    printf("  %-24s %llu graphs, %llu kernels\n", "launches", (unsigned long long)counts.stream.graph_launches,
           (unsigned long long)counts.stream.kernel_launches);
}

int chat_print_shown(struct chat *c) {
    struct detokenizer *d;
    struct buf text = {0};
    const bool in_channels = c->chat_template && chat_template_has_channels(c->chat_template);
    TRY(detokenizer_create(engine_tokenizer(c->engine), !in_channels, &d)); /* marks part the channels */
    int rc = 0, n;
    const int32_t *history = engine_tokens(conversation_sequence(c->conversation), &n);
    if (!c->chat_template) rc = detokenizer_follow(d, history, (size_t)n);
    for (size_t i = 0; i < c->answer_ids.len && rc == 0; i++) {
        buf_clear(&text);
        rc = detokenizer_push(d, c->answer_ids.data[i], &text);
        chat_print_marked(c, c->answer_accepted.data[i], buf_text(&text), text.len);
    }
    buf_clear(&text);
    if (rc == 0) rc = detokenizer_finish(d, &text);
    chat_print(c, STYLE_RESET, buf_text(&text), text.len);
    chat_print_end(c);
    putchar('\n');
    buf_free(&text);
    detokenizer_free(d);
    return rc;
}
