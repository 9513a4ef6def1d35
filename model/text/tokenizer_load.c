/* tokenizer.json: the model, the added tokens and the post-processor; the decoder is read in
 * tokenizer_decode_load.c, the other parts where they are run.
 *
 * `truncation` and `padding` are left alone: they are settings of the program that wrote the file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/text/tokenizer_internal.h"

enum { TEMPLATE_MAX = 64 }; /* parts of a post-processor's template, and tokens around a text */

int tokenizer_read_text(const cJSON *object, const char *name, struct buf *out) {
    const cJSON *item = json_get(object, name);
    if (!item) return err_set(ERR_FORMAT, "member '%s' is missing", name);
    return json_string(item, out) ? 0 : err_set(ERR_FORMAT, "member '%s' is no string", name);
}

int tokenizer_read_steps(struct tokenizer *t, const cJSON *item, const char *list,
                         int (*one)(struct tokenizer *, const cJSON *, const char *)) {
    if (!item || cJSON_IsNull(item)) return 0;
    if (!cJSON_IsObject(item)) return err_set(ERR_FORMAT, "expected an object");
    struct buf type = {0};
    int rc = tokenizer_read_text(item, "type", &type);
    if (rc == 0 && strcmp(buf_text(&type), "Sequence") == 0) {
        const cJSON *members = json_get(item, list);
        if (!cJSON_IsArray(members)) rc = err_set(ERR_FORMAT, "'%s' is no list", list);
        for (const cJSON *m = rc == 0 ? members->child : NULL; m && rc == 0; m = m->next)
            rc = tokenizer_read_steps(t, m, list, one);
    } else if (rc == 0) {
        rc = one(t, item, buf_text(&type));
    }
    buf_free(&type);
    return rc;
}

/* --- the model -------------------------------------------------------------------------------------------- */

/* A member's name, with U+0000 (which base/json.h keeps as C0 80) restored. */
static void read_key(const char *key, struct buf *out) {
    buf_clear(out);
    for (; *key; key++) {
        if ((unsigned char)key[0] == 0xc0 && (unsigned char)key[1] == 0x80) {
            buf_putc(out, '\0');
            key++;
        } else {
            buf_putc(out, *key);
        }
    }
}

static int load_vocab(struct tokenizer *t, const cJSON *vocab, size_t extra) {
    if (!cJSON_IsObject(vocab)) return err_set(ERR_FORMAT, "'vocab' is missing or no object");
    size_t count = extra;
    for (const cJSON *m = vocab->child; m; m = m->next) count++;
    TRY(vocab_create(&t->vocab, count));
    struct buf key = {0};
    int rc = 0;
    for (const cJSON *m = vocab->child; m && rc == 0; m = m->next) {
        int64_t id;
        read_key(m->string, &key);
        if (!json_int(m, &id))
            rc = err_set(ERR_FORMAT, "the id of token '%.60s' is no integer", m->string);
        else
            rc = vocab_add(&t->vocab, buf_text(&key), key.len, id, TOKEN_MODEL);
    }
    buf_free(&key);
    return rc;
}

/* Both halves of a merge in `text`, the left one [0, *cut): "a b", or ["a", "b"]. */
static bool read_merge(const cJSON *item, struct buf *text, size_t *cut) {
    buf_clear(text);
    if (cJSON_IsArray(item)) {
        const cJSON *right = item->child ? item->child->next : NULL;
        if (!right || right->next || !json_string(item->child, text)) return false;
        *cut = text->len;
        return json_string(right, text);
    }
    if (!json_string(item, text)) return false;
    const char *space = memchr(text->data ? text->data : "", ' ', text->len);
    if (!space || memchr(space + 1, ' ', text->len - (size_t)(space - text->data) - 1)) return false;
    *cut = (size_t)(space - text->data);
    memmove(text->data + *cut, text->data + *cut + 1, text->len - *cut - 1);
    text->len--;
    return true;
}

int tokenizer_add_merge(struct tokenizer *t, const char *text, size_t cut, size_t n, int32_t rank) {
    const char *parts[3] = {text, text + cut, text};
    size_t lengths[3] = {cut, n - cut, n};
    int32_t ids[3];
    for (int i = 0; i < 3; i++) {
        ids[i] = vocab_find(&t->vocab, parts[i], lengths[i]);
        if (ids[i] < 0)
            return err_set(ERR_FORMAT, "merge %d: token '%.*s' is not in the vocabulary", rank,
                           lengths[i] < 60 ? (int)lengths[i] : 60, parts[i]);
    }
    return merges_add(&t->merges, ids[0], ids[1], rank, ids[2]);
}

