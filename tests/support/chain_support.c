#include "tests/support/chain_support.h"

#include <string.h>

#include "base/philox.h"
#include "tests/support/support.h"

enum { V = CHAIN_VOCAB };

/* --- models --------------------------------------------------------------------------------------------------- */

static const float never = -1e4f; /* a probability of exactly 0 at any temperature of the tests */

static float noise(uint64_t key, int a, int b) { /* about normal */
    double sum = 0;
    for (int i = 0; i < 12; i++) sum += philox_word(key, (uint64_t)a, 0, (uint32_t)(16 * b + i)) * 0x1p-32;
    return (float)(sum - 6);
}

static float draft_logit(enum chain_draft kind, float target, int cell, int to) {
    switch (kind) {
    case CHAIN_BAD:
        return 1.5f * noise(3, cell, to);
    case CHAIN_DISJOINT:
        return to % 2 == 0 ? never : target + noise(2, cell, to);
    case CHAIN_SAME:
        return target;
    case CHAIN_ONE_HOT:
        return to == cell % 5 ? 0 : never;
    case CHAIN_UNIFORM:
        return 0;
    default:
        return target + 0.9f * noise(2, cell, to);
    }
}

/* Mostly the target's favourites, so that what followed once is likely to follow again. */
static void make_prefix(struct chain *c, int pending) {
    int32_t *t = c->prefix[pending];
    for (int i = 1; i < CHAIN_PREFIX; i++) {
        const float *logits = c->target[(i - 1) & 1][t[i - 1]];
        int best = 0;
        for (int id = 1; id < V; id++)
            if (logits[id] > logits[best]) best = id;
        uint32_t word = philox_word(4, (uint64_t)i, 0, 0);
        t[i] = word % 4 > 0 ? best : (int32_t)(word >> 8) % V;
    }
    t[CHAIN_PREFIX - 2] = 0, t[CHAIN_PREFIX - 1] = pending;
}

void chain_make(struct chain *c, enum chain_draft kind) {
    static const int32_t some[] = {1, 2, 5, 7};
    enum { SOME = sizeof some / sizeof *some };
    c->vocab_draft = kind == CHAIN_FEWER ? V - 3 : kind == CHAIN_MORE ? V + 2 : kind == CHAIN_CUT ? SOME : V;
    c->vocab_input = kind == CHAIN_CUT ? V : c->vocab_draft;
    memcpy(c->ids, some, sizeof some);
    for (int parity = 0; parity < 2; parity++)
        for (int from = 0; from < V; from++)
            for (int to = 0; to < CHAIN_DRAFT_VOCAB; to++) {
                int cell = (parity * V + from) * V + to;
                float target = 1.2f * noise(1, cell, to);
                c->draft[parity][from][to] = draft_logit(kind, target, cell, to);
                if (kind == CHAIN_DISJOINT && to % 2 == 1) target = never;
                if (to < V) c->target[parity][from][to] = target;
            }
    for (int cell = 0; kind == CHAIN_CUT && cell < 2 * CHAIN_DRAFT_VOCAB; cell++)
        for (int i = 0; i < SOME; i++) /* upwards, so that none is read where another lies */
            c->draft[cell / CHAIN_DRAFT_VOCAB][cell % CHAIN_DRAFT_VOCAB][i] =
                c->draft[cell / CHAIN_DRAFT_VOCAB][cell % CHAIN_DRAFT_VOCAB][some[i]];
    for (int parity = 0; parity < 2; parity++) /* after ids that the draft alone has */
        memcpy(c->draft[parity][V], c->draft[parity][0], 2 * sizeof c->draft[parity][0]);
    for (int pending = 0; pending < 2; pending++) make_prefix(c, pending);
}

void chain_distributions(const struct chain *c, bool of_draft, const struct sampling *s, chain_table p) {
    for (int parity = 0; parity < 2; parity++)
        for (int from = 0; from < V; from++)
            reference_distribution(s, of_draft ? c->draft[parity][from] : c->target[parity][from], V, p[parity][from]);
}

/* --- counting --------------------------------------------------------------------------------------------------- */

struct chain_request chain_request_at(uint64_t serial) {
    return (struct chain_request){.pending = (int)(serial & 1), .room = 3 + (int)(serial % 10)};
}

void chain_tally_init(struct chain_tally *t, const struct chain *c, const struct sampling *s) {
    memset(t, 0, sizeof *t);
    chain_distributions(c, false, s, t->p);
}

void chain_count(struct chain_tally *t, struct chain_request *r, const int32_t *tokens, int count) {
    require(r->count + count <= r->room, "%d tokens where %d were due", r->count + count, r->room);
    for (int i = 0; i < count; i++) {
        int at = r->count++, parity = (CHAIN_START - 1 + at) & 1, to = r->tokens[at] = tokens[i];
        int last = at > 0 ? r->tokens[at - 1] : r->pending;
        require(to >= 0 && to < V, "token %d", to);
        t->next[t->by_depth ? i : 0][parity][last][to]++;
        if (at > 0) t->after_two[parity][at > 1 ? r->tokens[at - 2] : r->pending][last][to]++;
    }
    t->emitted += count;
    if (r->count < r->room) return;
    int pair = r->tokens[0] * V + r->tokens[1];
    t->pairs[r->pending][pair]++;
    t->triples[r->pending][pair * V + r->tokens[2]]++;
}

/* Of pairs or triples: the product of the single chances. */
static double joint_chance(const struct chain_tally *t, const int64_t *counts, int pending, int tokens,
                           struct chi_square *chi) {
    double p[V * V * V];
    int cells = tokens == 2 ? V * V : V * V * V;
    for (int cell = 0; cell < cells; cell++) {
        int ids[3] = {cell / V, cell % V, 0}, last = pending;
        if (tokens == 3) ids[0] = cell / (V * V), ids[1] = cell / V % V, ids[2] = cell % V;
        p[cell] = 1;
        for (int i = 0; i < tokens; last = ids[i++]) p[cell] *= t->p[(CHAIN_START - 1 + i) & 1][last][ids[i]];
    }
    chi_square_add(chi, counts, p, cells);
    return chi_square_p(chi);
}

struct chain_chances chain_chances(const struct chain_tally *t) {
    struct chain_chances c = {0};
    struct chi_square next = {0}, after_two = {0}, pairs = {0}, triples = {0};
    for (int parity = 0; parity < 2; parity++)
        for (int from = 0; from < V; from++) {
            const double *p = t->p[parity][from];
            int64_t sum[V] = {0};
            for (int depth = 0; depth <= CHAIN_K_MAX; depth++) {
                chi_square_add(&next, t->next[depth][parity][from], p, V);
                for (int i = 0; i < V; i++) sum[i] += t->next[depth][parity][from][i];
            }
            distance_add(&c.distance, sum, p, V);
            for (int before = 0; before < V; before++)
                chi_square_add(&after_two, t->after_two[parity][before][from], p, V);
        }
    for (int pending = 0; pending < 2; pending++) {
        c.pairs = joint_chance(t, t->pairs[pending], pending, 2, &pairs);
        c.triples = joint_chance(t, t->triples[pending], pending, 3, &triples);
    }
    c.next = chi_square_p(&next), c.after_two = chi_square_p(&after_two);
    double least = c.next < c.after_two ? c.next : c.after_two;
    least = c.pairs < least ? c.pairs : least;
    c.least = c.triples < least ? c.triples : least;
    return c;
}
