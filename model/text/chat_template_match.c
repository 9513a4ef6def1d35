/* Which template is it? Told by what it says, so that a change of names or layout does not matter, while a marker, a
 * sentence or a filter that duet does not know makes it an unknown one. */
#include <string.h>

#include "model/text/chat_template_internal.h"

#define HEADER_START "<|start_header_id|>"
#define HEADER_END   "<|end_header_id|>\n\n"
#define TOOLS        "# Tools\n\nYou may call one or more functions"

enum { WORDS_MAX = 6 };

static const struct template_kind kinds[] = {
    {"chatml", FAMILY_CHATML, IM_END, "", ""},
    {"llama2", FAMILY_LLAMA2, NULL, "<s>", "</s>"},
    {"llama3", FAMILY_LLAMA3, "<|eot_id|>", "<|begin_of_text|>", ""},
    {"llama3.1", FAMILY_LLAMA31, "<|eot_id|>", "<|begin_of_text|>", ""},
    {"llama3.2", FAMILY_LLAMA31, "<|eot_id|>", "<|begin_of_text|>", ""},
    {"mistral", FAMILY_MISTRAL, NULL, "<s>", "</s>"},
    {"mistral-nemo", FAMILY_NEMO, NULL, "<s>", "</s>"},
    {"qwen2.5", FAMILY_CHATML, IM_END, "", ""},
    {"qwen3", FAMILY_QWEN3, IM_END, "", ""},
};

const struct template_kind *template_kind_find(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    return NULL;
}

const char *template_kind_names(void) {
    return "chatml, llama2, llama3, llama3.1, llama3.2, mistral, mistral-nemo, qwen2.5, qwen3";
}

/* A template is of this kind if all of it holds; NULL: nothing asked. */
struct rule {
    const char *name;
    const char *said; /* all that is said, but for a default system prompt in front */
    const char *said_has[WORDS_MAX], *said_lacks[WORDS_MAX], *said_last;
    const char *code_has[WORDS_MAX], *code_lacks[WORDS_MAX];
    const char *markers; /* where `said` is NULL: the only special markers it may speak of */
};

static const struct rule rules[] = {
    {.name = "chatml",
     .said = IM_START "\n" IM_END "\n" ASSISTANT,
     .code_has = {"add_generation_prompt"},
     .code_lacks = {"|", "strip", "eos_token", "replace", "upper", "lower"}},
    {.name = "qwen3",
     .said_has = {TOOLS, "<think>\n"},
     .said_last = ASSISTANT NO_THOUGHT,
     .code_has = {"enable_thinkingisfalse", "last_query_index", "reasoning_content"},
     .code_lacks = {"bos_token", "|trim"},
     .markers = IM_START IM_END},
    {.name = "qwen2.5",
     .said_has = {TOOLS},
     .said_lacks = {"think>"},
     .said_last = ASSISTANT,
     .code_has = {"message.tool_calls"},
     .code_lacks = {"enable_thinking", "bos_token", "|trim", "strip("},
     .markers = IM_START IM_END},
    {.name = "llama3",
     .said = HEADER_START HEADER_END "<|eot_id|>" HEADER_START "assistant" HEADER_END,
     .code_has = {"|trim", "bos_token"}},
    {.name = "llama3.2",
     .said_has = {"Cutting Knowledge Date: December 2023\nToday Date: \n\n", "26 Jul 2024",
                  HEADER_START "system" HEADER_END},
     .said_last = HEADER_START "assistant" HEADER_END,
     .code_has = {"|trim", "bos_token", "strftime_now"},
     .markers = HEADER_START HEADER_END "<|eot_id|>"},
    {.name = "llama3.1",
     .said_has = {"Cutting Knowledge Date: December 2023\nToday Date: \n\n", "26 Jul 2024",
                  HEADER_START "system" HEADER_END},
     .said_last = HEADER_START "assistant" HEADER_END,
     .code_has = {"|trim", "bos_token", "builtin_tools"},
     .code_lacks = {"strftime_now"},
     .markers = HEADER_START HEADER_END "<|eot_id|> <|eom_id|> <|python_tag|>"},
    {.name = "llama2",
     .said = ALTERNATE "<<SYS>>\n\n<</SYS>>\n\n[INST]  [/INST]  ",
     .code_has = {"bos_token+''+content.strip()", "''+content.strip()+''+eos_token", "system_message!=false"}},
    {.name = "mistral",
     .said = ALTERNATE "[INST]  [/INST]" ONLY_TWO,
     .code_has = {"bos_token", "message['content']+eos_token"},
     .code_lacks = {"|", "strip"}},
    {.name = "mistral-nemo",
     .said_has = {ALTERNATE_NEMO, ONLY_TWO_NEMO, "[INST]\n\n[/INST][INST][/INST]"},
     .said_lacks = {"[INST] ", " [/INST]"},
     .code_has = {"bos_token", "loop.lastandsystem_messageisdefined", "message['content']+eos_token"},
     .code_lacks = {"|trim", "strip("},
     .markers = "[INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_CALLS] [TOOL_RESULTS] [/TOOL_RESULTS]"},
};

