/* N-gram lookup: what it proposes is what its definition says, of the very history that the sequence has; and text that does not
 * depend on it. The distribution of what is emitted: check_fidelity. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draft/ngram.h"
#include "draft/proposer.h"
#include "engine/probe.h"
#include "tests/support/engine_support.h"
#include "tests/support/program.h"
#include "tests/support/sampler_support.h"
#include "tests/support/support.h"

/* The definition: how many tokens after a history t[0..n-1] a round of k offers, and from where on. */
static int look_up(const int32_t *t, int n, int k, int *from) {
    for (int length = NGRAM_MOST; length >= NGRAM_LEAST; length--)
        for (int start = n - 1 - length; start >= 0; start--) {
            if (memcmp(t + start, t + n - length, (size_t)length * sizeof *t) != 0) continue;
            *from = start + length;
            return n - *from < k ? n - *from : k;
        }
    return 0;
}

/* --- one search --------------------------------------------------------------------------------------------------- */

enum { V = 40, K = 12, SLOTS = 4, CAPACITY = 36 * 256 };

/* Three slots and their histories, which the test keeps too. */
struct lab {
    struct rig rig;
    struct pool *pool;
    struct history history; /* where launches run */
    int32_t tokens[SLOTS][CAPACITY];
};

static void open_lab(struct lab *lab) {
    struct round_state sizes = {.slots = SLOTS,
                                .max_batch = SLOTS - 1,
                                .k_max = K,
                                .vocab_target = V,
                                .vocab_draft = V,
                                .draft_positions = INT32_MAX};
    rig_open(&lab->rig, &sizes, NULL, 1);
    size_t bytes = sizeof lab->tokens;
    ck_ok(pool_create(stream_device(lab->rig.stream), bytes, &lab->pool));
    ck_ok(pool_slice(lab->pool, POOL_SCRATCH, "history", bytes, (void **)&lab->history.tokens));
    lab->history.capacity = CAPACITY;
    for (int row = 0; row < SLOTS - 1; row++) lab->rig.b.row_slot[row] = SLOTS - 1 - row;
}

static void close_lab(struct lab *lab) {
    pool_destroy(lab->pool);
    rig_close(&lab->rig);
}

/* A slot with the first n of its tokens. */
static void start(struct lab *lab, int slot, int n) {
    rig_start(&lab->rig, slot, n, lab->tokens[slot][n - 1], 100, (struct sampling){1, 1, 0, 0, 1}, 1);
}

static void search(struct lab *lab, int k) {
    rig_send(&lab->rig);
    require_ok(stream_copy(lab->rig.stream, lab->history.tokens, lab->tokens, sizeof lab->tokens));
    require_ok(ngram_search(lab->rig.stream, &(struct ngram_search){lab->rig.there, lab->history, SLOTS - 1, k}));
    rig_fetch(&lab->rig);
}

/* Of every drafted token: all zeros but for one 1 at it, or for none. */
static void must_be_one_hot(const struct lab *lab) {
    const struct round_state *b = &lab->rig.b;
    for (int slot = 0; slot < SLOTS; slot++)
        for (int j = 0; j < K; j++)
            for (int id = 0, drafted = b->drafted[slot * K + j]; id < V; id++) {
                float q = round_p_draft(b, slot, j)[id];
                bool is_stale = drafted == 0 && q == 0; /* as the pool was: nothing was ever stored */
                require(q == (id == drafted) || is_stale, "slot %d, %d: p_draft[%d] is %g, drafted %d", slot, j, id,
                        (double)q, drafted);
            }
}

static void must_offer(const struct lab *lab, int slot, int n, int k) {
    const int32_t *t = lab->tokens[slot], *drafted = lab->rig.b.drafted + slot * K;
    int from = 0, count = look_up(t, n, k, &from);
    require(lab->rig.b.offered[slot] == count, "slot %d, %d tokens, k %d: offered %d, not %d", slot, n, k,
            lab->rig.b.offered[slot], count);
    for (int j = 0; j < k; j++) {
        int due = j < count ? t[from + j] : -1;
        require(drafted[j] == due, "slot %d, %d tokens, k %d: drafted[%d] is %d, not %d", slot, n, k, j, drafted[j],
                due);
        if (j < count) require(round_p_draft(&lab->rig.b, slot, j)[due] == 1, "p_draft of %d", due);
    }
}

