/* Files of the chat: conversations saved and loaded, the last one kept at the end, texts read into a question. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/chat.h"
#include "cli/chat_history.h"

void chat_expand_path(const char *argument, struct buf *path) {
    const size_t n = strlen(argument);
    const bool is_quoted = n > 1 && (*argument == '"' || *argument == '\'') && argument[n - 1] == *argument;
    const char *name = argument + is_quoted, *home = getenv("HOME");
    const bool from_home = home && name[0] == '~' && name[1] == '/';
    buf_printf(path, "%s%.*s", from_home ? home : "", (int)(n - 2 * is_quoted - from_home), name + from_home);
}

static const char *plural(int count) {
    return count == 1 ? "" : "s";
}

/* --- saving ---------------------------------------------------------------------------------------------------- */

static void put_message(struct buf *out, const char *role, const char *text, size_t n) {
    json_put_element(out);
    buf_printf(out, "{\"role\": \"%s\"", role);
    json_put_name(out, "content");
    json_put_string(out, text, n);
    buf_putc(out, '}');
}

/* One line, so that the file is a line of a batch; of all that was said, dropped turns too. */
static void conversation_to_json(const struct conversation *conversation, struct buf *out) {
    size_t n;
    const char *system = conversation_system(conversation, &n);
    buf_puts(out, "{\"messages\": [");
    if (system) put_message(out, "system", system, n);
    for (int i = -conversation_dropped(conversation); i < conversation_turns(conversation); i++) {
        const struct buf *question, *answer;
        conversation_turn(conversation, i, &question, &answer);
        put_message(out, "user", buf_text(question), question->len);
        put_message(out, "assistant", buf_text(answer), answer->len);
    }
    buf_puts(out, "]}");
}

static int write_file(const struct chat *c, const char *path) {
    struct output file;
    struct buf text = {0};
    TRY(output_open(&file, path));
    conversation_to_json(c->conversation, &text);
    int rc = output_refuse_models(&file, &c->models);
    if (rc == 0) rc = output_begin(&file);
    if (rc == 0) rc = output_line(&file, text.data, text.len);
    int closed = output_close(&file);
    buf_free(&text);
    return rc ? rc : closed;
}

static bool has_content(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
}

/* The file that a command's argument names, perhaps in quotes. */
static int find_named(const char *command, const char *argument, struct buf *path) {
    if (*argument) chat_expand_path(argument, path);
    return path->len > 0 ? 0 : err_set(ERR_USAGE, "%s: which file?", command);
}

int chat_save(struct chat *c, const char *argument, bool overwrite) {
    const int dropped = conversation_dropped(c->conversation), turns = conversation_turns(c->conversation) + dropped;
    struct buf path = {0};
    int rc = find_named("/save", argument, &path);
    if (rc == 0 && turns == 0) rc = err_set(ERR_USAGE, "/save: there is nothing to save yet");
    if (rc == 0 && !overwrite && has_content(buf_text(&path)))
        rc = err_set(ERR_USAGE, "/save: %s is there already; /save! FILE overwrites it", buf_text(&path));
    if (rc == 0) rc = write_file(c, buf_text(&path));
    if (rc == 0 && dropped > 0)
        chat_note(c, "%d turn%s saved, the %d dropped too", turns, plural(turns), dropped);
    else if (rc == 0)
        chat_note(c, "%d turn%s saved", turns, plural(turns));
    buf_free(&path);
    return rc;
}

