/* Normalisers: Prepend, Replace, NFC, NFD, NFKC, NFKD, Strip, Lowercase. */
#include <string.h>
#include <utf8proc.h>

#include "model/tokenizer_internal.h"

static void lowercase(const char *text, size_t n, struct buf *out) {
    for (size_t at = 0; at < n;) {
        uint32_t c;
        int length = utf8_decode(text + at, n - at, &c);
        char lower[4];
        if (c == 0x130) /* I with a dot above: the one character whose lower case is two */
            buf_puts(out, "i\xcc\x87");
        else
            buf_append(out, lower, (size_t)utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)c), lower));
        at += (size_t)length;
    }
}

static int run_step(const struct normalizer_step *step, struct matcher *m, const char *text, size_t n,
                    struct buf *out) {
    switch (step->kind) {
    case NORM_PREPEND:
        if (n > 0) buf_append(out, buf_text(&step->content), step->content.len);
        buf_append(out, text, n);
        return 0;
    case NORM_REPLACE:
        return pattern_replace(&step->pattern, m, text, n, &step->content, out);
    case NORM_UNICODE:
        return unicode_normalize(step->unicode_form, text, n, out);
    case NORM_STRIP: {
        size_t left = step->left ? unicode_leading_spaces(text, n) : 0;
        size_t right = step->right ? unicode_trailing_spaces(text + left, n - left) : 0;
        buf_append(out, text + left, n - left - right);
        return 0;
    }
    case NORM_LOWERCASE:
        lowercase(text, n, out);
        return 0;
    }
    return err_set(ERR_INTERNAL, "unknown normaliser");
}

int tokenizer_normalize(const struct tokenizer *t, struct matcher *m, struct buf work[2], const char *text, size_t n,
                        const char **out, size_t *out_n) {
    for (int i = 0; i < t->normalizer_count; i++) {
        struct buf *to = &work[i & 1];
        buf_clear(to);
        TRY(work_pass(m->work, n));
        TRY(run_step(&t->normalizer[i], m, text, n, to));
        TRY(text_check_length(to->len));
        text = buf_text(to);
        n = to->len;
    }
    *out = text;
    *out_n = n;
    return 0;
}

static const struct {
    const char *type;
    int form;
} forms[] = {
    {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
    {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
};

static int read_step(const cJSON *item, const char *type, struct normalizer_step *step) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(type, forms[i].type) == 0) {
            step->kind = NORM_UNICODE;
            step->unicode_form = forms[i].form;
            return 0;
        }
    if (strcmp(type, "Prepend") == 0) {
        step->kind = NORM_PREPEND;
        return tokenizer_read_text(item, "prepend", &step->content);
    }
    if (strcmp(type, "Replace") == 0) {
        step->kind = NORM_REPLACE;
        TRY(pattern_from_json(&step->pattern, item));
        return tokenizer_read_text(item, "content", &step->content);
    }
    if (strcmp(type, "Strip") == 0) {
        step->kind = NORM_STRIP;
        TRY(json_get_bool(item, "strip_left", true, &step->left));
        return json_get_bool(item, "strip_right", true, &step->right);
    }
    if (strcmp(type, "Lowercase") == 0) {
        step->kind = NORM_LOWERCASE;
        return 0;
    }
    return err_set(ERR_UNSUPPORTED, "type '%s' is not supported", type);
}

static int load_one(struct tokenizer *t, const cJSON *item, const char *type) {
    if (t->normalizer_count == STEPS_MAX) return err_set(ERR_LIMIT, "more than %d steps", STEPS_MAX);
    return read_step(item, type, &t->normalizer[t->normalizer_count++]);
}

int tokenizer_read_normalizer(struct tokenizer *t, const cJSON *item) {
    int rc = tokenizer_read_steps(t, item, "normalizers", load_one);
    return rc == 0 ? 0 : err_prefix(rc, "normalizer");
}
