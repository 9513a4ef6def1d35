/* The tokenizer and the chat template. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/files/gguf_model.h"

/* --- markers -------------------------------------------------------------------------------------------------------- */

/* Texts at which llama.cpp ends an answer, whatever the keys say: files often name one end of several. To it such a token is a control
 * token, of whatever type it is in the file: conversions of Gemma have normal ones. */
enum { END, RETURN, CALL, MARKERS = 14 };
static const char *const markers[MARKERS] = {[END] = "<|end|>",
                                             [RETURN] = "<|return|>",
                                             [CALL] = "<|call|>",
                                             "<|eot_id|>",
                                             "<|im_end|>",
                                             "<end_of_turn>",
                                             "<turn|>",
                                             "<|tool_response>",
                                             "<|endoftext|>",
                                             "<|eom_id|>",
                                             "<EOT>",
                                             "_<EOT>",
                                             "<|end_of_text|>",
                                             "<eos>"};

/* Its place in `markers`; -1: it is none. */
static int find_marker(const char *text, uint64_t n) {
    for (int m = 0; m < MARKERS; m++)
        if (n == strlen(markers[m]) && memcmp(text, markers[m], n) == 0) return m;
    return -1;
}

/* --- tokens --------------------------------------------------------------------------------------------------------- */

/* What a struct token_list points to. */
struct tokens {
    struct token_text *texts, *merges;
    int32_t *kinds;
    float *scores;
};

static void tokens_free(struct tokens *t) {
    free(t->texts);
    free(t->merges);
    free(t->kinds);
    free(t->scores);
}

static struct token_text text_of(struct gguf_text text) {
    return (struct token_text){text.bytes ? text.bytes : "", text.n};
}

/* An array of texts; *count 0 where it is absent. */
static int read_texts(const struct gguf *g, const char *key, struct token_text **out, int32_t *count) {
    const struct gguf_value *v;
    TRY(gguf_get_array(g, key, GGUF_STRING, &v));
    *count = 0;
    if (!v) return 0;
    if (v->count > 1 << 28)
        return err_set(ERR_LIMIT, "%s: key '%s' holds %llu texts, more than %d", gguf_path(g), key,
                       (unsigned long long)v->count, 1 << 28);
    *out = malloc((v->count + 1) * sizeof **out);
    if (!*out)
        return err_set(ERR_MEMORY, "%s: out of memory for %llu texts", gguf_path(g), (unsigned long long)v->count);
    const unsigned char *at = v->data;
    for (*count = 0; (uint64_t)*count < v->count; ++*count) (*out)[*count] = text_of(gguf_next_text(&at));
    return 0;
}

/* An array with a number for each token; NULL where it is absent. */
static int find_numbers(const struct gguf *g, const char *key, enum gguf_type type, int32_t count,
                        const struct gguf_value **out) {
    TRY(gguf_get_array(g, key, type, out));
    if (!*out || (*out)->count == (uint64_t)count) return 0;
    return err_set(ERR_FORMAT, "%s: key '%s' holds %llu numbers, expected one for each of %d tokens", gguf_path(g), key,
                   (unsigned long long)(*out)->count, count);
}

/* Where the file says nothing, tokens are normal. */
static int read_kinds(const struct gguf *g, int32_t count, struct tokens *t) {
    const struct gguf_value *v;
    TRY(find_numbers(g, "tokenizer.ggml.token_type", GGUF_I32, count, &v));
    t->kinds = memory_resize(NULL, ((size_t)count + 1) * sizeof *t->kinds);
    for (int32_t i = 0; i < count; i++) {
        const bool is_marker = find_marker(t->texts[i].text, t->texts[i].n) >= 0;
        t->kinds[i] = is_marker ? TOKEN_KIND_CONTROL : v ? (int32_t)gguf_int_at(v, (uint64_t)i) : TOKEN_KIND_NORMAL;
    }
    return 0;
}