/* Many repeats, few, none; short and longer than a pass of the threads. Loop index: the alphabet. */
START_TEST(a_search_finds_the_longest_suffix_and_its_latest_occurrence)
{
    static struct lab lab;
    static const int alphabets[] = {1, 2, 3, 6, 40};
    uint32_t alphabet = (uint32_t)alphabets[_i];
    open_lab(&lab);
    for (int round = 0; round < (test_is_small() ? 30 : 300); round++) {
        int n[SLOTS] = {0}, k = 1 + round % K;
        for (int slot = 1; slot < SLOTS; slot++) {
            uint32_t word = philox_word(1, (uint64_t)round, slot, 0);
            n[slot] = 1 + (int)(word % (round % 30 == 0 ? 8990 : 1 + (unsigned)round));
            for (int i = 0; i < n[slot]; i++)
                lab.tokens[slot][i] = (int32_t)(philox_word(2, (uint64_t)round, slot, (uint32_t)i) % alphabet);
            start(&lab, slot, n[slot]);
        }
        search(&lab, k);
        for (int slot = 1; slot < SLOTS; slot++) must_offer(&lab, slot, n[slot], k);
        must_be_one_hot(&lab);
    }
    close_lab(&lab);
}
END_TEST

/* Worked by hand: suffixes of 1 to 9 tokens, two occurrences, one that overlaps the suffix. */
START_TEST(occurrences_are_chosen_as_documented)
{
    static struct lab lab;
    static const struct {
        int32_t tokens[24];
        int n, k, count, first; /* offered, and the first of them */
    } cases[] = {
        {{7}, 1, 4, 0, 0},
        {{7, 7}, 2, 4, 0, 0},
        {{7, 7, 7}, 3, 4, 1, 7},                          /* (7 7) 7 overlaps 7 (7 7) */
        {{1, 2, 3, 9, 3}, 5, 4, 0, 0},                    /* one token is no suffix */
        {{1, 2, 3, 9, 1, 2}, 6, 4, 4, 3},                 /* up to the history's end */
        {{1, 2, 3, 9, 8, 1, 2}, 7, 2, 2, 3},              /* k */
        {{1, 2, 3, 1, 2, 4, 9, 1, 2}, 9, 3, 3, 4},        /* the latest of two */
        {{5, 1, 2, 3, 1, 2, 4, 9, 5, 1, 2}, 11, 3, 3, 3}, /* the longer one, though earlier */
        {{1, 2, 3, 4, 5, 6, 7, 8, 30, 0, 2, 3, 4, 5, 6, 7, 8, 31, 1, 2, 3, 4, 5, 6}, 24, 1, 1, 7},
    };
    open_lab(&lab);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        memcpy(lab.tokens[2], cases[c].tokens, sizeof cases[c].tokens);
        start(&lab, 2, cases[c].n);
        search(&lab, cases[c].k);
        ck_assert_msg(lab.rig.b.offered[2] == cases[c].count, "case %zu: %d", c, lab.rig.b.offered[2]);
        if (cases[c].count > 0) ck_assert_int_eq(lab.rig.b.drafted[2 * K], cases[c].first);
        must_offer(&lab, 2, cases[c].n, cases[c].k);
    }
    close_lab(&lab);
}
END_TEST

/* Suffixes that agree for 9 tokens and for 8 count alike: the later one is taken. */
START_TEST(more_than_the_most_tokens_are_not_compared)
{
    static struct lab lab;
    int n = 0;
    open_lab(&lab);
    for (int first = 0; first < 3;
         first++) { /* 1 2..9 | 0 2..9 | 1 2..9, each but the last with a token of its own behind */
        lab.tokens[1][n++] = first == 1 ? 0 : 1;
        for (int i = 2; i <= 9; i++) lab.tokens[1][n++] = i;
        if (first < 2) lab.tokens[1][n++] = 20 + first;
    }
    start(&lab, 1, n);
    search(&lab, 1);
    ck_assert_int_eq(lab.rig.b.offered[1], 1);
    ck_assert_int_eq(lab.rig.b.drafted[K], 21);
    close_lab(&lab);
}
END_TEST

