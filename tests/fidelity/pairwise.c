#include "tests/fidelity/pairwise.h"

#include <stdbool.h>
#include <string.h>

#include "tests/support/support.h"

/* [factor][level][factor][level] that some cell has. */
typedef bool pair_set[PAIRWISE_FACTORS_MAX][PAIRWISE_LEVELS_MAX][PAIRWISE_FACTORS_MAX][PAIRWISE_LEVELS_MAX];

/* Pairs that level `level` of `factor` would add to a cell whose factors of level >= 0 are chosen. */
static int gain(const struct pairwise *a, pair_set have, const int *cell, int factor, int level) {
    int pairs = 0;
    for (int f = 0; f < a->factors; f++)
        if (f != factor && cell[f] >= 0) pairs += !have[factor][level][f][cell[f]];
    return pairs;
}

static bool first_missing(const struct pairwise *a, pair_set have, int *cell) {
    for (int f = 0; f < a->factors; f++)
        for (int g = f + 1; g < a->factors; g++)
            for (int i = 0; i < a->levels[f]; i++)
                for (int j = 0; j < a->levels[g]; j++) {
                    if (have[f][i][g][j]) continue;
                    cell[f] = i, cell[g] = j;
                    return true;
                }
    return false;
}

/* Greedy: begins with a missing pair and takes for each other factor the level that adds most; among equals one that the
 * cells take in turn. */
void pairwise_make(struct pairwise *a, int factors, const int *levels) {
    static pair_set have;
    memset(have, 0, sizeof have);
    a->factors = factors, a->count = 0;
    memcpy(a->levels, levels, sizeof *levels * (size_t)factors);
    for (;; a->count++) {
        ck_assert_int_lt(a->count, PAIRWISE_CELLS_MAX);
        int *cell = a->cells[a->count];
        memset(cell, -1, sizeof a->cells[0]);
        if (!first_missing(a, have, cell)) return;
        for (int f = 0; f < factors; f++) {
            if (cell[f] >= 0) continue;
            int best = -1;
            for (int i = 0; i < levels[f]; i++) {
                int level = (i + a->count) % levels[f];
                if (best < 0 || gain(a, have, cell, f, level) > gain(a, have, cell, f, best)) best = level;
            }
            cell[f] = best;
        }
        for (int f = 0; f < factors; f++)
            for (int g = 0; g < factors; g++) have[f][cell[f]][g][cell[g]] = true;
    }
}
