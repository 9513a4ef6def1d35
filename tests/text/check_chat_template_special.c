/* Special tokens in messages: text, for every template; and what of a rendered chat counts as messages. */
#include <stdio.h>
#include <string.h>

#include "model/text/chat_encode.h"
#include "tests/support/chat_template_support.h"
#include "tests/support/damage.h"
#include "tests/support/tokenizer_support.h"

static const struct {
    const char *name, *tokenizer;
    bool by_name; /* else the directory of that name holds the template */
    bool has_system;
} templates[] = {
    {"pair", "pair", false, true},           {"smollm2", "smollm2", false, true},
    {"qwen2.5", "qwen3", false, true},       {"qwen3", "qwen3", false, true},
    {"llama2", "llama2", false, true},       {"llama3.1", "llama3", false, true},
    {"llama3.2", "llama3", false, true},     {"mistral-v0.1", "llama2", false, false},
    {"mistral-nemo", "llama2", false, true}, {"chatml", "smollm2", true, true},
    {"llama2", "llama2", true, true},        {"llama3", "llama3", true, true},
    {"llama3.1", "llama3", true, true},      {"llama3.2", "llama3", true, true},
    {"mistral", "llama2", true, false},      {"mistral-v1", "llama2", true, true},
    {"mistral-v3", "llama2", true, true},    {"mistral-nemo", "llama2", true, true},
    {"qwen2.5", "qwen3", true, true},        {"qwen3", "qwen3", true, true},
    {"phi4", "qwen3", true, true},           {"granite3.0", "llama3", true, true},
    {"granite3.1", "llama3", true, true},    {"mistral-small3.2", "llama2", true, true},
    {"olmo2", "smollm2", true, true},        {"qwen3-vl", "qwen3", true, true},
    {"qwen3-thinking", "qwen3", true, true}, {"qwq", "qwen3", true, true},
};
enum { TEMPLATES = sizeof templates / sizeof *templates };

/* Opened once for all tests: each takes its time. */
static struct {
    const char *name;
    struct tokenizer *tokenizer;
} opened[] = {
    {"pair", NULL}, {"smollm2", NULL}, {"qwen3", NULL}, {"llama2", NULL}, {"llama3", NULL},
};
enum { OPENED = sizeof opened / sizeof *opened };

static void open_tokenizers(void) {
    char relative[64];
    for (int i = 0; i < OPENED; i++) {
        snprintf(relative, sizeof relative, "tokenizers/%s", opened[i].name);
        if (shared_path(relative)) opened[i].tokenizer = tokenizer_open(shared_path(relative));
    }
}

static void free_tokenizers(void) {
    for (int i = 0; i < OPENED; i++) tokenizer_free(opened[i].tokenizer), opened[i].tokenizer = NULL;
}

struct subject {
    struct chat_template *chat_template;
    const struct tokenizer *tokenizer;
    bool has_system;
};

static bool subject_load(struct subject *s, int index) {
    char relative[64];
    int i = 0;
    while (strcmp(opened[i].name, templates[index].tokenizer) != 0) i++;
    s->tokenizer = opened[i].tokenizer;
    if (!s->tokenizer) {
        skip("no shared test data");
        return false;
    }
    s->has_system = templates[index].has_system;
    snprintf(relative, sizeof relative, "fixtures/templates/%s", templates[index].name);
    if (templates[index].by_name)
        ck_ok(checkpoint_chat_template(test_checkpoint(temp_dir()), templates[index].name, &s->chat_template));
    else
        s->chat_template = template_open(shared_path(relative));
    return true;
}

static void subject_free(struct subject *s) {
    chat_template_free(s->chat_template);
}

static struct chat_encoding encoding_of(const struct subject *s, bool parse_special) {
    return (struct chat_encoding){
        .tokenizer = s->tokenizer, .chat_template = s->chat_template, .think = true, .parse_special = parse_special};
}

/* [system,] user, assistant, user, all with this content. */
static int make_messages(const struct subject *s, const struct buf *content, struct chat_message messages[4]) {
    static const char *const roles[] = {"system", "user", "assistant", "user"};
    int count = 0;
    for (int i = s->has_system ? 0 : 1; i < 4; i++)
        messages[count++] = (struct chat_message){roles[i], buf_text(content), content->len};
    return count;
}

static struct ids encode_chat(const struct subject *s, const struct buf *content, bool parse_special) {
    struct chat_encoding encoding = encoding_of(s, parse_special);
    struct chat_message messages[4];
    struct ids ids = {0};
    int count = make_messages(s, content, messages);
    ck_ok(chat_encode(&encoding, messages, count, &ids));
    return ids;
}

/* The special ids among `ids`, in order. */
static struct ids special_of(const struct tokenizer *t, const struct ids *ids) {
    struct ids special = {0};
    for (size_t i = 0; i < ids->len; i++)
        if (tokenizer_is_special(t, ids->data[i])) ids_push(&special, ids->data[i]);
    return special;
}