START_TEST(rows_that_are_not_live_are_left_alone)
{
    static struct lab lab;
    open_lab(&lab);
    for (int slot = 1; slot < SLOTS; slot++) start(&lab, slot, 50); /* all zeros */
    lab.rig.b.slot[2].status = SLOT_LENGTH;
    lab.rig.b.offered[2] = 99;
    search(&lab, 3);
    ck_assert(lab.rig.b.offered[1] == 1 && lab.rig.b.offered[2] == 99 && lab.rig.b.offered[3] == 1);
    close_lab(&lab);
}
END_TEST

START_TEST(shapes_past_the_buffers_are_refused)
{
    static struct lab lab;
    open_lab(&lab);
    struct ngram_search wide = {lab.rig.there, lab.history, SLOTS, 1}, deep = {lab.rig.there, lab.history, 1, K + 1};
    ck_assert_int_eq(ngram_search(lab.rig.stream, &wide), ERR_INTERNAL);
    ck_assert_int_eq(ngram_search(lab.rig.stream, &deep), ERR_INTERNAL);
    ck_assert_int_eq(history_append(lab.rig.stream, &(struct history_rows){lab.rig.there, lab.history, SLOTS, 0}),
                     ERR_INTERNAL);
    close_lab(&lab);
}
END_TEST

/* --- histories ---------------------------------------------------------------------------------------------------- */

/* A prompt of several pieces of staging, then a turn that replaces its end: looked at through searches of many lengths. */
START_TEST(a_turn_s_tokens_reach_the_device)
{
    static struct lab lab;
    struct proposer *p;
    struct pool *pool;
    int32_t *t = lab.tokens[2];
    open_lab(&lab);
    struct device *device = stream_device(lab.rig.stream);
    struct proposer_world world = {.device = device, .vocab = V, .slots = SLOTS, .round = &lab.rig.there};
    ck_ok(proposer_open(&p, &world, &(struct proposer_options){.word = "ngram"}));
    ck_ok(pool_create(device, sizeof lab.tokens, &pool));
    ck_ok(proposer_layout(p, &(struct model_limits){.rope_positions = CAPACITY}, pool));
    ck_assert(p->vocab == V && p->stride == 0 && !p->model && !p->graphs);
    for (int i = 0; i < CAPACITY; i++) t[i] = (int32_t)(philox_word(3, 0, 0, (uint32_t)i) % V);
    ck_ok(proposer_begin(p, lab.rig.stream, &(struct proposer_turn){2, CAPACITY, t, 0, 8000}));
    for (int i = 3000; i < CAPACITY; i++) t[i] = (int32_t)(philox_word(3, 1, 0, (uint32_t)i) % V);
    ck_ok(proposer_begin(p, lab.rig.stream, &(struct proposer_turn){2, CAPACITY, t, 3000, CAPACITY}));
    for (int n = CAPACITY; n > 0; n -= 61) {
        start(&lab, 2, n);
        rig_send(&lab.rig);
        ck_ok(proposer_propose(p, lab.rig.stream,
                               &(struct proposer_round){.batch = SLOTS - 1, .k = K, .rows = SLOTS - 1}));
        rig_fetch(&lab.rig);
        must_offer(&lab, 2, n, K);
    }
    proposer_close(p);
    pool_destroy(pool);
    close_lab(&lab);
}
END_TEST

/* --- engines ------------------------------------------------------------------------------------------------------ */

static struct pair embedded(void) {
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    return ngram_pair(&pairs[0]);
}

/* What repeats itself is where lookup finds something. */
static struct request repeating(const struct engine *e, int which, int max_tokens) {
    char text[512];
    snprintf(text, sizeof text, "%s the red ball. %s the red ball. %s", story_starts[which % STORY_STARTS],
             story_starts[which % STORY_STARTS], story_starts[which % STORY_STARTS]);
    struct request r = text_request(e, text, max_tokens);
    r.generation.ignore_end = true;
    return r;
}

enum { PROMPTS = 8 };

static void answer_all(const struct engine_options *o, int batch, struct answer *answers) {
    struct engine *e = must_open(o);
    struct request requests[PROMPTS];
    for (int i = 0; i < PROMPTS; i++) requests[i] = repeating(e, i, test_is_small() ? 12 + 2 * i : 20 + 5 * i);
    run_requests_at_most(e, requests, PROMPTS, batch, answers);
    free_requests(requests, PROMPTS);
    engine_destroy(e);
}

