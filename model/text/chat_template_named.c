/* The templates that --template has names for, in Jinja: what those of released models say of conversations without tools. A default
 * system prompt is the model's own, so none stands here. */
#include <string.h>

#include "model/text/chat_template_internal.h"

/* Text, whose lines are the templates': clang-format would break them at their quotes. */
/* clang-format off */

/* --- parts ------------------------------------------------------------------------------------------------------- */

#define PROMPT(text)        "{% if add_generation_prompt %}" text "{% endif %}"
#define EACH(list, turn)    "{% for m in " list " %}" turn "{% endfor %}"
#define IF(condition, text) "{% if " condition " %}" text "{% endif %}"
#define RAISE(sentence)     "{{ raise_exception('" sentence "') }}"

#define ALTERNATES(sentence) IF("(m.role == 'user') != (loop.index0 % 2 == 0)", RAISE(sentence))
#define ALTERNATE "Conversation roles must alternate user/assistant/user/assistant/..."
#define ALTERNATE_NEMO \
    "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."

/* `system`: the first message, if it is a system prompt, else undefined; `rest`: the others. */
#define PART_SYSTEM \
    "{% set rest = messages %}" \
    IF("messages[0].role == 'system'", "{% set system = messages[0].content %}{% set rest = messages[1:] %}")

/* Where a released template states the day among other things. */
#define DATED(name) \
    IF("messages[0].role != 'system'", \
       RAISE("without a system prompt the chat template (" name ") states the day\\'s date, which duet does not; " \
             "hint: --system TEXT (/system TEXT in a chat), or a message with the role system"))

/* --- ChatML, Qwen ------------------------------------------------------------------------------------------------ */

#define CHATML_TURN "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
#define CHATML      EACH("messages", CHATML_TURN) PROMPT("<|im_start|>assistant\n")
#define DEFAULT_SYSTEM \
    IF("messages[0].role != 'system' and default_system is defined", \
       "<|im_start|>system\n{{ default_system }}<|im_end|>\n")

/* Answers before the last message without their thoughts. */
#define QWQ \
    EACH("messages", \
         "{% set text = m.content %}" \
         IF("m.role == 'assistant' and not loop.last", "{% set text = text.split('</think>')[-1].lstrip('\\n') %}") \
         "<|im_start|>{{ m.role }}\n{{ text }}<|im_end|>\n") \
    PROMPT("<|im_start|>assistant\n<think>\n")

/* Thoughts of answers before the last question are left out, and an answer behind it has at least an empty one. */
#define QWEN3_ANSWER \
    "{% set thought = '' %}{% set text = m.content %}" \
    IF("'</think>' in text", \
       "{% set thought = text.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}" \
       "{% set text = text.split('</think>')[-1].lstrip('\\n') %}") \
    "<|im_start|>assistant\n" \
    "{% if loop.index0 > last.question and (loop.last or thought) %}" \
    "<think>\n{{ thought.strip('\\n') }}\n</think>\n\n{{ text.lstrip('\\n') }}" \
    "{% else %}{{ text }}{% endif %}" \
    "<|im_end|>\n"
#define QWEN3_HISTORY \
    "{% set last = namespace(question=messages|length - 1) %}" \
    EACH("messages", \
         IF("m.role == 'user' and not (m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>'))", \
            "{% set last.question = loop.index0 %}")) \
    EACH("messages", "{% if m.role == 'assistant' %}" QWEN3_ANSWER "{% else %}" CHATML_TURN "{% endif %}")
#define QWEN3 \
    QWEN3_HISTORY \
    PROMPT("<|im_start|>assistant\n" IF("enable_thinking is defined and not enable_thinking", "<think>\n\n</think>\n\n"))
#define QWEN3_THINKING QWEN3_HISTORY PROMPT("<|im_start|>assistant\n<think>\n")

/* --- DeepSeek R1, as its distilled models have it: the last system prompt stands in front of everything ----------- */

#define R1_BOS "<｜begin▁of▁sentence｜>"
#define R1_EOS "<｜end▁of▁sentence｜>"
#define R1(opens) \
    "{% set last = namespace(system='') %}" \
    EACH("messages", IF("m.role == 'system'", "{% set last.system = m.content %}")) \
    "{{ bos_token }}{{ last.system }}" \
    EACH("messages", \
         "{% if m.role == 'user' %}<｜User｜>{{ m.content }}" \
         "{% elif m.role == 'assistant' %}<｜Assistant｜>{{ m.content.split('</think>')[-1] }}" R1_EOS "{% endif %}") \
    PROMPT("<｜Assistant｜>" opens)

/* --- Llama -------------------------------------------------------------------------------------------------------- */

#define LLAMA2 \
    PART_SYSTEM \
    EACH("rest", \
         ALTERNATES(ALTERNATE) \
         "{% set text = m.content %}" \
         IF("loop.first and system is defined", "{% set text = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + text %}") \
         "{% if m.role == 'user' %}{{ bos_token }}[INST] {{ text.strip() }} [/INST]" \
         "{% elif m.role == 'assistant' %} {{ text.strip() }} {{ eos_token }}{% endif %}")

