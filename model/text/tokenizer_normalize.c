/* Normalisers: Prepend, Replace, NFC, NFD, NFKC, NFKD, Strip, Lowercase. */
#include <string.h>
#include <utf8proc.h>

#include "model/text/tokenizer_internal.h"

/* --- pieces ----------------------------------------------------------------------------------------------- */

void piece_buf_free(struct piece_buf *b) {
    buf_free(&b->text);
    buf_free(&b->plain);
}

bool piece_has_plain(const struct piece *p, size_t begin, size_t end) {
    return p->plain && begin < end && memchr(p->plain + begin, 1, end - begin) != NULL;
}

void piece_copy(struct piece_buf *out, const struct piece *from, size_t begin, size_t end) {
    buf_append(&out->text, from->text + begin, end - begin);
    if (from->plain) buf_append(&out->plain, from->plain + begin, end - begin);
}

void piece_put(struct piece_buf *out, const struct piece *from, size_t begin, size_t end, const char *text, size_t n) {
    buf_append(&out->text, text, n);
    if (!from->plain) return;
    if (begin == end && end < from->n) end++;
    buf_reserve(&out->plain, n);
    memset(out->plain.data + out->plain.len, piece_has_plain(from, begin, end), n);
    out->plain.len += n;
}

/* --- steps ------------------------------------------------------------------------------------------------ */

static void lowercase(const struct piece *p, struct piece_buf *out) {
    for (size_t at = 0; at < p->n;) {
        uint32_t c;
        size_t end = at + (size_t)utf8_decode(p->text + at, p->n - at, &c);
        char lower[4] = "i\xcc\x87"; /* of I with a dot above, the one character whose lower case is two */
        int length = c == 0x130 ? 3 : utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)c), lower);
        piece_put(out, p, at, end, lower, (size_t)length);
        at = end;
    }
}

static int run_step(const struct normalizer_step *step, struct matcher *m, const struct piece *p,
                    struct piece_buf *out) {
    switch (step->kind) {
    case NORM_PREPEND:
        if (p->n > 0) piece_put(out, p, 0, 0, buf_text(&step->content), step->content.len);
        piece_copy(out, p, 0, p->n);
        return 0;
    case NORM_REPLACE:
        return pattern_replace(&step->pattern, m, p, &step->content, out);
    case NORM_UNICODE:
        return unicode_normalize(step->unicode_form, p, out);
    case NORM_STRIP: {
        size_t left = step->left ? unicode_leading_spaces(p->text, p->n) : 0;
        size_t right = step->right ? unicode_trailing_spaces(p->text + left, p->n - left) : 0;
        piece_copy(out, p, left, p->n - right);
        return 0;
    }
    case NORM_LOWERCASE:
        lowercase(p, out);
        return 0;
    }
    return err_set(ERR_INTERNAL, "unknown normaliser");
}

int tokenizer_normalize(const struct tokenizer *t, struct matcher *m, struct piece_buf work[2], const struct piece *p,
                        struct piece *out) {
    *out = *p;
    for (int i = 0; i < t->normalizer_count; i++) {
        struct piece_buf *to = &work[i & 1];
        buf_clear(&to->text);
        buf_clear(&to->plain);
        TRY(work_pass(m->work, out->n));
        TRY(run_step(&t->normalizer[i], m, out, to));
        TRY(text_check_length(to->text.len));
        *out = (struct piece){buf_text(&to->text), p->plain ? buf_text(&to->plain) : NULL, to->text.len, p->first};
    }
    return 0;
}

/* --- reading ---------------------------------------------------------------------------------------------- */

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
