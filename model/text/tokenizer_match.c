/* Matching a regex, with bounded work. What comes out is what pcre2_match finds in the whole text.
 *
 * PCRE2's own limit counts backtracking from one starting point, so that a text of n characters may cost n times the limit;
 * and it does not count characters at all that an item runs over (\s+ over n spaces, from each of them: n^2 / 2). So a regex
 * is compiled twice.
 *
 * Quick: the starts of a window, with a sight of a few bytes more than it: the subject ends there, and a low limit of
 * backtracking holds. A match, or none for certain, counts: that costs a constant for each start at most. It does not count
 * if it wanted to see more (PCRE2_PARTIAL_HARD tells) or reached the limit.
 *
 * Counted: the same starts once more over the whole text, by a code that calls back at each of its items. The call charges
 * one step and the distance from where the last item stood, and ends the match when the work of the text is used up. */
#include <stdlib.h>

#include "model/text/tokenizer_internal.h"

enum {
    WINDOW_BYTES = 256,
    SIGHT_BYTES = 64, /* at least 1 */
    QUICK_LIMIT = 50,
    HEAP_LIMIT_KIB = 1 << 20, /* for backtracking points */
};

static int on_item(pcre2_callout_block *block, void *user) {
    struct matcher *m = user;
    size_t at = block->current_position, moved = at > m->at ? at - m->at : m->at - at;
    m->at = at;
    m->rc = work_charge(m->work, m->item_steps + moved, "a regex of the tokenizer takes too long on this text");
    return m->rc == 0 ? 0 : PCRE2_ERROR_CALLOUT;
}

int matcher_create(struct matcher *m, struct work *work) {
    *m = (struct matcher){.work = work, .window_bytes = WINDOW_BYTES, .sight_bytes = SIGHT_BYTES};
    m->data = pcre2_match_data_create(1, NULL);
    m->quick = pcre2_match_context_create(NULL);
    m->counted = pcre2_match_context_create(NULL);
    if (!m->data || !m->quick || !m->counted) return err_set(ERR_MEMORY, "no memory for matching a regex");
    pcre2_set_match_limit(m->quick, QUICK_LIMIT);
    pcre2_set_match_limit(m->counted, UINT32_MAX);
    pcre2_set_depth_limit(m->counted, UINT32_MAX);
    pcre2_set_heap_limit(m->counted, HEAP_LIMIT_KIB);
    pcre2_set_callout(m->counted, on_item, m);
    return 0;
}

void matcher_free(struct matcher *m) {
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->quick);
    pcre2_match_context_free(m->counted);
    *m = (struct matcher){0};
}

/* Where the first character begins at or behind `at`. */
static size_t next_character(const struct search *s, size_t at) {
    if (at >= s->n) return s->n;
    while (at < s->n && ((unsigned char)s->text[at] & 0xc0) == 0x80) at++;
    return at;
}

/* Matches that begin in [from, last]. */
static int match_quick(const struct search *s, size_t from, size_t last) {
    const struct matcher *m = s->matcher;
    size_t end = next_character(s, last + m->sight_bytes);
    pcre2_set_offset_limit(m->quick, last);
    return pcre2_match(s->pattern->code, (PCRE2_SPTR)s->text, end, from,
                       PCRE2_NO_UTF_CHECK | (end < s->n ? PCRE2_PARTIAL_HARD : 0), m->data, m->quick);
}

static int match_counted(const struct search *s, size_t from, size_t last) {
    struct matcher *m = s->matcher;
    m->at = from;
    m->item_steps = 1 + s->pattern->repeats + s->pattern->lookbehind;
    pcre2_set_offset_limit(m->counted, last);
    return pcre2_match(s->pattern->counted, (PCRE2_SPTR)s->text, s->n, from, PCRE2_NO_UTF_CHECK, m->data, m->counted);
}

static int fail(const struct matcher *m, int rc) {
    if (rc == PCRE2_ERROR_CALLOUT) return m->rc;
    PCRE2_UCHAR reason[160];
    pcre2_get_error_message(rc, reason, sizeof reason);
    return err_set(ERR_UNSUPPORTED, "a regex of the tokenizer failed on this text: %s", (const char *)reason);
}

int match_regex(struct search *s, bool *found) {
    const struct matcher *m = s->matcher;
    for (size_t from = s->at;;) {
        size_t last = next_character(s, from + m->window_bytes);
        int rc = match_quick(s, from, last);
        if (rc == PCRE2_ERROR_PARTIAL || rc == PCRE2_ERROR_MATCHLIMIT) rc = match_counted(s, from, last);
        *found = rc >= 0;
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) return fail(m, rc);
        TRY(work_pass(m->work, (*found ? pcre2_get_ovector_pointer(m->data)[1] : last) - from + 1));
        if (*found || last == s->n) break;
        from = next_character(s, last + 1);
    }
    if (*found) {
        s->begin = pcre2_get_ovector_pointer(s->matcher->data)[0];
        s->end = pcre2_get_ovector_pointer(s->matcher->data)[1];
    }
    return 0;
}
