/* One row's round as the rule walks through it: which drafted tokens are kept, and from which position the next one is drawn.
 *
 * The one walk of host and GPU, included once by host.c and by cuda.cu. Before that they define WALK, how its functions are
 * declared; struct view, what can be seen of the row's positions j (drafted tokens are 0..k-1; p_target has one more); and
 *
 *   struct token_pair look_pair(struct view *, int j)           the drafted token
 *   float look_uniform(struct view *, int j)                    uniform_at
 *   float look_overlap(struct view *, int j)                    sum of min(p_target, p_draft)
 *   float look_excess(struct view *, int j, float carry)        sum of rule_excess: what the carry of j - 1 leaves there (BLOCK)
 *   int look_winner(struct view *, int j)                       of the race of p_target (COUPLED)
 *   bool look_draft_is_bad(struct view *, int j), look_target_is_bad: no distribution
 *
 * The host works these out when they are asked for, a GPU has them all before it walks. So the walk asks for no more than the rule
 * needs, and in an order that depends on the answers alone. */

/* Where a walk ends: at a position whose token is still to be drawn, at a sequence's end, or at a row without a distribution. */
enum { WALK_ENDED = -1, WALK_BAD = -2, WALK_BAD_DRAFT = -3 };

struct walk {
    struct slot slot, before;   /* as it goes on; as the round found it */
    struct round_record record; /* as it goes on, without its tokens */
    int32_t *tokens;            /* [K_MAX + 1] where they go; NULL: nowhere */
    float carry;                /* of the residual that the next token is drawn from */
};

/* What a row in error leaves of its record. */
WALK void clear_counts(struct round_record *r) {
    r->emitted = r->accepted = r->rejected = r->evaluated = 0;
    r->overlap_sum = r->coupled_sum = r->expected_token = r->expected_block = 0;
}

/* Of a round of k. A walk of a slot that is not live ends here. */
WALK void walk_begin(struct walk *w, const struct round_state *b, int at, int k, int32_t *tokens) {
    w->slot = w->before = b->slot[at];
    w->tokens = tokens;
    w->carry = 1;
    w->record.slot = at, w->record.serial = w->slot.serial, w->record.status = w->slot.status;
    w->record.live = w->slot.status == SLOT_LIVE;
    w->record.k = w->record.live ? round_row_k(b, at, k) : 0;
    w->record.length = w->record.is_draft_bad = 0;
    clear_counts(&w->record);
    for (int i = 0; tokens && i <= K_MAX; i++) tokens[i] = 0;
}

/* --- tokens ----------------------------------------------------------------------------------------------- */

/* Does `token` end the slot's answer? */
WALK bool is_end(const struct round_state *b, const struct slot *slot, int token) {
    for (int i = 0; i < b->end_count; i++)
        if (b->end_ids[i] == token) return !slot->ignore_end;
    return false;
}

/* Commits and records a token; true if the sequence goes on. */
WALK bool emit(const struct round_state *b, struct walk *w, int token) {
    struct slot *slot = &w->slot;
    if (w->tokens) w->tokens[w->record.emitted] = token;
    w->record.emitted++;
    slot->last[0] = slot->last[1];
    slot->last[1] = token;
    slot->length++;
    if (is_end(b, slot, token))
        slot->status = SLOT_END;
    else if (slot->length >= slot->limit)
        slot->status = SLOT_LENGTH;
    return slot->status == SLOT_LIVE;
}

/* Commits drafted token j; true if the sequence goes on. */
WALK bool emit_drafted(const struct round_state *b, struct walk *w, struct view *at, int j) {
    w->record.accepted++;
    return emit(b, w, look_pair(at, j).id);
}

/* Drafted tokens that can be emitted: up to the first end id, and to the limit. */
WALK int count_usable(const struct round_state *b, const struct walk *w, struct view *at) {
    int k = w->record.k, room = w->slot.limit - w->slot.length;
    for (int j = 0; j < k; j++)
        if (j + 1 == room || is_end(b, &w->slot, look_pair(at, j).id)) return j + 1;
    return k;
}

/* --- figures ---------------------------------------------------------------------------------------------- */

/* Position j is decided: what its distributions say about acceptance. */
WALK void note_evaluated(struct walk *w, struct view *at, int j) {
    float overlap = look_overlap(at, j);
    w->record.evaluated++;
    w->record.overlap_sum += overlap;
    w->record.coupled_sum += overlap / (2 - overlap);
}

