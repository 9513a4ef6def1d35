/* Byte-pair encoding of one word: symbols in a linked list, candidate merges in a heap (lowest rank first, then
 * leftmost), so that a word of n characters takes O(n log n). */
#include <stdlib.h>
#include <string.h>

#include "model/text/tokenizer_internal.h"

static int reserve(void **data, size_t *cap, size_t count, size_t bytes_each) {
    if (count <= *cap) return 0;
    size_t wanted = *cap ? *cap : 64;
    while (wanted < count) wanted *= 2;
    void *grown = realloc(*data, wanted * bytes_each);
    if (!grown) return err_set(ERR_MEMORY, "no memory for encoding a word of %zu symbols", count);
    *data = grown;
    *cap = wanted;
    return 0;
}

static void add_symbol(struct encoder *e, int32_t id) {
    int32_t at = (int32_t)e->symbol_count++;
    e->symbols[at] = (struct symbol){id, at - 1, at + 1};
}

/* The bytes of a character as <0xNN> tokens; false if the vocabulary lacks one of them. */
static bool add_bytes(struct encoder *e, const char *text, int length) {
    const int32_t *byte_ids = e->tokenizer->byte_ids;
    for (int i = 0; i < length; i++)
        if (byte_ids[(unsigned char)text[i]] < 0) return false;
    for (int i = 0; i < length; i++) add_symbol(e, byte_ids[(unsigned char)text[i]]);
    return true;
}

/* One symbol a character. An unknown character waits in `unknown` until a known one follows, so that a run of them can
 * become one symbol; bytes do not end the wait. */
static void add_characters(struct encoder *e, const char *word, size_t n) {
    const struct tokenizer *t = e->tokenizer;
    bool unknown = false;
    for (size_t at = 0; at < n;) {
        uint32_t c;
        int length = utf8_decode(word + at, n - at, &c);
        int32_t id = c < DIRECT_CODE_POINTS ? t->direct[c] : vocab_find_model(&t->vocab, word + at, (size_t)length);
        if (id >= 0) {
            if (unknown) add_symbol(e, t->unk);
            unknown = false;
            add_symbol(e, id);
        } else if (!(t->byte_fallback && add_bytes(e, word + at, length)) && t->unk >= 0) {
            if (unknown && !t->fuse_unk) add_symbol(e, t->unk);
            unknown = true;
        }
        at += (size_t)length;
    }
    if (unknown) add_symbol(e, t->unk);
}

static bool is_before(const struct candidate *a, const struct candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static int heap_push(struct encoder *e, struct candidate c) {
    TRY(reserve((void **)&e->heap, &e->heap_cap, e->heap_count + 1, sizeof *e->heap));
    size_t i = e->heap_count++;
    while (i > 0 && is_before(&c, &e->heap[(i - 1) / 2])) {
        e->heap[i] = e->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    e->heap[i] = c;
    return 0;
}

static struct candidate heap_pop(struct encoder *e) {
    struct candidate top = e->heap[0], moved = e->heap[--e->heap_count];
    size_t i = 0, n = e->heap_count;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && is_before(&e->heap[child + 1], &e->heap[child])) child++;
        if (!is_before(&e->heap[child], &moved)) break;
        e->heap[i] = e->heap[child];
        i = child;
    }
    e->heap[i] = moved;
    return top;
}

static const struct merge *merge_at(const struct encoder *e, int32_t at) {
    int32_t next = e->symbols[at].next;
    if ((size_t)next >= e->symbol_count) return NULL;
    return merges_find(&e->tokenizer->merges, e->symbols[at].id, e->symbols[next].id);
}

/* Text of a message makes no special token. */
static bool is_guarded(const struct encoder *e, int32_t id) {
    return e->guarded && (e->tokenizer->vocab.tokens[id].flags & TOKEN_SPECIAL);
}

static int push_merge(struct encoder *e, int32_t at) {
    const struct merge *m = at >= 0 ? merge_at(e, at) : NULL;
    return m && !is_guarded(e, m->id) ? heap_push(e, (struct candidate){m->rank, at, m->id}) : 0;
}

enum { PASS_EACH = 1024 };

static int merge_symbols(struct encoder *e) {
    e->heap_count = 0;
    for (size_t at = 0; at + 1 < e->symbol_count; at++) TRY(push_merge(e, (int32_t)at));
    for (size_t turn = 1; e->heap_count > 0; turn++) {
        if (turn % PASS_EACH == 0) TRY(work_pass(&e->work, PASS_EACH));
        struct candidate c = heap_pop(e);
        struct symbol *left = &e->symbols[c.at];
        if (left->id < 0) continue;
        /* An outdated candidate still stands if what is there now merges into the same token. */
        const struct merge *m = merge_at(e, c.at);
        if (!m || m->id != c.id) continue;
        struct symbol *right = &e->symbols[left->next];
        left->id = c.id;
        left->next = right->next;
        right->id = -1;
        if ((size_t)left->next < e->symbol_count) e->symbols[left->next].previous = c.at;
        TRY(push_merge(e, left->previous));
        TRY(push_merge(e, c.at));
    }
    return 0;
}

static int encode_part(struct encoder *e, const char *word, size_t n) {
    if (n > INT32_MAX) return err_set(ERR_LIMIT, "a word of %zu bytes is too long to encode", n);
    e->symbol_count = 0;
    TRY(reserve((void **)&e->symbols, &e->symbol_cap, n, sizeof *e->symbols));
    add_characters(e, word, n);
    TRY(merge_symbols(e));
    for (size_t at = 0; at < e->symbol_count; at = (size_t)e->symbols[at].next) ids_push(e->out, e->symbols[at].id);
    return 0;
}

static size_t skip_marks(const char *text, size_t n) {
    size_t at = 0;
    while (n - at >= SPACE_MARK_BYTES && memcmp(text + at, SPACE_MARK, SPACE_MARK_BYTES) == 0) at += SPACE_MARK_BYTES;
    return at;
}

bool bpe_has_inner_mark(const char *text, size_t n) {
    size_t at = skip_marks(text, n);
    return memmem(text + at, n - at, SPACE_MARK, SPACE_MARK_BYTES) != NULL;
}

int bpe_encode(struct encoder *e, const char *word, size_t n) {
    const struct tokenizer *t = e->tokenizer;
    int32_t whole = t->ignore_merges ? vocab_find_model(&t->vocab, word, n) : -1;
    if (whole >= 0 && !is_guarded(e, whole)) {
        ids_push(e->out, whole);
        return 0;
    }
    while (n > 0) {
        size_t length = n;
        if (t->cut_at_marks) {
            size_t at = skip_marks(word, n);
            const char *next = memmem(word + at, n - at, SPACE_MARK, SPACE_MARK_BYTES);
            if (next) length = (size_t)(next - word);
        }
        TRY(encode_part(e, word, length));
        word += length;
        n -= length;
    }
    return 0;
}
