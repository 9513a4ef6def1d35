/* Whole texts: greedy ones are those of plain decoding, sampled ones those of the same seed alone. */
#include <stdio.h>
#include <string.h>

#include "tests/fidelity/study.h"
#include "tests/support/support.h"

/* What is asked of the studies [first, end) of the test data: one row. */
struct question {
    const char *claim;
    int (*fixtures)(struct study studies[STUDY_PAIRS_MAX]); /* these, all of them, in place of the pairs */
    int first, end;
    bool sampled;
    enum accept_rule rule;
    bool any_draft; /* then with a cut draft and with the target as its own draft too */
    bool is_cut;    /* the draft's head has some ids alone */
    bool ngram;     /* with n-gram lookup in place of the draft */
    enum kv_numbers kv;
};

static void run_study(struct study *s, const struct question *q) {
    if (q->ngram) s->pair = ngram_pair(&s->pair);
    if (q->sampled || q->ngram || q->is_cut || q->kv) s->amount = s->amount == STUDY_ALL ? STUDY_SOME : STUDY_FEW;
    if (q->is_cut) s->draft_vocab = "100"; /* the least of the pairs has 105 ids */
    s->kv = q->kv;
    study_open(s, q->sampled);
    study_run(s, q->rule);
    if (q->any_draft) {
        s->draft_vocab = "100";
        study_run(s, q->rule);
        s->draft_vocab = NULL;
        s->pair.draft = s->pair.target;
        study_run(s, q->rule);
    }
    study_close(s);
}

static void ask(struct fidelity *f, struct question q) {
    static struct study studies[STUDY_PAIRS_MAX];
    int count = q.fixtures ? q.fixtures(studies) : study_pairs(studies, f->small), cells = 0;
    int end = q.fixtures || q.end > count ? count : q.end;
    int64_t tokens = 0;
    if (q.first >= end) {
        fidelity_skip(f, q.claim, "no test data beside the checkout");
        return;
    }
    for (int i = q.first; i < end; i++) {
        run_study(&studies[i], &q);
        cells += studies[i].cells, tokens += studies[i].tokens;
    }
    fidelity_add(f, true, q.claim, text("%d cells, %s tokens", cells, count_text(tokens)), "tokens that differ: 0",
                 "0");
}

void fidelity_greedy(struct fidelity *f) {
    ask(f, (struct question){.claim = "greedy: any K, batch, slot, graphs, rule: the embedded pair", .end = 1});
    ask(f, (struct question){
               .claim = "greedy: any K, batch, slot, graphs, rule: trained pairs", .first = 1, .end = PAIRS_MAX});
    if (!f->small) {
        ask(f, (struct question){.claim = "greedy: any K, batch, slot, graphs, rule: every family",
                                 .fixtures = study_families});
        ask(f, (struct question){.claim = "greedy: any K, batch, slot, graphs, rule: quantised safetensors",
                                 .fixtures = study_formats});
    }
    ask(f, (struct question){.claim = "greedy: any K, batch, slot, graphs, rule: a cut draft",
                             .end = f->small ? 1 : PAIRS_MAX,
                             .is_cut = true});
    ask(f, (struct question){.claim = "greedy: any K, batch, slot, graphs, rule: n-gram",
                             .end = f->small ? 1 : PAIRS_MAX,
                             .ngram = true});
    ask(f, (struct question){.claim = "greedy: any K, batch, slot, graphs, rule: FP8 keys and values",
                             .end = f->small ? 1 : PAIRS_MAX,
                             .kv = KV_FP8});
}

/* At small sizes the smallest pair there is. */
static struct question sampled(const struct fidelity *f, const char *claim, enum accept_rule rule) {
    bool one = f->small && shared_path("models/stories260K");
    return (struct question){
        .claim = claim, .first = one, .end = f->small ? 1 + one : PAIRS_MAX, .sampled = true, .rule = rule};
}

void fidelity_sampled(struct fidelity *f) {
    ask(f, sampled(f, "sampled, token, same seed and K: any batch, slot, graphs", ACCEPT_TOKEN));
    ask(f, sampled(f, "sampled, block, same seed and K: any batch, slot, graphs", ACCEPT_BLOCK));
    struct question coupled =
        sampled(f, "sampled, coupled, same seed: any K, draft, batch, slot, graphs", ACCEPT_COUPLED);
    coupled.any_draft = true;
    ask(f, coupled);
    struct question ngram[] = {
        sampled(f, "sampled, token, same seed and K: any batch, slot, graphs: n-gram", ACCEPT_TOKEN),
        sampled(f, "sampled, block, same seed and K: any batch, slot, graphs: n-gram", ACCEPT_BLOCK),
        sampled(f, "sampled, coupled, same seed: any K, batch, slot, graphs: n-gram", ACCEPT_COUPLED),
    };
    for (int i = 0; i < 3; i++) {
        ngram[i].ngram = true;
        ask(f, ngram[i]);
    }
}