/* Loop index: K. */
START_TEST(greedy_text_is_that_of_plain_decoding_for_every_k_and_batch)
{
    struct pair pairs[PAIRS_MAX];
    int64_t accepted = 0;
    for (int p = 0; p < (test_is_small() ? 1 : test_pairs(pairs)); p++) {
        test_pairs(pairs);
        struct pair pair = ngram_pair(&pairs[p]);
        struct answer expected[PROMPTS], got[PROMPTS];
        struct engine_options plain = pair_options(&pair, 0, 1);
        answer_all(&plain, 1, expected);
        static const int batches[] = {1, 2, 5, 8};
        for (int b = 0; b < 4; b += test_is_small() ? 3 : 1) {
            struct engine_options o = pair_options(&pair, _i, batches[b]);
            o.pipeline = 1 + b % 2, o.graphs = (enum graph_mode)(b % 3), o.accept = (enum accept_rule)((b + _i) % 3);
            answer_all(&o, batches[b], got);
            for (int i = 0; i < PROMPTS; i++) {
                must_equal(&got[i], &expected[i], "n-gram");
                accepted += got[i].stats.accepted;
            }
            free_answers(got, PROMPTS);
        }
        free_answers(expected, PROMPTS);
    }
    if (_i > 0) ck_assert_int_gt(accepted, 0);
}
END_TEST

/* Rounds as the callback saw them. */
struct seen {
    struct engine *engine;
    int rounds, counts[512], accepted[512];
    bool done;
    int cut_after; /* keep one token of the round of this number, and end; 0: never */
    int ks[4];     /* K from the next round on, by rounds modulo 4; 0 in the first: unchanged */
};

static void see(void *user, struct token_block *block) {
    struct seen *s = user;
    s->counts[s->rounds] = block->count, s->accepted[s->rounds] = block->accepted;
    s->rounds++;
    if (s->rounds == s->cut_after) block->keep = 1, block->stop = true;
    s->done = block->stop || block->finish != FINISH_NONE;
    if (s->ks[0] > 0) ck_ok(engine_set_k(s->engine, s->ks[s->rounds % 4]));
}

/* A greedy answer, every round of which must be that of the definition over the history before it. Returns tokens offered. */
static int64_t run_and_compare(struct engine *e, struct sequence *s, const struct ids *more, int max_tokens, int k,
                               struct seen *seen) {
    struct generation g = {
        .max_tokens = max_tokens, .sampling = {0, 1, 0, 0, 1}, .ignore_end = true, .on_tokens = see, .user = seen};
    int running, old, n;
    int64_t offered = 0;
    engine_tokens(s, &old);
    seen->engine = e;
    ck_ok(engine_generate(e, s, more->data, (int)more->len, &g));
    while (!seen->done) ck_ok(engine_step(e, &running));
    const int32_t *t = engine_tokens(s, &n);
    int at = old + (int)more->len, limit = at + max_tokens;
    const int ahead = test_device_is_host() ? 0 : 1; /* rounds that are in flight when K changes */
    for (int r = 0; r < seen->rounds; r++) {
        int from = 0, now = seen->ks[0] > 0 && r > ahead ? seen->ks[(r - ahead) % 4] : k,
            count = look_up(t, at, now, &from);
        int accepted = 0, last = seen->cut_after == r + 1;
        while (accepted < count && at + accepted < n && t[from + accepted] == t[at + accepted]) accepted++;
        offered += count;
        if (last) break; /* only the first of its tokens is in the history */
        int emitted = at + accepted + 1 < limit ? accepted + 1 : limit - at;
        require(seen->accepted[r] == accepted && seen->counts[r] == emitted,
                "round %d at %d: %d accepted of %d tokens, not %d of %d", r, at, seen->accepted[r], seen->counts[r],
                accepted, emitted);
        at += emitted;
    }
    require(seen->cut_after > 0 || at == n, "%d tokens, not %d", n, at);
    return offered;
}

