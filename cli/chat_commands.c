/* The commands of the chat: one table makes /help and the look-up. */
#include <string.h>

#include "cli/chat.h"

/* --- the conversation ------------------------------------------------------------------------------------------ */

static int run_exit(struct chat *c, const char *argument) {
    (void)argument;
    c->done = true;
    return 0;
}

static int run_reset(struct chat *c, const char *argument) {
    (void)argument;
    conversation_reset(c->conversation);
    buf_clear(&c->read);
    c->turn = 0;
    c->attempt = 0;
    c->answer_ids.len = 0;
    chat_note(c, "a new conversation");
    return 0;
}

/* Without text: says what it is. */
static int run_system(struct chat *c, const char *argument) {
    if (!*argument) {
        size_t n;
        const char *text = conversation_system(c->conversation, &n);
        printf("%s\n", text ? text : "(the template's default)");
        return 0;
    }
    bool is_default = strcmp(argument, "default") == 0;
    int rc = conversation_set_system(c->conversation, is_default ? NULL : argument, is_default ? 0 : strlen(argument));
    if (rc != 0) return err_prefix(rc, "/system");
    c->turn = 0;
    c->attempt = 0;
    c->answer_ids.len = 0;
    chat_note(c, "a new conversation with %s system prompt", is_default ? "the template's" : "this");
    return 0;
}

static int undo(struct chat *c) {
    TRY(conversation_undo(c->conversation));
    c->turn--;
    c->answer_ids.len = 0;
    return 0;
}

static int run_undo(struct chat *c, const char *argument) {
    (void)argument;
    if (c->read.len > 0) {
        buf_clear(&c->read);
        chat_note(c, "what /read put in front of the next question is taken back");
        return 0;
    }
    TRY(undo(c));
    c->attempt = 0;
    chat_note(c, "taken back; %d turn%s left", c->turn, c->turn == 1 ? "" : "s");
    return 0;
}

/* What /show shows. */
static void swap_answers(struct chat *c, struct ids *ids, struct buf *accepted) {
    struct ids old_ids = c->answer_ids;
    struct buf old_accepted = c->answer_accepted;
    c->answer_ids = *ids, c->answer_accepted = *accepted;
    *ids = old_ids, *accepted = old_accepted;
}

/* The old answer goes only for a new one. */
static int run_regen(struct chat *c, const char *argument) {
    (void)argument;
    int turns = conversation_turns(c->conversation), turn = c->turn;
    if (turns == 0) return err_set(ERR_USAGE, "/regen: there is no answer yet");
    const struct buf *question, *answer;
    conversation_turn(c->conversation, turns - 1, &question, &answer);
    struct buf text = {0};
    buf_append(&text, question->data, question->len);
    struct ids ids = {0};
    struct buf accepted = {0};
    swap_answers(c, &ids, &accepted);
    bool interrupted;
    int rc = undo(c);
    c->attempt++;
    if (rc == 0) rc = chat_answer(c, buf_text(&text), text.len, &interrupted);
    if (c->turn < turn && conversation_redo(c->conversation) == 0) {
        c->turn = turn, c->attempt--;
        swap_answers(c, &ids, &accepted);
    }
    ids_free(&ids);
    buf_free(&accepted);
    buf_free(&text);
    return rc;
}

/* --- files ----------------------------------------------------------------------------------------------------- */

static int run_save(struct chat *c, const char *argument) {
    return chat_save(c, argument, false);
}

static int run_save_over(struct chat *c, const char *argument) {
    return chat_save(c, argument, true);
}

/* --- what is shown --------------------------------------------------------------------------------------------- */

static int run_stats(struct chat *c, const char *argument) {
    (void)argument;
    chat_print_stats(c);
    return 0;
}

static int show_last(struct chat *c) {
    if (c->answer_ids.len == 0) return err_set(ERR_USAGE, "/show: there is no answer to show");
    return chat_print_shown(c);
}

static int run_help(struct chat *c, const char *argument);

