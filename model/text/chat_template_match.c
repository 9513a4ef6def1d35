/* Which template is it? Layout, quotes and comments do not matter; a marker, a sentence, a filter, a slice or a condition
 * that duet does not know makes it an unknown one: better none than a prompt that is not the model's. */
#include <string.h>

#include "model/text/chat_template_internal.h"

static const struct turn_form gemma = {"<start_of_turn>", "\n", "\n"}, phi3 = {"<|", "|>\n", "\n"},
                              phi4 = {IM_START, "<|im_sep|>", ""}, phi4_mini = {"<|", "|>", ""},
                              granite = {"<|start_of_role|>", "<|end_of_role|>", "\n"},
                              qwen3_vl = {IM_START, "\n", "\n"}, mistral = {"[INST] ", " [/INST]", ""},
                              mistral_v1 = {" [INST] ", " [/INST]", " "}, mistral_v3 = {"[INST] ", "[/INST]", " "},
                              nemo = {"[INST]", "[/INST]", ""}, gpt_oss = {"<|start|>", "<|message|>", ""};

static const struct template_kind kinds[] = {
    {"chatml", FAMILY_CHATML, IM_END, "", "", NULL, 0},
    {"llama2", FAMILY_LLAMA2, NULL, "<s>", "</s>", NULL, 0},
    {"llama3", FAMILY_LLAMA3, "<|eot_id|>", "<|begin_of_text|>", "", NULL, 0},
    {"llama3.1", FAMILY_LLAMA31, "<|eot_id|>", "<|begin_of_text|>", "", NULL, 0},
    {"llama3.2", FAMILY_LLAMA31, "<|eot_id|>", "<|begin_of_text|>", "", NULL, 0},
    {"mistral", FAMILY_MISTRAL, NULL, "<s>", "</s>", &mistral, 0},
    {"mistral-v1", FAMILY_NEMO, NULL, "<s>", "</s>", &mistral_v1, SYSTEM_FIRST},
    {"mistral-v3", FAMILY_NEMO, NULL, "<s>", "</s>", &mistral_v3, TRIMS_ANSWERS},
    {"mistral-nemo", FAMILY_NEMO, NULL, "<s>", "</s>", &nemo, 0},
    {"mistral-small", FAMILY_SMALL, NULL, "<s>", "</s>", &nemo, 0},
    {"mistral-small3.1", FAMILY_SMALL, NULL, "<s>", "</s>", &nemo, STATES_DATE},
    {"mistral-small3.2", FAMILY_SMALL, NULL, "<s>", "</s>", &nemo, STATES_DATE | ALTERNATES},
    {"qwen2.5", FAMILY_CHATML, IM_END, "", "", NULL, 0},
    {"qwen3", FAMILY_QWEN3, IM_END, "", "", NULL, 0},
    {"qwen3-thinking", FAMILY_QWEN3, IM_END, "", "", NULL, THINKS},
    {"qwq", FAMILY_CHATML, IM_END, "", "", NULL, THINKS},
    {"deepseek-r1", FAMILY_DEEPSEEK_R1, R1_EOS, R1_BOS, R1_EOS, NULL, THINKS},
    {"deepseek-r1-2025-01", FAMILY_DEEPSEEK_R1, R1_EOS, R1_BOS, R1_EOS, NULL, 0},
    {"qwen3-vl", FAMILY_TURNS, IM_END, "", "", &qwen3_vl, SKIPS_LATER_SYSTEM},
    {"gemma2", FAMILY_GEMMA2, "<end_of_turn>", "<bos>", "<eos>", &gemma, 0},
    {"gemma3", FAMILY_GEMMA3, "<end_of_turn>", "<bos>", "<eos>", &gemma, 0},
    {"phi3", FAMILY_TURNS, "<|end|>", "", "", &phi3, 0},
    {"phi3-medium", FAMILY_TURNS, "<|end|>", "", "", &phi3, SKIPS_SYSTEM | OPENS_ANSWERS},
    {"phi3.5", FAMILY_TURNS, "<|end|>", "", "", &phi3, SKIPS_EMPTY_SYSTEM},
    {"phi4", FAMILY_TURNS, IM_END, "", "", &phi4, 0},
    {"phi4-2024", FAMILY_TURNS, IM_END, "", "", &phi4, OPENS_ANSWERS},
    {"phi4-mini", FAMILY_TURNS, "<|end|>", "", "", &phi4_mini, 0},
    {"granite3.0", FAMILY_TURNS, "<|end_of_text|>", "", "", &granite, 0},
    {"granite3.1", FAMILY_TURNS, "<|end_of_text|>", "", "", &granite, STATES_DATE},
    {"olmo2", FAMILY_OLMO2, NULL, "<|endoftext|>", "<|endoftext|>", &phi3, 0},
    {"gpt-oss", FAMILY_GPT_OSS, "<|end|>", "", "", &gpt_oss, THINKS},
    {"gpt-oss-2025-08", FAMILY_GPT_OSS, "<|end|>", "", "", &gpt_oss, THINKS | SAYS_CALLS},
};

