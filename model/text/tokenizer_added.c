/* Added tokens in the text: at the leftmost place the longest one, found among the sorted strings byte by byte. */
#include <stdlib.h>
#include <string.h>

#include "model/text/tokenizer_internal.h"

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
    if (n > set->longest) set->longest = n;
    set->has_special |= token->special;
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

/* The tokens that begin at a place, from the shortest to the longest. */
struct walk {
    const struct added_set *set;
    const char *text;
    size_t n, at;
    int low, high; /* tokens that begin with text[0, at), those of at bytes passed */
};

static struct walk walk_from(const struct added_set *set, const char *text, size_t n) {
    int byte = (unsigned char)text[0];
    return (struct walk){set, text, n, 1, set->first[byte], set->first[byte + 1]};
}

static const struct added_token *walk_next(struct walk *w) {
    const struct added_set *set = w->set;
    while (w->low < w->high) {
        if (set->tokens[w->low].len == w->at) return &set->tokens[w->low++];
        if (w->at == w->n) break;
        int byte = (unsigned char)w->text[w->at];
        w->low = first_from(set, w->low, w->high, w->at, byte);
        w->high = first_from(set, w->low, w->high, w->at, byte + 1);
        w->at++;
    }
    return NULL;
}

/* Bytes from `at` on, up to as many as a token can take, before the first plain one. */
static size_t bytes_before_plain(const struct added_set *set, const struct piece *p, size_t at) {
    size_t n = p->n - at < set->longest ? p->n - at : set->longest;
    const char *plain = p->plain ? memchr(p->plain + at, 1, n) : NULL;
    return plain ? (size_t)(plain - (p->plain + at)) : n;
}

/* Does a special token begin at `at` that takes no plain byte? */
static bool has_special(const struct added_set *set, const struct piece *p, size_t at, size_t *seen) {
    size_t n = bytes_before_plain(set, p, at);
    struct walk w = walk_from(set, p->text + at, n);
    const struct added_token *t = NULL;
    while (n > 0 && (t = walk_next(&w)) && !t->special) continue;
    *seen += w.at;
    return n > 0 && t;
}

/* The longest token that begins at `at` and that plain bytes do not forbid; NULL if there is none. *seen += bytes that were
 * looked at. */
static const struct added_token *longest(const struct added_set *set, const struct piece *p, size_t at, size_t *seen) {
    size_t free = bytes_before_plain(set, p, at), known = at;
    struct walk w = walk_from(set, p->text + at, p->n - at);
    const struct added_token *found = NULL;
    for (const struct added_token *t; (t = walk_next(&w));) {
        if (t->len > free) {
            if (t->special) continue;
            while (known < at + t->len && !has_special(set, p, known, seen)) known++;
            if (known < at + t->len) break; /* it would hide that one, and so would all longer ones */
        }
        found = t;
    }
    *seen += w.at;
    return found;
}

/* The first place from `at` where a byte begins a token. */
static size_t skip_ordinary(const struct added_set *set, const struct piece *p, size_t at) {
    const unsigned char *text = (const unsigned char *)p->text;
    while (at < p->n && set->first[text[at]] == set->first[text[at] + 1]) at++;
    return at;
}

/* A special token does not mind what a message has beside it. */
static bool stands_alone(const struct added_token *t, const struct piece *p, size_t begin, size_t end) {
    uint32_t next = 0;
    if (begin > 0 && !(t->special && piece_has_plain(p, begin - 1, begin)) &&
        unicode_is_word(unicode_last(p->text, begin)))
        return false;
    if (end == p->n || (t->special && piece_has_plain(p, end, end + 1))) return true;
    return utf8_decode(p->text + end, p->n - end, &next) == 0 || !unicode_is_word(next);
}

static int take_part(struct encoder *e, const struct piece *p, size_t begin, size_t end, piece_function take) {
    struct piece part = {p->text + begin, p->plain ? p->plain + begin : NULL, end - begin, p->first && begin == 0};
    return begin < end ? take(e, &part) : 0;
}

int added_split(struct encoder *e, const struct added_set *set, const struct piece *p, piece_function take) {
    static const char too_long[] = "looking for the added tokens takes too long on this text";
    size_t done = 0, at = 0;
    while (set->count > 0 && (at = skip_ordinary(set, p, at)) < p->n) {
        size_t seen = 0;
        const struct added_token *token = longest(set, p, at, &seen);
        TRY(work_charge(&e->work, seen, too_long));
        if (!token) {
            at++;
            continue;
        }
        size_t begin = at, end = at + token->len;
        at = end;
        if (token->single_word && !stands_alone(token, p, begin, end)) continue;
        /* What was taken before is not looked at again: a run of white space that is tokens itself stays linear. */
        if (token->lstrip && begin > done) begin -= unicode_trailing_spaces(p->text + done, begin - done);
        if (token->rstrip) end = end < done ? done : end + unicode_leading_spaces(p->text + end, p->n - end);
        TRY(take_part(e, p, done, begin, take));
        ids_push(e->out, token->id);
        if (end > done) done = end;
    }
    return take_part(e, p, done, p->n, take);
}