#define LLAMA3_HEAD(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define LLAMA3_TURN       LLAMA3_HEAD("{{ m.role }}") "{{ m.content | trim }}<|eot_id|>"
#define LLAMA3            "{{ bos_token }}" EACH("messages", LLAMA3_TURN) PROMPT(LLAMA3_HEAD("assistant"))
#define LLAMA31(date) \
    "{{ bos_token }}" PART_SYSTEM \
    LLAMA3_HEAD("system") "Cutting Knowledge Date: December 2023\nToday Date: " date "\n\n{{ system | trim }}<|eot_id|>" \
    EACH("rest", LLAMA3_TURN) PROMPT(LLAMA3_HEAD("assistant"))

/* --- Mistral ------------------------------------------------------------------------------------------------------ */

#define MISTRAL \
    "{{ bos_token }}" \
    EACH("messages", \
         ALTERNATES(ALTERNATE) \
         "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]" \
         "{% elif m.role == 'assistant' %}{{ m.content }}{{ eos_token }}" \
         "{% else %}" RAISE("Only user and assistant roles are supported!") "{% endif %}")

/* The system prompt stands in front of the question that is the first message, or the last. */
#define NEMO(before, after, place, answer) \
    PART_SYSTEM \
    EACH("rest", ALTERNATES(ALTERNATE_NEMO)) \
    "{{ bos_token }}" \
    EACH("rest", \
         "{% if m.role == 'user' %}" \
         before IF(place " and system is defined", "{{ system }}\n\n") "{{ m.content }}" after \
         "{% elif m.role == 'assistant' %}" answer "{{ eos_token }}" \
         "{% else %}" \
         RAISE("Only user and assistant roles are supported, with the exception of an initial optional system message!") \
         "{% endif %}")

#define SMALL \
    "{{ bos_token }}" \
    EACH("messages", \
         "{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]" \
         "{% elif m.role == 'assistant' %}{{ m.content }}{{ eos_token }}" \
         "{% else %}[SYSTEM_PROMPT]{{ m.content }}[/SYSTEM_PROMPT]{% endif %}")

/* --- turns in a row ----------------------------------------------------------------------------------------------- */

#define ROWS(before, after, end) \
    EACH("messages", before "{{ m.role }}" after "{{ m.content }}" end) PROMPT(before "assistant" after)

/* A question brings the beginning of the next answer. */
#define OPENED(list, before, after, end) \
    EACH(list, \
         "{% if m.role == 'assistant' %}{{ m.content }}" end \
         "{% else %}" before "{{ m.role }}" after "{{ m.content }}" end \
         IF("m.role == 'user'", before "assistant" after) "{% endif %}")

#define PHI35 \
    EACH("messages", IF("m.role != 'system' or m.content", "<|{{ m.role }}|>\n{{ m.content }}<|end|>\n")) \
    PROMPT("<|assistant|>\n")

#define GRANITE ROWS("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>\n")
/* Behind a system prompt alone there is no generation prompt. */
#define GRANITE31 \
    DATED("granite3.1") "{% set add_generation_prompt = add_generation_prompt and messages|length > 1 %}" GRANITE

#define QWEN3_VL \
    EACH("messages", IF("m.role != 'system' or loop.first", CHATML_TURN)) PROMPT("<|im_start|>assistant\n")

/* Questions have no end of turn, and nothing parts a last answer from the generation prompt. */
#define OLMO2 \
    "{{ bos_token }}" \
    EACH("messages", \
         "<|{{ m.role }}|>\n{{ m.content }}" \
         "{{ eos_token if m.role == 'assistant' }}" \
         "{{ '\\n' if m.role != 'assistant' or not loop.last }}") \
    PROMPT("<|assistant|>\n")

#define GEMMA \
    "{{ bos_token }}" \
    EACH("rest", \
         ALTERNATES(ALTERNATE) \
         "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n" \
         IF("loop.first and system is defined", "{{ system }}\n\n") "{{ m.content | trim }}<end_of_turn>\n") \
    PROMPT("<start_of_turn>model\n")
#define GEMMA2 \
    IF("messages[0].role == 'system'", RAISE("System role not supported")) "{% set rest = messages %}" GEMMA

/* --- gpt-oss: answers in channels --------------------------------------------------------------------------------- */

#define CHANNEL_TAGS \
    "You have passed a message containing <|channel|> tags in the content field. Instead of doing this, you should " \
    "pass analysis messages (the string between \\'<|message|>\\' and \\'<|end|>\\') in the \\'thinking\\' field, and " \
    "final messages (the string between \\'<|message|>\\' and \\'<|end|>\\') in the \\'content\\' field."
#define FINAL "<|channel|>final<|message|>"

