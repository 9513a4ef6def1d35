/* Templates that are like none of the named ones, and what is found out about them by rendering. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/chat_template_support.h"
#include "tests/support/damage.h"

static const struct chat_message hi = {"user", "Hi", 2}, and = {"user", "And <|end|>?", 12};

/* Roles as GLM has them, in turns of "<|role|>". */
#define ROLES(of_role, prompt) \
    "{% for m in messages %}" of_role "{% endfor %}{% if add_generation_prompt %}" prompt "{% endif %}"

static const struct {
    const char *jinja;              /* eos_token is "</s>" */
    const char *end_of_turn, *next; /* next: behind it */
} ends[] = {
    /* the next role is what ends an answer */
    {ROLES("<|{{ m.role }}|>\n{{ m.content }}", "<|assistant|>"), "", "<|user|>\nAnd <|end|>?<|assistant|>"},
    /* a mark that a last answer has, too; behind white space; one that it does not have */
    {ROLES("<|{{ m.role }}|>{{ m.content | trim }}<|end|>\n", "<|assistant|>"), "<|end|>",
     "\n<|user|>And <|end|>?<|end|>\n<|assistant|>"},
    {ROLES("[{{ m.role }}]{{ m.content | trim }} \n[/{{ m.role }}]", "[assistant]"), "[/assistant]",
     "[user]And <|end|>? \n[/user][assistant]"},
    {ROLES("<|{{ m.role }}|>{{ m.content | trim }}{% if not loop.last or m.role != 'assistant' %}<|end|>{% endif %}",
           "<|assistant|>"),
     "<|end|>", "<|user|>And <|end|>?<|end|><|assistant|>"},
    /* what reaches up to eos_token; eos_token behind no answer at all */
    {ROLES("<|{{ m.role }}|>{{ m.content | trim }}{% if m.role == 'assistant' %}<|close|>text</s>{% endif %}",
           "<|assistant|>"),
     "<|close|>text</s>", "<|user|>And <|end|>?<|assistant|>"},
    {ROLES("{{ m.role | upper }}: {{ m.content | trim }}{{ eos_token if m.role == 'assistant' else '' }}\n",
           "ASSISTANT:"),
     "</s>", "\nUSER: And <|end|>?\nASSISTANT:"},
    {ROLES("{{ m.role | upper }}: {{ m.content | trim }}\n", "ASSISTANT:"), "", "\nUSER: And <|end|>?\nASSISTANT:"},
};
enum { ENDS = sizeof ends / sizeof *ends };

static void check_plain(const struct chat_text *t) {
    const char *at = strstr(buf_text(&t->text), "And <|end|>?");
    ck_assert_ptr_nonnull(at);
    for (size_t i = 0; i < t->text.len; i++) {
        const size_t begin = (size_t)(at - t->text.data);
        ck_assert_int_eq(t->plain.data[i], i >= begin && i < begin + and.len);
    }
}

/* Loop index: the template. */
START_TEST(what_stands_behind_an_answer_is_found)
{
    template_write(ends[_i].jinja);
    struct chat_template *t = template_open(temp_dir());
    ck_assert_str_eq(chat_template_name(t), "own");
    ck_assert_str_eq(chat_template_end_of_turn(t), ends[_i].end_of_turn);
    for (int cut = 0; cut < 2; cut++) {
        struct chat_text next = {{0}, {0}};
        char want[128];
        ck_ok(chat_template_next(t, &and, cut, true, &next));
        snprintf(want, sizeof want, "%s%s", cut ? ends[_i].end_of_turn : "", ends[_i].next);
        template_check_text(&next.text, want, strlen(want));
        check_plain(&next);
        chat_text_free(&next);
    }
    chat_template_free(t);
}
END_TEST

/* --- what a template asks for ------------------------------------------------------------------------------------ */

static void expect_hi(const struct chat_template *t, bool think, const char *want) {
    struct buf text = template_render(t, &hi, 1, think);
    template_check_text(&text, want, strlen(want));
    buf_free(&text);
}

