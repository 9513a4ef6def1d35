/* Jinja as chat templates use it. What snippets render is what jinja2 3.1 makes of them, set up as transformers does. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "model/jinja/jinja.h"
#include "tests/support/damage.h"
#include "tests/support/support.h"

/* Monday, 30 November 2026. */
#define NOW \
    { .tm_year = 126, .tm_mon = 10, .tm_mday = 30, .tm_wday = 1, .tm_yday = 333 }

static int render(const char *source, const struct jinja_input *input, struct buf *text, struct buf *plain) {
    struct jinja *j;
    int rc = jinja_read(&j, source, strlen(source));
    if (rc == 0) rc = jinja_render(j, input, text, plain);
    jinja_free(j);
    return rc;
}

/* The error of a template that cannot be read or rendered. */
static int refuse(const char *source) {
    const struct jinja_input input = {.now = NOW};
    struct buf text = {0}, plain = {0};
    const int rc = render(source, &input, &text, &plain);
    ck_assert_msg(rc != 0, "'%s' gives '%s'", source, buf_text(&text));
    ck_assert_uint_eq(text.len + plain.len, 0);
    check_sentence();
    return rc;
}

/* --- as jinja2 --------------------------------------------------------------------------------------------------- */

static void check_vector(const cJSON *vector) {
    const char *source = json_get(vector, "source")->valuestring;
    const cJSON *want = json_get(vector, "text"); /* null, so none: an error */
    const struct jinja_input input = {.has_now = true, .now = NOW};
    struct buf text = {0}, plain = {0};
    const int rc = render(source, &input, &text, &plain);
    ck_assert_msg((rc != 0) == !want, "'%s': %s", source, rc != 0 ? err_message() : "no error");
    if (rc == 0)
        ck_assert_msg(strcmp(buf_text(&text), want->valuestring) == 0, "'%s' gives '%s', expected '%s'", source,
                      buf_text(&text), want->valuestring);
    ck_assert_uint_eq(text.len, plain.len);
    buf_free(&text);
    buf_free(&plain);
}

START_TEST(snippets_render_as_jinja2_renders_them)
{
    cJSON *all;
    ck_ok(json_parse_file(&all, "tests/text/jinja_vectors.json"));
    ck_assert_int_gt(cJSON_GetArraySize(all), 500);
    for (const cJSON *v = all->child; v; v = v->next) check_vector(v);
    cJSON_Delete(all);
}
END_TEST

/* --- what is plain ----------------------------------------------------------------------------------------------- */

static const struct {
    const char *source, *text, *plain;
} marks[] = {
    {"<{{ messages[0].content }}>", "< a<b>\n>", "01111110"},
    {"{{ '<' + messages[0].content + '>' }}", "< a<b>\n>", "01111110"},
    {"{{ '<' ~ messages[0].content|trim ~ '>' }}", "<a<b>>", "011110"},
    {"{% set c = messages[0].content %}{{ c[1:3] }}{{ c[2] }}{{ '<' }}", "a<<<", "1110"},
    {"{{ messages[0].content.strip().replace('<', '[') }}", "a[b>", "1011"},
    {"{{ messages[0].content.split('<')|join('<') }}", " a<b>\n", "110111"},
    {"{{ messages[0].content|upper|trim }}", "A<B>", "1111"},
    {"{{ messages[0].content|tojson }}", "\" a<b>\\n\"", "011111000"},
    {"{% set x %}<{{ messages[0].content|trim }}>{% endset %}{{ x }}", "<a<b>>", "011110"},
    {"{% macro f(c) %}<{{ c }}>{% endmacro %}{{ f(messages[0].content|trim) }}", "<a<b>>", "011110"},
    {"{% set ns = namespace(all='') %}{% for m in messages %}{% set ns.all = ns.all + m.role + m.content|trim %}{% "
     "endfor %}"
     "{{ ns.all }}",
     "usera<b>", "00001111"},
    {"{{ '%s|%s' % ('<', messages[0].content|trim) }}{{ '{}'.format(messages[0].content|trim) }}", "<|a<b>a<b>",
     "0011111111"},
    {"{% for c in messages[0].content|trim %}{{ c }}{% endfor %}", "a<b>", "1111"},
    {"{{ messages[0].content|trim|reverse }}", ">b<a", "1111"},
    {"{{ 'a<b>' if messages[0].content|trim == 'a<b>' else '?' }}", "a<b>", "0000"},
};
enum { MARKS = sizeof marks / sizeof *marks };