const struct template_kind *template_kind_find(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    return NULL;
}

const char *template_kind_names(void) {
    return "chatml, llama2, llama3, llama3.1, llama3.2, mistral, mistral-v1, mistral-v3, mistral-nemo, mistral-small, "
           "mistral-small3.1, "
           "mistral-small3.2, qwen2.5, qwen3, qwen3-thinking, qwq, deepseek-r1, deepseek-r1-2025-01, qwen3-vl, gemma2, "
           "gemma3, phi3, phi3-medium, phi3.5, phi4, phi4-2024, phi4-mini, granite3.0, granite3.1, olmo2, gpt-oss, "
           "gpt-oss-2025-08";
}

/* --- templates known by heart ------------------------------------------------------------------------------------- */

/* The templates that models are released with: long ones, most of it about tools. Each is compared whole, but for
 * the layout of tags, the kind of quotes and comments. */
static const struct {
    uint64_t digest; /* of template_words.exact; without its default system prompts if `is_open` */
    const char *name;
    bool is_open;
} releases[] = {
    {0x30b221c7f95a7109, "llama3.1", false},         /* Llama 3.1, 3.3 */
    {0x24246674524c6ffb, "llama3.2", false},         /* Llama 3.2 */
    {0x5a1cbbe30ed9e0bb, "llama2", false},           /* Llama 2 */
    {0xb6cffe82b2797be6, "mistral", false},          /* Mistral 7B Instruct v0.1 */
    {0x1affbcebabee1f1f, "mistral-v1", false},       /* Mistral 7B Instruct v0.2 as of September 2024 */
    {0xe8689ec812e3ddba, "mistral-v3", false},       /* Mistral 7B Instruct v0.3, Mistral Large 2407 */
    {0x951918bb4ea15e7b, "mistral-nemo", false},     /* Mistral Nemo Instruct 2407 */
    {0x0e7d5c57a5497e19, "mistral-small", false},    /* Mistral Small 24B Instruct 2501 as it came out */
    {0x3ef8ed51925a8f1a, "mistral-small3.1", false}, /* Mistral Small 24B Instruct 2501 with a default system prompt */
    {0x32aa24061444b4dc, "mistral-small3.1", false}, /* Mistral Small 3.1, of content that is a string */
    {0x3e7e038cbf7865bd, "mistral-small3.2", false}, /* Mistral Small 3.2, as GGUF files hold it; of a string too */
    {0x497e8a2dcc4917f5, "qwen2.5", true},           /* Qwen 2.5 */
    {0x1356db3bf2d386ed, "qwen2.5", false},          /* Qwen 3 Instruct 2507: that of Qwen 2.5 with no default prompt */
    {0x1143a09e70a754f8, "qwen3", false},            /* Qwen 3 of April 2025 */
    {0xa316ab961a829356, "qwen3", false},            /* Qwen 3 as of July 2025: content that is no string is left out */
    {0x5497571dd4b3bbef, "qwen3", false},            /* Qwen 3 without methods of strings, as GGUF files hold it */
    {0x9ff212ab854374e5, "qwen3-thinking", false},   /* Qwen 3 Thinking 2507 */
    {0xdcdffd95e20f8810, "qwen3-thinking", false},   /* the same, as GGUF files hold it */
    {0xbcf4a9c2a327707a, "qwq", false},              /* QwQ 32B */
    {0x355b2a8a3dc330a4, "deepseek-r1", false},      /* the distilled models of DeepSeek R1 */
    {0x55af28e2d6a19d40, "deepseek-r1-2025-01", false}, /* as they came out, in January 2025 */
    {0x0207f6a94259ff91, "qwen3-vl", false},            /* Qwen3-VL Instruct, of content that is a string */
    {0x88e978c6d3e23366, "gemma2", false},              /* Gemma 1 and 2 */
    {0x3f19a7d9384c3c5b, "gemma3", false},              /* Gemma 3 */
    {0xfdb28ead7d54c067, "phi3", false},                /* Phi-3 mini as of June 2024 */
    {0x5c10d8fd4f6e890a, "phi3-medium", false},         /* Phi-3 medium */
    {0xf5988ecb92732431, "phi3.5", false},              /* Phi-3.5 mini */
    {0x6e441837a0824509, "phi4", false},                /* Phi-4 as of 2025 */
    {0x6bef3987495c269b, "phi4-2024", false},           /* Phi-4 as it came out, in December 2024 */
    {0xa257a97c55cba5fc, "phi4-mini", false},           /* Phi-4 mini */
    {0x192834139162a4c9, "granite3.0", false},          /* Granite 3.0 */
    {0x6d03792d6085d007, "granite3.1", false},          /* Granite 3.1 */
    {0xd55754c80db69e23, "granite3.1", false}, /* Granite 3.2: with a prompt for thinking, if `thinking` is set */
    {0xa9fa54b674e69759, "granite3.1", false}, /* Granite 3.3 */
    {0xffcf4c21deaaddaf, "granite3.1", false}, /* Granite 3.3 with other white space in its default system prompt */
    {0xdbedcd0bedecc712, "olmo2", false},      /* OLMo 2 */
    {0x8c13abe1d63fa54e, "gpt-oss", false},    /* gpt-oss */
    {0x3446f9eba1e4418d, "gpt-oss-2025-08", false}, /* as it came out, in August 2025 */
    {0xe73d8973e0563221, "chatml", false},          /* Qwen2-VL and Qwen2.5-VL, of content that is a string */
};

