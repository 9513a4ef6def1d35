/* The tokenizer as its users see it: load, encode, look up, compare. */
#include "model/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "model/text/tokenizer_internal.h"

/* --- life ------------------------------------------------------------------------------------------------- */

static int load_parts(struct tokenizer *t, const void *from) {
    const cJSON *json = from;
    if (!cJSON_IsObject(json)) return err_set(ERR_FORMAT, "expected an object");
    const cJSON *added = json_get(json, "added_tokens");
    TRY(tokenizer_read_model(t, json_get(json, "model"), added));
    TRY(tokenizer_read_normalizer(t, json_get(json, "normalizer")));
    TRY(tokenizer_read_added(t, added));
    TRY(tokenizer_read_pre_tokenizer(t, json_get(json, "pre_tokenizer")));
    TRY(tokenizer_read_post_processor(t, json_get(json, "post_processor")));
    return tokenizer_read_decoder(t, json_get(json, "decoder"));
}

/* `load` makes the tokenizer of `from`. */
static int make(struct tokenizer **out, int (*load)(struct tokenizer *, const void *), const void *from) {
    struct tokenizer *t = calloc(1, sizeof *t);
    int rc = t ? load(t, from) : err_set(ERR_MEMORY, "no memory for a tokenizer");
    *out = rc == 0 ? t : NULL;
    if (rc != 0) tokenizer_free(t);
    return rc;
}

int tokenizer_load(struct tokenizer **out, const char *path) {
    cJSON *json;
    *out = NULL;
    TRY(json_parse_file(&json, path));
    int rc = make(out, load_parts, json);
    cJSON_Delete(json);
    return rc == 0 ? 0 : err_prefix(rc, "%s", path);
}

static int load_list(struct tokenizer *t, const void *list) {
    return tokenizer_read_list(t, list);
}

int tokenizer_create(struct tokenizer **out, const struct token_list *list) {
    return make(out, load_list, list);
}

void tokenizer_free(struct tokenizer *t) {
    if (!t) return;
    vocab_free(&t->vocab);
    merges_free(&t->merges);
    added_set_free(&t->added_raw);
    added_set_free(&t->added_normalized);
    for (int i = 0; i < STEPS_MAX; i++) {
        pattern_free(&t->normalizer[i].pattern);
        buf_free(&t->normalizer[i].content);
        pattern_free(&t->pre[i].pattern);
        pattern_free(&t->decoder[i].pattern);
        buf_free(&t->decoder[i].content);
        free(t->decoder[i].borders);
    }
    ids_free(&t->prefix);
    ids_free(&t->suffix);
    free(t);
}

/* --- look-ups --------------------------------------------------------------------------------------------- */

int tokenizer_size(const struct tokenizer *t) {
    return t->vocab.size;
}

static const struct token *token_at(const struct tokenizer *t, int32_t id) {
    const struct token *token = id >= 0 && id < t->vocab.size ? &t->vocab.tokens[id] : NULL;
    return token && (token->flags & TOKEN_PRESENT) ? token : NULL;
}

const char *tokenizer_token(const struct tokenizer *t, int32_t id, size_t *len) {
    const struct token *token = token_at(t, id);
    *len = token ? token->len : 0;
    return token ? t->vocab.text.data + token->offset : NULL;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *token, size_t len) {
    return vocab_find(&t->vocab, token, len);
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id) {
    const struct token *token = token_at(t, id);
    return token && (token->flags & TOKEN_SPECIAL);
}

/* Bytes of the blank that the text begins with, as a space or as the mark that stands for one; 0: none. */
static size_t blank_length(const char *text, size_t n) {
    if (n >= SPACE_MARK_BYTES && memcmp(text, SPACE_MARK, SPACE_MARK_BYTES) == 0) return SPACE_MARK_BYTES;
    return n > 0 && text[0] == ' ';
}

