/* Which of the named templates is a file's like? */
#include <stdio.h>
#include <string.h>

#include "tests/support/chat_template_support.h"
#include "tests/support/damage.h"

/* --- recognising ------------------------------------------------------------------------------------------- */

static void expect_rendered(const char *jinja, const char *kind, const char *expected) {
    template_write(jinja);
    template_check_hi(kind, expected);
}

START_TEST(variants_of_chatml_are_recognised)
{
    expect_rendered(CHATML, "chatml", CHATML_HI);
    expect_rendered(
        "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}" CHATML,
        "chatml", CHATML_HI);
    expect_rendered("{{ bos_token }}" CHATML, "chatml", "<s>" CHATML_HI);
    expect_rendered("{%- for message in messages -%}\n    {{- " CHATML_BODY " -}}\n{%- endfor -%}\n"
                    "{%- if add_generation_prompt -%}\n    {{- \"<|im_start|>assistant\n\" -}}\n{%- endif -%}\n",
                    "chatml", CHATML_HI);
    expect_rendered("{% for message in messages %}\n<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
                    "{% endfor %}\n{% if add_generation_prompt %}\n<|im_start|>assistant\n{% endif %}\n",
                    "chatml", CHATML_HI);
    expect_rendered("{# a comment with '<|other|>' #}" CHATML, "chatml", CHATML_HI);
    expect_rendered("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
                    "'<|im_start|>system\\nIt\\'s you.<|im_end|>\\n' }}{% endif %}{{" CHATML_BODY "}}" CHATML_TAIL,
                    "chatml", "<|im_start|>system\nIt's you.<|im_end|>\n" CHATML_HI);
    expect_rendered(
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
        "'<|im_start|>system\\nHelp.<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + "
        "message['content']}}{% if (loop.last and add_generation_prompt) or not loop.last %}{{ '<|im_end|>' + "
        "'\\n'}}{% endif %}{% endfor %}{% if add_generation_prompt and messages[-1]['role'] != 'assistant' %}"
        "{{ '<|im_start|>assistant\\n' }}{% endif %}",
        "chatml", "<|im_start|>system\nHelp.<|im_end|>\n" CHATML_HI);
}
END_TEST

