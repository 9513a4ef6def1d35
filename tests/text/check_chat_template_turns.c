/* Chat templates that are rows of turns: Gemma, Phi, Granite, OLMo, Qwen3-VL. What they render is what jinja2 makes of the released ones. */
#include <string.h>

#include "model/text/chat_encode.h"
#include "tests/support/chat_template_support.h"
#include "tests/support/tokenizer_support.h"

static const struct chat_message brief = {"system", " Be brief. ", 11}, hi = {"user", " Hi\n", 4},
                                 yes = {"assistant", "Yes.", 4}, and = {"user", "And? ", 5}, empty = {"system", "", 0};

static const struct {
    const char *name;
    const char *with_system; /* brief, hi; NULL: refused */
    const char *two_turns;   /* hi, yes, and */
    const char *answered;    /* hi, yes */
} kinds[] = {
    {"gemma2", NULL,
     "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nYes.<end_of_turn>\n<start_of_turn>user\nAnd?<"
     "end_of_turn>\n<start_of_turn>model\n",
     "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nYes.<end_of_turn>\n<start_of_turn>model\n"},
    {"gemma3", "<bos><start_of_turn>user\n Be brief. \n\nHi<end_of_turn>\n<start_of_turn>model\n",
     "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nYes.<end_of_turn>\n<start_of_turn>user\nAnd?<"
     "end_of_turn>\n<start_of_turn>model\n",
     "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nYes.<end_of_turn>\n<start_of_turn>model\n"},
    {"phi3", "<|system|>\n Be brief. <|end|>\n<|user|>\n Hi\n<|end|>\n<|assistant|>\n",
     "<|user|>\n Hi\n<|end|>\n<|assistant|>\nYes.<|end|>\n<|user|>\nAnd? <|end|>\n<|assistant|>\n",
     "<|user|>\n Hi\n<|end|>\n<|assistant|>\nYes.<|end|>\n<|assistant|>\n"},
    {"phi3-medium", "<|user|>\n Hi\n<|end|>\n<|assistant|>\n",
     "<|user|>\n Hi\n<|end|>\n<|assistant|>\nYes.<|end|>\n<|user|>\nAnd? <|end|>\n<|assistant|>\n",
     "<|user|>\n Hi\n<|end|>\n<|assistant|>\nYes.<|end|>\n"},
    {"phi3.5", "<|system|>\n Be brief. <|end|>\n<|user|>\n Hi\n<|end|>\n<|assistant|>\n",
     "<|user|>\n Hi\n<|end|>\n<|assistant|>\nYes.<|end|>\n<|user|>\nAnd? <|end|>\n<|assistant|>\n",
     "<|user|>\n Hi\n<|end|>\n<|assistant|>\nYes.<|end|>\n<|assistant|>\n"},
    {"phi4",
     "<|im_start|>system<|im_sep|> Be brief. <|im_end|><|im_start|>user<|im_sep|> "
     "Hi\n<|im_end|><|im_start|>assistant<|im_sep|>",
     "<|im_start|>user<|im_sep|> "
     "Hi\n<|im_end|><|im_start|>assistant<|im_sep|>Yes.<|im_end|><|im_start|>user<|im_sep|>And? "
     "<|im_end|><|im_start|>assistant<|im_sep|>",
     "<|im_start|>user<|im_sep|> "
     "Hi\n<|im_end|><|im_start|>assistant<|im_sep|>Yes.<|im_end|><|im_start|>assistant<|im_sep|>"},
    {"phi4-2024",
     "<|im_start|>system<|im_sep|> Be brief. <|im_end|><|im_start|>user<|im_sep|> "
     "Hi\n<|im_end|><|im_start|>assistant<|im_sep|>",
     "<|im_start|>user<|im_sep|> "
     "Hi\n<|im_end|><|im_start|>assistant<|im_sep|>Yes.<|im_end|><|im_start|>user<|im_sep|>And? "
     "<|im_end|><|im_start|>assistant<|im_sep|>",
     "<|im_start|>user<|im_sep|> Hi\n<|im_end|><|im_start|>assistant<|im_sep|>Yes.<|im_end|>"},
    {"phi4-mini", "<|system|> Be brief. <|end|><|user|> Hi\n<|end|><|assistant|>",
     "<|user|> Hi\n<|end|><|assistant|>Yes.<|end|><|user|>And? <|end|><|assistant|>",
     "<|user|> Hi\n<|end|><|assistant|>Yes.<|end|><|assistant|>"},
    {"granite3.0",
     "<|start_of_role|>system<|end_of_role|> Be brief. <|end_of_text|>\n<|start_of_role|>user<|end_of_role|> "
     "Hi\n<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
     "<|start_of_role|>user<|end_of_role|> "
     "Hi\n<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>Yes.<|end_of_text|>\n<|start_of_role|>user<|end_of_"
     "role|>And? <|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
     "<|start_of_role|>user<|end_of_role|> "
     "Hi\n<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>Yes.<|end_of_text|>\n<|start_of_role|>assistant<|"
     "end_of_role|>"},
    {"olmo2", "<|endoftext|><|system|>\n Be brief. \n<|user|>\n Hi\n\n<|assistant|>\n",
     "<|endoftext|><|user|>\n Hi\n\n<|assistant|>\nYes.<|endoftext|>\n<|user|>\nAnd? \n<|assistant|>\n",
     "<|endoftext|><|user|>\n Hi\n\n<|assistant|>\nYes.<|endoftext|><|assistant|>\n"},
    {"qwen3-vl",
     "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\n Hi\n<|im_end|>\n<|im_start|>assistant\n",
     "<|im_start|>user\n Hi\n<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n<|im_start|>user\nAnd? <|im_end|>\n"
     "<|im_start|>assistant\n",
     "<|im_start|>user\n Hi\n<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n<|im_start|>assistant\n"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void check_kind(const struct chat_template *t, int index) {
    const struct chat_message with_system[] = {brief, hi}, turns[] = {hi, yes, and};
    if (kinds[index].with_system)
        template_check(t, with_system, 2, kinds[index].with_system);
    else
        template_check_refused(t, with_system, 2, "System role not supported");
    template_check(t, turns, 3, kinds[index].two_turns);
    template_check(t, turns, 2, kinds[index].answered);
}

START_TEST(names_render_as_the_released_templates_do)
{ template_check_named(kinds[_i].name, _i, check_kind); }
END_TEST

START_TEST(pieces_make_the_whole)
{
    const struct chat_message turns[] = {hi, yes, and};
    struct chat_template *t = template_named(kinds[_i].name);
    template_check_pieces(t, turns, 3, kinds[_i].two_turns);
    chat_template_free(t);
}
END_TEST

START_TEST(the_system_prompt_of_gemma_3_stands_in_the_first_question_alone)
{
    const struct chat_message chat[] = {brief, hi, yes, and};
    struct chat_template *t = template_named("gemma3");
    template_check(t, chat, 4,
                   "<bos><start_of_turn>user\n Be brief. \n\nHi<end_of_turn>\n<start_of_turn>model\nYes.<end_of_turn>\n"
                   "<start_of_turn>user\nAnd?<end_of_turn>\n<start_of_turn>model\n");
    chat_template_free(t);
}
END_TEST

START_TEST(what_gemma_refuses_is_refused_in_its_words)
{
    static const char alternate[] = "Conversation roles must alternate user/assistant/user/assistant/...";
    const struct chat_message twice[] = {hi, hi}, answer[] = {yes}, after_system[] = {brief, yes};
    struct chat_template *two = template_named("gemma2"), *three = template_named("gemma3");
    template_check_refused(two, twice, 2, alternate);
    template_check_refused(two, answer, 1, alternate);
    template_check_refused(three, twice, 2, alternate);
    template_check_refused(three, after_system, 2, alternate);
    chat_template_free(two);
    chat_template_free(three);
}
END_TEST

START_TEST(an_empty_system_prompt_is_a_turn_but_for_phi_3_5)
{
    const struct chat_message chat[] = {empty, hi};
    struct chat_template *old = template_named("phi3"), *new = template_named("phi3.5");
    template_check(old, chat, 2, "<|system|>\n<|end|>\n<|user|>\n Hi\n<|end|>\n<|assistant|>\n");
    template_check(new, chat, 2, "<|user|>\n Hi\n<|end|>\n<|assistant|>\n");
    chat_template_free(old);
    chat_template_free(new);
}
END_TEST

START_TEST(qwen3_vl_leaves_later_system_prompts_out)
{
    const struct chat_message chat[] = {empty, brief, hi, brief};
    struct chat_template *t = template_named("qwen3-vl");
    template_check(t, chat, 4,
                   "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n Hi\n<|im_end|>\n<|im_start|>assistant\n");
    chat_template_free(t);
}
END_TEST

static const char *name_of(int index) {
    return kinds[index].name;
}

START_TEST(released_templates_are_recognised)
{ template_check_released(KINDS, name_of, check_kind); }
END_TEST

/* --- ids ---------------------------------------------------------------------------------------------------------- */

/* As Phi-3's: the tokens of turns take the white space behind them along, and a text begins with a mark. */
#define TAKING(id, string) "{\"id\":" #id ",\"content\":\"" string "\",\"special\":true,\"rstrip\":true}"
#define PHI_LIKE                                                                                                \
    "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"first\"},"    \
    "\"added_tokens\":[" TAKING(6, "<|user|>") "," TAKING(7, "<|assistant|>") "," TAKING(                       \
        8, "<|end|>") "],"                                                                                      \
                      "\"model\":{\"merges\":[],\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2,\"" MARK \
                      "\":3,\"\\n\":4,\"c\":5}}}"

START_TEST(ids_of_a_later_turn_are_those_of_the_whole)
{
    const struct chat_message chat[] = {{"user", "a", 1}, {"assistant", "b", 1}, {"user", "c", 1}};
    struct tokenizer *tokenizer = tokenizer_load_text(PHI_LIKE);
    struct chat_template *t = template_named("phi3");
    struct chat_encoding e = {.tokenizer = tokenizer, .chat_template = t, .think = true};
    for (int cut = 0; cut < 2; cut++) {
        struct ids whole = {0}, pieces = {0};
        ck_ok(chat_encode(&e, chat, 3, &whole));
        ck_ok(chat_encode(&e, chat, 1, &pieces));
        ids_push(&pieces, 2);
        if (!cut) ck_ok(chat_encode_end_of_turn(&e, &pieces));
        ck_ok(chat_encode_next(&e, &chat[2], cut, &pieces));
        ck_assert_uint_eq(pieces.len, whole.len);
        ck_assert_int_eq(memcmp(pieces.data, whole.data, whole.len * sizeof *whole.data), 0);
        ids_free(&whole);
        ids_free(&pieces);
    }
    chat_template_free(t);
    tokenizer_free(tokenizer);
}
END_TEST

Suite *check_chat_template_turns(void) {
    Suite *suite = suite_create("chat_template_turns");
    TCase *rendering = tcase_create("rendering");
    tcase_add_loop_test(rendering, names_render_as_the_released_templates_do, 0, KINDS);
    tcase_add_loop_test(rendering, pieces_make_the_whole, 0, KINDS);
    tcase_add_test(rendering, the_system_prompt_of_gemma_3_stands_in_the_first_question_alone);
    tcase_add_test(rendering, what_gemma_refuses_is_refused_in_its_words);
    tcase_add_test(rendering, an_empty_system_prompt_is_a_turn_but_for_phi_3_5);
    tcase_add_test(rendering, qwen3_vl_leaves_later_system_prompts_out);
    tcase_add_test(rendering, released_templates_are_recognised);
    tcase_add_test(rendering, ids_of_a_later_turn_are_those_of_the_whole);
    suite_add_tcase(suite, rendering);
    return suite;
}