/* Turns with ends of every kind between them, in one slot, where another sequence was before. Loop index: K. */
START_TEST(rounds_are_those_of_the_history_through_cuts_undo_and_new_owners)
{
    struct pair pair = embedded();
    struct engine_options o = pair_options(&pair, _i, 1);
    o.k_max = 8, o.context = 900;
    struct engine *e = must_open(&o);
    int64_t offered = 0;
    for (int owner = 0; owner < (test_is_small() ? 1 : 4); owner++) {
        struct sequence *s;
        struct request first = repeating(e, owner, 1), next = text_request(e, " the red ball. Then", 1);
        int n;
        ck_ok(engine_open(e, 900, &s));
        offered += run_and_compare(e, s, &first.prompt, 60, _i, &(struct seen){.cut_after = 0});
        offered += run_and_compare(e, s, &next.prompt, 60, _i, &(struct seen){.cut_after = 5 + owner});
        offered += run_and_compare(e, s, &next.prompt, 40, _i, &(struct seen){0});
        engine_tokens(s, &n);
        ck_ok(engine_truncate(e, s, n - 55)); /* within what was generated, and before */
        offered += run_and_compare(e, s, &next.prompt, 50, _i, &(struct seen){0});
        ck_ok(engine_truncate(e, s, 7 + owner));
        offered += run_and_compare(e, s, &next.prompt, 50, _i, &(struct seen){0});
        engine_reset_sequence_stats(s);
        int64_t turn = run_and_compare(e, s, &next.prompt, 50, _i, &(struct seen){0});
        ck_assert_int_eq(engine_sequence_stats(s)->drafted, turn);
        free_requests(&first, 1), free_requests(&next, 1);
        engine_close(e, s);
    }
    ck_assert_int_gt(offered, 0);
    engine_destroy(e);
}
END_TEST

START_TEST(plain_rounds_between_others_are_not_forgotten)
{
    struct pair pair = embedded();
    struct engine_options o = pair_options(&pair, 3, 1);
    o.k_max = 6;
    struct engine *e = must_open(&o);
    struct sequence *s;
    struct request first = repeating(e, 1, 1);
    ck_ok(engine_open(e, 600, &s));
    int64_t offered = run_and_compare(e, s, &first.prompt, 150, 3, &(struct seen){.ks = {3, 0, 6, 0}});
    ck_assert_int_gt(offered, 0);
    ck_assert_int_gt(engine_sequence_stats(s)->plain_rounds, 0);
    free_requests(&first, 1);
    engine_destroy(e);
}
END_TEST

/* The host tells by the tokens alone whether the device's search would offer something. Loop index: the alphabet. */
START_TEST(what_a_search_will_find_is_known_before)
{
    enum { TOK = 60 };
    int32_t t[TOK];
    int from;
    const struct proposer lookup = {.ops = &proposer_ngram};
    for (uint64_t text = 0; text < (test_is_small() ? 20 : 200); text++)
        for (int n = 1; n <= TOK; n++) {
            t[n - 1] = (int32_t)(philox_word(5, text, 0, (uint32_t)n) % (uint32_t)_i);
            ck_assert_int_eq(proposer_finds(&lookup, t, n), look_up(t, n, 1, &from) > 0);
        }
}
END_TEST

/* Every K takes hardly longer than a plain round. */
START_TEST(auto_speculates_where_something_is_found_and_nowhere_else)
{
    const float ms[] = {1, 1.0001f, 1.0002f, 1.0003f, 1.0004f};
    struct pair pair = embedded();
    struct engine_options o = pair_options(&pair, 4, 1);
    o.k = K_AUTO, o.k_max = 4, o.pipeline = 1;
    struct engine *e = must_open(&o);
    struct sequence *s;
    struct request r = text_request(e, story_starts[0], 150);
    int running, n, from, plain = 0, rounds = 0;
    probe_set_round_times(e, ms);
    r.generation.ignore_end = true, r.generation.on_tokens = see, r.generation.user = &(struct seen){.engine = e};
    ck_ok(engine_open(e, 400, &s));
    ck_ok(engine_generate(e, s, r.prompt.data, (int)r.prompt.len, &r.generation));
    ck_ok(probe_ingest(e));
    do {
        const struct engine_counts before = engine_counts(e);
        const int32_t *t = engine_tokens(s, &n);
        const bool is_plain = look_up(t, n, 1, &from) == 0;
        ck_ok(engine_step(e, &running));
        const struct engine_counts after = engine_counts(e);
        if (after.rounds == before.rounds) continue;
        ck_assert_int_eq((int)(after.rounds_by_k[0] - before.rounds_by_k[0]), is_plain);
        plain += is_plain, rounds++;
    } while (running > 0);
    ck_assert_msg(plain > 5 && rounds - plain > 5, "%d of %d rounds were plain", plain, rounds);
    free_requests(&r, 1);
    engine_destroy(e);
}
END_TEST