WALK void note_expected(struct walk *w, struct view *at, int usable) {
    float by_token = 1, by_block = 1;
    for (int j = 0; j < usable && !look_target_is_bad(at, j); j++) {
        struct token_pair pair = look_pair(at, j);
        by_token = by_token * rule_carry(1, pair.target, pair.draft);
        by_block = rule_carry(by_block, pair.target, pair.draft);
        w->record.expected_token += by_token;
        w->record.expected_block += by_block;
    }
}

/* --- rules ------------------------------------------------------------------------------------------------ */

WALK bool is_accepted(const struct round_state *b, struct view *at, int j) {
    struct token_pair pair = look_pair(at, j);
    if (is_coupled(b)) return look_winner(at, j) == pair.id;
    float u = look_uniform(at, j);
    if (b->simulate_alpha > 0) return pair.is_common && u < b->simulate_alpha;
    return rule_accepts(u, pair.target, pair.draft);
}

WALK int walk_tokens(const struct round_state *b, struct walk *w, struct view *at) {
    int k = w->record.k;
    for (int j = 0;; j++) {
        if (look_target_is_bad(at, j)) return WALK_BAD;
        if (j == k) return j;
        note_evaluated(w, at, j);
        if (!is_accepted(b, at, j)) {
            w->record.rejected = 1;
            return j;
        }
        if (!emit_drafted(b, w, at, j)) return WALK_ENDED;
    }
}

/* How many of the usable drafted tokens block verification keeps; w->carry is what they carry. */
WALK int count_kept(struct walk *w, struct view *at, int usable) {
    int kept = 0;
    float carry = 1;
    for (int j = 0; j < usable; j++) {
        struct token_pair pair = look_pair(at, j);
        float threshold = carry = rule_carry(carry, pair.target, pair.draft);
        if (j + 1 < usable) threshold = rule_threshold(look_excess(at, j + 1, carry), carry);
        if (look_uniform(at, j) < threshold) kept = j + 1, w->carry = carry;
    }
    return kept;
}

WALK int walk_block(const struct round_state *b, struct walk *w, struct view *at, int usable) {
    for (int j = 0; j < usable; j++)
        if (look_target_is_bad(at, j)) return WALK_BAD;
    int kept = count_kept(w, at, usable);
    for (int j = 0; j < kept; j++) {
        note_evaluated(w, at, j);
        if (!emit_drafted(b, w, at, j)) return WALK_ENDED;
    }
    if (kept == w->record.k) {
        w->carry = 1;
        return look_target_is_bad(at, kept) ? WALK_BAD : kept;
    }
    note_evaluated(w, at, kept);
    w->record.rejected = 1;
    return kept;
}

/* Commits what is accepted; the position to draw from (of the residual after a rejection), or how the walk ended. */
WALK int walk_round(const struct round_state *b, struct walk *w, struct view *at) {
    int usable = count_usable(b, w, at);
    for (int j = 0; j < w->record.k; j++)
        if (look_draft_is_bad(at, j)) return WALK_BAD_DRAFT;
    note_expected(w, at, usable);
    return is_by_block(b) ? walk_block(b, w, at, usable) : walk_tokens(b, w, at);
}

/* Commits the token that was drawn at the position that walk_round gave. The slot is then as it is to be stored. */
WALK void walk_end(const struct round_state *b, struct walk *w, int position, int token) {
    if (position >= 0) emit(b, w, token);
    w->record.is_draft_bad = position == WALK_BAD_DRAFT;
    if (position == WALK_BAD || position == WALK_BAD_DRAFT) {
        w->slot = w->before;
        w->slot.status = SLOT_ERROR;
        clear_counts(&w->record);
    }
    w->record.status = w->slot.status;
    w->record.length = w->slot.length;
}

/* Everything of a record but its tokens. */
WALK void store_record(struct round_record *to, const struct round_record *from) {
    to->slot = from->slot, to->serial = from->serial, to->live = from->live, to->status = from->status;
    to->k = from->k, to->emitted = from->emitted, to->accepted = from->accepted, to->rejected = from->rejected;
    to->evaluated = from->evaluated, to->length = from->length, to->is_draft_bad = from->is_draft_bad;
    to->overlap_sum = from->overlap_sum, to->coupled_sum = from->coupled_sum;
    to->expected_token = from->expected_token, to->expected_block = from->expected_block;
}
