/* What a long prompt costs the answers that are being written when it arrives. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/bench.h"
#include "engine/probe.h"

enum { PROMPT_TOK = 4000, ROUNDS = 20, ROWS_MAX = 256 };

/* Answers in the background: when each heard last, and the longest pause of any since the watch began. */
struct row {
    int64_t last_us, pause_us;
};

static void hear(void *user, struct token_block *block) {
    struct row *r = user;
    int64_t now = clock_us();
    (void)block;
    if (r->last_us > 0 && now - r->last_us > r->pause_us) r->pause_us = now - r->last_us;
    r->last_us = now;
}

static void ignore(void *user, struct token_block *block) {
    (void)user, (void)block;
}

static struct ids made_up(const struct engine *e, int length) {
    struct ids ids = {0};
    for (int i = 0; i < length; i++) ids_push(&ids, (3 + 37 * i) % engine_info(e).vocab);
    return ids;
}

static int ask(struct engine *e, int prompt_tok, int max_tokens, token_fn on_tokens, void *user, struct sequence **s) {
    struct ids prompt = made_up(e, prompt_tok);
    struct generation g = {.max_tokens = max_tokens,
                           .sampling = {.top_p = 1},
                           .seed = 1,
                           .ignore_end = true,
                           .on_tokens = on_tokens,
                           .user = user};
    int rc = engine_open(e, prompt_tok + max_tokens, s);
    if (rc == 0) rc = engine_generate(e, *s, prompt.data, prompt.len, &g);
    ids_free(&prompt);
    return rc;
}

static int run_rounds(struct engine *e, int rounds) {
    int running;
    for (int i = 0; i < rounds; i++) TRY(engine_step(e, &running));
    return 0;
}

/* The longest pause of any row from now until the prompt's own answer has begun and a few rounds more. at_once: the prompt is
 * ingested before the next round, as if nobody waited. */
static int watch(struct engine *e, struct row *rows, int count, int prompt_tok, bool at_once, double *ms) {
    struct sequence *s = NULL;
    int running;
    for (int i = 0; i < count; i++) rows[i].pause_us = 0;
    int rc = prompt_tok > 0 ? ask(e, prompt_tok, ROUNDS, ignore, NULL, &s) : 0;
    if (rc == 0 && at_once) rc = probe_ingest(e);
    do
        if (rc == 0) rc = engine_step(e, &running);
    while (rc == 0 && engine_load(e).ingesting > 0);
    if (rc == 0) rc = run_rounds(e, ROUNDS / 2);
    if (s) engine_close(e, s);
    *ms = 0;
    for (int i = 0; i < count; i++)
        if ((double)rows[i].pause_us * 1e-3 > *ms) *ms = (double)rows[i].pause_us * 1e-3;
    return rc;
}

static int watch_all(struct engine *e, struct row *rows, int count, struct bench_pause *p) {
    TRY(probe_ingest(e));
    TRY(run_rounds(e, ROUNDS / 2));
    TRY(watch(e, rows, count, 0, false, &p->round_ms));
    TRY(watch(e, rows, count, p->tokens, true, &p->at_once_ms));
    return watch(e, rows, count, p->tokens, false, &p->between_ms);
}

int bench_pause(struct engine *e, int batch, struct bench_pause *p) {
    const struct engine_info info = engine_info(e);
    const int count = batch - 1, answer = 8 * ROUNDS * (info.k + 1);
    struct sequence *sequences[ROWS_MAX] = {0};
    struct row rows[ROWS_MAX] = {0};
    int rc = 0;
    *p = (struct bench_pause){.tokens = info.context < PROMPT_TOK + ROUNDS ? info.context - ROUNDS : PROMPT_TOK};
    if (count < 1 || info.context < answer + 8 || p->tokens < PROMPT_TOK / 4) return 0;
    for (int i = 0; i < count && rc == 0; i++) rc = ask(e, 8 + i, answer - i, hear, &rows[i], &sequences[i]);
    if (rc == 0) rc = watch_all(e, rows, count, p);
    for (int i = 0; i < count; i++)
        if (sequences[i]) engine_close(e, sequences[i]);
    return rc;
}
