/* Chat templates against the reference, whole and piece by piece. */
#include <stdio.h>
#include <string.h>

#include "model/text/chat_encode.h"
#include "tests/support/chat_template_support.h"

enum { MESSAGES_MAX = 8 };

struct chat {
    struct chat_message messages[MESSAGES_MAX];
    struct buf texts[MESSAGES_MAX];
    int count;
};

static void chat_add(struct chat *c, const char *role, const char *text, size_t n) {
    ck_assert_int_lt(c->count, MESSAGES_MAX);
    buf_append(&c->texts[c->count], text, n);
    c->messages[c->count] = (struct chat_message){role, buf_text(&c->texts[c->count]), n};
    c->count++;
}

static void chat_read(struct chat *c, const cJSON *messages) {
    for (const cJSON *m = messages->child; m; m = m->next) {
        struct buf text = {0};
        ck_assert(json_string(json_get(m, "content"), &text));
        chat_add(c, json_get(m, "role")->valuestring, buf_text(&text), text.len);
        buf_free(&text);
    }
}

static void chat_free(struct chat *c) {
    for (int i = 0; i < c->count; i++) buf_free(&c->texts[i]);
    *c = (struct chat){0};
}

static struct ids encode(const struct tokenizer *t, const struct buf *text) {
    struct ids ids = {0};
    ck_ok(tokenizer_encode(t, buf_text(text), text->len, NULL, &ids));
    return ids;
}

static void check_ids(const struct ids *got, const cJSON *want) {
    size_t i = 0;
    for (const cJSON *item = want->child; item; item = item->next, i++)
        ck_assert_msg(i < got->len && got->data[i] == (int32_t)item->valuedouble, "id %zu differs", i);
    ck_assert_uint_eq(i, got->len);
}

/* --- against the reference --------------------------------------------------------------------------------- */

static const struct {
    const char *name, *tokenizer, *kind;
} templates[] = {
    {"pair", "pair", "chatml"},
    {"smollm2", "smollm2", "chatml"},
    {"qwen2.5", "qwen3", "qwen2.5"},
    {"qwen3", "qwen3", "qwen3"},
    {"llama2", "llama2", "llama2"},
    {"llama3.1", "llama3", "llama3.1"},
    {"llama3.2", "llama3", "llama3.2"},
    {"mistral-v0.1", "llama2", "mistral"},
    {"mistral-nemo", "llama2", "mistral-nemo"},
};
enum { TEMPLATES = sizeof templates / sizeof *templates };

/* What a loop test over the templates needs; false where the shared data are absent. */
struct subject {
    struct chat_template *chat_template;
    struct tokenizer *tokenizer;
    cJSON *vectors;
    const cJSON *cases;
};

static bool subject_load(struct subject *s, int index) {
    char relative[64];
    const char *path = shared_path("fixtures/template-vectors.json");
    if (!path) {
        skip("no shared test data");
        return false;
    }
    ck_ok(json_parse_file(&s->vectors, path));
    s->cases = json_get(s->vectors, templates[index].name)->child;
    snprintf(relative, sizeof relative, "fixtures/templates/%s", templates[index].name);
    s->chat_template = template_open(shared_path(relative));
    snprintf(relative, sizeof relative, "tokenizers/%s", templates[index].tokenizer);
    ck_ok(checkpoint_tokenizer(test_checkpoint(shared_path(relative)), &s->tokenizer));
    return true;
}

static void subject_free(struct subject *s) {
    chat_template_free(s->chat_template);
    tokenizer_free(s->tokenizer);
    cJSON_Delete(s->vectors);
}

static bool thinks(const cJSON *item) {
    bool think;
    ck_ok(json_get_bool(item, "enable_thinking", true, &think));
    return think;
}

static void check_case(const struct subject *s, const cJSON *item) {
    struct chat chat = {0};
    chat_read(&chat, json_get(item, "messages"));
    const cJSON *error = json_get(item, "error");
    struct chat_encoding encoding = {s->tokenizer, s->chat_template, .think = thinks(item)};
    struct ids ids = {0};
    int rc = chat_encode(&encoding, chat.messages, chat.count, &ids);
    if (error) {
        ck_assert_int_eq(rc, ERR_USAGE);
        ck_assert_str_eq(err_message(), error->valuestring);
        ck_assert_uint_eq(ids.len, 0);
    } else {
        ck_assert_msg(rc == 0, "%s", err_message());
        if (json_get(item, "ids")) check_ids(&ids, json_get(item, "ids"));
        struct buf out = template_render(s->chat_template, chat.messages, chat.count, thinks(item)), want = {0};
        ck_assert(json_string(json_get(item, "rendered"), &want));
        template_check_text(&out, want.data, want.len);
        buf_free(&want);
        buf_free(&out);
    }
    ids_free(&ids);
    chat_free(&chat);
}

START_TEST(reference_vectors_are_reproduced)
{
    struct subject s;
    int seen = 0;
    if (!subject_load(&s, _i)) return;
    ck_assert_str_eq(chat_template_name(s.chat_template), templates[_i].kind);
    ck_assert_int_eq(chat_template_thoughts(s.chat_template),
                     strcmp(templates[_i].kind, "qwen3") == 0 ? THOUGHTS_ASKED : THOUGHTS_NONE);
    for (const cJSON *item = s.cases; item; item = item->next, seen++) check_case(&s, item);
    ck_assert_int_ge(seen, 5);
    subject_free(&s);
}
END_TEST