static int read_scores(const struct gguf *g, int32_t count, struct tokens *t) {
    const struct gguf_value *v;
    TRY(find_numbers(g, "tokenizer.ggml.scores", GGUF_F32, count, &v));
    if (!v) return err_set(ERR_FORMAT, "%s: key 'tokenizer.ggml.scores' is missing", gguf_path(g));
    t->scores = memory_resize(NULL, ((size_t)count + 1) * sizeof *t->scores);
    for (int32_t i = 0; i < count; i++) t->scores[i] = (float)gguf_number_at(v, (uint64_t)i);
    return 0;
}

/* -1 where it is absent, or stands for none. */
static int read_id(const struct gguf *g, const char *key, int32_t count, int32_t *out) {
    int64_t id;
    TRY(gguf_get_int(g, key, -1, 0, UINT32_MAX, &id));
    *out = id == UINT32_MAX ? -1 : id < count ? (int32_t)id : INT32_MAX;
    return 0;
}

/* The special tokens around a text; sentencepiece has the first where the file does not say whether. */
static int read_around(const struct gguf *g, struct token_list *list) {
    bool has_first, has_last;
    TRY(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", list->scores || tokenizer_pre_has_first(list->pre),
                      &has_first));
    has_first |= list->marks_spaces; /* Gemma 4, many of whose files say otherwise */
    TRY(gguf_get_bool(g, "tokenizer.ggml.add_eos_token", false, &has_last));
    list->first = list->last = -1;
    if (has_first) TRY(read_id(g, "tokenizer.ggml.bos_token_id", list->count, &list->first));
    if (has_last) TRY(read_id(g, "tokenizer.ggml.eos_token_id", list->count, &list->last));
    return read_id(g, "tokenizer.ggml.unknown_token_id", list->count, &list->unknown);
}

/* What merges by a list, in an alphabet of bytes or of texts; or by scores. */
enum dialect { BYTE_LEVEL, MARKED_MERGES, SENTENCEPIECE };

static int read_tokens(const struct gguf *g, enum dialect dialect, struct tokens *t, struct token_list *list) {
    const bool is_sentencepiece = dialect == SENTENCEPIECE;
    struct gguf_text pre;
    TRY(read_texts(g, "tokenizer.ggml.tokens", &t->texts, &list->count));
    if (list->count == 0)
        return err_set(ERR_FORMAT, "%s: key 'tokenizer.ggml.tokens' is missing or empty", gguf_path(g));
    TRY(read_kinds(g, list->count, t));
    if (is_sentencepiece)
        TRY(read_scores(g, list->count, t));
    else
        TRY(read_texts(g, "tokenizer.ggml.merges", &t->merges, &list->merge_count));
    TRY(gguf_get_text(g, "tokenizer.ggml.pre", &pre));
    TRY(gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", is_sentencepiece, &list->space_prefix));
    list->tokens = t->texts, list->kinds = t->kinds, list->scores = t->scores, list->merges = t->merges;
    list->pre = text_of(pre), list->marks_spaces = dialect == MARKED_MERGES;
    return read_around(g, list);
}

static int create_tokenizer(const struct gguf *g, enum dialect dialect, struct tokenizer **out) {
    struct tokens t = {0};
    struct token_list list = {0};
    int rc = read_tokens(g, dialect, &t, &list);
    if (rc == 0) {
        rc = tokenizer_create(out, &list);
        if (rc != 0) err_prefix(rc, "%s: tokenizer.ggml", gguf_path(g));
    }
    tokens_free(&t);
    return rc;
}

/* The name of its kind; empty where there is none. */
static int read_model(const struct gguf *g, struct gguf_text *model) {
    TRY(gguf_get_text(g, "tokenizer.ggml.model", model));
    if (gguf_is_text(*model, "none") || gguf_is_text(*model, "no_vocab")) *model = (struct gguf_text){0};
    return 0;
}

bool gguf_model_has_tokenizer(const struct gguf *g) {
    struct gguf_text model;
    return read_model(g, &model) != 0 || model.bytes; /* what is wrong with it, reading it says */
}

int gguf_model_tokenizer(const struct gguf *g, struct tokenizer **out) {
    struct gguf_text model;
    *out = NULL;
    TRY(read_model(g, &model));
    if (!model.bytes) return 0;
    static const char *const names[] = {[BYTE_LEVEL] = "gpt2", [MARKED_MERGES] = "gemma4", [SENTENCEPIECE] = "llama"};
    for (int d = 0; d < 3; d++)
        if (gguf_is_text(model, names[d])) return create_tokenizer(g, (enum dialect)d, out);
    return err_set(ERR_UNSUPPORTED, "%s: tokenizer '%.*s' is not supported (known: llama, gpt2, gemma4)", gguf_path(g),
                   model.n < 60 ? (int)model.n : 60, model.bytes);
}

/* --- ends of answers --------------------------------------------------------------------------------------------------- */

static int find_markers(const struct gguf *g, int32_t found[MARKERS]) {
    const struct gguf_value *texts;
    TRY(gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &texts));
    const uint64_t count = texts ? texts->count : 0;
    const unsigned char *at = count ? texts->data : NULL;
    for (int m = 0; m < MARKERS; m++) found[m] = -1;
    for (uint64_t id = 0; id < count && id <= INT32_MAX; id++) {
        const struct gguf_text text = gguf_next_text(&at);
        const int m = find_marker(text.bytes, text.n);
        if (m >= 0 && found[m] < 0) found[m] = (int32_t)id;
    }
    return 0;
}