/* FNV-1a. */
static uint64_t digest_of(const struct buf *exact) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < exact->len; i++) h = (h ^ (unsigned char)exact->data[i]) * 0x100000001b3u;
    return h;
}

static const char *find_known(const struct buf *exact, bool is_open) {
    uint64_t digest = digest_of(exact);
    for (size_t i = 0; i < sizeof releases / sizeof *releases; i++)
        if (releases[i].digest == digest && releases[i].is_open == is_open) return releases[i].name;
    return NULL;
}

/* --- words -------------------------------------------------------------------------------------------------------- */

static bool has(const struct buf *text, const char *word) {
    return memmem(buf_text(text), text->len, word, strlen(word)) != NULL;
}

/* Where `word` begins, at `from` or behind; `end` if it does not. *known holds the answer for an earlier place, or NULL:
 * places asked for in order are looked at once. */
static const char *next_word(const char *from, const char *end, const char *word, const char **known) {
    if (!*known || *known < from) *known = memmem(from, (size_t)(end - from), word, strlen(word));
    if (!*known) *known = end;
    return *known;
}

/* Length of the special marker, "<|name|>" or "[NAME]", that begins at text; 0 if none does. */
static size_t marker_length(const char *text, const char *end, const char **close) {
    size_t n = (size_t)(end - text);
    if (n > 2 && text[0] == '<' && text[1] == '|') {
        const char *last = next_word(text, end, "|>", close);
        return last < end ? (size_t)(last - text) + 2 : 0;
    }
    if (n == 0 || text[0] != '[') return 0;
    size_t at = n > 1 && text[1] == '/' ? 2 : 1, begin = at;
    while (at < n && ((text[at] >= 'A' && text[at] <= 'Z') || text[at] == '_')) at++;
    return at < n && at > begin && text[at] == ']' ? at + 1 : 0;
}

static bool has_no_markers(const char *text, size_t n) {
    const char *close = NULL;
    for (size_t i = 0; i < n; i++)
        if (marker_length(text + i, text + n, &close) > 0) return false;
    return true;
}

/* --- ChatML and Llama 3: short templates in many wordings ------------------------------------------------------------ */

/* A ChatML template may begin with a system prompt for conversations that have none: [*begin, *begin + *length) of
 * `said`. *rest = where the remainder begins. */
static bool find_default_system(const struct template_words *w, size_t *begin, size_t *length, size_t *rest) {
    static const char open[] = IM_START "system\n", close[] = IM_END "\n";
    size_t n = sizeof open - 1;
    *length = *rest = 0;
    if (w->said.len < n || memcmp(w->said.data, open, n) != 0) return true;
    const char *end = memmem(w->said.data + n, w->said.len - n, close, sizeof close - 1);
    if (!end || !has(&w->code, "!='system'")) return false;
    *begin = n;
    *length = (size_t)(end - w->said.data) - n;
    *rest = n + *length + sizeof close - 1;
    return has_no_markers(w->said.data + n, *length);
}

