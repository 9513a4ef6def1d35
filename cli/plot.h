/* Charts as SVG: panels side by side, each with axes, lines or bars, and a legend below it. Text stays text, and the colours, which
 * follow the reader's scheme, can be read on light and dark grounds. Pure: appends to a buffer. */
#ifndef DUET_CLI_PLOT_H
#define DUET_CLI_PLOT_H

#include "base/buf.h"

enum { PLOT_COLORS = 7 };

/* PLOT_DASHES, a line without markers, is for what a model says beside what was measured. Of PLOT_BARS those that share an x stand
 * side by side; of PLOT_PILES each stands on the series before it, which has the same x at the same index. */
enum plot_mark { PLOT_LINE, PLOT_DASHES, PLOT_BARS, PLOT_PILES };

struct plot_series {
    const char *name; /* in the legend; NULL: not there */
    enum plot_mark mark;
    int color;            /* 0..PLOT_COLORS-1 */
    const double *x, *y;  /* [count], x ascending; where y is not finite the line has a gap */
    const double *spread; /* [count] of whiskers above and below, not finite: none; NULL: none at all */
    int count;
};

struct plot_panel {
    const char *title, *x_title, *y_title;
    const struct plot_series *series; /* [count] */
    int count;
    double level; /* a thin line across at this y; NAN: none */
};

/* The y axis begins at 0. A panel without a finite point has empty axes from 0 to 1. */
void plot_svg(struct buf *out, const char *title, const struct plot_panel *panels, int count);

/* The least of 1, 2 and 5 times a power of ten of which at most `most` fit into `range` (above 0). */
double plot_tick(double range, int most);

#endif
