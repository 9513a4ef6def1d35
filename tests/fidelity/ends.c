/* Ends at every offset of a block, each followed by another turn, against a chat that never speculated. */
#include <stdio.h>
#include <string.h>

#include "engine/text.h"
#include "tests/fidelity/fidelity.h"
#include "tests/support/support.h"

enum cause { END_ID, STOP_STRING, MAX_TOKENS, CONTEXT, CTRL_C, CAUSES };
enum { K = 4, CHAT_TOKENS_MAX = 256, STORY_TOKENS = 60 };

/* A chat of two turns: what ends the first answer, and where. */
struct plan {
    enum cause cause;
    int at; /* tokens of the first answer, about (a stop string may come earlier) */
    struct sampling sampling;
    const char *stop; /* STOP_STRING */
};

struct outcome {
    struct ids history;
    int kept;   /* tokens of the first answer */
    int offset; /* of its last token in its block */
    enum finish finish;
};

/* --- one answer --------------------------------------------------------------------------------------------------- */

struct listener {
    const struct plan *plan;
    struct text_stream *text; /* NULL: no stop string */
    struct buf shown;
    int kept, offset;
    enum finish finish;
    bool done;
};

static void cut_at_stop_string(struct listener *l, struct token_block *block) {
    bool stopped = false;
    for (int i = 0; i < block->count && !stopped; i++) {
        ck_ok(text_stream_push(l->text, block->tokens[i], &l->shown, &stopped));
        if (stopped) block->keep = i + 1, block->stop = true;
    }
}

static void listen(void *user, struct token_block *block) {
    struct listener *l = user;
    require(!l->done, "a block after the end of the answer");
    if (l->text) cut_at_stop_string(l, block);
    if (l->plan->cause == CTRL_C && l->kept + block->count >= l->plan->at)
        block->keep = l->plan->at - l->kept, block->stop = true;
    l->kept += block->keep;
    l->offset = block->keep - 1;
    l->finish = block->stop ? FINISH_STOP : block->finish;
    l->done = block->stop || block->finish != FINISH_NONE;
}

static void run_answer(struct engine *e, struct sequence *s, const struct ids *ids, struct generation g,
                       struct listener *l) {
    int running;
    g.on_tokens = listen, g.user = l;
    ck_ok(engine_generate(e, s, ids->data, (int)ids->len, &g));
    while (!l->done) ck_ok(engine_step(e, &running));
}

static struct text_stream *stop_stream(const struct engine *e, const char *stop) {
    struct text_stream *stream;
    size_t length = strlen(stop);
    ck_ok(text_stream_create(engine_tokenizer(e), &stop, &length, 1, &stream));
    return stream;
}

/* --- one chat ------------------------------------------------------------------------------------------------------ */

/* The request that every first answer is cut from. */
static struct request story_request(const struct engine *e, struct sampling sampling, int max_tokens) {
    struct request r = text_request(e, "Once upon a time", max_tokens);
    r.generation.sampling = sampling;
    r.generation.seed = 7;
    r.generation.ignore_end = true;
    return r;
}

static void first_turn(struct engine *e, struct sequence *s, const struct plan *plan, struct outcome *o) {
    struct request r = story_request(e, plan->sampling, plan->cause == MAX_TOKENS ? plan->at : STORY_TOKENS);
    r.generation.ignore_end = plan->cause != END_ID;
    struct listener l = {.plan = plan, .text = plan->stop ? stop_stream(e, plan->stop) : NULL};
    run_answer(e, s, &r.prompt, r.generation, &l);
    o->kept = l.kept, o->offset = l.offset, o->finish = l.finish;
    int n;
    engine_tokens(s, &n);
    const struct acceptance *a = engine_sequence_stats(s);
    require(n == (int)r.prompt.len + l.kept, "%d tokens in the history, %zu and %d due", n, r.prompt.len, l.kept);
    require(a->emitted == l.kept, "%lld tokens counted of %d", (long long)a->emitted, l.kept);
    require(a->cut == 0 || plan->cause == CTRL_C || plan->cause == STOP_STRING, "%lld tokens cut", (long long)a->cut);
    text_stream_free(l.text);
    buf_free(&l.shown);
    free_requests(&r, 1);
}

