/* tokenizer.json: the decoder. */
#include <stdlib.h>
#include <string.h>

#include "model/text/tokenizer_internal.h"

/* Steps that see whole tokens cannot stand behind one that fuses them. */
static int refuse_fused(const struct decoder_step *step, const char *type) {
    return step->fused ? err_set(ERR_UNSUPPORTED, "%s after Fuse or ByteLevel is not supported", type) : 0;
}

/* borders[k]: length of the longest beginning of the pattern that is an end of its first k bytes, all of them aside. */
static int find_borders(struct decoder_step *step) {
    const struct buf *wanted = &step->pattern.literal;
    size_t border = 0;
    step->borders = calloc(wanted->len + 1, sizeof *step->borders);
    if (!step->borders) return err_set(ERR_MEMORY, "no memory for a pattern of %zu bytes", wanted->len);
    for (size_t k = 1; k < wanted->len; k++) {
        while (border > 0 && wanted->data[border] != wanted->data[k]) border = step->borders[border];
        if (wanted->data[border] == wanted->data[k]) border++;
        step->borders[k + 1] = border;
    }
    return 0;
}

static int read_replace(const cJSON *item, struct decoder_step *step) {
    step->kind = DECODE_REPLACE;
    TRY(pattern_from_json(&step->pattern, item));
    if (step->pattern.code) TRY(refuse_fused(step, "Replace with a regex"));
    if (step->fused) TRY(find_borders(step));
    return tokenizer_read_text(item, "content", &step->content);
}

static int read_strip(const cJSON *item, struct decoder_step *step) {
    step->kind = DECODE_STRIP;
    TRY(tokenizer_read_text(item, "content", &step->content));
    uint32_t c;
    const struct buf *mark = &step->content;
    if (mark->len == 0 || (size_t)utf8_decode(mark->data, mark->len, &c) != mark->len)
        return err_set(ERR_FORMAT, "Strip's 'content' is not one character");
    TRY(json_get_int(item, "start", 0, 0, INT32_MAX, &step->start));
    return json_get_int(item, "stop", 0, 0, INT32_MAX, &step->stop);
}

static int read_metaspace(const cJSON *item, struct decoder_step *step) {
    enum prepend_scheme scheme;
    step->kind = DECODE_METASPACE;
    TRY(tokenizer_read_prepend_scheme(item, &scheme));
    step->drop_first = scheme != PREPEND_NEVER;
    TRY(tokenizer_read_text(item, "replacement", &step->pattern.literal));
    return step->pattern.literal.len > 0 ? 0 : err_set(ERR_FORMAT, "'replacement' is not one character");
}

static int read_step(const cJSON *item, const char *type, struct decoder_step *step) {
    if (strcmp(type, "Replace") == 0) return read_replace(item, step);
    if (strcmp(type, "Strip") == 0) return read_strip(item, step);
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(item, step);
    if (strcmp(type, "Fuse") == 0) {
        step->kind = DECODE_FUSE;
        return 0;
    }
    if (strcmp(type, "ByteFallback") == 0) {
        step->kind = DECODE_BYTE_FALLBACK;
        return refuse_fused(step, type);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        step->kind = DECODE_BYTE_LEVEL;
        return refuse_fused(step, type);
    }
    return err_set(ERR_UNSUPPORTED, "type '%s' is not supported", type);
}

static int load_one(struct tokenizer *t, const cJSON *item, const char *type) {
    if (t->decoder_count == STEPS_MAX) return err_set(ERR_LIMIT, "more than %d steps", STEPS_MAX);
    struct decoder_step *step = &t->decoder[t->decoder_count];
    const struct decoder_step *before = t->decoder_count > 0 ? step - 1 : NULL;
    step->fused = before && (before->fused || before->kind == DECODE_FUSE || before->kind == DECODE_BYTE_LEVEL);
    t->decoder_count++;
    return read_step(item, type, step);
}

int tokenizer_read_decoder(struct tokenizer *t, const cJSON *item) {
    t->has_decoder = item != NULL;
    int rc = tokenizer_read_steps(t, item, "decoders", load_one);
    return rc == 0 ? 0 : err_prefix(rc, "decoder");
}