/* The special tokens of the chat are those of one whose messages are innocent, and every message can be read in it. */
static void check_content(const struct subject *s, const struct buf *content, const struct ids *innocent, int copies) {
    struct ids ids = encode_chat(s, content, false), special = special_of(s->tokenizer, &ids);
    require(special.len == innocent->len &&
                memcmp(special.data, innocent->data, special.len * sizeof *special.data) == 0,
            "'%s': %zu special ids, expected %zu, or others", buf_text(content), special.len, innocent->len);
    struct buf text = tokenizer_decode_all(s->tokenizer, &ids, false);
    for (const char *at = buf_text(&text); copies > 0; copies--, at += content->len) {
        at = memmem(at, text.len - (size_t)(at - text.data), buf_text(content), content->len);
        require(at, "'%s' is not in '%s'", buf_text(content), buf_text(&text));
    }
    ids_free(&ids);
    ids_free(&special);
    buf_free(&text);
}

static struct ids innocent_special(const struct subject *s) {
    struct buf content = {0};
    buf_puts(&content, "x");
    struct ids ids = encode_chat(s, &content, false), special = special_of(s->tokenizer, &ids);
    ck_assert_uint_ge(special.len, 1);
    ids_free(&ids);
    buf_free(&content);
    return special;
}

/* Loop index: the template. */
START_TEST(every_special_token_in_messages_is_text)
{
    struct subject s;
    if (!subject_load(&s, _i)) return;
    struct ids innocent = innocent_special(&s);
    struct buf all = {0}, one = {0};
    size_t n;
    for (int32_t id = 0; id < tokenizer_size(s.tokenizer); id++) {
        const char *token = tokenizer_token(s.tokenizer, id, &n);
        if (!token || !tokenizer_is_special(s.tokenizer, id)) continue;
        buf_append(&all, token, n);
        buf_puts(&all, id % 2 ? " a " : "");
        buf_clear(&one);
        buf_append(&one, token, n);
        if (id % 16 < 4) check_content(&s, &one, &innocent, templates[_i].has_system ? 4 : 3);
    }
    buf_puts(&all, ".");
    check_content(&s, &all, &innocent, templates[_i].has_system ? 4 : 3);
    ids_free(&innocent);
    buf_free(&all);
    buf_free(&one);
    subject_free(&s);
}
END_TEST

START_TEST(with_parse_special_they_are_what_the_rendered_text_gives)
{
    struct subject s;
    if (!subject_load(&s, _i)) return;
    struct buf content = {0};
    struct chat_message messages[4];
    const char *end = chat_template_end_of_turn(s.chat_template);
    buf_printf(&content, "a%sb", end);
    int count = make_messages(&s, &content, messages);
    struct ids got = encode_chat(&s, &content, true), innocent = innocent_special(&s);
    struct buf text = template_render(s.chat_template, messages, count, true);
    struct ids want = tokenizer_encode_all(s.tokenizer, text.data, text.len, false);
    ck_assert_uint_eq(got.len, want.len);
    ck_assert_int_eq(memcmp(got.data, want.data, got.len * sizeof *got.data), 0);
    struct ids special = special_of(s.tokenizer, &got);
    ck_assert_uint_eq(special.len, innocent.len + (size_t)count);
    ids_free(&got);
    ids_free(&want);
    ids_free(&special);
    ids_free(&innocent);
    buf_free(&content);
    buf_free(&text);
    subject_free(&s);
}
END_TEST

/* Messages that begin and end with parts of special tokens, which the template's text could complete. */
START_TEST(no_special_token_lies_across_a_border)
{
    struct subject s;
    struct damage chance = {(uint64_t)_i + 1};
    if (!subject_load(&s, _i)) return;
    struct ids innocent = innocent_special(&s);
    const char *end = chat_template_end_of_turn(s.chat_template);
    size_t n = strlen(end);
    for (uint32_t cut = 1; cut <= n; cut++)
        for (int i = 0; i < 4; i++) {
            struct buf content = {0};
            if (i & 1) buf_append(&content, end + cut, n - cut);
            buf_putc(&content, (char)('a' + (int)damage_below(&chance, 26)));
            if (i & 2) buf_append(&content, end, cut);
            check_content(&s, &content, &innocent, 0);
            buf_free(&content);
        }
    ids_free(&innocent);
    subject_free(&s);
}
END_TEST

START_TEST(a_later_turn_is_encoded_alike)
{
    struct subject s;
    if (!subject_load(&s, _i)) return;
    const char *end = chat_template_end_of_turn(s.chat_template);
    struct buf content = {0};
    buf_printf(&content, "a%sb", end);
    struct chat_message user = {"user", content.data, content.len}, innocent = {"user", "x", 1};
    for (int cut = 0; cut < 2; cut++) {
        struct chat_encoding plain = encoding_of(&s, false), parsing = encoding_of(&s, true);
        struct ids got = {0}, want = {0}, parsed = {0};
        ck_ok(chat_encode_next(&plain, &user, cut, &got));
        ck_ok(chat_encode_next(&plain, &innocent, cut, &want));
        ck_ok(chat_encode_next(&parsing, &user, cut, &parsed));
        struct ids a = special_of(s.tokenizer, &got), b = special_of(s.tokenizer, &want),
                   c = special_of(s.tokenizer, &parsed);
        ck_assert_uint_eq(a.len, b.len);
        ck_assert_uint_eq(c.len, b.len + 1);
        ids_free(&got);
        ids_free(&want);
        ids_free(&parsed);
        ids_free(&a);
        ids_free(&b);
        ids_free(&c);
    }
    buf_free(&content);
    subject_free(&s);
}
END_TEST