/* As released; the other half is about pictures. */
#define QWEN_VL(condition)                                                                                            \
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}{% for message in messages " \
    "%}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant."           \
    "<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n{% if message['content'] is " condition                \
    " %}{{ message['content'] }}<|im_end|>\n{% else %}{% for content in message['content'] %}{% if content['type'] "  \
    "== 'image' or 'image' in content or 'image_url' in content %}{% set image_count.value = image_count.value + 1 "  \
    "%}{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}<|vision_start|><|image_pad|>"               \
    "<|vision_end|>{% elif content['type'] == 'video' or 'video' in content %}{% set video_count.value = "            \
    "video_count.value + 1 %}{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}<|vision_start|>"        \
    "<|video_pad|><|vision_end|>{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n" \
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

#define HELP "<|im_start|>system\nHelp.<|im_end|>\n"
#define TURNS(question, answer, next)                                                                                \
    "<|im_start|>user\n" question "<|im_end|>\n<|im_start|>assistant\n" answer "<|im_end|>\n<|im_start|>user\n" next \
    "<|im_end|>\n<|im_start|>assistant\n"

START_TEST(the_template_of_qwen2_vl_is_chatml_for_text)
{
    static const struct chat_message messages[] = {{"system", "Be brief.", 9}, {"user", "hi", 2}};
    expect_rendered(QWEN_VL("string"), "chatml",
                    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" CHATML_HI);
    struct chat_template *t = template_open(temp_dir());
    struct buf text = template_render(t, messages, 2, true);
    const char *expected = "<|im_start|>system\nBe brief.<|im_end|>\n" CHATML_HI;
    template_check_text(&text, expected, strlen(expected));
    buf_free(&text);
    chat_template_free(t);
}
END_TEST

/* What templates say that are like none of the named ones, or like one but for what the conversation does not show: of " Hi ", "No. " and "And?". */
static const struct {
    const char *name, *jinja, *said;
} others[] = {
    {"chatml", QWEN_VL("mapping"),
     "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" TURNS(" Hi ", "No. ", "And?")},
    {"own",
     "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '\\n' + message['content'] "
     "| "
     "trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}",
     "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>assistant\nNo.<end_of_turn>\n<start_of_turn>user\nAnd?"
     "<end_of_turn>\n<start_of_turn>model\n"},
    {"own",
     "{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + eos_token }}{% endfor %}",
     "<|user|>\n Hi </s><|assistant|>\nNo. </s><|user|>\nAnd?</s>"},
    /* ChatML with a trimmed content, another role marker, a forced thought, a forced system prompt, a late bos_token */
    {"own",
     "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + "
     "'<|im_end|>' + '\\n'}}" CHATML_TAIL,
     TURNS("Hi", "No.", "And?")},
    {"chatml",
     "{% for message in messages %}{% if message['role'] == 'tool' %}{{ '<|im_start|><|tool|>' }}{% endif "
     "%}{{" CHATML_BODY "}}" CHATML_TAIL,
     TURNS(" Hi ", "No. ", "And?")},
    {"own",
     "{% for message in messages %}{{" CHATML_BODY "}}{% endfor %}{% if add_generation_prompt %}{{ "
     "'<|im_start|>assistant\\n<think>\\n' }}{% endif %}",
     TURNS(" Hi ", "No. ", "And?") "<think>\n"},
    {"own",
     "{{ '<|im_start|>system\\nAlways.<|im_end|>\\n' }}{% for message in messages %}{{" CHATML_BODY "}}" CHATML_TAIL,
     "<|im_start|>system\nAlways.<|im_end|>\n" TURNS(" Hi ", "No. ", "And?")},
    {"own", "{% for message in messages %}{{ bos_token + " CHATML_BODY "}}" CHATML_TAIL,
     "<s><|im_start|>user\n Hi <|im_end|>\n<s><|im_start|>assistant\nNo. "
     "<|im_end|>\n<s><|im_start|>user\nAnd?<|im_end|>\n"
     "<|im_start|>assistant\n"},
    /* early Mistral: a space behind the end of an answer */
    {"own",
     "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ "
     "raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if "
     "message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == "
     "'assistant' %}{{ message['content'] + eos_token + ' ' }}{% else %}{{ raise_exception('Only user and assistant "
     "roles "
     "are supported!') }}{% endif %}{% endfor %}",
     "<s>[INST]  Hi  [/INST]No. </s> [INST] And? [/INST]"},
    /* ChatML said twice, without the system turn, with its system prompt in each turn */
    {"own",
     "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
     "message['content'] + '<|im_end|>' + '\\n'}}" CHATML_TAIL,
     TURNS(" Hi  Hi ", "No. No. ", "And?And?")},
    {"own",
     "{% for message in messages %}{% if message['role'] != 'system' %}{{" CHATML_BODY "}}{% endif %}" CHATML_TAIL,
     TURNS(" Hi ", "No. ", "And?")},
    {"chatml",
     "{% for message in messages %}{% if messages[0]['role'] != 'system' %}{{ "
     "'<|im_start|>system\\nHelp.<|im_end|>\\n' "
     "}}{% endif %}{{" CHATML_BODY "}}" CHATML_TAIL,
     HELP "<|im_start|>user\n Hi <|im_end|>\n" HELP "<|im_start|>assistant\nNo. <|im_end|>\n" HELP
          "<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n"},
};
enum { OTHERS = sizeof others / sizeof *others };

START_TEST(other_templates_say_what_they_say)
{
    const struct chat_message chat[] = {{"user", " Hi ", 4}, {"assistant", "No. ", 4}, {"user", "And?", 4}};
    template_write(others[_i].jinja);
    struct chat_template *t = template_open(temp_dir());
    ck_assert_str_eq(chat_template_name(t), others[_i].name);
    template_check(t, chat, 3, others[_i].said);
    chat_template_free(t);
}
END_TEST

static const char *const unusable[][2] = {
    /* the last message alone, the first letters of each, what Python knows and Jinja's templates do not say */
    {"{% for message in messages[-1:] %}{{" CHATML_BODY "}}" CHATML_TAIL,
     "it does not say what was answered, or asked then"},
    {"{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'][:5] + '<|im_end|>' "
     "+ "
     "'\\n'}}" CHATML_TAIL,
     "it does not say what users say"},
    {"{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'].casefold() + "
     "'<|im_end|>' + '\\n'}}" CHATML_TAIL,
     "line 1: 'casefold' is undefined"},
    {"{{ raise_exception('Never.') }}", "Never."},
    {"{% for message in messages %}\n{{ 'unfinished", "line 2: a string without an end"},
    {"{{ messages", "line 1: a tag without an end"},
    {"plain text", "it does not say what users say"},
    {"", "it does not say what users say"},
};
enum { UNUSABLE = sizeof unusable / sizeof *unusable };

START_TEST(templates_that_no_chat_can_use_are_refused_with_a_hint)
{
    struct chat_template *t;
    char sentence[128];
    template_write(unusable[_i][0]);
    ck_assert_int_eq(checkpoint_chat_template(test_checkpoint(temp_dir()), NULL, &t), ERR_UNSUPPORTED);
    ck_assert_ptr_null(t);
    check_sentence();
    snprintf(sentence, sizeof sentence,
             "/tokenizer_config.json: the chat template: %s; hint: --template NAME, one of chatml, ", unusable[_i][1]);
    ck_assert_msg(strstr(err_message(), sentence), "%s", err_message());
}
END_TEST

/* --- released templates, edited ------------------------------------------------------------------------------ */

/* The template of a shared directory; NULL where the shared data are absent. */
static cJSON *released(const char *name, struct buf *jinja) {
    char relative[96];
    cJSON *json;
    snprintf(relative, sizeof relative, "fixtures/templates/%s/tokenizer_config.json", name);
    if (!shared_path(relative)) {
        skip("no shared test data");
        return NULL;
    }
    ck_ok(json_parse_file(&json, shared_path(relative)));
    ck_assert(json_string(json_get(json, "chat_template"), jinja));
    return json;
}

/* Every `from` becomes `to`; there is one at least. */
static void replace_all(struct buf *text, const char *from, const char *to) {
    struct buf out = {0};
    const char *at = buf_text(text), *found = strstr(at, from);
    ck_assert_msg(found, "no '%s'", from);
    for (; found; found = strstr(at, from)) {
        buf_append(&out, at, (size_t)(found - at));
        buf_puts(&out, to);
        at = found + strlen(from);
    }
    buf_puts(&out, at);
    buf_free(text);
    *text = out;
}

/* Which kind it is. */
static void check_is(const struct buf *jinja, const char *kind) {
    template_write(jinja->data);
    struct chat_template *t = template_open(temp_dir());
    ck_assert_str_eq(chat_template_name(t), kind);
    chat_template_free(t);
}

static const struct {
    const char *name, *from, *to, *then; /* NULL: refused */
} edits[] = {
    {"llama3.1", "set system_message = \"\"", "set system_message = \"You are a pirate.\"", "llama3.1"},
    {"llama3.1", "\"Cutting Knowledge Date: December 2023\\n\"", "\"You.\\nCutting Knowledge Date: December 2023\\n\"",
     "own"},
    {"llama3.1", "+ message['content'] | trim", "+ message['content']", "own"},
    {"llama3.1", "26 Jul 2024", "26 July 2024", "own"},
    {"llama3.2", "set system_message = \"\"", "set system_message = \"You are a pirate.\"", "llama3.2"},
    {"llama3.2", "for message in messages ", "for message in messages[-1:] ", NULL},
    {"qwen3", "+ '\\n' + message.content + '<|im_end|>'", "+ '\\n' + message.content + ' /no_think' + '<|im_end|>'",
     "own"},
    {"qwen3", "+ message.content + '<|im_end|>'", "+ message.content.strip() + '<|im_end|>'", "own"},
    {"qwen3", "'<|im_end|>\\n' }}\n    {%- endif %}\n{%- endif %}\n{%- set ns",
     "'<|im_end|>\\n' }}\n    {%- else %}\n        {{- '<|im_start|>system\\nYou are a pirate.<|im_end|>\\n' }}\n"
     "    {%- endif %}\n{%- endif %}\n{%- set ns",
     "qwen3"},
    {"qwen2.5", "+ message.content + '<|im_end|>'", "+ message.content + ' Think.' + '<|im_end|>'", "own"},
    {"qwen2.5", "+ message.content + '<|im_end|>'", "+ message.content|lower + '<|im_end|>'", "own"},
    {"qwen2.5", "'<|im_start|>system\\nYou are", "'<|im_start|>system\\n<|tool|>You are", "qwen2.5"},
    {"qwen2.5", "assistant.<|im_end|>\\n'", "assistant.<|im_end|>\\nMore.'", "qwen2.5"},
    {"mistral-nemo", "system_message + \"\\n\\n\"", "\"Follow: \" + system_message + \"\\n\\n\"", "own"},
    {"mistral-v0.1", "+ eos_token", "|trim + eos_token", "own"},
    {"llama2", "content.strip()", "content", "own"},
};
enum { EDITS = sizeof edits / sizeof *edits };

/* A default system prompt may be another one; what else a template says makes it its own. Loop index: the edit. */
START_TEST(released_templates_that_say_something_else_have_no_name)
{
    struct chat_template *t;
    struct buf jinja = {0};
    cJSON *json = released(edits[_i].name, &jinja);
    if (!json) return;
    replace_all(&jinja, edits[_i].from, edits[_i].to);
    template_write(jinja.data);
    int rc = checkpoint_chat_template(test_checkpoint(temp_dir()), NULL, &t);
    ck_assert_int_eq(rc, edits[_i].then ? 0 : ERR_UNSUPPORTED);
    if (t) ck_assert_str_eq(chat_template_name(t), edits[_i].then);
    chat_template_free(t);
    buf_free(&jinja);
    cJSON_Delete(json);
}
END_TEST

START_TEST(layout_quotes_and_comments_of_released_templates_do_not_matter)
{
    struct buf jinja = {0};
    cJSON *json = released("llama3.1", &jinja);
    if (!json) return;
    replace_all(&jinja, "messages[0]['role']", "messages[0][\"role\"]");
    replace_all(&jinja, "{%- set tools = none %}", "{#- Said twice. -#}{%- set tools=none -%}");
    replace_all(&jinja, "message['content'] | trim", "message['content']|trim");
    check_is(&jinja, "llama3.1");
    buf_free(&jinja);
    cJSON_Delete(json);
}
END_TEST

/* That of Mistral 7B v0.3, by what differs from Nemo's. */
START_TEST(the_template_of_mistral_v3_is_recognised)
{
    static const char *const changes[][2] = {
        {"[AVAILABLE_TOOLS][", "[AVAILABLE_TOOLS] ["},
        {"\"[INST]\"", "\"[INST] \""},
        {"elif (message.tool_calls is defined and message.tool_calls is not none)",
         "elif message.tool_calls is defined and message.tool_calls is not none"},
        {"[TOOL_CALLS][", "[TOOL_CALLS] ["},
        {"{{- message[\"content\"] + eos_token}}", "{{- \" \" + message[\"content\"]|trim + eos_token}}"},
        {"[TOOL_RESULTS]{", "[TOOL_RESULTS] {"},
    };
    struct buf jinja = {0};
    cJSON *json = released("mistral-nemo", &jinja);
    if (!json) return;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) replace_all(&jinja, changes[i][0], changes[i][1]);
    check_is(&jinja, "mistral-v3");
    buf_free(&jinja);
    cJSON_Delete(json);
}
END_TEST

/* Qwen 3's of July 2025, by what it changed in the first; and that of the models that always think. */
START_TEST(later_releases_of_qwen3_are_recognised)
{
    static const char open_prompt[] = "{{- '<|im_start|>assistant\\n' }}\n"
                                      "    {%- if enable_thinking is defined and enable_thinking is false %}\n"
                                      "        {{- '<think>\\n\\n</think>\\n\\n' }}\n    {%- endif %}\n";
    static const char *const changes[][2] = {
        {"message.role == \"user\" and not(", "message.role == \"user\" and message.content is string and not("},
        {"{%- for message in messages %}\n",
         "{%- for message in messages %}\n    {%- if message.content is string %}\n        "
         "{%- set content = message.content %}\n    {%- else %}\n        {%- set content "
         "= '' %}\n    {%- endif %}\n"},
        {"+ message.content + '<|im_end|>' + '\\n'", "+ content + '<|im_end|>' + '\\n'"},
        {"{%- elif message.role == \"assistant\" %}\n        {%- set content = message.content %}",
         "{%- elif message.role == \"assistant\" %}"},
        {"message.reasoning_content is defined and message.reasoning_content is not none",
         "message.reasoning_content is string"},
        {"'</think>' in message.content", "'</think>' in content"},
        {"{%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}", ""},
        {"message.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}",
         "content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}{%- set content = "
         "content.split('</think>')[-1].lstrip('\\n') %}"},
        {"{{- message.content }}", "{{- content }}"},
    };
    struct buf jinja = {0};
    cJSON *json = released("qwen3", &jinja);
    if (!json) return;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) replace_all(&jinja, changes[i][0], changes[i][1]);
    check_is(&jinja, "qwen3");
    replace_all(&jinja, open_prompt, "{{- '<|im_start|>assistant\\n<think>\\n' }}\n");
    check_is(&jinja, "qwen3-thinking");
    buf_free(&jinja);
    cJSON_Delete(json);
}
END_TEST