/* bos_token may stand at the very beginning alone. */
static bool read_bos_first(const struct template_words *w, bool *bos_first) {
    static const char bos[] = "bos_token;";
    const char *first = memmem(buf_text(&w->code), w->code.len, "bos_token", 9);
    *bos_first = first != NULL;
    if (!first) return true;
    return first == w->code.data && memcmp(first, bos, sizeof bos - 1) == 0 &&
           !memmem(first + 9, w->code.len - 9, "bos_token", 9);
}

/* What statements may be, white space aside; anything else, such as a filter, a slice or another condition, makes a
 * template unknown. */
#define LOOP            "formessageinmessages;"
#define SYSTEM_IN_FRONT "ifmessages[0]['role']!='system';"
static const char chatml_statements[] =
    ";" LOOP "endfor;endif;ifadd_generation_prompt;"
    "ifnotadd_generation_promptisdefined;setadd_generation_prompt=false;"
    "ifadd_generation_promptandmessages[-1]['role']!='assistant';if(loop.lastandadd_generation_prompt)ornotloop.last;"
    "ifloop.firstandmessages[0]['role']!='system';ifloop.firstandmessage['role']!='system';"
    "ifmessages[0]['role']!='system'andloop.first;" SYSTEM_IN_FRONT;
static const char llama3_statements[] =
    ";" LOOP "formessageinloop_messages;endfor;endif;ifadd_generation_prompt;"
    "setloop_messages=messages;ifloop.index0==0;setcontent=bos_token+content;content;bos_token;";

/* Sums of literals and of what each turn brings: parts that stand in the code exactly once, in this order. */
static const char *const chatml_parts[][2] = {{"message['role']", "message.role"},
                                              {"message['content']", "message.content"}};
static const char *const llama3_parts[][2] = {{"message['role']", "message.role"},
                                              {"message['content']|trim", "message.content|trim"}};
enum { PARTS = 2 };

static bool is_listed(const char *statement, size_t n, const char *list) {
    for (const char *at = list; (at = memmem(at, strlen(at), statement, n)); at++)
        if (at > list && at[-1] == ';' && at[n] == ';') return true;
    return false;
}

/* One summand; *seen counts the parts of a turn so far. */
static bool is_summand(const char *text, size_t n, const char *const parts[PARTS][2], int *seen) {
    if ((n == 2 && memcmp(text, "''", 2) == 0) || (n == 9 && memcmp(text, "bos_token", 9) == 0)) return true;
    for (int form = 0; form < 2 && *seen < PARTS; form++) {
        const char *part = parts[*seen][form];
        if (strlen(part) != n || memcmp(part, text, n) != 0) continue;
        ++*seen;
        return true;
    }
    return false;
}

/* A sum, or its value given to `content`. */
static bool is_sum(const char *text, size_t n, const char *const parts[PARTS][2], int *seen) {
    static const char set[] = "setcontent=";
    if (n > sizeof set - 1 && memcmp(text, set, sizeof set - 1) == 0) {
        text += sizeof set - 1;
        n -= sizeof set - 1;
    }
    for (;;) {
        const char *plus = memchr(text, '+', n);
        size_t length = plus ? (size_t)(plus - text) : n;
        if (!is_summand(text, length, parts, seen)) return false;
        if (!plus) return true;
        text += length + 1;
        n -= length + 1;
    }
}

static bool has_only_statements(const struct buf *code, const char *list, const char *const parts[PARTS][2]) {
    const char *at = buf_text(code), *end = at + code->len;
    int seen = 0;
    while (at < end) {
        const char *stop = memchr(at, ';', (size_t)(end - at));
        size_t n = stop ? (size_t)(stop - at) : 0;
        if (n == 0 || !(is_listed(at, n, list) || is_sum(at, n, parts, &seen))) return false;
        at = stop + 1;
    }
    return seen == PARTS;
}

/* The default system prompt again in each turn. */
static bool says_system_in_loop(const struct buf *code) {
    const char *loop = memmem(buf_text(code), code->len, LOOP, sizeof LOOP - 1);
    return loop && memmem(loop, code->len - (size_t)(loop - code->data), SYSTEM_IN_FRONT, sizeof SYSTEM_IN_FRONT - 1);
}

static bool fits_chatml(const struct template_words *w, struct chat_template *out) {
    static const char said[] = IM_START "\n" IM_END "\n" ASSISTANT;
    size_t begin = 0, length, rest, n = sizeof said - 1;
    if (!has_only_statements(&w->code, chatml_statements, chatml_parts)) return false;
    if (!has(&w->code, "ifadd_generation_prompt") || says_system_in_loop(&w->code)) return false;
    if (!find_default_system(w, &begin, &length, &rest) || !read_bos_first(w, &out->bos_first)) return false;
    if (w->said.len - rest != n || memcmp(w->said.data + rest, said, n) != 0) return false;
    out->has_default_system = rest > 0;
    buf_append(&out->default_system, w->said.data + begin, length);
    return true;
}

