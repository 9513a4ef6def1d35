/* Pre-tokenizers, as a chain of steps that hand each piece on to the next one and the last to BPE. Digits and
 * Whitespace are splits by a regex of their own. */
#include <stdlib.h>
#include <string.h>

#include "model/text/tokenizer_internal.h"

static const char words_regex[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static int push_span(struct spans *s, size_t begin, size_t end, bool is_match) {
    if (s->len == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        struct span *data = realloc(s->data, cap * sizeof *data);
        if (!data) return err_set(ERR_MEMORY, "no memory for the words of a text");
        s->data = data;
        s->cap = cap;
    }
    s->data[s->len++] = (struct span){begin, end, is_match};
    return 0;
}

/* Matches and what lies between them, in order. */
static int find_spans(struct encoder *e, const struct pattern *p, bool invert, const char *text, size_t n,
                      struct spans *out) {
    struct search s = {p, &e->matcher, text, n, 0, 0, 0, false};
    size_t done = 0;
    out->len = 0;
    for (;;) {
        bool found;
        TRY(search_next(&s, &found));
        if (!found) break;
        if (s.begin > done) TRY(push_span(out, done, s.begin, invert));
        TRY(push_span(out, s.begin, s.end, !invert));
        done = s.end;
    }
    return done < n ? push_span(out, done, n, invert) : 0;
}

static void merge_with_previous(struct spans *s) {
    size_t kept = 0;
    bool after_match = false;
    for (size_t i = 0; i < s->len; i++) {
        struct span span = s->data[i];
        if (span.is_match && !after_match && kept > 0)
            s->data[kept - 1].end = span.end;
        else
            s->data[kept++] = span;
        after_match = span.is_match;
    }
    s->len = kept;
}

static void merge_with_next(struct spans *s) {
    size_t kept = s->len; /* the spans kept so far are [kept, len) */
    bool before_match = false;
    for (size_t i = s->len; i-- > 0;) {
        struct span span = s->data[i];
        if (span.is_match && !before_match && kept < s->len)
            s->data[kept].begin = span.begin;
        else
            s->data[--kept] = span;
        before_match = span.is_match;
    }
    s->len -= kept;
    if (s->len > 0) memmove(s->data, s->data + kept, s->len * sizeof *s->data);
}

static void merge_alike(struct spans *s) {
    size_t kept = 0;
    for (size_t i = 0; i < s->len; i++) {
        struct span span = s->data[i];
        if (kept > 0 && s->data[kept - 1].is_match == span.is_match)
            s->data[kept - 1].end = span.end;
        else
            s->data[kept++] = span;
    }
    s->len = kept;
}

static void drop_matches(struct spans *s) {
    size_t kept = 0;
    for (size_t i = 0; i < s->len; i++)
        if (!s->data[i].is_match) s->data[kept++] = s->data[i];
    s->len = kept;
}

static int split(struct encoder *e, const struct pre_step *step, const char *text, size_t n, struct spans *out) {
    TRY(find_spans(e, &step->pattern, step->invert, text, n, out));
    switch (step->behavior) {
    case SPLIT_REMOVED:
        drop_matches(out);
        break;
    case SPLIT_ISOLATED:
        break;
    case SPLIT_CONTIGUOUS:
        merge_alike(out);
        break;
    case SPLIT_MERGED_WITH_PREVIOUS:
        merge_with_previous(out);
        break;
    case SPLIT_MERGED_WITH_NEXT:
        merge_with_next(out);
        break;
    }
    return 0;
}

static int run_from(struct encoder *e, int index, const char *text, size_t n, bool first);

static int run_split(struct encoder *e, int index, const char *text, size_t n, bool first) {
    struct spans *spans = &e->spans[index];
    TRY(split(e, &e->tokenizer->pre[index], text, n, spans));
    for (size_t i = 0; i < spans->len; i++) {
        struct span s = spans->data[i];
        TRY(run_from(e, index + 1, text + s.begin, s.end - s.begin, first && s.begin == 0));
    }
    return 0;
}

static int run_byte_level(struct encoder *e, int index, const char *text, size_t n, bool first) {
    const struct pre_step *step = &e->tokenizer->pre[index];
    struct buf *spaced = &e->scratch[index], *mapped = &e->mapped[index];
    struct spans *spans = &e->spans[index];
    if (step->prepend == PREPEND_ALWAYS && text[0] != ' ') {
        buf_clear(spaced);
        buf_putc(spaced, ' ');
        buf_append(spaced, text, n);
        text = spaced->data;
        n = spaced->len;
    }
    spans->len = 0;
    TRY(step->split ? split(e, step, text, n, spans) : push_span(spans, 0, n, false));
    for (size_t i = 0; i < spans->len; i++) {
        struct span s = spans->data[i];
        buf_clear(mapped);
        buf_reserve(mapped, 2 * (s.end - s.begin));
        for (size_t k = s.begin; k < s.end; k++)
            mapped->len += (size_t)byte_level_encode((unsigned char)text[k], mapped->data + mapped->len);
        TRY(run_from(e, index + 1, buf_text(mapped), mapped->len, first && s.begin == 0));
    }
    return 0;
}

static int run_metaspace(struct encoder *e, int index, const char *text, size_t n, bool first) {
    const struct pre_step *step = &e->tokenizer->pre[index];
    const struct buf *mark = &step->pattern.literal;
    struct buf *out = &e->scratch[index];
    bool wanted = step->prepend == PREPEND_ALWAYS || (step->prepend == PREPEND_FIRST && first);
    bool has = text[0] == ' ' || (n >= mark->len && memcmp(text, mark->data, mark->len) == 0);
    buf_clear(out);
    if (wanted && !has) buf_append(out, mark->data, mark->len);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == ' ')
            buf_append(out, mark->data, mark->len);
        else
            buf_putc(out, text[i]);
    }
    return step->split ? run_split(e, index, out->data, out->len, first)
                       : run_from(e, index + 1, out->data, out->len, first);
}