/* Loop index: the template. */
START_TEST(what_messages_bring_stays_plain)
{
    static const struct jinja_message message = {"user", " a<b>\n", 6};
    const struct jinja_input input = {.messages = &message, .count = 1};
    struct buf text = {0}, plain = {0};
    ck_ok(render(marks[_i].source, &input, &text, &plain));
    ck_assert_str_eq(buf_text(&text), marks[_i].text);
    ck_assert_uint_eq(plain.len, strlen(marks[_i].plain));
    for (size_t i = 0; i < plain.len; i++) plain.data[i] += '0';
    ck_assert_str_eq(buf_text(&plain), marks[_i].plain);
    buf_free(&text);
    buf_free(&plain);
}
END_TEST

START_TEST(content_may_be_any_bytes_and_come_in_parts)
{
    static const struct jinja_message message = {"user", "a\0\xff\xe2\x82", 5};
    struct jinja_input input = {.messages = &message, .count = 1};
    struct buf text = {0}, plain = {0};
    ck_ok(render("{{ messages[0].content|trim }}{{ messages[0].content|length }}", &input, &text, &plain));
    ck_assert_uint_eq(text.len, 6);
    ck_assert_mem_eq(text.data,
                     "a\0\xff\xe2\x82"
                     "5",
                     6);
    buf_clear(&text);
    input.content_in_parts = true;
    ck_ok(render("{% for p in messages[0].content %}{{ p.type }}:{{ p.text[0] }}{% endfor %}", &input, &text, &plain));
    ck_assert_str_eq(buf_text(&text), "text:a");
    buf_free(&text);
    buf_free(&plain);
}
END_TEST

/* --- variables --------------------------------------------------------------------------------------------------- */

START_TEST(there_is_a_day_only_if_one_is_given)
{
    static const char source[] = "{{ strftime_now('%d %b %Y') if strftime_now is defined else 'no day' }}";
    struct jinja_input input = {.now = NOW};
    struct buf text = {0}, plain = {0};
    ck_ok(render(source, &input, &text, &plain));
    ck_assert_str_eq(buf_text(&text), "no day");
    buf_clear(&text);
    input.has_now = true;
    ck_ok(render(source, &input, &text, &plain));
    ck_assert_str_eq(buf_text(&text), "30 Nov 2026");
    buf_free(&text);
    buf_free(&plain);
}
END_TEST

START_TEST(names_and_words_of_a_template_are_known)
{
    static const char source[] =
        "{# secret #}a<b>{% if thinking %}{{ x.tools }}{{ '<think>' }}{% endif %}{% set y = 1 %}";
    struct jinja *j;
    ck_ok(jinja_read(&j, source, sizeof source - 1));
    ck_assert(jinja_names(j, "thinking") && jinja_names(j, "x"));
    ck_assert(!jinja_names(j, "tools") && !jinja_names(j, "y") && !jinja_names(j, "secret"));
    ck_assert(jinja_says(j, "<b>") && jinja_says(j, "<think>"));
    ck_assert(!jinja_says(j, "secret") && !jinja_says(j, "thinking"));
    jinja_free(j);
}
END_TEST

/* --- errors ------------------------------------------------------------------------------------------------------ */

