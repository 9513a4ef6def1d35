/* Chat templates that state the day's date where a conversation has no system prompt: Granite from 3.1 on, Mistral
 * Small 3. With one they render what jinja2 makes of the released ones; without one they refuse. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/chat_template_support.h"

static const struct chat_message brief = {"system", " Be brief. ", 11}, hi = {"user", " Hi\n", 4},
                                 yes = {"assistant", "Yes.", 4}, and = {"user", "And? ", 5}, empty = {"system", "", 0},
                                 nothing = {"user", "", 0};

static const struct {
    const char *name;
    const char *system_alone; /* brief */
    const char *question;     /* brief, hi */
    const char *two_turns;    /* brief, hi, yes, and */
    const char *answered;     /* brief, hi, yes */
    const char *two_systems;  /* brief, brief, hi; NULL: refused */
    const char *empty;        /* empty, nothing */
} kinds[] = {
#define SYSTEM    "<|start_of_role|>system<|end_of_role|> Be brief. <|end_of_text|>\n"
#define HI        "<|start_of_role|>user<|end_of_role|> Hi\n<|end_of_text|>\n"
#define ASSISTANT "<|start_of_role|>assistant<|end_of_role|>"
    {"granite3.1", SYSTEM, SYSTEM HI ASSISTANT,
     SYSTEM HI ASSISTANT "Yes.<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>And? <|end_of_text|>\n" ASSISTANT,
     SYSTEM HI ASSISTANT "Yes.<|end_of_text|>\n" ASSISTANT, SYSTEM SYSTEM HI ASSISTANT,
     "<|start_of_role|>system<|end_of_role|><|end_of_text|>\n<|start_of_role|>user<|end_of_role|><|end_of_text|>"
     "\n" ASSISTANT},
#define SMALL    "<s>[SYSTEM_PROMPT] Be brief. [/SYSTEM_PROMPT]"
#define SMALL_HI "[INST] Hi\n[/INST]"
#define SMALL_ROW(name, two_systems)                                                                         \
    {                                                                                                        \
        name, SMALL, SMALL SMALL_HI, SMALL SMALL_HI "Yes.</s>[INST]And? [/INST]", SMALL SMALL_HI "Yes.</s>", \
            two_systems, "<s>[SYSTEM_PROMPT][/SYSTEM_PROMPT][INST][/INST]"                                   \
    }
    SMALL_ROW("mistral-small3.1", SMALL "[SYSTEM_PROMPT] Be brief. [/SYSTEM_PROMPT]" SMALL_HI),
    SMALL_ROW("mistral-small3.2", NULL),
    SMALL_ROW("mistral-small",
              SMALL "[SYSTEM_PROMPT] Be brief. [/SYSTEM_PROMPT]" SMALL_HI), /* the only one without a date */
};
static const char alternate[] = "After the optional system message, conversation roles must alternate "
                                "user/assistant/user/assistant/...";
enum { KINDS = sizeof kinds / sizeof *kinds, DATED = KINDS - 1 };

static void check_kind(const struct chat_template *t, int index) {
    const struct chat_message chat[] = {brief, hi, yes, and}, systems[] = {brief, brief, hi}, none[] = {empty, nothing};
    template_check(t, chat, 1, kinds[index].system_alone);
    template_check(t, chat, 2, kinds[index].question);
    template_check(t, chat, 3, kinds[index].answered);
    template_check(t, chat, 4, kinds[index].two_turns);
    if (kinds[index].two_systems)
        template_check(t, systems, 3, kinds[index].two_systems);
    else
        template_check_refused(t, systems, 3, alternate);
    template_check(t, none, 2, kinds[index].empty);
}

START_TEST(names_render_as_the_released_templates_do)
{ template_check_named(kinds[_i].name, _i, check_kind); }
END_TEST

START_TEST(pieces_make_the_whole)
{
    const struct chat_message turns[] = {brief, hi, yes, and};
    struct chat_template *t = template_named(kinds[_i].name);
    template_check_pieces(t, turns, 4, kinds[_i].two_turns);
    chat_template_free(t);
}
END_TEST

START_TEST(conversations_that_do_not_begin_with_a_system_prompt_are_refused)
{
    const struct chat_message plain[] = {hi}, late[] = {hi, brief};
    struct chat_template *t = template_named(kinds[_i].name);
    char sentence[256];
    snprintf(sentence, sizeof sentence,
             "without a system prompt the chat template (%s) states the day's date, which duet does not; "
             "hint: --system TEXT (/system TEXT in a chat), or a message with the role system",
             kinds[_i].name);
    template_check_refused(t, plain, 1, sentence);
    template_check_refused(t, late, 2, sentence);
    chat_template_free(t);
}
END_TEST

START_TEST(mistral_small_as_it_came_out_needs_no_system_prompt)
{
    const struct chat_message chat[] = {hi, yes, and}, late[] = {hi, brief};
    struct chat_template *t = template_named("mistral-small");
    template_check(t, chat, 1, "<s>" SMALL_HI);
    template_check(t, chat, 3, "<s>" SMALL_HI "Yes.</s>[INST]And? [/INST]");
    template_check(t, late, 2, "<s>" SMALL_HI "[SYSTEM_PROMPT] Be brief. [/SYSTEM_PROMPT]");
    chat_template_free(t);
}
END_TEST

/* Released ones, as $DUET_TEMPLATES has them by these names. */
static const struct {
    const char *file;
    int kind;
} released[] = {{"granite3.1", 0},        {"granite3.2", 0},        {"granite3.3", 0},       {"mistral-small-2501", 1},
                {"mistral-small-3.1", 1}, {"mistral-small-3.2", 2}, {"mistral-small", DATED}};
enum { RELEASED = sizeof released / sizeof *released };

/* Loop index: the release. */
START_TEST(released_templates_are_recognised)
{
    const char *dir = getenv("DUET_TEMPLATES"), *name = kinds[released[_i].kind].name;
    struct chat_template *t = dir ? template_released(dir, released[_i].file) : NULL;
    if (!t) {
        skip("no released template of this name: set DUET_TEMPLATES");
        return;
    }
    ck_assert_str_eq(chat_template_name(t), name);
    check_kind(t, released[_i].kind);
    chat_template_free(t);
}
END_TEST

Suite *check_chat_template_dated(void) {
    Suite *suite = suite_create("chat_template_dated");
    TCase *rendering = tcase_create("rendering");
    tcase_add_loop_test(rendering, names_render_as_the_released_templates_do, 0, KINDS);
    tcase_add_loop_test(rendering, pieces_make_the_whole, 0, KINDS);
    tcase_add_loop_test(rendering, conversations_that_do_not_begin_with_a_system_prompt_are_refused, 0, DATED);
    tcase_add_test(rendering, mistral_small_as_it_came_out_needs_no_system_prompt);
    tcase_add_loop_test(rendering, released_templates_are_recognised, 0, RELEASED);
    suite_add_tcase(suite, rendering);
    return suite;
}
