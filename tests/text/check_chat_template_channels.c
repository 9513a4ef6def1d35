/* gpt-oss: what its templates render is what jinja2 makes of the released ones; the date that they state; answers in channels. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/text.h"
#include "model/text/chat_encode.h"
#include "tests/support/chat_template_support.h"
#include "tests/support/tokenizer_support.h"

static const struct chat_message brief = {"system", " Be brief. ", 11}, short_ = {"system", "Short.", 6},
                                 empty = {"system", "", 0}, hi = {"user", " Hi\n", 4},
                                 yes = {"assistant", " Yes. ", 6}, and = {"user", "And? ", 5};

static const struct {
    const char *name, *behind_channels, *behind_instructions;
} kinds[] = {
    {"gpt-oss", "", "\n\n"},
    {"gpt-oss-2025-08", "\nCalls to these tools must go to the commentary channel: 'functions'.", ""},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

#define HI        "<|start|>user<|message|> Hi\n<|end|>"
#define ASSISTANT "<|start|>assistant"
#define FINAL     "<|channel|>final<|message|>"
#define AND       "<|start|>user<|message|>And? <|end|>" ASSISTANT

/* Behind what the template says of itself and, if they are wanted, the instructions. */
static const char *behind_head(const struct chat_template *t, int index, bool has_instructions, const char *rest) {
    static char text[1024];
    int n =
        snprintf(text, sizeof text,
                 "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
                 "Knowledge cutoff: 2024-06\nCurrent date: %s\n\nReasoning: medium\n\n"
                 "# Valid channels: analysis, commentary, final. Channel must be included for every message.%s<|end|>",
                 chat_template_date(t), kinds[index].behind_channels);
    if (has_instructions)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "<|start|>developer<|message|># Instructions\n\n Be brief. %s<|end|>",
                      kinds[index].behind_instructions);
    snprintf(text + n, sizeof text - (size_t)n, "%s", rest);
    return text;
}

static void check_kind(const struct chat_template *t, int i) {
    const struct chat_message chat[] = {brief, hi, yes, and}, none[] = {empty, hi}, systems[] = {brief, short_, hi},
                              later[] = {hi, short_, and};
    template_check(t, chat + 1, 1, behind_head(t, i, false, HI ASSISTANT));
    template_check(t, chat, 2, behind_head(t, i, true, HI ASSISTANT));
    template_check(t, none, 2, behind_head(t, i, false, HI ASSISTANT));
    template_check(t, chat, 4, behind_head(t, i, true, HI ASSISTANT FINAL " Yes. <|end|>" AND));
    template_check(t, chat + 1, 2, behind_head(t, i, false, HI ASSISTANT FINAL " Yes. <|end|>" ASSISTANT));
    template_check(t, systems, 3, behind_head(t, i, true, HI ASSISTANT));
    template_check(t, later, 3, behind_head(t, i, false, HI AND));
}

START_TEST(names_render_as_the_released_templates_do)
{ template_check_named(kinds[_i].name, _i, check_kind); }
END_TEST

static const char *name_of(int index) {
    return kinds[index].name;
}

START_TEST(released_templates_are_recognised)
{ template_check_released(KINDS, name_of, check_kind); }
END_TEST

START_TEST(the_history_keeps_the_channels_of_an_answer)
{
    const struct chat_message said = {"assistant", FINAL " Yes. ", strlen(FINAL " Yes. ")}, turns[] = {hi, said, and};
    struct chat_template *t = template_named(kinds[_i].name);
    template_check_pieces(t, turns, 3, behind_head(t, _i, false, HI ASSISTANT FINAL " Yes. <|end|>" AND));
    chat_template_free(t);
}
END_TEST

static const char tags[] = "You have passed a message containing <|channel|> tags in the content field. Instead of "
                           "doing this, you should pass "
                           "analysis messages (the string between '<|message|>' and '<|end|>') in the 'thinking' "
                           "field, and final messages (the "
                           "string between '<|message|>' and '<|end|>') in the 'content' field.";

START_TEST(marks_in_an_answer_are_refused)
{
    static const char *const marks[] = {"<|channel|>analysis<|message|>", FINAL};
    struct chat_template *t = template_named(kinds[_i].name);
    for (int i = 0; i < 2; i++) {
        const struct chat_message said = {"assistant", marks[i], strlen(marks[i])}, chat[] = {hi, said, and};
        template_check_refused(t, chat, 3, tags);
    }
    chat_template_free(t);
}
END_TEST

/* --- the date ------------------------------------------------------------------------------------------------- */