/* After the context's end the last tokens go first, as when a chat drops turns. */
static void second_turn(struct engine *e, struct sequence *s, const struct plan *plan) {
    static const struct plan free_plan = {.cause = MAX_TOKENS};
    struct request r = text_request(e, " Then the dog", 9);
    r.generation.sampling = plan->sampling;
    r.generation.seed = 8;
    r.generation.ignore_end = true;
    int n;
    engine_tokens(s, &n);
    if (plan->cause == CONTEXT) {
        ck_ok(engine_truncate(e, s, n > 14 ? n - 14 : 1));
        r.prompt.len = 2;
    }
    struct listener l = {.plan = &free_plan};
    run_answer(e, s, &r.prompt, r.generation, &l);
    free_requests(&r, 1);
}

static struct outcome run_chat(struct engine *e, const struct plan *plan) {
    struct outcome o = {0};
    struct sequence *s;
    int n;
    ck_ok(engine_open(e, CHAT_TOKENS_MAX, &s));
    first_turn(e, s, plan, &o);
    second_turn(e, s, plan);
    const int32_t *tokens = engine_tokens(s, &n);
    ids_append(&o.history, tokens, (size_t)n);
    engine_close(e, s);
    return o;
}

/* --- plain against speculating -------------------------------------------------------------------------------------- */

struct trial {
    struct pair pair;
    bool coupled;
    struct ids story; /* the first answer, uncut */
    int prompt_tok;
    char decoded[2048];
    struct sampling sampling;
    bool seen[CAUSES][K + 1]; /* offsets */
    int chats;
};

static struct engine *open_engine(const struct trial *t, const struct plan *plan, int k) {
    struct pair pair = t->pair;
    if (plan->cause == END_ID)
        pair.target = copy_model_with(pair.target, "end", "eos_token_id", t->story.data[plan->at - 1]);
    struct engine_options o = pair_options(&pair, k, 2);
    o.threads = 1, o.pipeline = 2;
    o.accept = t->coupled ? ACCEPT_COUPLED : ACCEPT_TOKEN;
    o.context = plan->cause == CONTEXT ? t->prompt_tok + plan->at : CHAT_TOKENS_MAX;
    return must_open(&o);
}

static void compare(struct trial *t, struct engine *plain, struct engine *e, const struct plan *plan) {
    struct outcome expected = run_chat(plain, plan), got = run_chat(e, plan);
    require(got.kept == expected.kept && got.finish == expected.finish,
            "cause %d at %d: kept %d, finish %d, not %d, %d", (int)plan->cause, plan->at, got.kept, (int)got.finish,
            expected.kept, (int)expected.finish);
    require(got.history.len == expected.history.len &&
                memcmp(got.history.data, expected.history.data, got.history.len * sizeof *got.history.data) == 0,
            "cause %d at %d: another history", (int)plan->cause, plan->at);
    t->seen[plan->cause][got.offset] = true;
    t->chats++;
    ids_free(&expected.history);
    ids_free(&got.history);
}

static bool is_new_token(const struct trial *t, int at) {
    for (int i = 0; i < at - 1; i++)
        if (t->story.data[i] == t->story.data[at - 1]) return false;
    return true;
}

static bool all_offsets_seen(const struct trial *t, enum cause cause) {
    for (int offset = 0; offset <= K; offset++)
        if (!t->seen[cause][offset]) return false;
    return true;
}

