/* Rows and their texts; the list of groups. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/fidelity/fidelity.h"
#include "tests/support/support.h"

const struct fidelity_group fidelity_groups[FIDELITY_GROUPS] = {
    {"plain", fidelity_plain},
    {"token", fidelity_token},
    {"coupled", fidelity_coupled},
    {"block", fidelity_block},
    {"ngram", fidelity_ngram},
    {"auto-token", fidelity_auto_token},
    {"auto-coupled", fidelity_auto_coupled},
    {"auto-block", fidelity_auto_block},
    {"auto-texts", fidelity_auto_texts},
    {"controls", fidelity_controls},
    {"greedy", fidelity_greedy},
    {"sampled", fidelity_sampled},
    {"caches", fidelity_caches},
    {"graphs", fidelity_graphs},
    {"ends", fidelity_ends},
    {"figures", fidelity_figures},
};

static char *next_text(void) {
    static char texts[8][256];
    static int turn;
    return texts[turn++ % 8];
}

const char *text(const char *format, ...) {
    char *out = next_text();
    va_list args;
    va_start(args, format);
    vsnprintf(out, 256, format, args);
    va_end(args);
    return out;
}

const char *count_text(int64_t n) {
    char digits[32], *out = next_text();
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n), at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

int64_t fidelity_size(const struct fidelity *f, int64_t full, int64_t small) {
    return !f->small ? full : SANITIZED && small > 7 ? small / 8 : small;
}

static void add(struct fidelity *f, enum fidelity_state state, const char *claim, const char *sample,
                const char *figure, const char *bound) {
    ck_assert_int_lt(f->count, (int)(sizeof f->rows / sizeof *f->rows));
    struct fidelity_row *row = &f->rows[f->count];
    snprintf(row->claim, sizeof row->claim, "%s", claim);
    snprintf(row->sample, sizeof row->sample, "%s", sample);
    snprintf(row->figure, sizeof row->figure, "%s", figure);
    snprintf(row->bound, sizeof row->bound, "%s", bound);
    row->state = state;
    f->count++;
}

void fidelity_add(struct fidelity *f, bool holds, const char *claim, const char *sample, const char *figure,
                  const char *bound) {
    add(f, holds ? FIDELITY_PASS : FIDELITY_FAIL, claim, sample, figure, bound);
}

void fidelity_skip(struct fidelity *f, const char *claim, const char *why) {
    add(f, FIDELITY_SKIPPED, claim, why, "", "");
}