static const struct chat_row commands[] = {
    {"/help", "", NULL, "this list (/?)", run_help},
    {"/exit", "", NULL, "end the chat (/quit, /bye, Ctrl-D, or Ctrl-C twice)", run_exit},
    {"/quit", "", NULL, "the same", run_exit},
    {"/reset", "", NULL, "a new conversation, the same system prompt (/clear)", run_reset},
    {"/system", "[TEXT]", "default", "a new conversation with this system prompt", run_system},
    {"/undo", "", NULL, "take the last question and answer back, or /read", run_undo},
    {"/regen", "", NULL, "answer the last question again, with other numbers", run_regen},
    {"/read", "FILE", CHAT_FILES, "put a text file in front of the next question", chat_read},
    {"/save", "FILE", CHAT_FILES, "write the conversation: one line for duet batch", run_save},
    {"/save!", "FILE", CHAT_FILES, "the same, over a file that is there already", run_save_over},
    {"/load", "[FILE]", CHAT_FILES, "go on with a saved one, or the last that ended", chat_load},
    {"/stats", "", NULL, "seed, context, acceptance and launches so far", run_stats},
    {"/set", "[NAME X]", CHAT_SETTINGS, "all settings; /set NAME X is /NAME X", chat_set},
};
enum { ROW_COUNT = sizeof commands / sizeof *commands };

/* Other words for commands. */
static const struct {
    const char *name, *means;
} aliases[] = {{"/?", "/help"}, {"/bye", "/exit"}, {"/clear", "/reset"}};
enum { ALIAS_COUNT = sizeof aliases / sizeof *aliases };

const struct chat_row *chat_row_at(int i) {
    return i < ROW_COUNT ? &commands[i] : chat_setting_row(i - ROW_COUNT);
}

static int run_help(struct chat *c, const char *argument) {
    (void)argument;
    const struct chat_row *row;
    for (int i = 0; (row = chat_row_at(i)); i++) {
        char name[64];
        snprintf(name, sizeof name, "%*s%s %s", i < ROW_COUNT ? 2 : 4, "", row->name, row->argument);
        help_print_item(stdout, 24, name, row->help);
    }
    putchar('\n');
    terminal_print(
        stdout, terminal_width(1), 0, 0,
        c->interactive
            ? "A line that ends in \\ goes on in the next one; \"\"\" begins and ends several. //text sends /text. "
              "Tab completes commands, settings and file names."
            : "\"\"\" begins and ends a question of several lines. //text sends /text.");
    return 0;
}

static bool is_name(const char *name, const char *text, size_t n) {
    return strlen(name) == n && memcmp(name, text, n) == 0;
}

const struct chat_row *chat_find_row(const char *name, size_t n) {
    for (int i = 0; i < ALIAS_COUNT; i++)
        if (is_name(aliases[i].name, name, n)) name = aliases[i].means, n = strlen(name);
    for (int i = 0; i < ROW_COUNT; i++)
        if (is_name(commands[i].name, name, n)) return &commands[i];
    return n > 0 ? chat_find_setting(name + 1, n - 1) : NULL;
}

/* Settings are run by /set. */
static int run_row(struct chat *c, const struct chat_row *row, const char *argument) {
    if (!*argument && strcmp(row->name, "/show") == 0) return show_last(c);
    if (*argument && !*row->argument && row->run != run_help)
        return err_set(ERR_USAGE, "%s: takes nothing behind it", row->name);
    if (row->run) return row->run(c, argument);
    struct buf text = {0};
    buf_printf(&text, "%s %s", row->name + 1, argument);
    int rc = chat_set(c, buf_text(&text));
    buf_free(&text);
    return rc;
}

void chat_command(struct chat *c, const char *line) {
    size_t n = strcspn(line, " \t\n");
    const char *argument = line + n + strspn(line + n, " \t\n");
    struct buf trimmed = {0};
    buf_puts(&trimmed, argument);
    while (trimmed.len > 0 && strchr(" \t\n", trimmed.data[trimmed.len - 1])) trimmed.data[--trimmed.len] = '\0';
    const struct chat_row *command = chat_find_row(line, n);
    int rc = command ? run_row(c, command, buf_text(&trimmed))
                     : err_set(ERR_USAGE, "%s: no such command; /help lists them", option_quote_part(line, n));
    buf_free(&trimmed);
    if (rc != 0) chat_fail(c, rc);
}