START_TEST(the_date_is_the_day_s_unless_one_is_set)
{
    char before[16], after[16];
    time_t now = time(NULL);
    strftime(before, sizeof before, "%Y-%m-%d", localtime(&now));
    struct chat_template *t = template_named("gpt-oss");
    now = time(NULL);
    strftime(after, sizeof after, "%Y-%m-%d", localtime(&now));
    ck_assert(strcmp(chat_template_date(t), before) == 0 || strcmp(chat_template_date(t), after) == 0);
    ck_ok(chat_template_set_date(t, "2024-02-29"));
    ck_assert_str_eq(chat_template_date(t), "2024-02-29");
    check_kind(t, 0);
    chat_template_free(t);
}
END_TEST

START_TEST(the_effort_is_medium_unless_another_is_set)
{
    const struct chat_message chat[] = {hi};
    struct chat_template *t = template_named("gpt-oss");
    check_kind(t, 0);
    chat_template_set_effort(t, EFFORT_HIGH);
    struct buf text = template_render(t, chat, 1, true);
    ck_assert_ptr_nonnull(strstr(buf_text(&text), "\n\nReasoning: high\n\n#"));
    buf_free(&text);
    chat_template_free(t);
}
END_TEST

START_TEST(what_is_no_day_is_refused)
{
    static const char *const words[] = {"",           "today",      "2026-11-31",  "2026-13-01",  "2026-00-10",
                                        "2026-01-00", "2025-02-29", "1900-02-29",  "2026/11/30",  "26-11-30",
                                        "2026-1-30",  "2026-11-3x", "2026-11-30 ", " 2026-11-30", "+2026-11-30",
                                        "12026-11-30"};
    struct chat_template *t = template_named("gpt-oss");
    ck_ok(chat_template_set_date(t, "2000-02-29"));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        ck_assert_int_eq(chat_template_set_date(t, words[i]), ERR_USAGE);
        ck_assert_msg(strstr(err_message(), "is no date"), "%s", err_message());
    }
    ck_assert_str_eq(chat_template_date(t), "2000-02-29");
    chat_template_free(t);
}
END_TEST

/* --- answers ---------------------------------------------------------------------------------------------------- */

enum { ANALYSIS, LYSIS, FIN, HIGH, LOW, A, B, C, START, END, CHANNEL, MESSAGE, ANA };

/* Bytes of "é" are two tokens. */
static struct tokenizer *load(void) {
#define SPECIAL(id, word) "{\"id\":" #id ",\"content\":\"<|" word "|>\",\"special\":true}"
    return tokenizer_load_text(
        "{\"model\":{\"vocab\":{\"analysis\":0,\"lysis\":1,\"final\":2,\"\xc3\x83\":3,\"\xc2\xa9\":4,\"a\":5,\"b\":6,"
        "\"c\":7,"
        "\"ana\":12},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"},"
        "\"added_tokens\":[" SPECIAL(8, "start") "," SPECIAL(9, "end") "," SPECIAL(10, "channel") "," SPECIAL(
            11, "message") "]}");
}

struct shown {
    struct buf text, thought;
    char parts[64]; /* t, h (a thought) or m for each id */
    int used;
    bool stopped;
};

static struct shown show(const struct chat_template *chat, const char *stop, const int32_t *ids, int n) {
    struct tokenizer *t = load();
    struct text_stream *s;
    struct shown shown = {0};
    const size_t length = strlen(stop);
    ck_ok(text_stream_create(t, &stop, &length, 1, &s));
    ck_ok(text_stream_answers(s, chat, true));
    for (int i = 0; i < n && !shown.stopped; i++) {
        ck_ok(text_stream_push(s, ids[i], &shown.text, &shown.stopped));
        const struct buf *thought = text_stream_thought(s);
        buf_append(&shown.thought, buf_text(thought), thought->len);
        shown.parts[shown.used++] = "thm"[text_stream_part(s)];
    }
    ck_ok(text_stream_finish(s, &shown.text, &shown.stopped));
    buf_append(&shown.thought, buf_text(text_stream_thought(s)), text_stream_thought(s)->len);
    text_stream_free(s);
    tokenizer_free(t);
    return shown;
}

