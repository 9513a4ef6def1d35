/* Pairwise covering arrays: cells in which every level of every factor meets every level of every other. */
#ifndef DUET_TESTS_PAIRWISE_H
#define DUET_TESTS_PAIRWISE_H

enum { PAIRWISE_FACTORS_MAX = 8, PAIRWISE_LEVELS_MAX = 18, PAIRWISE_CELLS_MAX = 512 };

struct pairwise {
    int factors, levels[PAIRWISE_FACTORS_MAX];
    int count;
    int cells[PAIRWISE_CELLS_MAX][PAIRWISE_FACTORS_MAX]; /* [cell][factor] level */
};

/* The same cells for the same levels, about as many as the two largest factors have pairs. */
void pairwise_make(struct pairwise *, int factors, const int *levels);

#endif