/* Qwen 2.5's: a model tuned from it may bring another default system prompt, or none. */
START_TEST(default_system_prompt_may_be_another_or_none)
{
    static const char whole[] =
        "<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
        "<|im_end|>\\n";
    static const char *const turns[][2] = {
        {"<|im_start|>system\\nYou are a pirate.<|im_end|>\\n",
         "<|im_start|>system\nYou are a pirate.<|im_end|>\n" CHATML_HI},
        {"", CHATML_HI},
    };
    for (int i = 0; i < 2; i++) {
        struct buf jinja = {0};
        cJSON *json = released("qwen2.5", &jinja);
        if (!json) return;
        replace_all(&jinja, whole, turns[i][0]);
        expect_rendered(jinja.data, "qwen2.5", turns[i][1]);
        buf_free(&jinja);
        cJSON_Delete(json);
    }
}
END_TEST

START_TEST(names_override_templates)
{
    struct chat_message chat[] = {{"system", "now", 3}, {"user", "hi", 2}};
    struct chat_template *t;
    char names[512];
    template_write(others[0].jinja);
    snprintf(names, sizeof names, "%s", chat_template_names());
    for (char *save, *name = strtok_r(names, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
        ck_ok(checkpoint_chat_template(test_checkpoint(temp_dir()), name, &t));
        ck_assert_str_eq(chat_template_name(t), name);
        const bool is_dated = strcmp(name, "granite3.1") == 0 || strstr(name, "small3");
        struct buf text = template_render(t, chat + !is_dated, 1 + is_dated, true);
        ck_assert_ptr_nonnull(strstr(text.data, "hi"));
        ck_assert_int_eq(strncmp(text.data, "<s>", 3) == 0,
                         strstr("llama3.2 mistral-nemo mistral-v1 mistral-v3 mistral-small3.1 mistral-small3.2 "
                                "deepseek-r1-2025-01 gemma2 gemma3 olmo2",
                                name) ||
                             name[0] == 'l');
        buf_free(&text);
        chat_template_free(t);
    }
    ck_assert_int_eq(checkpoint_chat_template(test_checkpoint(temp_dir()), "gemma", &t), ERR_USAGE);
    ck_assert_ptr_null(t);
    ck_assert_ptr_nonnull(strstr(err_message(), "'gemma', expected one of chatml"));
}
END_TEST

START_TEST(family_tokens_stand_in_where_the_directory_names_none)
{
    struct chat_message user = {"user", "hi", 2};
    struct chat_template *t;
    ck_ok(checkpoint_chat_template(test_checkpoint(temp_dir()), "llama2", &t));
    struct buf text = template_render(t, &user, 1, true);
    ck_assert_str_eq(text.data, "<s>[INST] hi [/INST]");
    ck_assert_str_eq(chat_template_end_of_turn(t), "</s>");
    buf_free(&text);
    chat_template_free(t);
}
END_TEST

START_TEST(default_system_prompt_is_the_models_own)
{
    const char *dir = shared_path("fixtures/templates/qwen2.5");
    struct chat_message user = {"user", "hi", 2};
    struct chat_template *t;
    if (!dir) {
        skip("no shared test data");
        return;
    }
    for (int own = 0; own < 2; own++) {
        ck_ok(checkpoint_chat_template(test_checkpoint(dir), own ? "qwen2.5" : "chatml", &t));
        struct buf text = template_render(t, &user, 1, true);
        ck_assert_int_eq(strstr(text.data, "You are a helpful assistant.<|im_end|>\n") != NULL, own);
        buf_free(&text);
        chat_template_free(t);
    }
}
END_TEST

Suite *check_chat_template_match(void) {
    Suite *suite = suite_create("chat_template_match");
    TCase *recognising = tcase_create("recognising");
    tcase_add_test(recognising, variants_of_chatml_are_recognised);
    tcase_add_test(recognising, the_template_of_qwen2_vl_is_chatml_for_text);
    tcase_add_loop_test(recognising, other_templates_say_what_they_say, 0, OTHERS);
    tcase_add_loop_test(recognising, templates_that_no_chat_can_use_are_refused_with_a_hint, 0, UNUSABLE);
    tcase_add_loop_test(recognising, released_templates_that_say_something_else_have_no_name, 0, EDITS);
    tcase_add_test(recognising, layout_quotes_and_comments_of_released_templates_do_not_matter);
    tcase_add_test(recognising, the_template_of_mistral_v3_is_recognised);
    tcase_add_test(recognising, later_releases_of_qwen3_are_recognised);
    tcase_add_test(recognising, default_system_prompt_may_be_another_or_none);
    tcase_add_test(recognising, names_override_templates);
    tcase_add_test(recognising, family_tokens_stand_in_where_the_directory_names_none);
    tcase_add_test(recognising, default_system_prompt_is_the_models_own);
    suite_add_tcase(suite, recognising);
    return suite;
}
