#include "tests/support/api_support.h"

#include "tests/support/support.h"

struct duet *api_open_pair(int batch) {
    struct duet_options o;
    struct duet *d;
    duet_options_init(&o, sizeof o);
    o.batch = batch;
    o.context = 512;
    o.threads = 1;
    ck_done(duet_open(&d, &o));
    return d;
}

struct duet_request api_request(const char *prompt, int max_tokens, uint64_t seed) {
    struct duet_request r;
    duet_request_init(&r, sizeof r);
    r.prompt = prompt;
    r.max_tokens = max_tokens;
    r.seed = seed;
    r.has_seed = 1;
    r.ignore_eos = 1;
    return r;
}

void api_run_all(struct duet *d) {
    for (int32_t running = 1; running > 0;) ck_done(duet_step(d, &running));
}

bool api_same_ids(const struct duet_answer *a, const struct duet_answer *b) {
    size_t n, m;
    const int32_t *x = duet_answer_ids(a, &n), *y = duet_answer_ids(b, &m);
    return n == m && n > 0 && memcmp(x, y, n * sizeof *x) == 0;
}
