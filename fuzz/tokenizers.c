#include "fuzz/tokenizers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define MARK "\xe2\x96\x81" /* U+2581 */

/* --- making tokenizer.json --------------------------------------------------------------------------------- */

struct recipe {
    const char *parts;  /* members of the object, but for the model */
    const char *model;  /* members of the model, but for its vocabulary and merges */
    const char *merges; /* pairs, "a b", with a '|' behind each */
    void (*base)(struct buf *vocab, int *next);
};

static void put_token(struct buf *vocab, int *next, const char *text, size_t n) {
    buf_puts(vocab, *next > 0 ? "," : "");
    json_put_string(vocab, text, n);
    buf_printf(vocab, ":%d", (*next)++);
}

/* The alphabet of byte-level tokens: a byte that is a printable character of Latin-1 stands for itself, the others are
 * U+0100, U+0101, ... in turn. */
static void base_of_bytes(struct buf *vocab, int *next) {
    uint32_t other = 0x100;
    char text[4];
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool shows = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
        put_token(vocab, next, text, (size_t)utf8_encode(shows ? byte : other++, text));
    }
}

static void base_of_pieces(struct buf *vocab, int *next) {
    char text[8];
    put_token(vocab, next, "<unk>", 5);
    put_token(vocab, next, "<s>", 3);
    put_token(vocab, next, "</s>", 4);
    for (int byte = 0; byte < 256; byte++)
        put_token(vocab, next, text, (size_t)snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte));
    put_token(vocab, next, MARK, 3);
    for (const char *c = "abcdehinorst.<>/0x\xc3\xa9"; *c; c += *c == '\xc3' ? 2 : 1)
        put_token(vocab, next, c, *c == '\xc3' ? 2 : 1);
}

static void base_of_words(struct buf *vocab, int *next) {
    put_token(vocab, next, "<unk>", 5);
    put_token(vocab, next, MARK, 3);
    for (const char *c = "abcdefghijklmnopqrstuvwxyz<>"; *c; c++) put_token(vocab, next, c, 1);
}

static void put_merges(const char *merges, struct buf *list, struct buf *vocab, int *next) {
    char text[32];
    for (const char *at = merges; *at;) {
        size_t n = strcspn(at, "|"), left = strcspn(at, " ");
        buf_printf(list, "%s\"%.*s\"", list->len > 0 ? "," : "", (int)n, at);
        snprintf(text, sizeof text, "%.*s%.*s", (int)left, at, (int)(n - left - 1), at + left + 1);
        put_token(vocab, next, text, strlen(text));
        at += n + 1;
    }
}

static struct tokenizer *make(const struct recipe *r) {
    struct buf json = {0}, vocab = {0}, merges = {0};
    struct tokenizer *t;
    int next = 0;
    r->base(&vocab, &next);
    put_merges(r->merges, &merges, &vocab, &next);
    buf_printf(&json, "{%s%s\"model\":{\"type\":\"BPE\"%s,\"vocab\":{%s},\"merges\":[%s]}}", r->parts,
               *r->parts ? "," : "", r->model, buf_text(&vocab), buf_text(&merges));
    fuzz_write("tokenizer.json", json.data, json.len);
    claim(checkpoint_tokenizer(fuzz_checkpoint(), &t) == 0, "%s", err_message());
    fuzz_remove("tokenizer.json");
    buf_free(&json);
    buf_free(&vocab);
    buf_free(&merges);
    return t;
}

/* --- the recipes --------------------------------------------------------------------------------------------- */

#define SPACE "\xc4\xa0" /* a space in the byte-level alphabet */

static const struct recipe recipes[TOKENIZERS] = {
    [TOKENIZER_BYTES] =
        {"\"added_tokens\":[{\"id\":400,\"content\":\"<|end|>\",\"special\":true,\"normalized\":false},"
         "{\"id\":402,\"content\":\"<|tool|>\",\"special\":false,\"normalized\":true},"
         "{\"id\":404,\"content\":\"<|channel|>\",\"special\":true},{\"id\":405,\"content\":\"<|message|>\","
         "\"special\":true}],"
         "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
         "\"(?i:'s|'t|'re)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
         "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"
         "\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\"},{\"type\":\"Digits\",\"individual_digits\":true},"
         "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},\"decoder\":{\"type\":"
         "\"ByteLevel\"}",
         ",\"ignore_merges\":true",
         "t h|h e|th e|i n|in g|" SPACE " t|" SPACE "t he|a n|1 2|" SPACE " " SPACE "|\xc3\x83 \xc2\xa9|",
         base_of_bytes},
    [TOKENIZER_PIECES] =
        {"\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},{\"id\":1,\"content\":\"<s>\","
         "\"special\":true},{\"id\":2,\"content\":\"</s>\",\"special\":true}],\"normalizer\":{\"type\":\"Sequence\","
         "\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" MARK
         "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":"
         "\" \"},\"content\":\"" MARK "\"}]},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
         "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
         "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1]}}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
         "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
         "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
         ",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true",
         "t h|th e|" MARK " the|i n|" MARK " " MARK "|e r|o n|s t|", base_of_pieces},
    [TOKENIZER_WORDS] =
        {"\"added_tokens\":[{\"id\":60,\"content\":\"<l>\",\"special\":true,\"lstrip\":true},"
         "{\"id\":61,\"content\":\"<r>\",\"special\":true,\"rstrip\":true},"
         "{\"id\":62,\"content\":\"<w>\",\"single_word\":true,\"normalized\":false},"
         "{\"id\":63,\"content\":\"<N>\",\"normalized\":true},{\"id\":64,\"content\":\"<end>\",\"special\":true}],"
         "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Lowercase\"},"
         "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[0-9]+\"},\"content\":\"n\"},"
         "{\"type\":\"Strip\",\"strip_left\":false}]},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK
         "\",\"prepend_scheme\":\"first\"},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
         "{\"SpecialToken\":{\"id\":\"b\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
         "{\"SpecialToken\":{\"id\":\"e\",\"type_id\":0}}],\"special_tokens\":{\"b\":{\"id\":\"b\",\"ids\":[60,61]},"
         "\"e\":{\"id\":\"e\",\"ids\":[64]}}},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK
         "\",\"prepend_scheme\":\"first\"}",
         ",\"unk_token\":\"<unk>\",\"fuse_unk\":true", "a b|ab c|t h|th e|" MARK " the|", base_of_words},
    [TOKENIZER_PLAIN] = {"", "", "a b|b c|a bc|", base_of_words},
};