static bool has(const struct buf *text, const char *word) {
    return memmem(buf_text(text), text->len, word, strlen(word)) != NULL;
}

static bool has_all(const struct buf *text, const char *const words[WORDS_MAX]) {
    for (int i = 0; i < WORDS_MAX && words[i]; i++)
        if (!has(text, words[i])) return false;
    return true;
}

static bool has_none(const struct buf *text, const char *const words[WORDS_MAX]) {
    for (int i = 0; i < WORDS_MAX && words[i]; i++)
        if (has(text, words[i])) return false;
    return true;
}

static bool ends_with(const struct buf *text, const char *word) {
    size_t n = strlen(word);
    return text->len >= n && memcmp(text->data + text->len - n, word, n) == 0;
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

static bool has_only_markers(const char *text, size_t n, const char *allowed) {
    const char *close = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t length = marker_length(text + i, text + n, &close);
        if (length > 0 && !memmem(allowed, strlen(allowed), text + i, length)) return false;
    }
    return true;
}

/* A ChatML template may begin with a system prompt for conversations that have none: [*begin, *begin + *length) of
 * `said`. *rest = where the remainder begins. */
static bool find_default_system(const struct template_words *w, size_t *begin, size_t *length, size_t *rest) {
    static const char open[] = IM_START "system\n", close[] = IM_END "\n";
    size_t n = sizeof open - 1;
    *length = *rest = 0;
    if (w->said.len < n || memcmp(w->said.data, open, n) != 0) return true;
    const char *end = memmem(w->said.data + n, w->said.len - n, close, sizeof close - 1);
    if (!end || !(has(&w->code, "!='system'") || has(&w->code, "=='system'"))) return false;
    *begin = n;
    *length = (size_t)(end - w->said.data) - n;
    *rest = n + *length + sizeof close - 1;
    return has_only_markers(w->said.data + n, *length, "");
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

static bool fits_chatml(const struct rule *r, const struct template_words *w, struct chat_template *out) {
    size_t begin = 0, length, rest;
    if (!find_default_system(w, &begin, &length, &rest) || !read_bos_first(w, &out->bos_first)) return false;
    size_t n = strlen(r->said);
    if (w->said.len - rest != n || memcmp(w->said.data + rest, r->said, n) != 0) return false;
    out->has_default_system = rest > 0;
    buf_append(&out->default_system, w->said.data + begin, length);
    return true;
}

static bool fits(const struct rule *r, const struct template_words *w, struct chat_template *out) {
    if (!has_all(&w->said, r->said_has) || !has_none(&w->said, r->said_lacks)) return false;
    if (!has_all(&w->code, r->code_has) || !has_none(&w->code, r->code_lacks)) return false;
    if (r->said_last && !ends_with(&w->said, r->said_last)) return false;
    if (!r->said) return has_only_markers(buf_text(&w->said), w->said.len, r->markers);
    if (template_kind_find(r->name)->family == FAMILY_CHATML) return fits_chatml(r, w, out);
    return w->said.len == strlen(r->said) && memcmp(w->said.data, r->said, w->said.len) == 0;
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
        if (n == 0 || !has_only_markers(at, n, "") || memmem(at, n, "# Tools", 7)) continue;
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

bool template_match(const char *source, size_t n, struct chat_template *out) {
    struct template_words w = {0};
    bool well_formed = template_scan(source, n, &w);
    for (size_t i = 0; i < sizeof rules / sizeof *rules && well_formed && !out->kind; i++)
        if (fits(&rules[i], &w, out)) out->kind = template_kind_find(rules[i].name);
    if (out->kind && strcmp(out->kind->name, "qwen2.5") == 0) read_default_system(&w, out);
    template_words_free(&w);
    return out->kind != NULL;
}