START_TEST(the_last_position_of_the_context_is_usable_and_no_more)
{
    struct pair pair = embedded();
    struct answer expected = {0};
    for (int k = 0; k <= 8; k += 2) {
        struct engine_options o = pair_options(&pair, k, 1);
        o.context = 64;
        struct engine *e = must_open(&o);
        struct request r = repeating(e, 0, 1000);
        struct answer a;
        run_requests(e, &r, 1, &a);
        ck_assert_uint_eq(r.prompt.len + a.ids.len, 64);
        ck_assert_int_eq(a.finish, FINISH_LENGTH);
        if (k == 0) expected = a;
        must_equal(&a, &expected, "at the context's end");
        if (k > 0) ids_free(&a.ids);
        free_requests(&r, 1);
        engine_destroy(e);
    }
    ids_free(&expected.ids);
}
END_TEST

/* One replay of the target; a search, unless K = 0, and an append beside acceptance. Loop index: K. */
START_TEST(a_round_launches_the_documented_numbers)
{
    struct pair pair = embedded();
    struct engine_options o = pair_options(&pair, 5, 2);
    o.pipeline = 1 + _i % 2;
    struct engine *e = must_open(&o);
    int graphs, kernels;
    uint64_t ran_graphs, ran_kernels;
    ck_ok(engine_set_k(e, _i));
    engine_launches(e, _i, &graphs, &kernels);
    ck_assert_int_eq(graphs, 1);
    if (test_device_is_host()) ck_assert_int_eq(kernels, _i > 0 ? 3 : 2);
    struct engine_counts before = engine_counts(e);
    uint64_t rounds = count_round_launches(e, &ran_graphs, &ran_kernels);
    struct engine_counts after = engine_counts(e);
    ck_assert_uint_gt(rounds, 0);
    ck_assert_uint_eq(ran_graphs, rounds * (uint64_t)graphs);
    ck_assert_uint_eq(ran_kernels, rounds * (uint64_t)kernels);
    ck_assert_uint_eq(after.device_allocations, before.device_allocations);
    ck_assert_uint_eq(after.stream.captures, before.stream.captures);
    ck_assert_uint_eq(after.target.eager_fallbacks, 0);
    ck_assert_ptr_null(engine_graphs(e, 0));
    ck_assert_str_eq(engine_info(e).proposer, "n-gram");
    engine_destroy(e);
}
END_TEST

/* The host waits for results alone: as often as it reads rounds. */
START_TEST(no_round_waits_for_the_device)
{
    struct pair pair = embedded();
    struct engine_options o = pair_options(&pair, 4, 2);
    o.pipeline = 2;
    struct engine *e = must_open(&o);
    struct request r = repeating(e, 2, 80);
    struct answer a;
    struct engine_counts before = engine_counts(e);
    run_requests(e, &r, 1, &a);
    struct engine_counts after = engine_counts(e);
    uint64_t waits = after.stream.synchronises - before.stream.synchronises;
    ck_assert_uint_le(waits, after.rounds - before.rounds + 4); /* staging */
    ids_free(&a.ids);
    free_requests(&r, 1);
    engine_destroy(e);
}
END_TEST

START_TEST(a_directory_beside_it_or_an_unknown_name_is_refused)
{
    struct pair pairs[PAIRS_MAX];
    struct engine *e;
    test_pairs(pairs);
    struct engine_options o = pair_options(&pairs[0], 4, 1);
    o.proposer = "ngram";
    ck_assert_int_eq(engine_create(&e, &o), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err_message(), "n-gram lookup has no files"));
    o.draft = NULL, o.proposer = "bigram";
    ck_assert_int_eq(engine_create(&e, &o), ERR_USAGE);
    ck_assert_str_eq(err_message(), "there is no proposer 'bigram'");
}
END_TEST

/* --- the program -------------------------------------------------------------------------------------------------- */

static const char lines[] = "{\"prompt\": \"Tom had a red ball. Tom had a red ball. Tom had\"}\n";