static bool fits_llama3(const struct template_words *w) {
    static const char said[] = "<|start_header_id|><|end_header_id|>\n\n<|eot_id|>"
                               "<|start_header_id|>assistant<|end_header_id|>\n\n";
    return w->said.len == sizeof said - 1 && memcmp(w->said.data, said, sizeof said - 1) == 0 &&
           has_only_statements(&w->code, llama3_statements, llama3_parts) && has(&w->code, "bos_token");
}

/* --- Qwen 2.5: known by heart, but for a default system prompt ------------------------------------------------------- */

/* Takes the literal behind the next "else;" at *at or later out of `exact`; false if there is none. */
static bool cut_alternative(struct buf *exact, size_t *at, struct buf *literal) {
    static const char before[] = "else;\xff";
    const char *found = memmem(buf_text(exact) + *at, exact->len - *at, before, sizeof before - 1);
    if (!found) return false;
    size_t begin = (size_t)(found - exact->data) + sizeof before - 1;
    const char *stop = memchr(exact->data + begin, '\xfe', exact->len - begin);
    if (!stop) return false;
    size_t n = (size_t)(stop - exact->data) - begin;
    buf_append(literal, exact->data + begin, n);
    memmove(exact->data + begin, stop, exact->len - begin - n);
    exact->len -= n;
    *at = begin;
    return true;
}

/* A system turn around the prompt, or nothing at all. */
static bool read_default_turn(const struct buf *turn, struct chat_template *out) {
    static const char open[] = IM_START "system\n", close[] = IM_END "\n";
    const size_t a = sizeof open - 1, b = sizeof close - 1, n = turn->len;
    if (n == 0) return true;
    if (n < a + b || memcmp(turn->data, open, a) != 0 || memcmp(turn->data + n - b, close, b) != 0) return false;
    out->has_default_system = true;
    buf_append(&out->default_system, turn->data + a, n - a - b);
    return has_no_markers(turn->data + a, n - a - b);
}

/* The prompt stands twice, the first time for conversations with tools. */
static const char *find_open(const struct template_words *w, struct chat_template *out) {
    struct buf exact = {0}, with_tools = {0}, turn = {0};
    size_t at = 0;
    buf_append(&exact, buf_text(&w->exact), w->exact.len);
    const char *name = cut_alternative(&exact, &at, &with_tools) && cut_alternative(&exact, &at, &turn)
                           ? find_known(&exact, true)
                           : NULL;
    if (name && !read_default_turn(&turn, out)) name = NULL;
    buf_free(&exact);
    buf_free(&with_tools);
    buf_free(&turn);
    return name;
}

/* Among the system turns that a template with tools speaks of, the one with a text of its own and no tools. */
static void read_default_system(const struct template_words *w, struct chat_template *out) {
    static const char open[] = IM_START "system\n", close[] = IM_END "\n";
    const char *at = buf_text(&w->said), *end = at + w->said.len, *known_stop = NULL;
    while ((at = memmem(at, (size_t)(end - at), open, sizeof open - 1))) {
        at += sizeof open - 1;
        const char *stop = next_word(at, end, close, &known_stop);
        if (stop == end) return;
        size_t n = (size_t)(stop - at);
        /* The markers first: that ends at the next one, and so looks at each byte once. */
        if (n == 0 || !has_no_markers(at, n) || memmem(at, n, "# Tools", 7)) continue;
        out->has_default_system = true;
        buf_clear(&out->default_system);
        buf_append(&out->default_system, at, n);
        return;
    }
}

void template_read_default_system(const char *source, size_t n, struct chat_template *out) {
    struct template_words w = {0};
    if (template_scan(source, n, &w)) read_default_system(&w, out);
    template_words_free(&w);
}

static const char *match(const struct template_words *w, struct chat_template *out) {
    const char *name = find_known(&w->exact, false);
    if (name && strcmp(name, "chatml") == 0) read_default_system(w, out);
    if (!name) name = find_open(w, out);
    if (!name && fits_chatml(w, out)) name = "chatml";
    if (!name && fits_llama3(w)) name = "llama3";
    return name;
}

bool template_match(const char *source, size_t n, struct chat_template *out) {
    struct template_words w = {0};
    const char *name = template_scan(source, n, &w) ? match(&w, out) : NULL;
    out->kind = name ? template_kind_find(name) : NULL;
    template_words_free(&w);
    return name != NULL;
}