/* END_ID and CONTEXT need an engine for each place, and take as many as it needs to see every offset. */
static void try_places(struct trial *t, enum cause cause) {
    enum { PLACES = 4 * K + 4 };
    struct plan plan = {.cause = cause, .at = 1, .sampling = t->sampling};
    bool shared = cause != END_ID && cause != CONTEXT;
    struct engine *plain = shared ? open_engine(t, &plan, 0) : NULL, *e = shared ? open_engine(t, &plan, K) : NULL;
    char stop[8] = "";
    if (cause == STOP_STRING) plan.stop = stop;
    for (plan.at = 1; plan.at <= PLACES; plan.at++) {
        if (!shared && all_offsets_seen(t, cause)) break;
        if (cause == END_ID && !is_new_token(t, plan.at)) continue;
        if (cause == STOP_STRING) memcpy(stop, t->decoded + 3 * plan.at, 5);
        if (!shared) plain = open_engine(t, &plan, 0), e = open_engine(t, &plan, K);
        compare(t, plain, e, &plan);
        if (!shared) engine_destroy(plain), engine_destroy(e);
    }
    if (shared) engine_destroy(plain), engine_destroy(e);
}

/* The answer without an end, to know its tokens and text. */
static void tell_story(struct trial *t) {
    struct engine *plain = open_engine(t, &(struct plan){.cause = MAX_TOKENS}, 0);
    struct request r = story_request(plain, t->sampling, STORY_TOKENS);
    struct answer a;
    run_requests(plain, &r, 1, &a);
    t->story = a.ids, t->prompt_tok = (int)r.prompt.len;
    struct buf text = {0};
    ck_ok(tokenizer_decode(engine_tokenizer(plain), a.ids.data, a.ids.len, true, &text));
    snprintf(t->decoded, sizeof t->decoded, "%s", buf_text(&text));
    buf_free(&text);
    free_requests(&r, 1);
    engine_destroy(plain);
}

/* --- rows -------------------------------------------------------------------------------------------------------------- */

/* A draft equal to the target fills every block, so that the places are all offsets. */
enum drafter { SELF, DRAFT, NGRAM };

/* Making an engine takes a while on a GPU: there END_ID and CONTEXT are tried with one draft. */
static bool is_tried(enum cause cause, enum drafter drafter) {
    return drafter == SELF || test_device_is_host() || (cause != END_ID && cause != CONTEXT);
}

static void run_trial(struct trial *t, enum drafter drafter, float temperature) {
    if (drafter == SELF) t->pair.draft = t->pair.target;
    if (drafter == NGRAM) t->pair = ngram_pair(&t->pair);
    t->coupled = temperature > 0;
    t->sampling = (struct sampling){temperature, 1, 0, 0, 1};
    tell_story(t);
    for (int cause = 0; cause < CAUSES; cause++)
        if (is_tried((enum cause)cause, drafter)) try_places(t, (enum cause)cause);
    ids_free(&t->story);
}

static int count_seen(const struct trial *t) {
    int seen = 0;
    for (int cause = 0; cause < CAUSES; cause++)
        for (int offset = 0; offset <= K; offset++) seen += t->seen[cause][offset];
    return seen;
}

static void add_trials(struct fidelity *f, const char *claim, float temperature) {
    struct pair pairs[PAIRS_MAX];
    int chats = 0, seen = 0, count = test_pairs(pairs);
    for (int i = 0; i < (f->small || !test_device_is_host() ? 1 : count); i++)
        for (int drafter = SELF; drafter <= NGRAM; drafter++) {
            if (f->small && drafter == DRAFT) continue;
            struct trial t = {.pair = f->small ? quick_pair() : pairs[i]};
            run_trial(&t, (enum drafter)drafter, temperature);
            chats += t.chats;
            if (count_seen(&t) > seen) seen = count_seen(&t);
        }
    int due = CAUSES * (K + 1);
    fidelity_add(f, seen == due, claim, text("%d chats of 2 turns", chats),
                 text("differ: 0; ends at offsets: %d", seen), text("0; %d", due));
}

void fidelity_ends(struct fidelity *f) {
    add_trials(f, "ends: every end at every offset, then a turn, greedy", 0);
    add_trials(f, "ends: every end at every offset, then a turn, sampled coupled", 0.9f);
}
