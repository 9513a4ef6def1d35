/* The commands of the chat: one table makes /help and the look-up. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
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
    c->turn = 0;
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
    TRY(conversation_set_system(c->conversation, is_default ? NULL : argument, is_default ? 0 : strlen(argument)));
    c->turn = 0;
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

/* "~/x" is $HOME/x. */
static void expand_path(const char *argument, struct buf *path) {
    const char *home = getenv("HOME");
    bool from_home = home && argument[0] == '~' && argument[1] == '/';
    buf_printf(path, "%s%s", from_home ? home : "", from_home ? argument + 1 : argument);
}

static void put_message(struct buf *out, const char *role, const char *text, size_t n) {
    json_put_element(out);
    buf_printf(out, "{\"role\": \"%s\"", role);
    json_put_name(out, "content");
    json_put_string(out, text, n);
    buf_putc(out, '}');
}

/* One line, so that the file is a line of a batch. */
static void conversation_to_json(const struct conversation *conversation, struct buf *out) {
    size_t n;
    const char *system = conversation_system(conversation, &n);
    buf_puts(out, "{\"messages\": [");
    if (system) put_message(out, "system", system, n);
    for (int i = 0; i < conversation_turns(conversation); i++) {
        const struct buf *question, *answer;
        conversation_turn(conversation, i, &question, &answer);
        put_message(out, "user", buf_text(question), question->len);
        put_message(out, "assistant", buf_text(answer), answer->len);
    }
    buf_puts(out, "]}");
}

static int write_file(struct chat *c, const char *path, const struct buf *text) {
    struct output file;
    TRY(output_open(&file, path));
    int rc = output_refuse_models(&file, &c->models);
    if (rc == 0) rc = output_begin(&file);
    if (rc == 0) rc = output_line(&file, text->data, text->len);
    int closed = output_close(&file);
    return rc ? rc : closed;
}

static int run_save(struct chat *c, const char *argument) {
    int turns = conversation_turns(c->conversation);
    if (!*argument) return err_set(ERR_USAGE, "/save: which file?");
    if (turns == 0) return err_set(ERR_USAGE, "/save: there is nothing to save yet");
    struct buf text = {0}, path = {0};
    expand_path(argument, &path);
    conversation_to_json(c->conversation, &text);
    int rc = write_file(c, buf_text(&path), &text);
    if (rc == 0 && c->turn > turns)
        chat_note(c, "%d turn%s saved, without the %d dropped", turns, turns == 1 ? "" : "s", c->turn - turns);
    else if (rc == 0)
        chat_note(c, "%d turn%s saved", turns, turns == 1 ? "" : "s");
    buf_free(&text);
    buf_free(&path);
    return rc;
}

static int read_message(const cJSON *item, struct buf *role, struct buf *content) {
    if (!json_string(json_get(item, "role"), role) || !json_string(json_get(item, "content"), content))
        return err_set(ERR_FORMAT, "a message needs the strings 'role' and 'content'");
    return 0;
}

static int load_messages(struct chat *c, const cJSON *list) {
    int count = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0, i = 0, rc = 0;
    if (count == 0) return err_set(ERR_FORMAT, "there is no list 'messages' with a message in it");
    struct buf *texts = calloc(2 * (size_t)count, sizeof *texts);
    struct chat_message *messages = calloc((size_t)count, sizeof *messages);
    if (!texts || !messages) rc = err_set(ERR_MEMORY, "no memory for %d messages", count);
    for (const cJSON *item = list->child; item && rc == 0; item = item->next, i++) {
        rc = read_message(item, &texts[2 * i], &texts[2 * i + 1]);
        messages[i] = (struct chat_message){buf_text(&texts[2 * i]), buf_text(&texts[2 * i + 1]), texts[2 * i + 1].len};
    }
    if (rc == 0) rc = conversation_load(c->conversation, messages, count);
    for (int t = 0; texts && t < 2 * count; t++) buf_free(&texts[t]);
    free(texts);
    free(messages);
    return rc;
}

static int run_load(struct chat *c, const char *argument) {
    if (!*argument) return err_set(ERR_USAGE, "/load: which file?");
    struct buf path = {0};
    cJSON *object = NULL;
    expand_path(argument, &path);
    int rc = json_parse_file(&object, buf_text(&path));
    if (rc == 0) {
        rc = load_messages(c, json_get(object, "messages"));
        if (rc != 0) rc = err_prefix(rc, "%s", buf_text(&path));
    }
    if (rc == 0) {
        c->turn = conversation_turns(c->conversation);
        c->attempt = 0;
        c->answer_ids.len = 0;
        chat_note(c, "%d turn%s loaded", c->turn, c->turn == 1 ? "" : "s");
    }
    cJSON_Delete(object);
    buf_free(&path);
    return rc;
}

/* --- settings -------------------------------------------------------------------------------------------------- */

/* Without a value: says what it is. */
static int run_k(struct chat *c, const char *argument) {
    struct options changed = c->options;
    if (*argument) {
        TRY(option_set(&changed, "k", argument, "/k"));
        TRY(engine_set_k(c->engine, changed.k));
        c->options = changed;
    }
    chat_note(c, "k %d", engine_info(c->engine).k);
    return 0;
}

static int run_temperature(struct chat *c, const char *argument) {
    if (*argument) TRY(option_set(&c->options, "temperature", argument, "/temp"));
    chat_note(c, "temperature %g", (double)c->options.sampling.temperature);
    return 0;
}