static int load_merge(struct tokenizer *t, const cJSON *item, int32_t rank, struct buf *text) {
    size_t cut;
    if (!read_merge(item, text, &cut)) return err_set(ERR_FORMAT, "merge %d is not a pair of tokens", rank);
    return tokenizer_add_merge(t, buf_text(text), cut, text->len, rank);
}

static int load_merges(struct tokenizer *t, const cJSON *merges) {
    if (!cJSON_IsArray(merges)) return err_set(ERR_FORMAT, "'merges' is missing or no list");
    size_t count = 0;
    for (const cJSON *m = merges->child; m; m = m->next) count++;
    TRY(merges_create(&t->merges, count));
    struct buf text = {0};
    int32_t rank = 0;
    int rc = 0;
    for (const cJSON *m = merges->child; m && rc == 0; m = m->next) rc = load_merge(t, m, rank++, &text);
    buf_free(&text);
    return rc;
}

/* Old files do not say it; what others than BPE have tells them. */
static const char *unsaid_type(const cJSON *model) {
    if (json_get(model, "max_input_chars_per_word")) return "WordPiece";
    return cJSON_IsArray(json_get(model, "vocab")) && !json_get(model, "merges") ? "Unigram" : "BPE";
}

static int check_type(const cJSON *model) {
    struct buf text = {0};
    int rc = 0;
    if (json_get(model, "type"))
        rc = tokenizer_read_text(model, "type", &text);
    else
        buf_puts(&text, unsaid_type(model));
    if (rc == 0 && strcmp(buf_text(&text), "BPE") != 0)
        rc = err_set(ERR_UNSUPPORTED, "type '%s' is not supported, only BPE is", buf_text(&text));
    buf_free(&text);
    return rc;
}

/* Options that change what encoding means and that no model duet runs uses. */
static int refuse_options(const cJSON *model) {
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    struct buf text = {0};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        buf_clear(&text);
        if (json_get(model, affixes[i])) rc = tokenizer_read_text(model, affixes[i], &text);
        if (rc == 0 && text.len > 0)
            rc = err_set(ERR_UNSUPPORTED, "%s '%s' is not supported", affixes[i], buf_text(&text));
    }
    double dropout = 0;
    if (rc == 0) rc = json_get_number(model, "dropout", 0, &dropout);
    if (rc == 0 && dropout != 0) rc = err_set(ERR_UNSUPPORTED, "dropout is not supported");
    buf_free(&text);
    return rc;
}

static int load_unknown(struct tokenizer *t, const cJSON *model) {
    t->unk = -1;
    if (!json_get(model, "unk_token")) return 0;
    struct buf text = {0};
    int rc = tokenizer_read_text(model, "unk_token", &text);
    if (rc == 0) {
        t->unk = vocab_find_model(&t->vocab, buf_text(&text), text.len);
        if (t->unk < 0) rc = err_set(ERR_FORMAT, "unk_token '%s' is not in the vocabulary", buf_text(&text));
    }
    buf_free(&text);
    return rc;
}

void tokenizer_index_symbols(struct tokenizer *t) {
    char text[8];
    for (int byte = 0; byte < 256; byte++) {
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        t->byte_ids[byte] = vocab_find_model(&t->vocab, text, 6);
    }
    for (uint32_t c = 0; c < DIRECT_CODE_POINTS; c++)
        t->direct[c] = vocab_find_model(&t->vocab, text, (size_t)utf8_encode(c, text));
    t->cut_at_marks = vocab_find_model(&t->vocab, SPACE_MARK, SPACE_MARK_BYTES) >= 0;
    for (int32_t id = 0; id < t->vocab.size && t->cut_at_marks; id++) {
        const struct token *token = &t->vocab.tokens[id];
        if ((token->flags & TOKEN_MODEL) && bpe_has_inner_mark(t->vocab.text.data + token->offset, token->len))
            t->cut_at_marks = false;
    }
}

static int read_model(struct tokenizer *t, const cJSON *model, size_t extra) {
    if (!cJSON_IsObject(model)) return err_set(ERR_FORMAT, "missing or no object");
    TRY(check_type(model));
    TRY(refuse_options(model));
    TRY(json_get_bool(model, "byte_fallback", false, &t->byte_fallback));
    TRY(json_get_bool(model, "fuse_unk", false, &t->fuse_unk));
    TRY(json_get_bool(model, "ignore_merges", false, &t->ignore_merges));
    TRY(load_vocab(t, json_get(model, "vocab"), extra));
    TRY(load_merges(t, json_get(model, "merges")));
    TRY(load_unknown(t, model));
    tokenizer_index_symbols(t);
    return 0;
}

