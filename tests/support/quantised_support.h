/* Random weights in every quantised format, and what they stand for. */
#ifndef DUET_TESTS_QUANTISED_SUPPORT_H
#define DUET_TESTS_QUANTISED_SUPPORT_H

#include "tests/support/ops_lab.h"

struct quantised_form {
    enum dtype format, scale;
    int group, scale_rows; /* columns and rows of a cell; 0: all */
    bool has_zeros, is_out_of_order;
};
enum { QUANTISED_FORMS = 26 };
extern const struct quantised_form quantised_forms[];

/* Of a form whose blocks have their scales inside, *scales stays as it is. */
struct weight quantised_weight(struct lab *, const struct quantised_form *, struct scales *, int rows, int cols);
struct weight dequantised_weight(struct lab *, const struct weight *); /* in f32 */

#endif
