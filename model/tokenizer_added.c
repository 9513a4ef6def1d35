/* Added tokens in the text: at the leftmost place the longest one, found among the sorted strings byte by byte. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_internal.h"

/* --- the set ---------------------------------------------------------------------------------------------- */

int added_set_add(struct added_set *set, const char *text, size_t n, const struct added_token *token) {
    if (n == 0) return 0;
    if (set->count == set->cap) {
        int cap = set->cap ? 2 * set->cap : 64;
        struct added_token *tokens = realloc(set->tokens, (size_t)cap * sizeof *tokens);
        if (!tokens) return err_set(ERR_MEMORY, "no memory for the added tokens");
        set->tokens = tokens;
        set->cap = cap;
    }
    struct added_token *added = &set->tokens[set->count++];
    *added = *token;
    added->offset = set->text.len;
    added->len = n;
    buf_append(&set->text, text, n);
    return 0;
}

/* By string; of equal ones the first that was added. */
static int compare_tokens(const void *left, const void *right, void *base) {
    const struct added_token *a = left, *b = right;
    const char *text = base;
    int by_bytes = memcmp(text + a->offset, text + b->offset, a->len < b->len ? a->len : b->len);
    if (by_bytes != 0) return by_bytes;
    if (a->len != b->len) return a->len < b->len ? -1 : 1;
    return a->offset < b->offset ? -1 : 1;
}

static bool has_equal_strings(const struct added_set *set, const struct added_token *a, const struct added_token *b) {
    return a->len == b->len && memcmp(set->text.data + a->offset, set->text.data + b->offset, a->len) == 0;
}

void added_set_finish(struct added_set *set) {
    if (set->count == 0) return;
    qsort_r(set->tokens, (size_t)set->count, sizeof *set->tokens, compare_tokens, set->text.data);
    int kept = 0;
    for (int i = 0; i < set->count; i++) {
        if (kept > 0 && has_equal_strings(set, &set->tokens[kept - 1], &set->tokens[i])) continue;
        set->first[(unsigned char)set->text.data[set->tokens[i].offset] + 1]++;
        set->tokens[kept++] = set->tokens[i];
    }
    set->count = kept;
    for (int byte = 0; byte < 256; byte++) set->first[byte + 1] += set->first[byte];
}

void added_set_free(struct added_set *set) {
    buf_free(&set->text);
    free(set->tokens);
    *set = (struct added_set){0};
}

/* --- looking for them ------------------------------------------------------------------------------------- */

/* The first of tokens [low, high) whose byte `at` is `byte` or above; they are sorted by it. */
static int first_from(const struct added_set *set, int low, int high, size_t at, int byte) {
    while (low < high) {
        int middle = low + (high - low) / 2;
        if ((unsigned char)set->text.data[set->tokens[middle].offset + at] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token that begins at text; NULL if none does. *seen = bytes that were looked at. */
static const struct added_token *longest(const struct added_set *set, const char *text, size_t n, size_t *seen) {
    const struct added_token *found = NULL;
    int low = set->first[(unsigned char)text[0]], high = set->first[(unsigned char)text[0] + 1];
    size_t at = 1;
    while (low < high) { /* tokens [low, high) begin with text[0, at) */
        if (set->tokens[low].len == at) found = &set->tokens[low++];
        if (at == n) break;
        int byte = (unsigned char)text[at];
        low = first_from(set, low, high, at, byte);
        high = first_from(set, low, high, at, byte + 1);
        at++;
    }
    *seen = at;
    return found;
}

/* The first place from `at` where a byte begins a token. */
static size_t skip_ordinary(const struct added_set *set, const char *text, size_t n, size_t at) {
    while (at < n && set->first[(unsigned char)text[at]] == set->first[(unsigned char)text[at] + 1]) at++;
    return at;
}

static bool stands_alone(const char *text, size_t n, size_t begin, size_t end) {
    uint32_t next = 0;
    if (begin > 0 && unicode_is_word(unicode_last(text, begin))) return false;
    return end == n || utf8_decode(text + end, n - end, &next) == 0 || !unicode_is_word(next);
}

int added_split(struct encoder *e, const struct added_set *set, const char *text, size_t n, bool first,
                piece_function piece) {
    static const char too_long[] = "looking for the added tokens takes too long on this text";
    size_t done = 0, at = 0;
    while (set->count > 0 && (at = skip_ordinary(set, text, n, at)) < n) {
        size_t seen;
        const struct added_token *token = longest(set, text + at, n - at, &seen);
        TRY(work_charge(&e->work, seen, too_long));
        if (!token) {
            at++;
            continue;
        }
        size_t begin = at, end = at + token->len;
        at = end;
        if (token->single_word && !stands_alone(text, n, begin, end)) continue;
        /* What was taken before is not looked at again: a run of white space that is tokens itself stays linear. */
        if (token->lstrip && begin > done) begin -= unicode_trailing_spaces(text + done, begin - done);
        if (token->rstrip) end = end < done ? done : end + unicode_leading_spaces(text + end, n - end);
        if (begin > done) TRY(piece(e, text + done, begin - done, first && done == 0));
        ids_push(e->out, token->id);
        if (end > done) done = end;
    }
    return done < n ? piece(e, text + done, n - done, first && done == 0) : 0;
}