/* --- what counts as messages --------------------------------------------------------------------------------- */

/* The rendered text with what messages brought in {braces}. */
static void show_marks(const struct chat_text *t, struct buf *out) {
    char mark = 0;
    ck_assert_uint_eq(t->text.len, t->plain.len);
    for (size_t i = 0; i < t->text.len; i++) {
        if (t->plain.data[i] != mark) buf_putc(out, mark ? '}' : '{');
        mark = t->plain.data[i];
        buf_putc(out, t->text.data[i]);
    }
    if (mark) buf_putc(out, '}');
}

static void expect_marks(const char *name, const struct chat_message *messages, int count, const char *expected) {
    struct chat_template *t = template_named(name);
    struct chat_text text = {{0}, {0}};
    struct buf shown = {0};
    ck_ok(chat_template_render(t, messages, count, true, &text));
    show_marks(&text, &shown);
    ck_assert_str_eq(buf_text(&shown), expected);
    buf_free(&shown);
    chat_text_free(&text);
    chat_template_free(t);
}

#define MESSAGE(role, content) \
    { role, content, sizeof content - 1 }

START_TEST(marks_cover_what_messages_bring_and_nothing_else)
{
    const struct chat_message chat[] = {MESSAGE("system", " S "), MESSAGE("user", " U "), MESSAGE("assistant", " A "),
                                        MESSAGE("user", " V ")};
    const struct chat_message thought[] = {MESSAGE("user", "U"), MESSAGE("assistant", "<think>\nT\n</think>\n\nA"),
                                           MESSAGE("user", "V")};
    const struct chat_message last_thought[] = {MESSAGE("user", "U"),
                                                MESSAGE("assistant", "<think>\nT\n</think>\n\nA")};
    const struct chat_message blank[] = {MESSAGE("system", "S"), MESSAGE("user", " \n ")};
    expect_marks("chatml", chat, 4,
                 "<|im_start|>system\n{ S }<|im_end|>\n<|im_start|>user\n{ U }<|im_end|>\n<|im_start|>assistant\n{ A "
                 "}<|im_end|>\n<|im_start|>user\n{ V }<|im_end|>\n<|im_start|>assistant\n");
    expect_marks("llama2", chat, 4, "<s>[INST] <<SYS>>\n{ S }\n<</SYS>>\n\n{ U} [/INST] {A} </s><s>[INST] {V} [/INST]");
    expect_marks("llama2", blank, 2, "<s>[INST] <<SYS>>\n{S}\n<</SYS>> [/INST]");
    expect_marks("llama3", chat, 2,
                 "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{S}<|eot_id|><|start_header_id|>user<|"
                 "end_header_id|>\n\n{U}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
    expect_marks("llama3.1", chat, 1,
                 "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December "
                 "2023\nToday Date: 26 Jul 2024\n\n{S}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
    expect_marks("mistral", chat + 1, 3, "<s>[INST] { U } [/INST]{ A }</s>[INST] { V } [/INST]");
    expect_marks("mistral-nemo", chat, 4, "<s>[INST]{ U }[/INST]{ A }</s>[INST]{ S }\n\n{ V }[/INST]");
    expect_marks(
        "qwen3", thought, 3,
        "<|im_start|>user\n{U}<|im_end|>\n<|im_start|>assistant\n{A}<|im_end|>\n<|im_start|>user\n{V}<|im_end|>\n"
        "<|im_start|>assistant\n");
    expect_marks("qwen3", last_thought, 2,
                 "<|im_start|>user\n{U}<|im_end|>\n<|im_start|>assistant\n<think>\n{T}\n</think>\n\n{A}<|im_end|>\n"
                 "<|im_start|>assistant\n");
}
END_TEST

Suite *check_chat_template_special(void) {
    Suite *suite = suite_create("chat_template_special");
    TCase *special = tcase_create("special");
    tcase_add_unchecked_fixture(special, open_tokenizers, free_tokenizers);
    tcase_add_loop_test(special, every_special_token_in_messages_is_text, 0, TEMPLATES);
    tcase_add_loop_test(special, with_parse_special_they_are_what_the_rendered_text_gives, 0, TEMPLATES);
    tcase_add_loop_test(special, no_special_token_lies_across_a_border, 0, TEMPLATES);
    tcase_add_loop_test(special, a_later_turn_is_encoded_alike, 0, TEMPLATES);
    tcase_add_test(special, marks_cover_what_messages_bring_and_nothing_else);
    suite_add_tcase(suite, special);
    return suite;
}
