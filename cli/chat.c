/* duet chat: start, the two loops (terminal, lines), and the end. */
#include "cli/chat.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* --- start and end --------------------------------------------------------------------------------------------- */

static int load_template(struct chat *c) {
    const char *name = c->options.chat_template;
    TRY(checkpoint_chat_template(c->models.target, name, &c->chat_template));
    if (!c->chat_template)
        cli_note(
            "%s has no chat template: completion mode, what you type is continued as it stands (or --template NAME)",
            checkpoint_name(c->models.target));
    return models_settle_template(&c->options, c->chat_template);
}

static int start(struct chat *c) {
    TRY(models_resolve(&c->models, &c->options));
    int rc = checkpoint_need_tokenizer(c->models.target);
    if (rc != 0) return err_hint(rc, "duet batch takes prompt_ids without one");
    TRY(alpha_report_open(&c->report, &c->options, &c->models, NULL));
    TRY(engine_start(&c->engine, &c->models, &c->options));
    TRY(load_template(c));
    struct conversation_options options = {
        .engine = c->engine,
        .chat_template = c->chat_template,
        .think = c->options.think,
        .parse_special = c->options.parse_special,
        .interrupt = &signals_interrupt,
    };
    TRY(conversation_create(&c->conversation, &options));
    const char *system = c->options.system;
    return system ? conversation_set_system(c->conversation, system, strlen(system)) : 0;
}

static void chat_free(struct chat *c) {
    chat_input_free(c->input);
    wrap_free(&c->wrap);
    conversation_free(c->conversation);
    chat_template_free(c->chat_template);
    engine_destroy(c->engine);
    models_free(&c->models);
    alpha_report_close(&c->report);
    buf_free(&c->read);
    ids_free(&c->answer_ids);
    buf_free(&c->answer_accepted);
}

/* --null: what a line of the input gave ends here, an answer, a command's output, or nothing. */
static void end_record(void) {
    putchar('\0');
    fflush(stdout);
}

/* --- one answer: -p -------------------------------------------------------------------------------------------- */

/* Standard input to its end, without one newline there. */
static int read_input(struct buf *text) {
    TRY(input_read(NULL, text));
    if (text->len > 0 && text->data[text->len - 1] == '\n') text->data[--text->len] = '\0';
    return 0;
}

/* main has put what cannot be read in the place of a standard input that is closed. */
static bool has_input(void) {
    return !terminal_is_tty(STDIN_FILENO) && (fcntl(STDIN_FILENO, F_GETFL) & O_ACCMODE) != O_WRONLY;
}

/* -p TEXT, and what is piped in on the lines behind it; -p -: that alone. */
static int read_prompt(const struct options *o, struct buf *text) {
    if (!o->prompt) return 0;
    if (strcmp(o->prompt, "-") == 0) return read_input(text);
    struct buf piped = {0};
    int rc = has_input() ? read_input(&piped) : 0;
    buf_puts(text, o->prompt);
    if (piped.len > 0) buf_printf(text, "\n"), buf_append(text, piped.data, piped.len);
    buf_free(&piped);
    return rc;
}

static int answer_prompt(struct chat *c, const struct buf *prompt) {
    bool interrupted;
    int rc = chat_answer(c, buf_text(prompt), prompt->len, &interrupted);
    if (c->options.null) end_record();
    if (rc != 0) return cli_fail(rc);
    return interrupted ? signals_status() : STATUS_OK;
}

/* --- the loops ------------------------------------------------------------------------------------------------- */

/* What /read put there, and the question. */
static int ask(struct chat *c, const char *question, size_t n, bool *interrupted) {
    struct buf text = c->read;
    c->read = (struct buf){0};
    c->attempt = 0;
    buf_append(&text, question, n);
    int rc = chat_answer(c, buf_text(&text), text.len, interrupted);
    buf_free(&text);
    return rc;
}

/* A command, or a question. */
static void take_turn(struct chat *c, const struct buf *text, bool *interrupted) {
    const char *line = buf_text(text);
    bool escaped = line[0] == '/' && line[1] == '/';
    *interrupted = false;
    const bool is_command = line[0] == '/' && !escaped;
    if (is_command && strlen(line) == text->len) {
        chat_command(c, line);
        return;
    }
    int rc = is_command ? err_set(ERR_FORMAT, "a command holds no U+0000")
                        : ask(c, line + escaped, text->len - escaped, interrupted);
    if (rc != 0) chat_fail(c, rc);
}

static bool is_blank(const struct buf *text) {
    return strspn(buf_text(text), " \t\n") == text->len;
}

static int talk(struct chat *c) {
    struct buf text = {0};
    bool interrupted;
    if (!terminal_is_quiet()) chat_banner(c);
    while (!c->done && !ferror(stdout) && !signals_ended()) {
        enum input_result result = chat_input_read(c->input, &text);
        if (result == INPUT_END) break;
        if (result == INPUT_INTERRUPTED)
            chat_note(c, "Ctrl-C again, or Ctrl-D, ends the chat");
        else if (!is_blank(&text))
            take_turn(c, &text, &interrupted);
    }
    buf_free(&text);
    bool kept = chat_save_last(c);
    return signals_ended() ? signals_status() : kept ? STATUS_OK : STATUS_FAILED;
}

static int answer_lines(struct chat *c) {
    struct buf text = {0};
    enum input_result result = INPUT_TURN;
    bool interrupted = false;
    while (!c->done && !interrupted && !ferror(stdout) && (result = chat_input_read(c->input, &text)) == INPUT_TURN) {
        if (is_blank(&text)) continue;
        take_turn(c, &text, &interrupted);
        if (c->options.null) end_record();
    }
    buf_free(&text);
    if (interrupted || result == INPUT_INTERRUPTED) return signals_status();
    if (result == INPUT_FAILED) return cli_fail(ERR_IO);
    return c->failed ? STATUS_FAILED : STATUS_OK;
}

static int run(struct chat *c, const struct buf *prompt) {
    int rc = 0;
    if (!c->options.prompt)
        rc = chat_input_create(&c->input, c->interactive); /* now: keys wait unseen for the prompt */
    if (rc == 0) rc = start(c);
    if (rc != 0) return cli_fail(rc);
    signals_set(SIGNALS_FLAG);
    if (c->options.prompt) return answer_prompt(c, prompt);
    return c->interactive ? talk(c) : answer_lines(c);
}

int chat_main(const struct options *options) {
    struct chat c = {
        .options = *options,
        .interactive = terminal_is_tty(0) && terminal_is_tty(1) && !options->prompt,
        .footer = FOOTER_SHORT,
        .has_seed = option_given(options, "seed"),
        .report.file = OUTPUT_CLOSED,
    };
    struct buf prompt = {0};
    int rc = read_prompt(options, &prompt);
    int status = rc == 0 ? run(&c, &prompt) : cli_fail(rc);
    rc = c.engine ? alpha_report_write(&c.report, c.engine) : 0;
    if (rc != 0 && status == STATUS_OK) status = cli_fail(rc);
    chat_free(&c);
    buf_free(&prompt);
    return status;
}