/* Chats that end together (a terminal with several windows is closed) each write a file of their own; the last one's stays. */
static int replace_file(const struct chat *c, const char *path) {
    char fresh[PATH_MAX + 32];
    snprintf(fresh, sizeof fresh, "%s.%ld", path, (long)getpid());
    int fd = open(fresh, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    int rc = write_file(c, fresh);
    if (rc == 0 && rename(fresh, path) != 0) rc = err_set(ERR_IO, "%s: %s", path, strerror(errno));
    if (rc != 0) unlink(fresh);
    return rc;
}

bool chat_save_last(struct chat *c) {
    char path[PATH_MAX];
    if (!c->conversation || conversation_turns(c->conversation) == 0) return true;
    chat_state_path(path, "last.json");
    if (!path[0]) return true;
    int rc = replace_file(c, path);
    if (rc == 0)
        chat_note(c, "kept in %s; /load goes on with it", path);
    else
        cli_error("the conversation is not kept: %s", err_message());
    return rc == 0;
}

/* --- loading --------------------------------------------------------------------------------------------------- */

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

static int find_saved(const char *argument, struct buf *path) {
    char last[PATH_MAX];
    if (*argument) return find_named("/load", argument, path);
    chat_state_path(last, "last.json");
    if (access(last, F_OK) != 0) return err_set(ERR_USAGE, "/load: which file? No chat that ended was kept yet");
    buf_puts(path, last);
    return 0;
}

int chat_load(struct chat *c, const char *argument) {
    struct buf path = {0};
    cJSON *object = NULL;
    int rc = find_saved(argument, &path);
    if (rc == 0) rc = json_parse_file(&object, buf_text(&path));
    if (rc == 0) {
        rc = load_messages(c, json_get(object, "messages"));
        if (rc != 0) rc = err_prefix(rc, "%s", buf_text(&path));
    }
    if (rc == 0) {
        c->turn = conversation_turns(c->conversation);
        c->attempt = 0;
        c->answer_ids.len = 0;
        chat_note(c, "%d turn%s loaded", c->turn, plural(c->turn));
    }
    cJSON_Delete(object);
    buf_free(&path);
    return rc;
}

/* --- texts for the next question ------------------------------------------------------------------------------- */

enum { TEXT_BYTES_MAX = 64 << 20 };

/* No pipe, which might never end, and nothing that is larger than any context. */
static int check_text_file(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return err_set(ERR_USAGE, "%s: is not a file", path);
    if (st.st_size > TEXT_BYTES_MAX)
        return err_set(ERR_LIMIT, "%s: %lld bytes are more than a question may have", path, (long long)st.st_size);
    return 0;
}

static int count_tokens(const struct chat *c, const struct buf *text, size_t *count) {
    struct ids ids = {0};
    struct encode_options options = {.interrupt = &signals_interrupt};
    int rc = tokenizer_encode(engine_tokenizer(c->engine), buf_text(text), text->len, &options, &ids);
    *count = ids.len;
    ids_free(&ids);
    return rc;
}

static int check_text(const struct chat *c, const char *path, const struct buf *text, size_t *tokens) {
    size_t context = (size_t)engine_info(c->engine).context;
    if (text->len == 0) return err_set(ERR_FORMAT, "%s: is empty", path);
    if (!utf8_is_valid(text->data, text->len) || memchr(text->data, 0, text->len))
        return err_set(ERR_FORMAT, "%s: is not text in UTF-8", path);
    TRY(count_tokens(c, text, tokens));
    if (*tokens >= context)
        return err_set(ERR_LIMIT, "%s: %zu tokens do not fit, the context holds %zu", path, *tokens, context);
    return 0;
}

static size_t count_characters(const struct buf *text) {
    size_t count = 0;
    for (size_t i = 0; i < text->len; i++) count += (text->data[i] & 0xc0) != 0x80;
    return count;
}

static int read_text(struct chat *c, const char *path) {
    struct buf text = {0};
    size_t tokens = 0;
    int rc = check_text_file(path);
    if (rc == 0) rc = input_read(path, &text);
    if (rc == 0) rc = check_text(c, path, &text, &tokens);
    if (rc == 0) {
        chat_note(c, "%s: %zu characters, %zu tokens, in front of the next question", path, count_characters(&text),
                  tokens);
        buf_append(&c->read, text.data, text.len);
        if (text.data[text.len - 1] != '\n') buf_putc(&c->read, '\n');
    }
    buf_free(&text);
    return rc;
}

int chat_read(struct chat *c, const char *argument) {
    struct buf path = {0};
    int rc = find_named("/read", argument, &path);
    if (c->interactive) signals_clear();
    if (rc == 0) rc = read_text(c, buf_text(&path));
    if (c->interactive) signals_clear(); /* Ctrl-C in a long file was meant for that */
    buf_free(&path);
    return rc;
}