int tokenizer_read_model(struct tokenizer *t, const cJSON *model, const cJSON *added) {
    int extra = cJSON_IsArray(added) ? cJSON_GetArraySize(added) : 0;
    int rc = read_model(t, model, (size_t)extra);
    return rc == 0 ? 0 : err_prefix(rc, "model");
}

/* --- added tokens ----------------------------------------------------------------------------------------- */

/* A normalised added token is looked for in normalised text, so it is normalised itself. */
static int add_normalized(struct tokenizer *t, struct matcher *m, const struct buf *content,
                          const struct added_token *token) {
    struct piece_buf work[2] = {{.text = {0}}, {.text = {0}}};
    struct piece piece = {.text = buf_text(content), .n = content->len}, normal;
    work_add(m->work, content->len);
    int rc = tokenizer_normalize(t, m, work, &piece, &normal);
    if (rc == 0) rc = added_set_add(&t->added_normalized, normal.text, normal.n, token);
    piece_buf_free(&work[0]);
    piece_buf_free(&work[1]);
    return rc;
}

static int read_added_token(const cJSON *item, struct buf *content, struct added_token *token, bool *normalized) {
    int64_t id;
    *token = (struct added_token){0};
    buf_clear(content);
    TRY(tokenizer_read_text(item, "content", content));
    TRY(json_get_int(item, "id", -1, 0, TOKEN_ID_LIMIT - 1, &id));
    TRY(json_get_bool(item, "special", false, &token->special));
    TRY(json_get_bool(item, "normalized", !token->special, normalized));
    TRY(json_get_bool(item, "single_word", false, &token->single_word));
    TRY(json_get_bool(item, "lstrip", false, &token->lstrip));
    TRY(json_get_bool(item, "rstrip", false, &token->rstrip));
    token->id = (int32_t)id;
    return 0;
}

/* How the reference library numbers added tokens: a string that has an id keeps it, whatever is listed. It counts new ones itself,
 * which gives the listed ids until one of them went unused that way. */
struct numbering {
    int32_t next;
    bool is_own;
};

static int number_added_token(struct tokenizer *t, const cJSON *item, struct buf *content, struct numbering *n,
                              struct ids *ids) {
    struct added_token token;
    bool normalized;
    TRY(read_added_token(item, content, &token, &normalized));
    int32_t known = vocab_find(&t->vocab, buf_text(content), content->len);
    if (token.id >= 0 && known >= 0) {
        n->is_own |= known != token.id;
        token.id = known;
    } else if (token.id >= 0 && n->is_own) {
        token.id = n->next;
    }
    if (token.id >= n->next) n->next = token.id + 1;
    ids_push(ids, token.id);
    return vocab_add(&t->vocab, buf_text(content), content->len, token.id,
                     TOKEN_ADDED | (token.special ? TOKEN_SPECIAL : 0));
}

static int number_added_tokens(struct tokenizer *t, const cJSON *list, struct buf *content, struct ids *ids) {
    struct numbering n = {0};
    for (int32_t id = 0; id < t->vocab.size; id++) n.next += (t->vocab.tokens[id].flags & TOKEN_PRESENT) != 0;
    int rc = 0, index = 0;
    for (const cJSON *item = list->child; item && rc == 0; item = item->next, index++) {
        rc = number_added_token(t, item, content, &n, ids);
        if (rc != 0) err_prefix(rc, "added_tokens[%d]", index);
    }
    return rc;
}

/* Of several with one id the last one counts; it is special if any of them is. */
static int enter_added_token(struct tokenizer *t, struct matcher *m, const cJSON *item, int32_t id,
                             struct buf *content) {
    struct added_token token;
    bool normalized;
    TRY(read_added_token(item, content, &token, &normalized));
    token.id = id;
    token.special = tokenizer_is_special(t, id);
    t->added_count++;
    return normalized ? add_normalized(t, m, content, &token)
                      : added_set_add(&t->added_raw, buf_text(content), content->len, &token);
}

