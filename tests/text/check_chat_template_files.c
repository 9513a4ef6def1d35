/* The files that hold a chat template. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/chat_template_support.h"
#include "tests/support/damage.h"
#include "tests/support/tokenizer_support.h"

START_TEST(no_template_means_completion)
{
    struct chat_template *t = (void *)"";
    ck_ok(checkpoint_chat_template(test_checkpoint(temp_dir()), NULL, &t));
    ck_assert_ptr_null(t);
    template_write_config("{\"bos_token\":\"<s>\",\"chat_template\":null}");
    t = (void *)"";
    ck_ok(checkpoint_chat_template(test_checkpoint(temp_dir()), NULL, &t));
    ck_assert_ptr_null(t);
}
END_TEST

/* Loop index: which file is a link to nothing. */
START_TEST(a_link_that_leads_nowhere_is_an_error_that_names_it)
{
    static const char *const names[] = {"tokenizer_config.json", "chat_template.jinja"};
    struct chat_template *t = (void *)"";
    char path[256];
    template_write(CHATML);
    snprintf(path, sizeof path, "%s/%s", temp_dir(), names[_i]);
    unlink(path);
    ck_assert_int_eq(symlink("../blobs/pruned", path), 0);
    ck_assert_int_eq(checkpoint_chat_template(test_checkpoint(temp_dir()), NULL, &t), ERR_IO);
    ck_assert_ptr_null(t);
    check_sentence();
    ck_assert_msg(strstr(err_message(), names[_i]) && strstr(err_message(), "No such file"), "%s", err_message());
    unlink(path);
}
END_TEST

START_TEST(lists_and_separate_files_are_read)
{
    struct chat_message user = {"user", "hi", 2};
    char path[256];
    template_write_config(
        "{\"bos_token\":{\"content\":\"<b>\",\"lstrip\":false},\"chat_template\":[{\"name\":\"tool_use\","
        "\"template\":\"?\"},{\"name\":\"default\",\"template\":\"{{ bos_token }}{% for message in messages %}{{ "
        "'<|im_start|>' + message['role'] + '\\\\n' + message['content'] + '<|im_end|>\\\\n' }}{% endfor %}{% if "
        "add_generation_prompt %}{{ '<|im_start|>assistant\\\\n' }}{% endif %}\"}]}");
    struct chat_template *t = template_open(temp_dir());
    struct buf text = template_render(t, &user, 1, true);
    ck_assert_str_eq(text.data, "<b>" CHATML_HI);
    buf_free(&text);
    chat_template_free(t);
    snprintf(path, sizeof path, "%s/chat_template.jinja", temp_dir());
    damage_write_text(path, CHATML);
    t = template_open(temp_dir());
    text = template_render(t, &user, 1, true);
    ck_assert_str_eq(text.data, CHATML_HI);
    buf_free(&text);
    chat_template_free(t);
    unlink(path);
}
END_TEST

static void write_as_json(const char *path, const char *jinja) {
    struct buf json = {0};
    buf_puts(&json, "{\"chat_template\":");
    json_put_string(&json, jinja, strlen(jinja));
    buf_puts(&json, "}");
    damage_write_text(path, json.data);
    buf_free(&json);
}

/* As older multimodal checkpoints have it. */
START_TEST(a_template_of_a_processor_is_read_where_there_is_no_other)
{
    struct chat_template *t;
    char json[256], jinja[256];
    snprintf(json, sizeof json, "%s/chat_template.json", temp_dir());
    snprintf(jinja, sizeof jinja, "%s/chat_template.jinja", temp_dir());
    template_write_config("{\"bos_token\":\"<s>\"}");
    write_as_json(json, "{{ bos_token }}" CHATML);
    template_check_hi("chatml", "<s>" CHATML_HI);
    template_write(CHATML);
    template_check_hi("chatml", CHATML_HI);
    template_write_config("{}");
    damage_write_text(jinja, CHATML);
    template_check_hi("chatml", CHATML_HI);
    unlink(jinja);
    damage_write_text(json, "{}");
    ck_ok(checkpoint_chat_template(test_checkpoint(temp_dir()), NULL, &t));
    ck_assert_ptr_null(t);
    unlink(json);
}
END_TEST

