/* The ops' formulas in plain double precision, for the suites that compare with them. */
#ifndef DUET_TESTS_OPS_REFERENCE_H
#define DUET_TESTS_OPS_REFERENCE_H

#include "tests/support/mini.h"

enum { REFERENCE_MAX = 8192 }; /* numbers of a row */

/* Results are f32 sums of O(1) terms: |got - expected| <= 2e-5 + 2e-5 |expected|. */
void close_to(float got, double expected, const char *what, int row, int col);

/* A shape out of all that matter: odd widths, GQA, MQA, small and large heads, and what families have, by chance. */
struct mini_shape reference_shape(struct lab *, int turn);

void reference_widen(double *out, const float *in, int n);
/* In place or not. */
void reference_norm(double *y, const double *x, const struct norm *, int n);
/* W's row by x, and its number of the bias. */
double reference_product(const struct weight *, const struct weight *bias, int row, const double *x);
double reference_activation(enum activation, double gate, double up);
double reference_cap(double x, double cap);
/* RoPE of one head of `dim` dimensions. */
void reference_turn(const struct rope *, int slot, int position, bool is_q, int dim, double *head);

#endif