START_TEST(errors_name_the_line_and_the_reason)
{
    static const struct {
        const char *source;
        int code;
        const char *sentence;
    } cases[] = {
        {"a\n{{ x y }}", ERR_FORMAT, "line 2: 'y' is not expected here"},
        {"a\n\n{% for x in y %}", ERR_FORMAT, "line 3: 'endfor' is missing"},
        {"{% if x %}{% else %}", ERR_FORMAT, "line 1: 'endif' is missing"},
        {"{% endif %}", ERR_UNSUPPORTED, "line 1: there is no tag 'endif'"},
        {"{% include 'x' %}", ERR_UNSUPPORTED, "line 1: there is no tag 'include'"},
        {"{% for x in y recursive %}{% endfor %}", ERR_UNSUPPORTED, "line 1: duet knows no recursive loops"},
        {"{{ 'a", ERR_FORMAT, "line 1: a string without an end"},
        {"{# a", ERR_FORMAT, "line 1: a comment without an end"},
        {"{% raw %}", ERR_FORMAT, "line 1: raw text without an end"},
        {"{{ 1 ? 2 }}", ERR_FORMAT, "line 1: '?' is not expected in a tag"},
        {"{{ 1 is odd(2) }}", ERR_FORMAT, "line 1: the test 'odd' takes no argument"},
        {"{% break %}", ERR_FORMAT, "line 1: 'break' or 'continue' outside of a loop"},
        {"\n{{ 99999999999999999999 }}", ERR_FORMAT, "line 2: 99999999999999999999 is too large"},
        {"{% set x = 1 %}\n{{ x | nosuch }}", ERR_UNSUPPORTED, "line 2: there is no filter 'nosuch'"},
        {"{{ 1 is nosuch }}", ERR_UNSUPPORTED, "line 1: there is no test 'nosuch'"},
        {"\n\n{{ a.b.c }}", ERR_FORMAT, "line 3: 'a' is undefined"},
        {"{{ 'a' + 1 }}", ERR_FORMAT, "line 1: a string and an integer cannot be added"},
        {"{{ 1 // 0 }}", ERR_FORMAT, "line 1: a division by zero"},
        {"{{ 9223372036854775807 + 1 }}", ERR_LIMIT, "line 1: an integer of more than 64 bits"},
        {"{{ 'a'.nosuch() }}", ERR_FORMAT, "line 1: 'nosuch' is undefined"},
        {"{{ 'a'.split(1, 2, 3) }}", ERR_FORMAT, "line 1: 'split' takes 2 values at most, not 3"},
        {"{{ 'a' | tojson(sort_keys=true) }}", ERR_UNSUPPORTED,
         "line 1: 'tojson' is called with 'sort_keys', which is not known there"},
        {"{% macro f(x) %}{% endmacro %}{{ f(1, 2) }}", ERR_FORMAT, "line 1: the macro 'f' takes 1 values, not 2"},
        {"{% set x.y = 1 %}", ERR_FORMAT, "line 1: an attribute is set of undefined, which is no namespace"},
        {"{% set x, y = [1] %}", ERR_FORMAT, "line 1: 1 values for 2 names"},
        {"{{ raise_exception('No, ' + 'thanks.') }}", ERR_USAGE, "No, thanks."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(refuse(cases[i].source), cases[i].code);
        ck_assert_str_eq(err_message(), cases[i].sentence);
    }
}
END_TEST

/* `times` times `part` between two texts. */
static struct buf repeat(const char *before, const char *part, int times, const char *after) {
    struct buf out = {0};
    buf_puts(&out, before);
    for (int i = 0; i < times; i++) buf_puts(&out, part);
    buf_puts(&out, after);
    return out;
}

START_TEST(nothing_takes_forever_or_all_memory)
{
    static const char *const sources[] = {
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ 'abcdefgh' * 99999999999 }}",
        "{{ ('a' * 99999).replace('a', 'b' * 99999) }}",
        "{{ ('a' * 9999) | list | join('b' * 99999) }}",
        "{{ [[1] * 9999] * 99999 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ range(999999999) }}",
        "{{ 'a\\n\\n' | indent(99999) }}",
        "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = "
        "[ns.y, ns.y] %}"
        "{% endfor %}{{ ns.x == ns.y }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) ck_assert_int_eq(refuse(sources[i]), ERR_LIMIT);
}
END_TEST

/* Two MB of content, rendered as templates do it. */
START_TEST(a_long_conversation_has_room_and_its_text_is_looked_at_in_proportion)
{
    static const char *const sources[] = {
        "{% for m in messages %}{{ '<' + m.role + '>' + m.content | trim + '</' + m.role + '>' + '\n' }}{% endfor %}",
        "{%set t=namespace(s='')%}{%for m in messages%}{%set t.s=t.s~m.content.strip()%}{%endfor%}{{t.s}}",
        "{{ messages[0].content[::-1] }}{{ messages[1].content | reverse | length }}",
    };
    struct buf content = repeat("", "h\xc3\xa9 ", 250000, ""), text = {0}, plain = {0};
    const struct jinja_message messages[] = {{"user", content.data, content.len},
                                             {"assistant", content.data, content.len}};
    const struct jinja_input input = {.messages = messages, .count = 2};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        buf_clear(&text);
        ck_ok(render(sources[i], &input, &text, &plain));
        ck_assert_uint_ge(text.len, content.len);
    }
    buf_clear(&text);
    ck_assert_int_eq(render("{% for i in range(99999) %}{% if 'x' in messages[0].content or messages[0].content[-1] == "
                            "'x' %}{% endif %}"
                            "{% endfor %}",
                            &input, &text, &plain),
                     ERR_LIMIT);
    buf_free(&content);
    buf_free(&text);
    buf_free(&plain);
}
END_TEST