START_TEST(a_malformed_template_of_a_processor_is_refused_with_its_file)
{
    static const char *const cases[][2] = {
        {"[1]", "expected an object"},
        {"{\"chat_template\":5}", "'chat_template' is neither a string nor a list"},
        {"{\"chat_template\":\"?\"}", "the chat template: it does not say what users say"},
        {"{", "malformed JSON"}};
    char path[256];
    snprintf(path, sizeof path, "%s/chat_template.json", temp_dir());
    template_write_config("{}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chat_template *t = (void *)"";
        damage_write_text(path, cases[i][0]);
        ck_assert_int_ne(checkpoint_chat_template(test_checkpoint(temp_dir()), NULL, &t), 0);
        ck_assert_ptr_null(t);
        check_sentence();
        ck_assert_msg(strstr(err_message(), "/chat_template.json: ") && strstr(err_message(), cases[i][1]), "%s",
                      err_message());
    }
    unlink(path);
}
END_TEST

START_TEST(tokens_that_the_config_does_not_name_are_those_of_their_map)
{
    char path[256];
    snprintf(path, sizeof path, "%s/special_tokens_map.json", temp_dir());
    damage_write_text(path, "{\"bos_token\":{\"content\":\"<b>\"},\"eos_token\":\"<e>\"}");
    template_write_config(
        "{\"eos_token\":\"<E>\",\"chat_template\":\"{{ bos_token }}{{ eos_token }}{% for m in messages %}"
        "{{ m.content }}{% endfor %}\"}");
    template_check_hi("own", "<b><E>hi");
    damage_write_text(path, "{\"bos_token\":5}");
    struct chat_template *t;
    ck_assert_int_eq(checkpoint_chat_template(test_checkpoint(temp_dir()), NULL, &t), ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err_message(), "/special_tokens_map.json: 'bos_token' is neither"));
    unlink(path);
}
END_TEST