#define ASKING(head, prompt) \
    head "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}" prompt

START_TEST(thoughts_are_the_templates_unless_they_are_unwanted_or_asked_for)
{
    static const struct {
        const char *jinja, *by_itself, *unwanted, *asked; /* behind "<user>Hi</user>" */
        enum chat_thoughts thoughts;
        bool opens[2], opens_asked;
    } cases[] = {
        {ASKING("", "{{ '' if enable_thinking is not defined else enable_thinking }}"),
         "",
         "False",
         "True",
         THOUGHTS_ASKED,
         {false, false},
         false},
        {ASKING("", "<a>{{ '<think>' if thinking else '</think>' }}"),
         "<a></think>",
         "<a></think>",
         "<a><think>",
         THOUGHTS_ASKED,
         {false, false},
         true},
        {ASKING("", "<a>{{ '<think></think>' if enable_thinking is false else '<think>' }}"),
         "<a><think>",
         "<a><think></think>",
         "<a><think>",
         THOUGHTS_ASKED,
         {false, true},
         true},
        {ASKING("", "<a><think>"), "<a><think>", "<a><think>", "<a><think>", THOUGHTS_ALWAYS, {true, true}, true},
        {ASKING("", "<a>"), "<a>", "<a>", "<a>", THOUGHTS_NONE, {false, false}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[64];
        template_write(cases[i].jinja);
        struct chat_template *t = template_open(temp_dir());
        ck_assert_int_eq(chat_template_thoughts(t), cases[i].thoughts);
        for (int think = 0; think < 2; think++) {
            snprintf(want, sizeof want, "<user>Hi</user>%s", think ? cases[i].by_itself : cases[i].unwanted);
            expect_hi(t, think, want);
            ck_assert_int_eq(chat_template_opens_thought(t, think), cases[i].opens[think]);
        }
        chat_template_ask_for_thoughts(t);
        snprintf(want, sizeof want, "<user>Hi</user>%s", cases[i].asked);
        expect_hi(t, true, want);
        ck_assert_int_eq(chat_template_opens_thought(t, true), cases[i].opens_asked);
        chat_template_free(t);
    }
}
END_TEST

START_TEST(marks_of_thoughts_are_those_that_a_template_speaks_of)
{
    static const struct {
        const char *jinja;
        int marks;
        bool in_channels;
    } cases[] = {{ASKING("{# </think> #}", "<a>"), 0, false},
                 {ASKING("", "<a>{{ '</think>' if 0 else '' }}"), 2, false},
                 {ASKING("", "<|start|>{{ '<|channel|><|message|>' if 0 else '' }}"), 3, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int count = 0;
        template_write(cases[i].jinja);
        struct chat_template *t = template_open(temp_dir());
        for (const char *const *mark = chat_template_marks(t); *mark; mark++) count++;
        ck_assert_int_eq(count, cases[i].marks);
        ck_assert_int_eq(chat_template_has_channels(t), cases[i].in_channels);
        chat_template_free(t);
    }
}
END_TEST

START_TEST(thoughts_have_the_marks_of_their_template)
{
    static const char *const pairs[][2] = {{"<think>", "</think>"},
                                           {"[THINK]", "[/THINK]"},
                                           {"<|channel>", "<channel|>"},
                                           {"<|START_THINKING|>", "<|END_THINKING|>"},
                                           {"<seed:think>", "</seed:think>"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct buf jinja = {0};
        buf_printf(&jinja, "{{ '%s' if 0 else '' }}", pairs[i][1]);
        buf_puts(&jinja, ASKING("", "<a>"));
        buf_puts(&jinja, pairs[i][0]);
        template_write(jinja.data);
        buf_free(&jinja);
        struct chat_template *t = template_open(temp_dir());
        ck_assert_str_eq(chat_template_marks(t)[0], pairs[i][0]);
        ck_assert_str_eq(chat_template_marks(t)[1], pairs[i][1]);
        ck_assert(chat_template_opens_thought(t, true) && chat_template_thoughts(t) == THOUGHTS_ALWAYS);
        chat_template_free(t);
    }
}
END_TEST

START_TEST(a_file_may_stand_in_for_the_models_own)
{
    struct chat_template *t;
    char path[256];
    template_write("{{ 'of the model' }}" ASKING("", ""));
    snprintf(path, sizeof path, "%s/other.jinja", temp_dir());
    damage_write_text(path, ASKING("{{ bos_token }}", "<a>"));
    ck_ok(checkpoint_chat_template(test_checkpoint(temp_dir()), path, &t));
    ck_assert_str_eq(chat_template_name(t), "own");
    expect_hi(t, true, "<s><user>Hi</user><a>");
    chat_template_free(t);
    damage_write_text(path, "{% if %}");
    ck_assert_int_eq(checkpoint_chat_template(test_checkpoint(temp_dir()), path, &t), ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err_message(), "/other.jinja: the chat template: line 1: "));
    unlink(path);
    ck_assert_int_eq(checkpoint_chat_template(test_checkpoint(temp_dir()), path, &t), ERR_IO);
    ck_assert_ptr_null(t);
}
END_TEST

START_TEST(an_effort_is_the_templates_unless_one_is_set)
{
    template_write(ASKING("{{ reasoning_effort | default('hardly') }}", ""));
    struct chat_template *t = template_open(temp_dir());
    ck_assert(chat_template_states_effort(t));
    expect_hi(t, true, "hardly<user>Hi</user>");
    chat_template_set_effort(t, EFFORT_HIGH);
    expect_hi(t, true, "high<user>Hi</user>");
    chat_template_free(t);
}
END_TEST

START_TEST(a_day_is_stated_where_it_has_to_be_or_was_set)
{
    static const char *const jinja[] = {
        ASKING("{{ strftime_now('%d %B %Y, a %A') }} ", ""),
        ASKING("{{ strftime_now('%d %B %Y, a %A') if strftime_now is defined else 'some day' }} ", "")};
    for (int can_do_without = 0; can_do_without < 2; can_do_without++) {
        template_write(jinja[can_do_without]);
        struct chat_template *t = template_open(temp_dir());
        ck_assert_int_eq(chat_template_states_date(t), !can_do_without);
        if (can_do_without) expect_hi(t, true, "some day <user>Hi</user>");
        ck_ok(chat_template_set_date(t, "2024-02-29"));
        ck_assert(chat_template_states_date(t));
        expect_hi(t, true, "29 February 2024, a Thursday <user>Hi</user>");
        chat_template_free(t);
    }
}
END_TEST

START_TEST(what_else_a_template_needs_it_gets)
{
    static const struct {
        const char *jinja, *said;
    } cases[] = {
        /* content in parts; special tokens, one of which there is not; what is there and says nothing */
        {"{% for m in messages %}{{ m.role }}: {% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}{% endif "
         "%}{% endfor %};{% endfor %}",
         "user: Hi;"},
        {ASKING("{{ bos_token }}{{ pad_token }}{{ eos_token }}", ""), "<s></s><user>Hi</user>"},
        {ASKING("{{ tools is none }}{{ documents is none }}{{ builtin_tools is defined }}", ""),
         "TrueTrueFalse<user>Hi</user>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        template_write(cases[i].jinja);
        struct chat_template *t = template_open(temp_dir());
        expect_hi(t, true, cases[i].said);
        chat_template_free(t);
    }
}
END_TEST

START_TEST(a_template_that_wants_a_system_prompt_says_so_and_goes_on_with_one)
{
    const struct chat_message chat[] = {{"system", "S", 1}, hi};
    template_write(
        "{% if messages[0].role != 'system' %}{{ raise_exception('Who am I?') }}{% endif %}" ASKING("", "<a>"));
    struct chat_template *t = template_open(temp_dir());
    template_check_refused(t, &hi, 1, "Who am I?");
    template_check(t, chat, 2, "<system>S</system><user>Hi</user><a>");
    struct buf next = template_next(t, &hi, true, true);
    template_check_text(&next, "</assistant><user>Hi</user><a>", 30);
    buf_free(&next);
    chat_template_free(t);
}
END_TEST

START_TEST(what_fails_later_names_the_template_and_the_line)
{
    const struct chat_message three[] = {hi, {"assistant", "Yes", 3}, hi, {"assistant", "No", 2}, hi};
    struct chat_text out = {{0}, {0}};
    template_write(ASKING("", "{% if messages|length > 3 %}\n{{ nothing.at_all }}{% endif %}"));
    struct chat_template *t = template_open(temp_dir());
    ck_ok(chat_template_render(t, three, 3, true, &out));
    chat_text_free(&out);
    ck_assert_int_eq(chat_template_render(t, three, 5, true, &out), ERR_FORMAT);
    ck_assert_str_eq(err_message(), "the chat template: line 2: 'nothing' is undefined");
    ck_assert_uint_eq(out.text.len + out.plain.len, 0);
    chat_template_free(t);
}
END_TEST

/* What a request tells stands in place of what the template is told otherwise, in pieces of a conversation, too. */
START_TEST(a_template_is_told_more_by_names_of_its_own)
{
    static const char jinja[] =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking "
        "%}"
        "<think>\n\n</think>\n\n{% endif %}{% if style %}[{{ style }}|{{ level + 1 }}|{{ share }}|{{ none_at_all is "
        "none }}]"
        "{% endif %}{% endif %}";
    const struct chat_message question = {"user", "hi", 2};
    struct chat_template *base, *told;
    cJSON *members = cJSON_Parse("{\"enable_thinking\": false, \"style\": \"dry\", \"level\": 3, \"share\": 0.5, "
                                 "\"none_at_all\": null, \"tools\": null}"),
          *list = cJSON_Parse("{\"documents\": []}");
    template_write(jinja);
    base = template_open(temp_dir());
    ck_ok(chat_template_tell(&told, base, members));
    cJSON_Delete(members);
    template_check(base, &question, 1, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    template_check(told, &question, 1,
                   "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n[dry|4|0.5|True]");
    struct buf next = template_next(told, &question, false, true);
    ck_assert(text_ends_with(buf_text(&next), "<think>\n\n</think>\n\n[dry|4|0.5|True]"));
    buf_free(&next);
    chat_template_free(told);
    ck_assert_int_eq(chat_template_tell(&told, base, list), ERR_FORMAT);
    ck_assert_ptr_null(told);
    ck_assert_msg(strstr(err_message(), "'documents' is no text, number, true, false or null"), "%s", err_message());
    cJSON_Delete(list);
    chat_template_free(base);
}
END_TEST

Suite *check_chat_template_own(void) {
    Suite *suite = suite_create("chat_template_own");
    TCase *tc = tcase_create("own");
    tcase_add_loop_test(tc, what_stands_behind_an_answer_is_found, 0, ENDS);
    tcase_add_test(tc, thoughts_are_the_templates_unless_they_are_unwanted_or_asked_for);
    tcase_add_test(tc, marks_of_thoughts_are_those_that_a_template_speaks_of);
    tcase_add_test(tc, thoughts_have_the_marks_of_their_template);
    tcase_add_test(tc, a_file_may_stand_in_for_the_models_own);
    tcase_add_test(tc, an_effort_is_the_templates_unless_one_is_set);
    tcase_add_test(tc, a_day_is_stated_where_it_has_to_be_or_was_set);
    tcase_add_test(tc, what_else_a_template_needs_it_gets);
    tcase_add_test(tc, a_template_that_wants_a_system_prompt_says_so_and_goes_on_with_one);
    tcase_add_test(tc, what_fails_later_names_the_template_and_the_line);
    tcase_add_test(tc, a_template_is_told_more_by_names_of_its_own);
    suite_add_tcase(suite, tc);
    return suite;
}