START_TEST(what_is_nested_deeply_is_refused_or_cut)
{
    static const char *const parts[][3] = {{"{{ ", "(", "1"},
                                           {"{{ ", "[", "1"},
                                           {"{{ ", "-", "1 }}"},
                                           {"{{ ", "not ", "1 }}"},
                                           {"{{ 1", " + 1", " }}"},
                                           {"{{ x", ".x", " }}"},
                                           {"{{ 1", "|abs", " }}"},
                                           {"", "{% if 1 %}", ""},
                                           {"{% if 1 %}", "{% elif 1 %}", "{% endif %}"},
                                           {"{{ 1", " if 1 else 1", " }}"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct buf source = repeat(parts[i][0], parts[i][1], 20000, parts[i][2]);
        refuse(source.data);
        buf_free(&source);
    }
    const struct jinja_input input = {.now = NOW};
    struct buf text = {0}, plain = {0};
    ck_ok(render("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"
                 "{{ ns.x == ns.x }} {{ ns.x|string|length < 999 }}",
                 &input, &text, &plain));
    ck_assert_str_eq(buf_text(&text), "False True");
    ck_assert_int_eq(
        refuse("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"
               "{{ ns.x|tojson }}"),
        ERR_LIMIT);
    buf_free(&text);
    buf_free(&plain);
}
END_TEST

/* Each beginning of a template is read, or refused in a sentence. */
START_TEST(templates_that_end_anywhere_do_no_harm)
{
    static const char source[] =
        "{%- macro f(a, b='x') -%}{{ a ~ b|upper }}{%- endmacro %}{% set ns = namespace(n=0, d={'k': [1, (2, 3)]}) %}\n"
        "{% for m in messages[1:-1:2] if m.role is not defined or m.content in ['a', \"b\"] %}{% set ns.n = ns.n + 1 %}"
        "{{- loop.index0 if not loop.last else f(*[1], b=2) }}{% raw %}{{ }}{% endraw %}{% continue %}{% endfor %}{# c "
        "#}"
        "{% set t | trim %} {{ '\\u00e9\\n' }} {% endset %}{{ t is string and 1 < 2 <= 3 }}{% filter lower %}A{% "
        "endfilter %}";
    for (size_t n = 0; n < sizeof source; n++) {
        struct jinja *j;
        const int rc = jinja_read(&j, source, n);
        ck_assert_int_eq(rc == 0, j != NULL);
        if (rc != 0) check_sentence();
        jinja_free(j);
    }
    const struct jinja_input input = {.now = NOW};
    struct buf text = {0}, plain = {0};
    ck_ok(render(source, &input, &text, &plain));
    ck_assert_str_eq(buf_text(&text), "Truea");
    buf_free(&text);
    buf_free(&plain);
}
END_TEST

Suite *check_jinja(void) {
    Suite *suite = suite_create("jinja");
    TCase *tc = tcase_create("jinja");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, snippets_render_as_jinja2_renders_them);
    tcase_add_loop_test(tc, what_messages_bring_stays_plain, 0, MARKS);
    tcase_add_test(tc, content_may_be_any_bytes_and_come_in_parts);
    tcase_add_test(tc, there_is_a_day_only_if_one_is_given);
    tcase_add_test(tc, names_and_words_of_a_template_are_known);
    tcase_add_test(tc, errors_name_the_line_and_the_reason);
    tcase_add_test(tc, nothing_takes_forever_or_all_memory);
    tcase_add_test(tc, a_long_conversation_has_room_and_its_text_is_looked_at_in_proportion);
    tcase_add_test(tc, what_is_nested_deeply_is_refused_or_cut);
    tcase_add_test(tc, templates_that_end_anywhere_do_no_harm);
    suite_add_tcase(suite, tc);
    return suite;
}