/* A system prompt is the developer's instructions; a later one is not rendered at all. */
#define GPT_OSS(calls, behind_instructions) \
    PART_SYSTEM \
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n" \
    "Current date: {{ strftime_now('%Y-%m-%d') }}\n\nReasoning: {{ reasoning_effort | default('medium') }}\n\n" \
    "# Valid channels: analysis, commentary, final. Channel must be included for every message." calls "<|end|>" \
    IF("system", \
       "<|start|>developer<|message|># Instructions\n\n{{ system }}" behind_instructions "<|end|>") \
    EACH("rest", \
         "{% if m.role == 'user' %}<|start|>user<|message|>{{ m.content }}<|end|>" \
         "{% elif m.role == 'assistant' %}" \
         IF("'" FINAL "' in m.content or '<|channel|>analysis<|message|>' in m.content", RAISE(CHANNEL_TAGS)) \
         "<|start|>assistant" FINAL "{{ m.content }}<|end|>{% endif %}") \
    PROMPT("<|start|>assistant")

/* clang-format on */

/* --- all ---------------------------------------------------------------------------------------------------------- */

static const struct named_template all[] = {
    {"chatml", "", "", CHATML},
    {"llama2", "<s>", "</s>", LLAMA2},
    {"llama3", "<|begin_of_text|>", "", LLAMA3},
    {"llama3.1", "<|begin_of_text|>", "", LLAMA31("26 Jul 2024")},
    {"llama3.2", "<|begin_of_text|>", "",
     LLAMA31("{{ strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul 2024' }}")},
    {"mistral", "<s>", "</s>", MISTRAL},
    {"mistral-v1", "<s>", "</s>", NEMO(" [INST] ", " [/INST]", "loop.first", " {{ m.content }}")},
    {"mistral-v3", "<s>", "</s>", NEMO("[INST] ", "[/INST]", "loop.last", " {{ m.content | trim }}")},
    {"mistral-nemo", "<s>", "</s>", NEMO("[INST]", "[/INST]", "loop.last", "{{ m.content }}")},
    {"mistral-small", "<s>", "</s>", SMALL},
    {"mistral-small3.1", "<s>", "</s>", DATED("mistral-small3.1") SMALL},
    {"mistral-small3.2", "<s>", "</s>",
     DATED("mistral-small3.2") PART_SYSTEM EACH("rest", ALTERNATES(ALTERNATE_NEMO)) SMALL},
    {"qwen2.5", "", "", DEFAULT_SYSTEM CHATML},
    {"qwen3", "", "", QWEN3},
    {"qwen3-thinking", "", "", QWEN3_THINKING},
    {"qwq", "", "", QWQ},
    {"deepseek-r1", R1_BOS, R1_EOS, R1("<think>\n")},
    {"deepseek-r1-2025-01", R1_BOS, R1_EOS, R1("")},
    {"qwen3-vl", "", "", QWEN3_VL},
    {"gemma2", "<bos>", "<eos>", GEMMA2},
    {"gemma3", "<bos>", "<eos>", PART_SYSTEM GEMMA},
    {"phi3", "", "", ROWS("<|", "|>\n", "<|end|>\n")},
    {"phi3-medium", "", "", OPENED("messages if m.role != 'system'", "<|", "|>\n", "<|end|>\n")},
    {"phi3.5", "", "", PHI35},
    {"phi4", "", "", ROWS("<|im_start|>", "<|im_sep|>", "<|im_end|>")},
    {"phi4-2024", "", "", OPENED("messages", "<|im_start|>", "<|im_sep|>", "<|im_end|>")},
    {"phi4-mini", "", "", ROWS("<|", "|>", "<|end|>")},
    {"granite3.0", "", "", GRANITE},
    {"granite3.1", "", "", GRANITE31},
    {"olmo2", "<|endoftext|>", "<|endoftext|>", OLMO2},
    {"gpt-oss", "", "", GPT_OSS("", "\n\n")},
    {"gpt-oss-2025-08", "", "", GPT_OSS("\nCalls to these tools must go to the commentary channel: 'functions'.", "")},
};
enum { COUNT = sizeof all / sizeof *all };

const struct named_template *named_template_find(const char *name) {
    for (int i = 0; i < COUNT; i++)
        if (strcmp(all[i].name, name) == 0) return &all[i];
    return NULL;
}

const struct named_template *named_template_at(int index) {
    return index < COUNT ? &all[index] : NULL;
}

const char *chat_template_names(void) {
    return "chatml, llama2, llama3, llama3.1, llama3.2, mistral, mistral-v1, mistral-v3, mistral-nemo, mistral-small, "
           "mistral-small3.1, "
           "mistral-small3.2, qwen2.5, qwen3, qwen3-thinking, qwq, deepseek-r1, deepseek-r1-2025-01, qwen3-vl, gemma2, "
           "gemma3, phi3, phi3-medium, phi3.5, phi4, phi4-2024, phi4-mini, granite3.0, granite3.1, olmo2, gpt-oss, "
           "gpt-oss-2025-08";
}