static void check_reference_prompts(const cJSON *list, struct chat_template *t, const char *tokenizer_dir) {
    struct tokenizer *tokenizer;
    ck_ok(checkpoint_tokenizer(test_checkpoint(tokenizer_dir), &tokenizer));
    for (const cJSON *item = list->child; item; item = item->next) {
        struct buf prompt = {0};
        ck_assert(json_string(json_get(item, "prompt"), &prompt));
        struct chat_message user = {"user", prompt.data, prompt.len};
        struct chat_encoding encoding = {tokenizer, t, .think = true};
        struct ids ids = {0};
        ck_ok(chat_encode(&encoding, &user, 1, &ids));
        check_ids(&ids, json_get(item, "prompt_ids"));
        ids_free(&ids);
        buf_free(&prompt);
    }
    tokenizer_free(tokenizer);
}

START_TEST(prompt_ids_of_the_chat_references_are_reproduced)
{
    const char *path = shared_path("fixtures/chat-references.json");
    if (!path) {
        skip("no shared test data");
        return;
    }
    cJSON *json;
    ck_ok(json_parse_file(&json, path));
    const cJSON *greedy = json_get(json, "greedy");
    struct chat_template *pair = template_open(asset_path("target")),
                         *smol = template_open(shared_path("models/smollm2-draft"));
    check_reference_prompts(json_get(greedy, "pair-target"), pair, asset_path("target"));
    check_reference_prompts(json_get(greedy, "pair-draft"), pair, asset_path("draft"));
    check_reference_prompts(json_get(greedy, "smollm2-135m"), smol, shared_path("tokenizers/smollm2"));
    check_reference_prompts(json_get(greedy, "smollm2-draft"), smol, shared_path("models/smollm2-draft"));
    chat_template_free(pair);
    chat_template_free(smol);
    cJSON_Delete(json);
}
END_TEST

/* --- piece by piece ---------------------------------------------------------------------------------------- */

static void append(struct buf *out, const struct buf *more) {
    buf_append(out, buf_text(more), more->len);
}

/* An answer as the model generates it: what the template puts around it is part of it. */
static void append_answer(struct buf *out, const struct chat_template *t, const struct chat_message *answer) {
    bool spaced = strcmp(chat_template_name(t), "llama2") == 0;
    if (spaced) buf_putc(out, ' ');
    buf_append(out, answer->content, answer->len);
    if (spaced) buf_putc(out, ' ');
}

/* Renders a conversation of [system] user (assistant user)* turn by turn. *last = the last piece. */
static struct buf render_pieces(const struct chat_template *t, const struct chat *c, bool cut, bool think,
                                struct buf *last) {
    int first = strcmp(c->messages[0].role, "system") == 0 ? 2 : 1;
    struct buf history = template_render(t, c->messages, first, first == c->count ? think : true);
    for (int i = first; i + 1 < c->count; i += 2) {
        buf_free(last);
        append_answer(&history, t, &c->messages[i]);
        if (!cut) buf_puts(&history, chat_template_end_of_turn(t));
        *last = template_next(t, &c->messages[i + 1], cut, i + 2 == c->count ? think : true);
        append(&history, last);
    }
    return history;
}

/* mistral-nemo moves the system prompt of a whole render to the end, so there it is compared without one. */
static void drop_moving_system(const struct chat_template *t, struct chat *c) {
    if (strcmp(chat_template_name(t), "mistral-nemo") != 0 || strcmp(c->messages[0].role, "system") != 0) return;
    buf_free(&c->texts[0]);
    c->count--;
    memmove(c->messages, c->messages + 1, (size_t)c->count * sizeof *c->messages);
    memmove(c->texts, c->texts + 1, (size_t)c->count * sizeof *c->texts);
}

static void check_pieces(const struct subject *s, const cJSON *item, bool cut) {
    struct chat chat = {0};
    struct buf last = {0};
    chat_read(&chat, json_get(item, "messages"));
    drop_moving_system(s->chat_template, &chat);
    struct buf whole = template_render(s->chat_template, chat.messages, chat.count, thinks(item));
    struct buf pieces = render_pieces(s->chat_template, &chat, cut, thinks(item), &last);
    template_check_text(&pieces, whole.data, whole.len);
    /* Tokenised alone, the last piece gives the same ids as it does in the whole. */
    struct ids all = encode(s->tokenizer, &whole), end = encode(s->tokenizer, &last);
    ck_assert_uint_le(end.len, all.len);
    ck_assert_int_eq(
        memcmp(all.data + (all.len - end.len), end.len > 0 ? end.data : all.data, end.len * sizeof(int32_t)), 0);
    ids_free(&all);
    ids_free(&end);
    buf_free(&whole);
    buf_free(&pieces);
    buf_free(&last);
    chat_free(&chat);
}

START_TEST(pieces_make_the_whole)
{
    struct subject s;
    int seen = 0;
    if (!subject_load(&s, _i)) return;
    for (const cJSON *item = s.cases; item; item = item->next) {
        if (json_get(item, "error")) continue;
        check_pieces(&s, item, false);
        check_pieces(&s, item, true);
        seen++;
    }
    ck_assert_int_ge(seen, 3);
    const char *end = chat_template_end_of_turn(s.chat_template);
    ck_assert_int_ge(tokenizer_find(s.tokenizer, end, strlen(end)), 0);
    subject_free(&s);
}
END_TEST

Suite *check_chat_template(void) {
    Suite *suite = suite_create("chat_template");
    TCase *reference = tcase_create("reference");
    tcase_add_loop_test(reference, reference_vectors_are_reproduced, 0, TEMPLATES);
    tcase_add_test(reference, prompt_ids_of_the_chat_references_are_reproduced);
    tcase_add_loop_test(reference, pieces_make_the_whole, 0, TEMPLATES);
    suite_add_tcase(suite, reference);
    return suite;
}