static bool same_but_for_marks(const char *a, size_t n, const char *b, size_t m) {
    while (n > 0 && m > 0) {
        size_t x = blank_length(a, n), y = blank_length(b, m);
        if ((x > 0) != (y > 0) || (x == 0 && *a != *b)) return false;
        if (x == 0) x = y = 1;
        a += x, n -= x;
        b += y, m -= y;
    }
    return n == m;
}

/* Where a tokenizer.json has marks in an added token, as Gemma's do, GGUF files that were made of it have blanks. */
static bool is_same_token(const struct tokenizer *s, const struct token *a, const struct tokenizer *t,
                          const struct token *b) {
    const char *a_text = s->vocab.text.data + a->offset, *b_text = t->vocab.text.data + b->offset;
    if (a->len == b->len && memcmp(a_text, b_text, a->len) == 0) return true;
    return (a->flags & b->flags & TOKEN_ADDED) && same_but_for_marks(a_text, a->len, b_text, b->len);
}

int tokenizer_compare(const struct tokenizer *target, const struct tokenizer *draft, int *common) {
    *common = target->vocab.size < draft->vocab.size ? target->vocab.size : draft->vocab.size;
    for (int32_t id = 0; id < *common; id++) {
        const struct token *a = token_at(target, id), *b = token_at(draft, id);
        if (!a || !b || is_same_token(target, a, draft, b)) continue;
        return err_set(ERR_FORMAT, "the vocabularies differ: id %d is '%.*s' in the target and '%.*s' in the draft", id,
                       a->len < 60 ? (int)a->len : 60, target->vocab.text.data + a->offset,
                       b->len < 60 ? (int)b->len : 60, draft->vocab.text.data + b->offset);
    }
    return 0;
}

void tokenizer_describe(const struct tokenizer *t, struct buf *out) {
    int tokens = 0;
    for (int32_t id = 0; id < t->vocab.size; id++) tokens += token_at(t, id) != NULL;
    const char *dialect = t->is_byte_level ? "byte-level BPE" : t->byte_fallback ? "BPE with byte fallback" : "BPE";
    buf_printf(out, "%s, %d tokens, %d added", dialect, tokens, t->added_count);
}

/* --- encoding --------------------------------------------------------------------------------------------- */

static int normalize_piece(struct encoder *e, const struct piece *p) {
    const struct added_set *added = &e->tokenizer->added_normalized;
    struct piece piece = *p, normal;
    e->guarded = piece_has_plain(p, 0, p->n);
    if (!e->guarded || !added->has_special) piece.plain = NULL; /* nothing asks for it any more */
    TRY(tokenizer_normalize(e->tokenizer, &e->matcher, e->normalized, &piece, &normal));
    return added_split(e, added, &normal, tokenizer_pretokenize);
}

static void encoder_free(struct encoder *e) {
    matcher_free(&e->matcher);
    piece_buf_free(&e->normalized[0]);
    piece_buf_free(&e->normalized[1]);
    for (int i = 0; i < STEPS_MAX; i++) {
        buf_free(&e->scratch[i]);
        buf_free(&e->mapped[i]);
        free(e->spans[i].data);
    }
    free(e->symbols);
    free(e->heap);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, const struct encode_options *options,
                     struct ids *out) {
    static const struct encode_options defaults;
    const struct encode_options *o = options ? options : &defaults;
    TRY(text_check_length(n));
    if (!utf8_is_valid(text, n)) return err_set(ERR_FORMAT, "the text is not valid UTF-8");
    struct encoder e = {.tokenizer = t, .out = out, .work = work_on(n, o->interrupt)};
    size_t before = out->len;
    if (o->special) ids_append(out, t->prefix.data, t->prefix.len);
    int rc = matcher_create(&e.matcher, &e.work);
    struct piece whole = {text, o->plain, n, true};
    if (rc == 0) rc = added_split(&e, &t->added_raw, &whole, normalize_piece);
    if (rc == 0 && o->special) ids_append(out, t->suffix.data, t->suffix.len);
    if (rc != 0) out->len = before;
    encoder_free(&e);
    return rc;
}