/* ids [n] of the list's entries. */
static int enter_added_tokens(struct tokenizer *t, const cJSON *list, const struct ids *ids, struct buf *content) {
    struct work work = work_on(0, NULL);
    struct matcher m;
    size_t *last = memory_resize(NULL, ((size_t)t->vocab.size + 1) * sizeof *last), index = 0;
    int rc = matcher_create(&m, &work);
    for (size_t i = 0; i < ids->len; i++) last[ids->data[i]] = i;
    for (const cJSON *item = list->child; item && rc == 0; item = item->next, index++) {
        if (last[ids->data[index]] != index) continue;
        rc = enter_added_token(t, &m, item, ids->data[index], content);
        if (rc != 0) err_prefix(rc, "added_tokens[%zu]", index);
    }
    added_set_finish(&t->added_raw);
    added_set_finish(&t->added_normalized);
    matcher_free(&m);
    free(last);
    return rc;
}

int tokenizer_read_added(struct tokenizer *t, const cJSON *list) {
    if (!list) return 0;
    if (!cJSON_IsArray(list)) return err_set(ERR_FORMAT, "added_tokens is no list");
    struct buf content = {0};
    struct ids ids = {0};
    int rc = number_added_tokens(t, list, &content, &ids);
    if (rc == 0) rc = enter_added_tokens(t, list, &ids, &content);
    buf_free(&content);
    ids_free(&ids);
    return rc;
}

/* --- post-processor --------------------------------------------------------------------------------------- */

/* The ids of a special token of a template. */
static int read_template_token(const struct tokenizer *t, const cJSON *table, const char *name, struct ids *out) {
    const cJSON *ids = json_get(json_get(table, name), "ids");
    if (!cJSON_IsArray(ids)) return err_set(ERR_FORMAT, "special token '%s' has no list of ids", name);
    for (const cJSON *item = ids->child; item; item = item->next) {
        int64_t id;
        if (!json_int(item, &id) || id < 0 || id >= t->vocab.size || !(t->vocab.tokens[id].flags & TOKEN_PRESENT))
            return err_set(ERR_FORMAT, "special token '%s' has an id that the vocabulary lacks", name);
        ids_push(out, (int32_t)id);
        if (out->len > TEMPLATE_MAX) return err_set(ERR_LIMIT, "more than %d special tokens", TEMPLATE_MAX);
    }
    return 0;
}

static int read_template(struct tokenizer *t, const cJSON *item) {
    const cJSON *single = json_get(item, "single");
    if (!cJSON_IsArray(single)) return err_set(ERR_FORMAT, "'single' is missing or no list");
    bool seen = false;
    struct ids before = {0}, after = {0};
    int rc = cJSON_GetArraySize(single) <= TEMPLATE_MAX
                 ? 0
                 : err_set(ERR_LIMIT, "'single' has more than %d parts", TEMPLATE_MAX);
    for (const cJSON *part = single->child; part && rc == 0; part = part->next) {
        const cJSON *special = json_get(part, "SpecialToken");
        struct buf name = {0};
        rc = tokenizer_read_text(special ? special : json_get(part, "Sequence"), "id", &name);
        if (rc == 0 && special) {
            rc = read_template_token(t, json_get(item, "special_tokens"), buf_text(&name), seen ? &after : &before);
        } else if (rc == 0) {
            if (seen || strcmp(buf_text(&name), "A") != 0) rc = err_set(ERR_FORMAT, "'single' does not hold A once");
            seen = true;
        }
        buf_free(&name);
    }
    if (rc == 0 && !seen) rc = err_set(ERR_FORMAT, "'single' does not hold A once");
    if (rc == 0) { /* processors of a Sequence wrap each other, the first innermost */
        ids_append(&before, t->prefix.data, t->prefix.len);
        ids_append(&t->suffix, after.data, after.len);
        struct ids old = t->prefix;
        t->prefix = before;
        before = old;
    }
    ids_free(&before);
    ids_free(&after);
    if (t->prefix.len + t->suffix.len > TEMPLATE_MAX)
        rc = err_set(ERR_LIMIT, "more than %d special tokens around a text", TEMPLATE_MAX);
    return rc;
}

static int load_processor(struct tokenizer *t, const cJSON *item, const char *type) {
    if (strcmp(type, "ByteLevel") == 0) return 0; /* it moves offsets alone */
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(t, item);
    return err_set(ERR_UNSUPPORTED, "type '%s' is not supported", type);
}

int tokenizer_read_post_processor(struct tokenizer *t, const cJSON *item) {
    int rc = tokenizer_read_steps(t, item, "processors", load_processor);
    return rc == 0 ? 0 : err_prefix(rc, "post_processor");
}