static int run_from(struct encoder *e, int index, const char *text, size_t n, bool first) {
    if (n == 0) return 0;
    TRY(text_check_length(n));
    TRY(work_pass(&e->work, n));
    if (index == e->tokenizer->pre_count) return bpe_encode(e, text, n);
    switch (e->tokenizer->pre[index].kind) {
    case PRE_SPLIT:
        return run_split(e, index, text, n, first);
    case PRE_BYTE_LEVEL:
        return run_byte_level(e, index, text, n, first);
    case PRE_METASPACE:
        return run_metaspace(e, index, text, n, first);
    }
    return err_set(ERR_INTERNAL, "unknown pre-tokenizer");
}

int tokenizer_pretokenize(struct encoder *e, const struct piece *p) {
    return run_from(e, 0, p->text, p->n, p->first);
}

/* --- reading ---------------------------------------------------------------------------------------------- */

/* The index of a string member among `names`. */
static int read_name(const cJSON *item, const char *member, const char *const *names, int count, int *out) {
    struct buf name = {0};
    TRY(tokenizer_read_text(item, member, &name));
    int i = 0;
    while (i < count && strcmp(buf_text(&name), names[i]) != 0) i++;
    int rc = i < count ? 0 : err_set(ERR_UNSUPPORTED, "%s '%s' is not supported", member, buf_text(&name));
    buf_free(&name);
    *out = i;
    return rc;
}