static void expect(const char *stop, const char *text, const char *thought, const char *parts, const int32_t *ids,
                   int n) {
    struct chat_template *chat = template_named("gpt-oss");
    struct shown shown = show(chat, stop, ids, n);
    ck_assert_str_eq(buf_text(&shown.text), text);
    ck_assert_str_eq(buf_text(&shown.thought), thought);
    ck_assert_str_eq(shown.parts, parts);
    buf_free(&shown.text);
    buf_free(&shown.thought);
    chat_template_free(chat);
}
#define EXPECT(stop, text, thought, parts, ...)                        \
    expect(stop, text, thought, parts, (const int32_t[]){__VA_ARGS__}, \
           sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

START_TEST(a_thought_in_its_channel_is_no_text)
{
    EXPECT("", "ab", "ca", "mmmhhmmmmmmtt", CHANNEL, ANALYSIS, MESSAGE, C, A, END, START, A, CHANNEL, FIN, MESSAGE, A,
           B);
    EXPECT("", "b", "c", "mmmmhmmmmt", CHANNEL, ANA, LYSIS, MESSAGE, C, END, CHANNEL, FIN, MESSAGE, B);
    EXPECT("", "b", "", "mmmt", CHANNEL, FIN, MESSAGE, B);       /* at once */
    EXPECT("", "b", "", "mmmmt", CHANNEL, ANA, FIN, MESSAGE, B); /* another channel */
    EXPECT("", "", "c", "mmmh", CHANNEL, ANALYSIS, MESSAGE, C);  /* cut in the thought */
    EXPECT("", "", "", "mmm", A, B, C);                          /* and before it */
    EXPECT("", "a\xc3\xa9", "\xef\xbf\xbd", "mmmhmmmmttt", CHANNEL, ANALYSIS, MESSAGE, HIGH, END, CHANNEL, FIN, MESSAGE,
           A, HIGH, LOW); /* half a character of one is none of the other's */
}
END_TEST

START_TEST(stop_strings_are_those_of_the_text)
{
    EXPECT("ab", "c", "ab", "mmmhhmmmmttt", CHANNEL, ANALYSIS, MESSAGE, A, B, END, CHANNEL, FIN, MESSAGE, C, A, B, C);
    EXPECT("ab", "b", "a", "mmmhmmmmt", CHANNEL, ANALYSIS, MESSAGE, A, END, CHANNEL, FIN, MESSAGE, B);
}
END_TEST

START_TEST(a_tokenizer_without_channels_has_text_alone)
{
    struct tokenizer *t = tokenizer_load_text("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}");
    struct chat_template *chat = template_named("gpt-oss");
    struct answer_parts parts;
    answer_parts_begin(&parts, t, chat, true);
    ck_assert(!answer_parts_in_channels(&parts));
    ck_assert_int_eq(answer_parts_take(&parts, 0), ANSWER_TEXT);
    ck_assert_int_eq(answer_parts_take(&parts, -1), ANSWER_TEXT);
    chat_template_free(chat);
    tokenizer_free(t);
}
END_TEST

START_TEST(an_answer_that_was_not_generated_stands_in_the_final_channel)
{
    struct tokenizer *t = load();
    struct chat_template *chat = template_named("gpt-oss");
    const struct chat_encoding encoding = {.tokenizer = t, .chat_template = chat};
    const struct chat_message answer = {"assistant", "ab", 2};
    struct ids ids = {0};
    ck_ok(chat_encode_answer(&encoding, &answer, &ids));
    const int32_t want[] = {CHANNEL, MESSAGE, A, B};
    ck_assert_uint_ge(ids.len, 4);
    ck_assert_int_eq(ids.data[0], want[0]);
    ck_assert_int_eq(memcmp(ids.data + ids.len - 3, want + 1, sizeof want - sizeof *want), 0);
    ids_free(&ids);
    chat_template_free(chat);
    tokenizer_free(t);
}
END_TEST

Suite *check_chat_template_channels(void);
Suite *check_chat_template_channels(void) {
    Suite *suite = suite_create("chat_template_channels");
    TCase *rendering = tcase_create("rendering"), *answers = tcase_create("answers");
    tcase_add_loop_test(rendering, names_render_as_the_released_templates_do, 0, KINDS);
    tcase_add_test(rendering, released_templates_are_recognised);
    tcase_add_loop_test(rendering, the_history_keeps_the_channels_of_an_answer, 0, KINDS);
    tcase_add_loop_test(rendering, marks_in_an_answer_are_refused, 0, KINDS);
    tcase_add_test(rendering, the_date_is_the_day_s_unless_one_is_set);
    tcase_add_test(rendering, the_effort_is_medium_unless_another_is_set);
    tcase_add_test(rendering, what_is_no_day_is_refused);
    suite_add_tcase(suite, rendering);
    tcase_add_test(answers, a_thought_in_its_channel_is_no_text);
    tcase_add_test(answers, stop_strings_are_those_of_the_text);
    tcase_add_test(answers, a_tokenizer_without_channels_has_text_alone);
    tcase_add_test(answers, an_answer_that_was_not_generated_stands_in_the_final_channel);
    suite_add_tcase(suite, answers);
    return suite;
}