static int run_top_k(struct chat *c, const char *argument) {
    if (*argument) TRY(option_set(&c->options, "top-k", argument, "/top-k"));
    chat_note(c, "top-k %d", c->options.sampling.top_k);
    return 0;
}

static int run_top_p(struct chat *c, const char *argument) {
    if (*argument) TRY(option_set(&c->options, "top-p", argument, "/top-p"));
    chat_note(c, "top-p %g", (double)c->options.sampling.top_p);
    return 0;
}

static int run_min_p(struct chat *c, const char *argument) {
    if (*argument) TRY(option_set(&c->options, "min-p", argument, "/min-p"));
    chat_note(c, "min-p %g", (double)c->options.sampling.min_p);
    return 0;
}

static int run_max_tokens(struct chat *c, const char *argument) {
    if (*argument) TRY(option_set(&c->options, "max-tokens", argument, "/max-tokens"));
    if (c->options.max_tokens > 0)
        chat_note(c, "max-tokens %d", c->options.max_tokens);
    else
        chat_note(c, "max-tokens: what the context allows");
    return 0;
}

static int run_seed(struct chat *c, const char *argument) {
    bool random = strcmp(argument, "random") == 0;
    if (*argument && !random) TRY(option_set(&c->options, "seed", argument, "/seed"));
    if (*argument) c->has_seed = !random;
    c->attempt = 0;
    if (c->has_seed)
        chat_note(c, "seed %llu", (unsigned long long)c->options.seed);
    else
        chat_note(c, "seed: a random one for every answer");
    return 0;
}

/* --- what is shown --------------------------------------------------------------------------------------------- */

static int run_stats(struct chat *c, const char *argument) {
    (void)argument;
    chat_print_stats(c);
    return 0;
}

static int run_show(struct chat *c, const char *argument) {
    bool on = strcmp(argument, "on") == 0;
    if (*argument && !on && strcmp(argument, "off") != 0)
        return err_set(ERR_USAGE, "/show: '%s' is not on or off", argument);
    if (!terminal_has_color(1)) return err_set(ERR_USAGE, "/show: needs a terminal with colours");
    if (*argument) {
        c->show = on;
        chat_note(c, "accepted draft tokens are %s", on ? "coloured" : "not coloured");
        return 0;
    }
    if (c->answer_ids.len == 0) return err_set(ERR_USAGE, "/show: there is no answer to show");
    return chat_print_shown(c);
}

static int run_help(struct chat *c, const char *argument);

static const struct chat_row {
    const char *name, *argument, *help;
    int (*run)(struct chat *, const char *argument);
} commands[] = {
    {"/help", "", "this list", run_help},
    {"/exit", "", "end the chat (Ctrl-D, or Ctrl-C twice)", run_exit},
    {"/quit", "", "the same", run_exit},
    {"/reset", "", "a new conversation with the same system prompt", run_reset},
    {"/system", "[TEXT]", "a new conversation with this system prompt (default: the template's)", run_system},
    {"/undo", "", "take the last question and answer back", run_undo},
    {"/regen", "", "answer the last question again, with other random numbers", run_regen},
    {"/save", "FILE", "write the conversation as JSON: one line for duet batch", run_save},
    {"/load", "FILE", "go on with a saved conversation", run_load},
    {"/k", "[N]", "tokens that the draft proposes a round; 0 decodes plainly", run_k},
    {"/temp", "[X]", "temperature; 0 takes the most probable token", run_temperature},
    {"/top-k", "[N]", "keep the N most probable tokens; 0: all", run_top_k},
    {"/top-p", "[X]", "keep the most probable tokens that sum to X; 1: all", run_top_p},
    {"/min-p", "[X]", "keep tokens at least X times as probable as the best; 0: all", run_min_p},
    {"/max-tokens", "[N]", "longest answer", run_max_tokens},
    {"/seed", "[N|random]", "with a seed, a chat can be repeated", run_seed},
    {"/stats", "", "acceptance and launches so far", run_stats},
    {"/show", "[on|off]", "the last answer, or answers to come, with accepted draft tokens in colour", run_show},
};
enum { ROW_COUNT = sizeof commands / sizeof *commands };

static int run_help(struct chat *c, const char *argument) {
    (void)c, (void)argument;
    for (int i = 0; i < ROW_COUNT; i++) {
        char name[64];
        snprintf(name, sizeof name, "  %s %s", commands[i].name, commands[i].argument);
        help_print_item(stdout, 22, name, commands[i].help);
    }
    putchar('\n');
    terminal_print(stdout, terminal_width(1), 0, 0,
                   "A line that ends in \\ goes on in the next one. //text sends /text.");
    return 0;
}

static const struct chat_row *find_command(const char *name, size_t n) {
    for (int i = 0; i < ROW_COUNT; i++)
        if (strlen(commands[i].name) == n && memcmp(commands[i].name, name, n) == 0) return &commands[i];
    return NULL;
}

void chat_command(struct chat *c, const char *line) {
    size_t n = strcspn(line, " \t\n");
    const char *argument = line + n + strspn(line + n, " \t\n");
    struct buf trimmed = {0};
    buf_puts(&trimmed, argument);
    while (trimmed.len > 0 && strchr(" \t\n", trimmed.data[trimmed.len - 1])) trimmed.data[--trimmed.len] = '\0';
    const struct chat_row *command = find_command(line, n);
    int rc = command ? command->run(c, buf_text(&trimmed))
                     : err_set(ERR_USAGE, "%.*s: no such command; /help lists them", (int)n, line);
    buf_free(&trimmed);
    if (rc != 0) chat_fail(c, rc);
}