static int read_behavior(const cJSON *item, enum split_behavior *out) {
    static const char *const names[] = {"Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
    int index;
    TRY(read_name(item, "behavior", names, sizeof names / sizeof *names, &index));
    *out = (enum split_behavior)index;
    return 0;
}

static int read_byte_level(const cJSON *item, struct pre_step *step) {
    bool prefix;
    step->kind = PRE_BYTE_LEVEL;
    step->behavior = SPLIT_ISOLATED;
    TRY(json_get_bool(item, "add_prefix_space", true, &prefix));
    TRY(json_get_bool(item, "use_regex", true, &step->split));
    step->prepend = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    return pattern_compile(&step->pattern, words_regex, sizeof words_regex - 1);
}

/* Files of before 2024 say add_prefix_space, later ones prepend_scheme. */
int tokenizer_read_prepend_scheme(const cJSON *item, enum prepend_scheme *out) {
    static const char *const names[] = {"never", "first", "always"};
    bool prefix;
    int index;
    TRY(json_get_bool(item, "add_prefix_space", true, &prefix));
    *out = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    if (!json_get(item, "prepend_scheme")) return 0;
    TRY(read_name(item, "prepend_scheme", names, sizeof names / sizeof *names, &index));
    *out = (enum prepend_scheme)index;
    return 0;
}

static int read_metaspace(const cJSON *item, struct pre_step *step) {
    step->kind = PRE_METASPACE;
    step->behavior = SPLIT_MERGED_WITH_NEXT;
    TRY(tokenizer_read_text(item, "replacement", &step->pattern.literal));
    uint32_t c;
    const struct buf *mark = &step->pattern.literal;
    if (mark->len == 0 || (size_t)utf8_decode(mark->data, mark->len, &c) != mark->len)
        return err_set(ERR_FORMAT, "'replacement' is not one character");
    TRY(json_get_bool(item, "split", true, &step->split));
    return tokenizer_read_prepend_scheme(item, &step->prepend);
}

static int read_regex_split(struct pre_step *step, const char *regex, enum split_behavior behavior, bool invert) {
    step->kind = PRE_SPLIT;
    step->behavior = behavior;
    step->invert = invert;
    return pattern_compile(&step->pattern, regex, strlen(regex));
}

static int next_step(struct tokenizer *t, struct pre_step **out) {
    *out = NULL;
    if (t->pre_count == STEPS_MAX) return err_set(ERR_LIMIT, "more than %d steps", STEPS_MAX);
    *out = &t->pre[t->pre_count++];
    return 0;
}

int tokenizer_add_split(struct tokenizer *t, const char *regex) {
    struct pre_step *step;
    TRY(next_step(t, &step));
    return read_regex_split(step, regex, SPLIT_ISOLATED, false);
}

int tokenizer_add_byte_level(struct tokenizer *t, bool splits_words) {
    struct pre_step *step;
    TRY(next_step(t, &step));
    t->is_byte_level = true;
    *step = (struct pre_step){.kind = PRE_BYTE_LEVEL, .behavior = SPLIT_ISOLATED, .split = splits_words};
    return pattern_compile(&step->pattern, words_regex, sizeof words_regex - 1);
}

static int read_step(const cJSON *item, const char *type, struct pre_step *step) {
    if (strcmp(type, "Split") == 0) {
        step->kind = PRE_SPLIT;
        TRY(pattern_from_json(&step->pattern, item));
        TRY(json_get_bool(item, "invert", false, &step->invert));
        return read_behavior(item, &step->behavior);
    }
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(item, step);
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(item, step);
    if (strcmp(type, "Digits") == 0) {
        bool each;
        TRY(json_get_bool(item, "individual_digits", false, &each));
        return read_regex_split(step, each ? "\\p{N}" : "\\p{N}+", SPLIT_ISOLATED, false);
    }
    if (strcmp(type, "Whitespace") == 0) return read_regex_split(step, "\\w+|[^\\w\\s]+", SPLIT_REMOVED, true);
    if (strcmp(type, "WhitespaceSplit") == 0) return read_regex_split(step, "\\s+", SPLIT_REMOVED, false);
    return err_set(ERR_UNSUPPORTED, "type '%s' is not supported", type);
}

static int load_one(struct tokenizer *t, const cJSON *item, const char *type) {
    struct pre_step *step;
    TRY(next_step(t, &step));
    if (strcmp(type, "ByteLevel") == 0) t->is_byte_level = true;
    return read_step(item, type, step);
}

int tokenizer_read_pre_tokenizer(struct tokenizer *t, const cJSON *item) {
    int rc = tokenizer_read_steps(t, item, "pretokenizers", load_one);
    return rc == 0 ? 0 : err_prefix(rc, "pre_tokenizer");
}