/* No --target: the embedded one. Its text is that of plain decoding. */
START_TEST(the_word_ngram_asks_for_it_and_reports_name_it)
{
    static struct program plain, p;
    program_run(&plain, lines, ARGUMENTS("batch", "--temperature", "0", "--k", "0", "-n", "40"));
    program_run(&p, lines, ARGUMENTS("batch", "--temperature", "0", "--draft", "ngram", "-n", "40", "--alpha-report"));
    ck_assert_int_eq(p.status, 0);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.err), "acceptance at K = 4, rule token, n-gram\n"));
    cJSON *a = json_line(&plain.out, 0), *b = json_line(&p.out, 0);
    ck_assert_str_eq(get_string(a, "text"), get_string(b, "text"));
    ck_assert(get_number(b, "accepted") > 0);
    cJSON_Delete(a), cJSON_Delete(b);
    program_free(&plain), program_free(&p);
}
END_TEST

START_TEST(a_directory_of_that_name_is_reached_by_a_path)
{
    static struct program p;
    char command[8192];
    const char *target = asset_path("target");
    snprintf(command, sizeof command, "ln -s \"$(realpath '%s')\" '%s'", asset_path("draft"), temp_path("ngram"));
    ck_assert_int_eq(system(command), 0);
    program_run(&p, lines,
                ARGUMENTS("batch", "--target", target, "--draft", temp_path("ngram"), "-n", "9", "--alpha-report"));
    ck_assert_int_eq(p.status, 0);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.err), "rule token\n"));
    program_free(&p);
}
END_TEST

START_TEST(inspect_and_bench_know_it)
{
    static struct program p;
    program_run(&p, NULL, ARGUMENTS("inspect", "--draft", "ngram", "--memory"));
    ck_assert_ptr_nonnull(strstr(buf_text(&p.out), "token history"));
    ck_assert_ptr_null(strstr(buf_text(&p.out), "draft logits"));
    program_free(&p);
    program_run(&p, NULL, ARGUMENTS("bench", "--draft", "ngram", "-n", "8", "--k", "2", "--k-max", "2", "--csv"));
    ck_assert_int_eq(p.status, 0);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.out), "n-gram in a round"));
    program_free(&p);
    program_run(&p, NULL, ARGUMENTS("bench", "--shape", "x,y", "--draft", "ngram"));
    program_expect_error(&p, 2, "two drafts");
    program_free(&p);
}
END_TEST

static void add_program_tests(TCase *tc) {
    tcase_add_test(tc, the_word_ngram_asks_for_it_and_reports_name_it);
    tcase_add_test(tc, a_directory_of_that_name_is_reached_by_a_path);
    tcase_add_test(tc, inspect_and_bench_know_it);
}

DEVICE_SUITE(check_ngram);
Suite *check_ngram(void) {
    Suite *suite = suite_create("ngram");
    TCase *tc = tcase_create("ngram");
    tcase_add_loop_test(tc, a_search_finds_the_longest_suffix_and_its_latest_occurrence, 0, 5);
    tcase_add_test(tc, occurrences_are_chosen_as_documented);
    tcase_add_test(tc, more_than_the_most_tokens_are_not_compared);
    tcase_add_test(tc, rows_that_are_not_live_are_left_alone);
    tcase_add_test(tc, shapes_past_the_buffers_are_refused);
    tcase_add_test(tc, a_turn_s_tokens_reach_the_device);
    tcase_add_loop_test(tc, greedy_text_is_that_of_plain_decoding_for_every_k_and_batch, 0, 9);
    tcase_add_loop_test(tc, rounds_are_those_of_the_history_through_cuts_undo_and_new_owners, 1, 9);
    tcase_add_test(tc, plain_rounds_between_others_are_not_forgotten);
    tcase_add_loop_test(tc, what_a_search_will_find_is_known_before, 1, 12);
    tcase_add_test(tc, auto_speculates_where_something_is_found_and_nowhere_else);
    tcase_add_test(tc, the_last_position_of_the_context_is_usable_and_no_more);
    tcase_add_loop_test(tc, a_round_launches_the_documented_numbers, 0, 6);
    tcase_add_test(tc, no_round_waits_for_the_device);
    tcase_add_test(tc, a_directory_beside_it_or_an_unknown_name_is_refused);
    if (test_device_is_host()) add_program_tests(tc);
    suite_add_tcase(suite, tc);
    return suite;
}