const struct tokenizer *fixed_tokenizer(enum fixed_tokenizer which) {
    static struct tokenizer *loaded[TOKENIZERS];
    if (!loaded[which] && which == TOKENIZER_EMBEDDED)
        claim(tokenizer_load(&loaded[which], "assets/target/tokenizer.json") == 0, "%s", err_message());
    else if (!loaded[which])
        loaded[which] = make(&recipes[which]);
    return loaded[which];
}

bool fixed_tokenizer_is_lossless(enum fixed_tokenizer which) {
    return which <= TOKENIZER_PIECES;
}

/* --- invariants ------------------------------------------------------------------------------------------------ */

static void claim_ids_known(const struct tokenizer *t, const struct ids *ids, size_t first) {
    for (size_t i = first; i < ids->len; i++) {
        size_t n;
        int32_t id = ids->data[i];
        claim(id >= 0 && id < tokenizer_size(t), "id %d of %d", id, tokenizer_size(t));
        claim(tokenizer_token(t, id, &n), "id %d has no token", id);
    }
}

int claim_encoding(const struct tokenizer *t, const char *text, size_t n, bool special, struct ids *ids) {
    size_t before = ids->len;
    struct ids again = {0};
    const struct encode_options options = {.special = special};
    forget_error();
    int rc = tokenizer_encode(t, text, n, &options, ids);
    if (rc != 0) {
        claim_refusal(rc);
        claim(ids->len == before, "%zu ids in spite of: %s", ids->len - before, err_message());
        return rc;
    }
    claim_ids_known(t, ids, before);
    claim(tokenizer_encode(t, text, n, &options, &again) == 0, "%s", err_message());
    claim(again.len == ids->len - before, "%zu ids, then %zu", ids->len - before, again.len);
    for (size_t i = 0; i < again.len; i++) claim(again.data[i] == ids->data[before + i], "id %zu differs", i);
    ids_free(&again);
    return 0;
}

/* Two texts in turn: finishing makes ready for another. */
static void claim_streaming(const struct tokenizer *t, const struct ids *ids, bool skip_special,
                            const struct buf *whole) {
    struct detokenizer *d;
    struct buf text = {0};
    claim(detokenizer_create(t, skip_special, &d) == 0, "%s", err_message());
    for (int turn = 0; turn < 2; turn++) {
        buf_clear(&text);
        for (size_t i = 0; i < ids->len; i++) {
            size_t shown = text.len;
            claim(detokenizer_push(d, ids->data[i], &text) == 0, "%s", err_message());
            claim(utf8_is_valid(buf_text(&text) + shown, text.len - shown), "half a character behind id %zu", i);
        }
        claim(detokenizer_finish(d, &text) == 0, "%s", err_message());
        claim_same("streamed", text.data, text.len, whole->data, whole->len);
    }
    detokenizer_free(d);
    buf_free(&text);
}

static void claim_without_special(const struct tokenizer *t, const struct ids *ids, const struct buf *whole) {
    struct ids others = {0};
    struct buf text = {0};
    for (size_t i = 0; i < ids->len; i++)
        if (!tokenizer_is_special(t, ids->data[i])) ids_push(&others, ids->data[i]);
    claim(tokenizer_decode(t, others.data, others.len, false, &text) == 0, "%s", err_message());
    claim_same("without special tokens", text.data, text.len, whole->data, whole->len);
    ids_free(&others);
    buf_free(&text);
}

int claim_decoding(const struct tokenizer *t, const struct ids *ids, bool skip_special, struct buf *text) {
    forget_error();
    int rc = tokenizer_decode(t, ids->data, ids->len, skip_special, text);
    if (rc != 0) {
        claim_refusal(rc);
        return rc;
    }
    claim(utf8_is_valid(buf_text(text), text->len), "text that is not valid UTF-8");
    claim_streaming(t, ids, skip_special, text);
    if (skip_special) claim_without_special(t, ids, text);
    return 0;
}
