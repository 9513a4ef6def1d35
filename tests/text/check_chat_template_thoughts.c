/* Chat templates whose generation prompt begins a thought: Qwen 3 Thinking, QwQ, DeepSeek R1's distilled models; and R1's first, which leaves that
 * to the model. What they render is what jinja2 makes of the released ones. */
#include <string.h>

#include "tests/support/chat_template_support.h"

static const struct chat_message brief = {"system", " Be brief. ", 11}, short_ = {"system", "Short.", 6},
                                 hi = {"user", " Hi\n", 4}, yes = {"assistant", "Hm.\n</think>\n\nYes. ", 19},
                                 twice = {"assistant", "a</think>b</think>\nc", 20}, and = {"user", "And? ", 5};

#define TURN(role, text) "<|im_start|>" role "\n" text "<|im_end|>\n"
#define OPEN             "<|im_start|>assistant\n<think>\n"
#define R1_HI            "<｜User｜> Hi\n<｜Assistant｜>"
#define R1_END           "<｜end▁of▁sentence｜>"
#define R1_KIND(name, open)                                                                                            \
    {                                                                                                                  \
        name, "<｜begin▁of▁sentence｜> Be brief. " R1_HI open,                                                         \
            "<｜begin▁of▁sentence｜> Be brief. " R1_HI "\n\nYes. " R1_END "<｜User｜>And? <｜Assistant｜>" open,       \
            "<｜begin▁of▁sentence｜>" R1_HI "\nc" R1_END "<｜User｜>And? <｜Assistant｜>" open,                        \
            "<｜begin▁of▁sentence｜>" R1_HI "\n\nYes. " R1_END "<｜Assistant｜>" open,                                 \
            "<｜begin▁of▁sentence｜>Short." R1_HI open,                                                                \
            "<｜begin▁of▁sentence｜>" R1_HI open "Hm.\n</think>\n\nYes. " R1_END "<｜User｜>And? <｜Assistant｜>" open \
    }
static const struct {
    const char *name;
    const char *question;    /* brief, hi */
    const char *two_turns;   /* brief, hi, yes, and */
    const char *two_ends;    /* hi, twice, and */
    const char *answered;    /* hi, yes */
    const char *two_systems; /* brief, short, hi */
    const char *history;     /* hi and its generation prompt, yes, and */
} kinds[] = {
    {"qwen3-thinking", TURN("system", " Be brief. ") TURN("user", " Hi\n") OPEN,
     TURN("system", " Be brief. ") TURN("user", " Hi\n") TURN("assistant", "Yes. ") TURN("user", "And? ") OPEN,
     TURN("user", " Hi\n") TURN("assistant", "c") TURN("user", "And? ") OPEN,
     TURN("user", " Hi\n") TURN("assistant", "<think>\nHm.\n</think>\n\nYes. ") OPEN,
     TURN("system", " Be brief. ") TURN("system", "Short.") TURN("user", " Hi\n") OPEN,
     TURN("user", " Hi\n") TURN("assistant", "<think>\nHm.\n</think>\n\nYes. ") TURN("user", "And? ") OPEN},
    {"qwq", TURN("system", " Be brief. ") TURN("user", " Hi\n") OPEN,
     TURN("system", " Be brief. ") TURN("user", " Hi\n") TURN("assistant", "Yes. ") TURN("user", "And? ") OPEN,
     TURN("user", " Hi\n") TURN("assistant", "c") TURN("user", "And? ") OPEN,
     TURN("user", " Hi\n") TURN("assistant", "Hm.\n</think>\n\nYes. ") OPEN,
     TURN("system", " Be brief. ") TURN("system", "Short.") TURN("user", " Hi\n") OPEN,
     TURN("user", " Hi\n") TURN("assistant", "<think>\nHm.\n</think>\n\nYes. ") TURN("user", "And? ") OPEN},
    R1_KIND("deepseek-r1", "<think>\n"),
    R1_KIND("deepseek-r1-2025-01", ""),
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void check_kind(const struct chat_template *t, int index) {
    const struct chat_message chat[] = {brief, hi, yes, and}, ends[] = {hi, twice, and},
                              systems[] = {brief, short_, hi};
    template_check(t, chat, 2, kinds[index].question);
    template_check(t, chat, 4, kinds[index].two_turns);
    template_check(t, ends, 3, kinds[index].two_ends);
    template_check(t, chat + 1, 2, kinds[index].answered);
    template_check(t, systems, 3, kinds[index].two_systems);
}

START_TEST(names_render_as_the_released_templates_do)
{ template_check_named(kinds[_i].name, _i, check_kind); }
END_TEST

START_TEST(the_history_keeps_thoughts_and_the_prompt_that_began_them)
{
    const struct chat_message turns[] = {hi, yes, and};
    struct chat_template *t = template_named(kinds[_i].name);
    template_check_pieces(t, turns, 3, kinds[_i].history);
    chat_template_free(t);
}
END_TEST

START_TEST(nothing_turns_off_what_always_thinks)
{
    const struct chat_message chat[] = {brief, hi};
    struct chat_template *t = template_named(kinds[_i].name);
    struct buf text = template_render(t, chat, 2, false), next = template_next(t, &and, false, false),
               thinking = template_next(t, &and, false, true);
    template_check_text(&text, kinds[_i].question, strlen(kinds[_i].question));
    template_check_text(&next, buf_text(&thinking), thinking.len);
    ck_assert_int_eq(chat_template_thoughts(t),
                     strcmp(kinds[_i].name, "deepseek-r1-2025-01") == 0 ? THOUGHTS_NONE : THOUGHTS_ALWAYS);
    buf_free(&text);
    buf_free(&next);
    buf_free(&thinking);
    chat_template_free(t);
}
END_TEST

static const char *name_of(int index) {
    return kinds[index].name;
}

START_TEST(released_templates_are_recognised)
{ template_check_released(KINDS, name_of, check_kind); }
END_TEST

Suite *check_chat_template_thoughts(void);
Suite *check_chat_template_thoughts(void) {
    Suite *suite = suite_create("chat_template_thoughts");
    TCase *rendering = tcase_create("rendering");
    tcase_add_loop_test(rendering, names_render_as_the_released_templates_do, 0, KINDS);
    tcase_add_loop_test(rendering, the_history_keeps_thoughts_and_the_prompt_that_began_them, 0, KINDS);
    tcase_add_loop_test(rendering, nothing_turns_off_what_always_thinks, 0, KINDS);
    tcase_add_test(rendering, released_templates_are_recognised);
    suite_add_tcase(suite, rendering);
    return suite;
}
