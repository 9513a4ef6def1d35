/* The map between strings and ids, and the table of merges: two hash tables with open addressing, at most half full.
 *
 * Entries lie at most PROBES_MAX slots behind where their hash says. Files that are not made to collide stay far below that
 * (some 70 for a million entries), and those that are cannot make every look-up walk through them. */
#include <stdlib.h>
#include <string.h>

#include "model/text/tokenizer_internal.h"

enum { PROBES_MAX = 512 };
#define NO_SLOT UINT32_MAX

static uint32_t mask_for(size_t entries) {
    uint32_t slots = 16;
    while (slots < 2 * entries) slots *= 2;
    return slots - 1;
}

/* FNV-1a, with the high bits folded in. */
static uint32_t hash_bytes(const char *text, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    return (uint32_t)(h ^ h >> 32);
}

static uint32_t hash_pair(uint64_t pair) {
    return (uint32_t)((pair * 0x9e3779b97f4a7c15u) >> 32);
}

int vocab_create(struct vocab *v, size_t strings) {
    if (strings > TOKEN_ID_LIMIT) return err_set(ERR_LIMIT, "%zu tokens, more than %d", strings, TOKEN_ID_LIMIT);
    v->slot_mask = mask_for(strings);
    v->slots = malloc(((size_t)v->slot_mask + 1) * sizeof *v->slots);
    if (!v->slots) return err_set(ERR_MEMORY, "no memory for %zu tokens", strings);
    memset(v->slots, 0xff, ((size_t)v->slot_mask + 1) * sizeof *v->slots);
    return 0;
}

void vocab_free(struct vocab *v) {
    buf_free(&v->text);
    free(v->tokens);
    free(v->slots);
    *v = (struct vocab){0};
}

/* The slot that holds the string, or the free one where it belongs, or NO_SLOT. */
static uint32_t vocab_slot(const struct vocab *v, const char *text, size_t n) {
    uint32_t at = hash_bytes(text, n) & v->slot_mask;
    for (int i = 0; i < PROBES_MAX; i++, at = (at + 1) & v->slot_mask) {
        int32_t id = v->slots[at];
        if (id < 0) return at;
        const struct token *t = &v->tokens[id];
        if (t->len == n && (n == 0 || memcmp(v->text.data + t->offset, text, n) == 0)) return at;
    }
    return NO_SLOT;
}

static int vocab_grow(struct vocab *v, int32_t size) {
    if (size > v->cap) {
        int32_t cap = v->cap ? v->cap : 512;
        while (cap < size) cap *= 2;
        struct token *tokens = realloc(v->tokens, (size_t)cap * sizeof *tokens);
        if (!tokens) return err_set(ERR_MEMORY, "no memory for %d tokens", cap);
        v->tokens = tokens;
        v->cap = cap;
    }
    while (v->size < size) v->tokens[v->size++] = (struct token){0};
    return 0;
}

int vocab_add(struct vocab *v, const char *text, size_t n, int64_t id, uint8_t flags) {
    int shown = n < 60 ? (int)n : 60;
    if (id < 0 || id >= TOKEN_ID_LIMIT)
        return err_set(ERR_FORMAT, "token '%.*s' has the id %lld, expected one below %d", shown, text, (long long)id,
                       TOKEN_ID_LIMIT);
    uint32_t slot = vocab_slot(v, text, n);
    if (slot == NO_SLOT)
        return err_set(ERR_UNSUPPORTED, "token '%.*s' has the hash of %d others", shown, text, PROBES_MAX);
    if (v->slots[slot] >= 0 && v->slots[slot] != id)
        return err_set(ERR_FORMAT, "token '%.*s' has two ids, %d and %lld", shown, text, v->slots[slot], (long long)id);
    TRY(vocab_grow(v, (int32_t)id + 1));
    struct token *t = &v->tokens[id];
    if (v->slots[slot] < 0) {
        if (t->flags & TOKEN_PRESENT)
            return err_set(ERR_FORMAT, "id %lld has two strings, '%.*s' and '%.*s'", (long long)id,
                           t->len < 60 ? (int)t->len : 60, v->text.data + t->offset, shown, text);
        *t = (struct token){.offset = (uint32_t)v->text.len, .len = (uint32_t)n};
        buf_append(&v->text, text, n);
        buf_putc(&v->text, '\0');
        v->slots[slot] = (int32_t)id;
    }
    t->flags |= TOKEN_PRESENT | flags;
    return 0;
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t n) {
    uint32_t slot = vocab_slot(v, text, n);
    return slot == NO_SLOT ? -1 : v->slots[slot];
}

int32_t vocab_find_model(const struct vocab *v, const char *text, size_t n) {
    int32_t id = vocab_find(v, text, n);
    return id >= 0 && (v->tokens[id].flags & TOKEN_MODEL) ? id : -1;
}

int merges_create(struct merges *m, size_t count) {
    if (count > 1u << 28) return err_set(ERR_LIMIT, "%zu merges, more than %u", count, 1u << 28);
    m->slot_mask = mask_for(count);
    m->slots = malloc(((size_t)m->slot_mask + 1) * sizeof *m->slots);
    if (!m->slots) return err_set(ERR_MEMORY, "no memory for %zu merges", count);
    for (size_t i = 0; i <= m->slot_mask; i++) m->slots[i].pair = MERGE_EMPTY;
    return 0;
}

void merges_free(struct merges *m) {
    free(m->slots);
    *m = (struct merges){0};
}

/* The slot that holds the pair, or the free one where it belongs, or NULL. */
static struct merge *merges_slot(const struct merges *m, uint64_t pair) {
    uint32_t at = hash_pair(pair) & m->slot_mask;
    for (int i = 0; i < PROBES_MAX; i++, at = (at + 1) & m->slot_mask)
        if (m->slots[at].pair == pair || m->slots[at].pair == MERGE_EMPTY) return &m->slots[at];
    return NULL;
}

static uint64_t pair_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

int merges_add(struct merges *m, int32_t left, int32_t right, int32_t rank, int32_t id) {
    struct merge *slot = merges_slot(m, pair_of(left, right));
    if (!slot) return err_set(ERR_UNSUPPORTED, "merge %d has the hash of %d others", rank, PROBES_MAX);
    if (slot->pair == MERGE_EMPTY) m->count++;
    *slot = (struct merge){pair_of(left, right), rank, id};
    return 0;
}

const struct merge *merges_find(const struct merges *m, int32_t left, int32_t right) {
    const struct merge *slot = merges_slot(m, pair_of(left, right));
    return !slot || slot->pair == MERGE_EMPTY ? NULL : slot;
}
