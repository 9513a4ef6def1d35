/* How recurrent states follow speculation: what a layer's state stands for, and from where a pass goes on.
 *
 * A state cannot be written over by position as keys and values are, so it lags. It stands for the positions before `settled`; what was
 * projected at later ones is kept, and a pass that begins at a position computes the state there anew. A pass whose rows may be taken
 * back settles what came before the pass before it: the host may stop a sequence at a round that it reads while one more runs already.
 * Every position goes through the same steps whoever computes it, so grouping and rejected rows leave no trace in a bit. */
#ifndef DUET_MODEL_RECURRENCE_H
#define DUET_MODEL_RECURRENCE_H

#include "model/operands.h"

enum { RECURRENT_DIM_MAX = 128, RECURRENT_TAPS_MAX = 4 }; /* DK, DV; of the convolution */

/* Of a sequence: its states' position; where its last pass began that was not of drafted rows. */
struct recurrence_mark {
    int32_t settled, first;
};

/* Of a graph row in one pass: states of `slot` are read at `from`, and kept at `settle`; rows `row` and on have the positions first..end-1.
 * Without such rows `end` is 0. */
struct recurrence_step {
    int32_t slot, row, from, settle, first, end;
};

/* The same for a row of `count` positions from `first` on, and where it leaves the sequence's mark. At position 0 every state is zero. */
OPERAND_INLINE struct recurrence_step recurrence_advance(struct recurrence_mark *m, enum rows_standing standing,
                                                         int slot, int row, int first, int count) {
    struct recurrence_step step = {slot, row, 0, 0, 0, 0};
    if (slot == 0 || count == 0) return step;
    if (first == 0) m->settled = m->first = 0;
    step.from = m->settled, step.first = first, step.end = first + count;
    if (standing == ROWS_SCORED) {
        m->settled = m->first < first ? m->first : first;
        m->first = first;
    }
    if (standing == ROWS_KNOWN) m->settled = m->first = step.end - 1; /* a draft takes its last row again */
    step.settle = m->settled;
    return step;
}

/* Positions that are kept where passes have up to k + 1 rows: those of three passes, and of the convolution's taps before them. */
static inline int recurrence_kept_rows(int k_max) {
    return 3 * (k_max + 1) + 4 * RECURRENT_TAPS_MAX;
}

/* What is kept of a position and value head, before the convolution: q and k [DK] of its key head, v [DV], and the two numbers that make
 * beta and the decay. */
OPERAND_INLINE int recurrence_record(int key_dim, int value_dim) {
    return 2 * key_dim + value_dim + 2;
}

#endif