START_TEST(wrong_types_are_refused_in_one_sentence)
{
    static const struct {
        const char *json, *part;
    } cases[] = {
        {"{\"chat_template\":5}", "'chat_template' is neither a string nor a list"},
        {"{\"chat_template\":[{\"name\":\"rag\",\"template\":\"x\"}]}", "no template named 'default'"},
        {"{\"chat_template\":[{\"name\":\"default\",\"template\":7}]}", "'chat_template' is neither"},
        {"{\"chat_template\":", "malformed JSON"},
        {"[1]", "expected an object"},
        {"{\"eos_token\":5,\"chat_template\":\""
         "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\\\n' + "
         "message['content'] + '<|im_end|>\\\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
         "'<|im_start|>assistant\\\\n' }}{% endif %}\"}",
         "'eos_token' is neither a string nor an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chat_template *t;
        template_write_config(cases[i].json);
        ck_assert_int_eq(checkpoint_chat_template(test_checkpoint(temp_dir()), NULL, &t), ERR_FORMAT);
        ck_assert_ptr_null(t);
        check_sentence();
        ck_assert_msg(strstr(err_message(), "/tokenizer_config.json: "), "%s", err_message());
        ck_assert_msg(strstr(err_message(), cases[i].part), "%s", err_message());
    }
}
END_TEST

START_TEST(content_may_hold_nul)
{
    struct chat_message user = {"user", "a\0b", 3};
    template_write(CHATML);
    struct chat_template *t = template_open(temp_dir());
    struct buf text = template_render(t, &user, 1, true), next = template_next(t, &user, true, true);
    template_check_text(&text, "<|im_start|>user\na\0b<|im_end|>\n<|im_start|>assistant\n", 53);
    template_check_text(&next, "<|im_end|>\n<|im_start|>user\na\0b<|im_end|>\n<|im_start|>assistant\n", 64);
    buf_free(&text);
    buf_free(&next);
    chat_template_free(t);
}
END_TEST

START_TEST(white_space_is_trimmed_as_python_does)
{
    struct chat_message user = {"user", "\x1c\xe3\x80\x80 a\xe2\x80\x8b\xc2\x85\n", 12};
    struct chat_template *t;
    ck_ok(checkpoint_chat_template(test_checkpoint(temp_dir()), "llama2", &t));
    struct buf text = template_render(t, &user, 1, true);
    ck_assert_str_eq(text.data, "<s>[INST] a\xe2\x80\x8b [/INST]");
    buf_free(&text);
    chat_template_free(t);
}
END_TEST

START_TEST(impossible_conversations_are_refused)
{
    struct chat_message tool = {"tool", "x", 1};
    struct chat_text out = {{0}, {0}};
    template_write(CHATML);
    struct chat_template *t = template_open(temp_dir());
    ck_assert_int_eq(chat_template_render(t, NULL, 0, true, &out), ERR_USAGE);
    ck_assert_str_eq(err_message(), "the conversation has no messages");
    ck_assert_int_eq(chat_template_render(t, &tool, 1, true, &out), ERR_USAGE);
    ck_assert_str_eq(err_message(), "message 1 has the role 'tool', expected system, user or assistant");
    ck_assert_int_eq(chat_template_next(t, &tool, false, true, &out), ERR_USAGE);
    ck_assert_uint_eq(out.text.len, 0);
    chat_text_free(&out);
    chat_template_free(t);
}
END_TEST

static void use_damaged(const struct chat_template *t) {
    struct chat_message messages[] = {{"system", "s", 1}, {"user", " u ", 3}, {"assistant", "<think>t</think>a", 17}};
    for (int count = 1; count <= 3; count++) {
        struct chat_text out = {{0}, {0}};
        chat_template_render(t, messages, count, count & 1, &out);
        ck_ok(chat_template_next(t, &messages[1], true, false, &out));
        ck_assert_uint_eq(out.text.len, out.plain.len);
        chat_text_free(&out);
    }
}

START_TEST(damaged_configurations_load_or_fail_with_one_line)
{
    static const char *const seeds[] = {
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
        "'<|im_start|>system\\nYou.<|im_end|>\\n' "
        "}}{% endif %}{{" CHATML_BODY "}}" CHATML_TAIL,
        "{{ bos_token }}\n{%- for message in messages -%}\n  {# note #}{{- " CHATML_BODY " }}" CHATML_TAIL,
    };
    struct damage chance = {7};
    struct buf text = {0};
    char path[256];
    snprintf(path, sizeof path, "%s/tokenizer_config.json", temp_dir());
    for (int i = 0; i < 3000; i++) {
        struct chat_template *t;
        buf_clear(&text);
        buf_puts(&text, seeds[i & 1]);
        if (i & 2) damage_text(&chance, &text); /* the template */
        struct buf json = {0};
        buf_puts(&json, "{\"bos_token\": \"<s>\", \"chat_template\": ");
        json_put_string(&json, buf_text(&text), text.len);
        buf_putc(&json, '}');
        buf_free(&text);
        text = json;
        if (i & 4) damage_text(&chance, &text); /* the file around it */
        damage_write_file(path, buf_text(&text), text.len);
        if (checkpoint_chat_template(test_checkpoint(temp_dir()), NULL, &t) != 0) {
            check_sentence();
            ck_assert_ptr_null(t);
        } else if (t) {
            use_damaged(t);
        }
        ck_assert(i >= 2 || t); /* undamaged */
        chat_template_free(t);
    }
    buf_free(&text);
}
END_TEST

static void check_slow_template(const char *jinja, const char *name, const char *kind) {
    struct chat_template *t;
    template_write(jinja);
    int64_t start = tokenizer_cpu_us();
    if (name)
        ck_ok(checkpoint_chat_template(test_checkpoint(temp_dir()), name, &t));
    else
        ck_ok(checkpoint_chat_template(test_checkpoint(temp_dir()), NULL, &t));
    ck_assert_int_lt(tokenizer_cpu_us() - start, 2000000); /* measured: 0.02 s */
    ck_assert_str_eq(chat_template_name(t), kind);
    chat_template_free(t);
}

START_TEST(templates_take_no_quadratic_time)
{
    struct buf jinja = {0};
    buf_puts(&jinja, "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n");
    while (jinja.len < 900000) buf_puts(&jinja, "<|x"); /* a marker that never closes */
    buf_puts(&jinja, "<|im_end|>\\n' }}{% endif %}" CHATML);
    check_slow_template(jinja.data, NULL, "chatml");
    buf_clear(&jinja);
    while (jinja.len < 900000) buf_puts(&jinja, "<|im_start|>system\n"); /* a turn that never closes */
    check_slow_template(jinja.data, "qwen2.5", "qwen2.5");
    buf_free(&jinja);
}
END_TEST

Suite *check_chat_template_files(void) {
    Suite *suite = suite_create("chat_template_files");
    TCase *files = tcase_create("files");
    tcase_add_test(files, no_template_means_completion);
    tcase_add_loop_test(files, a_link_that_leads_nowhere_is_an_error_that_names_it, 0, 2);
    tcase_add_test(files, lists_and_separate_files_are_read);
    tcase_add_test(files, a_template_of_a_processor_is_read_where_there_is_no_other);
    tcase_add_test(files, a_malformed_template_of_a_processor_is_refused_with_its_file);
    tcase_add_test(files, tokens_that_the_config_does_not_name_are_those_of_their_map);
    tcase_add_test(files, wrong_types_are_refused_in_one_sentence);
    tcase_add_test(files, content_may_hold_nul);
    tcase_add_test(files, white_space_is_trimmed_as_python_does);
    tcase_add_test(files, impossible_conversations_are_refused);
    tcase_add_test(files, damaged_configurations_load_or_fail_with_one_line);
    tcase_add_test(files, templates_take_no_quadratic_time);
    suite_add_tcase(suite, files);
    return suite;
}
