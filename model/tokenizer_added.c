/* Added tokens in the text: at the leftmost place the longest one, found by walking a trie of bytes. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_internal.h"

static int32_t trie_child(const struct added_set *set, int32_t node, unsigned char byte) {
    int32_t child = set->nodes[node].child;
    while (child && set->nodes[child].byte != byte) child = set->nodes[child].sibling;
    return child;
}

static int trie_push(struct added_set *set, unsigned char byte, int32_t sibling) {
    if (set->node_count == set->node_cap) {
        int cap = set->node_cap ? 2 * set->node_cap : 64;
        struct trie_node *nodes = realloc(set->nodes, (size_t)cap * sizeof *nodes);
        if (!nodes) return err_set(ERR_MEMORY, "no memory for the added tokens");
        set->nodes = nodes;
        set->node_cap = cap;
    }
    set->nodes[set->node_count++] = (struct trie_node){0, sibling, -1, byte};
    return 0;
}

int added_set_add(struct added_set *set, const char *text, size_t n, const struct added_token *token) {
    if (n == 0) return 0;
    if (set->node_count == 0) TRY(trie_push(set, 0, 0));
    int32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)text[i];
        int32_t child = trie_child(set, node, byte);
        if (!child) {
            TRY(trie_push(set, byte, set->nodes[node].child));
            child = set->nodes[node].child = set->node_count - 1;
        }
        node = child;
    }
    struct added_token *tokens = realloc(set->tokens, ((size_t)set->count + 1) * sizeof *tokens);
    if (!tokens) return err_set(ERR_MEMORY, "no memory for the added tokens");
    set->tokens = tokens;
    set->tokens[set->count] = *token;
    if (set->nodes[node].token < 0) set->nodes[node].token = set->count;
    set->count++;
    return 0;
}

void added_set_free(struct added_set *set) {
    free(set->tokens);
    free(set->nodes);
    *set = (struct added_set){0};
}

/* The longest token that begins at text; NULL if none does. */
static const struct added_token *longest(const struct added_set *set, const char *text, size_t n, size_t *length) {
    const struct added_token *found = NULL;
    int32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        node = trie_child(set, node, (unsigned char)text[i]);
        if (!node) break;
        if (set->nodes[node].token < 0) continue;
        found = &set->tokens[set->nodes[node].token];
        *length = i + 1;
    }
    return found;
}

static bool stands_alone(const char *text, size_t n, size_t begin, size_t end) {
    uint32_t next = 0;
    if (begin > 0 && unicode_is_word(unicode_last(text, begin))) return false;
    return end == n || utf8_decode(text + end, n - end, &next) == 0 || !unicode_is_word(next);
}

int added_split(struct encoder *e, const struct added_set *set, const char *text, size_t n, bool first,
                piece_function piece) {
    size_t done = 0, at = 0;
    while (set->count > 0 && at < n) {
        size_t length = 0;
        const struct added_token *token = longest(set, text + at, n - at, &length);
        if (!token) {
            at++;
            continue;
        }
        size_t begin = at, end = at + length;
        at = end;
        if (token->single_word && !stands_alone(text, n, begin, end)) continue;
        if (token->lstrip) begin -= unicode_trailing_spaces(text, begin);
        if (token->rstrip) end += unicode_leading_spaces(text + end, n - end);
        if (begin > done) TRY(piece(e, text + done, begin - done, first && done == 0));
        ids_push(e->out, token->id);
        if (end > done) done = end;
    }
    return done < n ? piece(e, text + done, n - done, first && done == 0) : 0;
}