static void push_end(struct ids *out, int64_t id) {
    if (id >= 0 && id <= INT32_MAX) ids_push(out, (int32_t)id);
}

int gguf_model_end_ids(const struct gguf *g, struct ids *out) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int32_t found[MARKERS];
    for (int i = 0; i < 3; i++) {
        int64_t id;
        TRY(gguf_get_int(g, keys[i], -1, 0, UINT32_MAX, &id));
        push_end(out, id);
    }
    TRY(find_markers(g, found));
    if (found[RETURN] >= 0 && found[CALL] >= 0) found[END] = -1; /* of a message within an answer (gpt-oss) */
    for (int m = 0; m < MARKERS; m++) push_end(out, found[m]);
    return 0;
}

/* --- the chat template ---------------------------------------------------------------------------------------------- */

/* A special token's text, as tokenizer_config.json has it. */
static int put_token(const struct gguf *g, const char *member, const char *key, struct buf *json) {
    const struct gguf_value *v;
    int32_t id;
    TRY(gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &v));
    TRY(read_id(g, key, v && v->count < INT32_MAX ? (int32_t)v->count : 0, &id));
    if (!v || id < 0 || id == INT32_MAX) return 0;
    const unsigned char *at = v->data;
    struct gguf_text text = gguf_next_text(&at);
    for (int32_t i = 0; i < id; i++) text = gguf_next_text(&at);
    json_put_name(json, member);
    json_put_string(json, text.bytes, text.n);
    return 0;
}

static int put_source(const struct gguf *g, struct buf *json) {
    struct gguf_text source;
    TRY(gguf_get_text(g, "tokenizer.chat_template", &source));
    buf_putc(json, '{');
    if (source.bytes) {
        json_put_name(json, "chat_template");
        json_put_string(json, source.bytes, source.n);
    }
    TRY(put_token(g, "bos_token", "tokenizer.ggml.bos_token_id", json));
    TRY(put_token(g, "eos_token", "tokenizer.ggml.eos_token_id", json));
    buf_putc(json, '}');
    return 0;
}

int gguf_model_chat_template(const struct gguf *g, const char *name, struct chat_template **out) {
    struct buf json = {0};
    *out = NULL;
    int rc = put_source(g, &json);
    if (rc == 0)
        rc = chat_template_load(out, name,
                                &(struct chat_source){.config = gguf_path(g), .config_text = buf_text(&json)});
    buf_free(&json);
    return rc;
}
