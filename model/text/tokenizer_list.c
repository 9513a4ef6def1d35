/* A tokenizer of a list of tokens, as GGUF files have it: the two dialects of tokenizer.json, made from what those files say. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/text/tokenizer_internal.h"

enum { PIECE_BYTES_MAX = 1024 }; /* of a token that merging makes: every place in it is looked at */

static enum token_kind kind_of(const struct token_list *l, int32_t id) {
    return l->kinds ? (enum token_kind)l->kinds[id] : TOKEN_KIND_NORMAL;
}

/* --- pre-tokenizers by llama.cpp's names ---------------------------------------------------------------------------- */

/* Spaces, letters, digits and what else words are made of, as the tokenizers have it that these names stand for. */
#define CONTRACTION  "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LETTERS      "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end)   "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end
#define SPACES       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define OTHERS(more) " ?[^\\s\\p{L}\\p{N}]+[\\r\\n" more "]*|" SPACES
#define HAN_AND_KANA "[\u4E00-\u9FA5\u3040-\u30FF]+"
#define PUNCTUATED                                          \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" \
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"          \
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES

static const struct pre {
    const char *names;      /* with a blank around each */
    const char *regex[3];   /* one after the other; none: that of the byte level alone */
    bool splits_words;      /* by the byte level's own regex */
    bool ignore_merges;     /* a word that is a token is taken as it is */
    bool has_first, is_nfc; /* a special token before a text; a normaliser */
} pres[] = {
    {.names = " gpt-2 phi-2 mpt olmo jais exaone4 mellum trillion a.x-4.0 ", .splits_words = true},
    {.names = " smollm starcoder refact codeshell command-r exaone minerva-7b ",
     .regex = {"\\p{N}"},
     .splits_words = true},
    {.names = " llama-bpe llama3 llama-v3 falcon3 pixtral lfm2 ",
     .regex = {CONTRACTION "|" LETTERS "|\\p{N}{1,3}|" OTHERS("")},
     .ignore_merges = true,
     .has_first = true},
    {.names = " dbrx smaug-bpe glm4 chatglm-bpe ", .regex = {CONTRACTION "|" LETTERS "|\\p{N}{1,3}|" OTHERS("")}},
    {.names = " qwen35 ",
     .regex = {CONTRACTION
               "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES},
     .is_nfc = true},
    {.names = " qwen2 ", .regex = {CONTRACTION "|" LETTERS "|\\p{N}|" OTHERS("")}, .is_nfc = true},
    {.names = " deepseek-r1-qwen megrez kormo stablelm2 ", .regex = {CONTRACTION "|" LETTERS "|\\p{N}|" OTHERS("")}},
    {.names = " seed-coder ", .regex = {CONTRACTION "|" LETTERS "|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES}},
    {.names = " hunyuan-dense ", .regex = {"\\p{N}{1,3}", HAN_AND_KANA, PUNCTUATED}},
    {.names = " gpt-4o llama4 ", .regex = {CASED(CONTRACTION "?") "|\\p{N}{1,3}|" OTHERS("/")}},
    {.names = " tekken ", .regex = {CASED("") "|\\p{N}|" OTHERS("/")}, .ignore_merges = true, .has_first = true},
};
enum { PRES = sizeof pres / sizeof *pres };

static const struct pre *find_pre(struct token_text name) {
    char wanted[64] = " ";
    if (name.n == 0 || name.n > sizeof wanted - 3 || memchr(name.text, ' ', name.n)) return NULL;
    memcpy(wanted + 1, name.text, name.n);
    memcpy(wanted + 1 + name.n, " ", 2);
    for (int i = 0; i < PRES; i++)
        if (strstr(pres[i].names, wanted)) return &pres[i];
    return NULL;
}

bool tokenizer_pre_has_first(struct token_text name) {
    const struct pre *pre = find_pre(name);
    return pre && pre->has_first;
}

static int refuse_pre(struct token_text name) {
    struct buf known = {0};
    for (int i = 0; i < PRES; i++) buf_printf(&known, "%.*s", (int)strlen(pres[i].names) - 1, pres[i].names);
    int rc = name.n == 0 ? err_set(ERR_UNSUPPORTED, "no pre-tokenizer is named (known:%s)", buf_text(&known))
                         : err_set(ERR_UNSUPPORTED, "pre-tokenizer '%.*s' is not supported (known:%s)",
                                   name.n < 60 ? (int)name.n : 60, name.text, buf_text(&known));
    buf_free(&known);
    return rc;
}

/* --- tokens --------------------------------------------------------------------------------------------------------- */

static bool is_byte_level(const struct token_list *l) {
    return !l->scores && !l->marks_spaces;
}

/* May the token come out of merging? In the byte-level dialect recognised tokens are text, not in its alphabet. */
static bool is_of_model(const struct token_list *l, int32_t id) {
    enum token_kind kind = kind_of(l, id);
    return kind == TOKEN_KIND_NORMAL || (!is_byte_level(l) && (kind == TOKEN_KIND_USER || kind == TOKEN_KIND_BYTE));
}

static int add_recognised(struct tokenizer *t, const struct token_text *text, int32_t id, bool special) {
    t->added_count++;
    return added_set_add(&t->added_raw, text->text, text->n, &(struct added_token){.id = id, .special = special});
}

static int add_token(struct tokenizer *t, const struct token_list *l, int32_t id) {
    const struct token_text *text = &l->tokens[id];
    const enum token_kind kind = kind_of(l, id);
    const bool special = kind == TOKEN_KIND_CONTROL || kind == TOKEN_KIND_UNKNOWN;
    if (!utf8_is_valid(text->text, text->n)) return err_set(ERR_FORMAT, "token %d is not valid UTF-8", id);
    if (kind == TOKEN_KIND_UNUSED) return 0; /* fills the numbering up */
    if (kind < TOKEN_KIND_NORMAL || kind > TOKEN_KIND_BYTE)
        return err_set(ERR_UNSUPPORTED, "token %d is of the unknown type %d", id, (int)kind);
    TRY(vocab_add(&t->vocab, text->text, text->n, id,
                  (uint8_t)((is_of_model(l, id) ? TOKEN_MODEL : 0) |
                            (special || kind == TOKEN_KIND_USER ? TOKEN_ADDED : 0) | (special ? TOKEN_SPECIAL : 0))));
    t->byte_fallback |= kind == TOKEN_KIND_BYTE;
    return special || kind == TOKEN_KIND_USER ? add_recognised(t, text, id, special) : 0;
}

static int add_tokens(struct tokenizer *t, const struct token_list *l) {
    TRY(vocab_create(&t->vocab, (size_t)l->count));
    for (int32_t id = 0; id < l->count; id++) TRY(add_token(t, l, id));
    added_set_finish(&t->added_raw);
    tokenizer_index_symbols(t);
    return 0;
}

static int add_around(const struct tokenizer *t, int32_t id, const char *what, struct ids *out) {
    if (id < 0) return 0;
    if (id >= t->vocab.size || !(t->vocab.tokens[id].flags & TOKEN_PRESENT))
        return err_set(ERR_FORMAT, "the %s token is %d, an id that the vocabulary lacks", what, id);
    ids_push(out, id);
    return 0;
}

/* --- merges --------------------------------------------------------------------------------------------------------- */

static int add_listed_merges(struct tokenizer *t, const struct token_list *l) {
    struct buf text = {0};
    TRY(merges_create(&t->merges, (size_t)l->merge_count));
    int rc = 0;
    for (int32_t i = 0; i < l->merge_count && rc == 0; i++) {
        const struct token_text *m = &l->merges[i];
        const char *space = m->n > 1 ? memchr(m->text + 1, ' ', m->n - 1) : NULL; /* a blank may be the left half */
        size_t cut = space ? (size_t)(space - m->text) : 0;
        if (!space) {
            rc = err_set(ERR_FORMAT, "merge %d is not a pair of tokens", i);
            continue;
        }
        buf_clear(&text);
        buf_append(&text, m->text, cut);
        buf_append(&text, space + 1, m->n - cut - 1);
        rc = tokenizer_add_merge(t, buf_text(&text), cut, text.len, i);
    }
    buf_free(&text);
    return rc;
}

/* By score, the highest first. */
static int compare_scores(const void *a, const void *b, void *scores) {
    const float x = ((const float *)scores)[*(const int32_t *)a], y = ((const float *)scores)[*(const int32_t *)b];
    return (x < y) - (x > y);
}

/* rank [count]: how many scores are higher. Equal scores have one rank, and the leftmost pair of them merges first. */
static int rank_scores(const struct token_list *l, int32_t *rank) {
    int32_t *order = memory_resize(NULL, ((size_t)l->count + 1) * sizeof *order);
    for (int32_t id = 0; id < l->count; id++) {
        order[id] = id;
        if (isfinite(l->scores[id])) continue;
        free(order);
        return err_set(ERR_FORMAT, "the score of token %d is not finite", id);
    }
    qsort_r(order, (size_t)l->count, sizeof *order, compare_scores, (void *)l->scores);
    for (int32_t i = 0; i < l->count; i++) {
        bool is_equal = i > 0 && l->scores[order[i]] == l->scores[order[i - 1]];
        rank[order[i]] = is_equal ? rank[order[i - 1]] : i;
    }
    free(order);
    return 0;
}

struct merge_list {
    struct merge *data;
    size_t count, cap;
};

static void push_merge(struct merge_list *m, int32_t left, int32_t right, int32_t rank, int32_t id) {
    if (m->count == m->cap) {
        m->cap = m->cap ? 2 * m->cap : 1024;
        m->data = memory_resize(m->data, m->cap * sizeof *m->data);
    }
    m->data[m->count++] = (struct merge){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, rank, id};
}

/* A pair merges wherever both halves and the whole are tokens. */
static int list_pairs(const struct tokenizer *t, const struct token_list *l, const int32_t *rank,
                      struct merge_list *out) {
    for (int32_t id = 0; id < l->count; id++) {
        const struct token_text *text = &l->tokens[id];
        if (!is_of_model(l, id) || kind_of(l, id) == TOKEN_KIND_BYTE) continue;
        if (text->n > PIECE_BYTES_MAX)
            return err_set(ERR_UNSUPPORTED, "token %d has %zu bytes, more than %d", id, text->n, PIECE_BYTES_MAX);
        for (size_t cut = 1; cut < text->n; cut++) {
            if (((unsigned char)text->text[cut] & 0xc0) == 0x80) continue; /* inside a character */
            int32_t left = vocab_find_model(&t->vocab, text->text, cut);
            int32_t right = left < 0 ? -1 : vocab_find_model(&t->vocab, text->text + cut, text->n - cut);
            if (right >= 0) push_merge(out, left, right, rank[id], id);
        }
    }
    return 0;
}

static int add_scored_merges(struct tokenizer *t, const struct token_list *l) {
    int32_t *rank = memory_resize(NULL, ((size_t)l->count + 1) * sizeof *rank);
    struct merge_list pairs = {0};
    int rc = rank_scores(l, rank);
    if (rc == 0) rc = list_pairs(t, l, rank, &pairs);
    if (rc == 0) rc = merges_create(&t->merges, pairs.count);
    for (size_t i = 0; i < pairs.count && rc == 0; i++) {
        const struct merge *m = &pairs.data[i];
        rc = merges_add(&t->merges, (int32_t)(m->pair >> 32), (int32_t)(uint32_t)m->pair, m->rank, m->id);
    }
    free(pairs.data);
    free(rank);
    return rc;
}

/* --- both dialects -------------------------------------------------------------------------------------------------- */

static int read_part(struct tokenizer *t, const char *json, int (*read)(struct tokenizer *, const cJSON *)) {
    cJSON *root;
    TRY(json_parse(&root, json, strlen(json)));
    int rc = read(t, root);
    cJSON_Delete(root);
    return rc;
}

static int read_byte_level(struct tokenizer *t, const struct token_list *l) {
    const struct pre *pre = find_pre(l->pre);
    if (!pre) return refuse_pre(l->pre);
    t->ignore_merges = pre->ignore_merges;
    if (pre->is_nfc) TRY(read_part(t, "{\"type\": \"NFC\"}", tokenizer_read_normalizer));
    for (int i = 0; i < 3 && pre->regex[i]; i++) TRY(tokenizer_add_split(t, pre->regex[i]));
    TRY(tokenizer_add_byte_level(t, pre->splits_words));
    TRY(read_part(t, "{\"type\": \"ByteLevel\"}", tokenizer_read_decoder));
    return add_listed_merges(t, l);
}

#define MARK_TO_SPACE "{\"type\": \"Replace\", \"pattern\": {\"String\": \"" SPACE_MARK "\"}, \"content\": \" \"}"
#define SPACE_TO_MARK "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" SPACE_MARK "\"}"
#define BYTES         "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}"

static int read_sentencepiece(struct tokenizer *t, const struct token_list *l) {
    static const char prefix[] = "{\"type\": \"Prepend\", \"prepend\": \"" SPACE_MARK "\"}";
    static const char decoder[] = "{\"type\": \"Sequence\", \"decoders\": [" MARK_TO_SPACE ", " BYTES "]}";
    static const char stripping[] = "{\"type\": \"Sequence\", \"decoders\": [" MARK_TO_SPACE ", " BYTES
                                    ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}";
    t->fuse_unk = true;
    if (l->space_prefix) TRY(read_part(t, prefix, tokenizer_read_normalizer));
    TRY(read_part(t, SPACE_TO_MARK, tokenizer_read_normalizer));
    TRY(read_part(t, l->space_prefix ? stripping : decoder, tokenizer_read_decoder));
    return l->scores ? add_scored_merges(t, l) : add_listed_merges(t, l);
}

int tokenizer_read_list(struct tokenizer *t, const struct token_list *l) {
    TRY(add_tokens(t, l));
    t->unk = l->unknown >= 0 && l->unknown < t->vocab.size ? l->unknown : -1;
    TRY(add_around(t, l->first, "first", &t->prefix));
    TRY(add_around(t, l->last, "last", &t->suffix));
    return is_byte_level(l) ? read_byte_level(t, l) : read_sentencepiece(t, l);
}
