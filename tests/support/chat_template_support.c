#include "tests/support/chat_template_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/support/damage.h"

void template_write_config(const char *json) {
    char path[256];
    snprintf(path, sizeof path, "%s/tokenizer_config.json", temp_dir());
    damage_write_text(path, json);
}

void template_write(const char *jinja) {
    struct buf json = {0};
    buf_puts(&json, "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"chat_template\":");
    json_put_string(&json, jinja, strlen(jinja));
    buf_puts(&json, "}");
    template_write_config(json.data);
    buf_free(&json);
}

struct chat_template *template_open(const char *dir) {
    struct chat_template *t;
    ck_ok(checkpoint_chat_template(test_checkpoint(dir), NULL, &t));
    ck_assert_ptr_nonnull(t);
    return t;
}

struct buf template_render(const struct chat_template *t, const struct chat_message *m, int count, bool think) {
    struct chat_text out = {{0}, {0}};
    ck_ok(chat_template_render(t, m, count, think, &out));
    buf_free(&out.plain);
    return out.text;
}

struct buf template_next(const struct chat_template *t, const struct chat_message *user, bool cut, bool think) {
    struct chat_text out = {{0}, {0}};
    ck_ok(chat_template_next(t, user, cut, think, &out));
    buf_free(&out.plain);
    return out.text;
}

void template_check_text(const struct buf *got, const char *want, size_t n) {
    ck_assert_msg(got->len == n && memcmp(buf_text(got), want, n) == 0, "'%s' is not '%s'", buf_text(got), want);
}

struct chat_template *template_named(const char *name) {
    struct chat_template *t;
    ck_ok(checkpoint_chat_template(test_checkpoint(temp_dir()), name, &t));
    ck_assert_str_eq(chat_template_name(t), name);
    return t;
}

/* The special tokens that the files of a release name. */
static void write_tokens(const char *name) {
    static const char *const tokens[][3] = {{"gemma", "<bos>", "<eos>"},
                                            {"deepseek", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"},
                                            {"olmo", "<|endoftext|>", "<|endoftext|>"},
                                            {"mi", "<s>", "</s>"}};
    char json[160] = "{}";
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        if (strncmp(name, tokens[i][0], strlen(tokens[i][0])) == 0)
            snprintf(json, sizeof json, "{\"bos_token\":\"%s\",\"eos_token\":\"%s\"}", tokens[i][1], tokens[i][2]);
    template_write_config(json);
}

struct chat_template *template_released(const char *dir, const char *name) {
    char from[512], to[256];
    struct buf text = {0};
    snprintf(from, sizeof from, "%s/%s.jinja", dir, name);
    snprintf(to, sizeof to, "%s/chat_template.jinja", temp_dir());
    if (access(from, R_OK) != 0) return NULL;
    write_tokens(name);
    ck_ok(file_read(from, 1 << 16, &text));
    damage_write_file(to, buf_text(&text), text.len);
    buf_free(&text);
    return template_open(temp_dir());
}

void template_check_named(const char *name, int index, void (*check)(const struct chat_template *, int)) {
    struct chat_template *t = template_named(name);
    check(t, index);
    chat_template_free(t);
}

void template_check_released(int count, const char *(*name_of)(int), void (*check)(const struct chat_template *, int)) {
    const char *dir = getenv("DUET_TEMPLATES");
    int seen = 0;
    for (int i = 0; i < count && dir; i++) {
        struct chat_template *t = template_released(dir, name_of(i));
        if (!t) continue;
        ck_assert_str_eq(chat_template_name(t), name_of(i));
        check(t, i);
        chat_template_free(t);
        seen++;
    }
    if (seen == 0) skip("no released template of these names: set DUET_TEMPLATES, or make test-data");
}

void template_check(const struct chat_template *t, const struct chat_message *m, int count, const char *want) {
    struct buf got = template_render(t, m, count, true);
    template_check_text(&got, want, strlen(want));
    buf_free(&got);
}

void template_check_refused(const struct chat_template *t, const struct chat_message *m, int count,
                            const char *sentence) {
    struct chat_text out = {{0}, {0}};
    ck_assert_int_eq(chat_template_render(t, m, count, true, &out), ERR_USAGE);
    ck_assert_str_eq(err_message(), sentence);
    ck_assert_uint_eq(out.text.len, 0);
    chat_text_free(&out);
}

void template_check_pieces(const struct chat_template *t, const struct chat_message *m, int count, const char *want) {
    const struct chat_message *answer = &m[count - 2], *question = &m[count - 1];
    for (int cut = 0; cut < 2; cut++) {
        struct buf pieces = template_render(t, m, count - 2, true), next = template_next(t, question, cut, true);
        buf_append(&pieces, answer->content, answer->len);
        if (!cut) buf_puts(&pieces, chat_template_end_of_turn(t));
        buf_append(&pieces, buf_text(&next), next.len);
        template_check_text(&pieces, want, strlen(want));
        buf_free(&pieces);
        buf_free(&next);
    }
}

void template_check_hi(const char *kind, const char *expected) {
    struct chat_message user = {"user", "hi", 2};
    struct chat_template *t = template_open(temp_dir());
    ck_assert_str_eq(chat_template_name(t), kind);
    struct buf text = template_render(t, &user, 1, true);
    template_check_text(&text, expected, strlen(expected));
    buf_free(&text);
    chat_template_free(t);
}
