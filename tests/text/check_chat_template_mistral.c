/* Mistral's templates with a system prompt in a question: the first (v1) or the last (v3). What they render is what jinja2 makes of the released
 * ones. */
#include "tests/support/chat_template_support.h"

static const struct chat_message brief = {"system", " Be brief. ", 11}, hi = {"user", " Hi\n", 4},
                                 yes = {"assistant", " Yes.\n", 6}, and = {"user", "And? ", 5};

static const struct {
    const char *name;
    const char *question;  /* brief, hi */
    const char *two_turns; /* brief, hi, yes, and */
    const char *plain;     /* hi, yes, and */
    const char *history;   /* brief and hi, what the model said, and */
} kinds[] = {
    {"mistral-v1", "<s> [INST]  Be brief. \n\n Hi\n [/INST]",
     "<s> [INST]  Be brief. \n\n Hi\n [/INST]  Yes.\n</s> [INST] And?  [/INST]",
     "<s> [INST]  Hi\n [/INST]  Yes.\n</s> [INST] And?  [/INST]",
     "<s> [INST]  Be brief. \n\n Hi\n [/INST] Yes.\n</s> [INST] And?  [/INST]"},
    {"mistral-v3", "<s>[INST]  Be brief. \n\n Hi\n[/INST]",
     "<s>[INST]  Hi\n[/INST] Yes.</s>[INST]  Be brief. \n\nAnd? [/INST]",
     "<s>[INST]  Hi\n[/INST] Yes.</s>[INST] And? [/INST]",
     "<s>[INST]  Be brief. \n\n Hi\n[/INST] Yes.\n</s>[INST] And? [/INST]"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void check_kind(const struct chat_template *t, int index) {
    const struct chat_message chat[] = {brief, hi, yes, and}, late[] = {hi, brief}, questions[] = {hi, and};
    template_check(t, chat, 1, "<s>");
    template_check(t, chat, 2, kinds[index].question);
    template_check(t, chat, 4, kinds[index].two_turns);
    template_check(t, chat + 1, 3, kinds[index].plain);
    template_check_refused(t, late, 2,
                           "Only user and assistant roles are supported, with the exception of an initial optional "
                           "system message!");
    template_check_refused(t, questions, 2,
                           "After the optional system message, conversation roles must alternate "
                           "user/assistant/user/assistant/...");
}

START_TEST(names_render_as_the_released_templates_do)
{ template_check_named(kinds[_i].name, _i, check_kind); }
END_TEST

START_TEST(the_system_prompt_stays_in_the_question_that_it_was_asked_with)
{
    const struct chat_message turns[] = {brief, hi, yes, and};
    struct chat_template *t = template_named(kinds[_i].name);
    template_check_pieces(t, turns, 4, kinds[_i].history);
    chat_template_free(t);
}
END_TEST

static const char *name_of(int index) {
    return kinds[index].name;
}

START_TEST(released_templates_are_recognised)
{ template_check_released(KINDS, name_of, check_kind); }
END_TEST

Suite *check_chat_template_mistral(void);
Suite *check_chat_template_mistral(void) {
    Suite *suite = suite_create("chat_template_mistral");
    TCase *rendering = tcase_create("rendering");
    tcase_add_loop_test(rendering, names_render_as_the_released_templates_do, 0, KINDS);
    tcase_add_loop_test(rendering, the_system_prompt_stays_in_the_question_that_it_was_asked_with, 0, KINDS);
    tcase_add_test(rendering, released_templates_are_recognised);
    suite_add_tcase(suite, rendering);
    return suite;
}
