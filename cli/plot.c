#include "cli/plot.h"

#include <math.h>
#include <stdio.h>

/* In pixels; the area of a panel lies at (left, TOP) in it. */
enum { PANEL = 440, LEFT = 56, RIGHT = 16, TOP = 76, HEIGHT = 240, BELOW = 52, ENTRY = 20, ENTRY_WIDTH = 192 };
enum { TICKS_X = 10, TICKS_Y = 6, AREA = PANEL - LEFT - RIGHT };

static void put_text(struct buf *out, const char *text) {
    for (; *text; text++) {
        if (*text == '<')
            buf_puts(out, "&lt;");
        else if (*text == '>')
            buf_puts(out, "&gt;");
        else if (*text == '&')
            buf_puts(out, "&amp;");
        else
            buf_putc(out, *text);
    }
}

static void put_label(struct buf *out, double x, double y, const char *attributes, const char *text) {
    buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, attributes);
    put_text(out, text);
    buf_puts(out, "</text>\n");
}

double plot_tick(double range, int most) {
    static const double steps[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(range / most)));
    int i = 0;
    while (i < 3 && range / (steps[i] * power) > most * (1 + 1e-9)) i++;
    return steps[i] * power;
}

/* --- scales --------------------------------------------------------------------------------------------------- */

struct scale {
    double x_low, x_high, y_high;
    double x_tick, y_tick;
    double left;   /* of the area, in the picture */
    bool has_bars; /* or piles */
};

static double place_x(const struct scale *s, double x) {
    return s->left + AREA * (x - s->x_low) / (s->x_high - s->x_low);
}

static double place_y(const struct scale *s, double y) {
    return TOP + HEIGHT * (1 - y / s->y_high);
}

static double spread_at(const struct plot_series *s, int i) {
    return s->spread && isfinite(s->spread[i]) ? s->spread[i] : 0;
}

static bool is_bar(const struct plot_series *s) {
    return s->mark == PLOT_BARS || s->mark == PLOT_PILES;
}

/* What the pile at index j has below this series. */
static double pile_below(const struct plot_series *series, int which, int j) {
    double sum = 0;
    for (int i = 0; i < which && series[which].mark == PLOT_PILES; i++)
        if (series[i].mark == PLOT_PILES && j < series[i].count && isfinite(series[i].y[j])) sum += series[i].y[j];
    return sum;
}

/* Of all finite points; false: there is none. */
static bool find_range(const struct plot_panel *p, struct scale *s, bool *whole) {
    *s = (struct scale){.x_low = INFINITY, .x_high = -INFINITY, .y_high = isfinite(p->level) ? p->level : 0};
    *whole = true;
    for (int i = 0; i < p->count; i++) {
        const struct plot_series *series = &p->series[i];
        s->has_bars = s->has_bars || is_bar(series);
        for (int j = 0; j < series->count; j++) {
            if (!isfinite(series->y[j])) continue;
            s->x_low = fmin(s->x_low, series->x[j]);
            s->x_high = fmax(s->x_high, series->x[j]);
            s->y_high = fmax(s->y_high, pile_below(p->series, i, j) + series->y[j] + spread_at(series, j));
            *whole = *whole && series->x[j] == floor(series->x[j]);
        }
    }
    return s->x_low <= s->x_high;
}

static struct scale scale_of(const struct plot_panel *p, int index) {
    struct scale s;
    bool whole;
    if (!find_range(p, &s, &whole)) s.x_low = 0, s.x_high = 1;
    if (!(s.y_high > 0)) s.y_high = 1;
    double range = s.x_high > s.x_low ? s.x_high - s.x_low : 1, pad = s.has_bars ? 0.5 : 0.04 * range;
    s.x_tick = plot_tick(range, TICKS_X);
    if (whole && s.x_tick < 1) s.x_tick = 1;
    s.x_low -= pad, s.x_high += pad;
    s.y_tick = plot_tick(s.y_high, TICKS_Y);
    s.y_high = ceil(s.y_high / s.y_tick * (1 - 1e-9)) * s.y_tick;
    s.left = index * PANEL + LEFT;
    return s;
}

/* --- what a panel holds --------------------------------------------------------------------------------------- */

static void put_line(struct buf *out, const char *class, double x1, double y1, double x2, double y2) {
    buf_printf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1, y1, x2, y2);
}

static void put_axes(struct buf *out, const struct plot_panel *p, const struct scale *s) {
    char number[32], turned[64];
    double right = s->left + AREA, bottom = TOP + HEIGHT;
    for (int i = 0; i * s->y_tick <= s->y_high * (1 + 1e-9); i++) {
        double y = place_y(s, i * s->y_tick);
        snprintf(number, sizeof number, "%.6g", i * s->y_tick);
        put_line(out, i ? "grid" : "axis", s->left, y, right, y);
        put_label(out, s->left - 6, y + 4, " text-anchor=\"end\"", number);
    }
    for (double i = ceil(s->x_low / s->x_tick); i * s->x_tick <= s->x_high; i++) {
        double x = place_x(s, i * s->x_tick);
        snprintf(number, sizeof number, "%.6g", i * s->x_tick + 0.0); /* no -0 */
        put_line(out, "axis", x, bottom, x, bottom + 4);
        put_label(out, x, bottom + 18, " text-anchor=\"middle\"", number);
    }
    if (isfinite(p->level)) put_line(out, "level", s->left, place_y(s, p->level), right, place_y(s, p->level));
    put_label(out, s->left, TOP - 16, " class=\"title\"", p->title);
    put_label(out, s->left + AREA / 2.0, bottom + 38, " text-anchor=\"middle\"", p->x_title);
    double x = s->left - LEFT + 14, y = TOP + HEIGHT / 2.0;
    snprintf(turned, sizeof turned, " text-anchor=\"middle\" transform=\"rotate(-90 %.1f %.1f)\"", x, y);
    put_label(out, x, y, turned, p->y_title);
}

static void put_path(struct buf *out, const struct plot_series *series, const struct scale *s) {
    bool pen_down = false;
    buf_printf(out, "<path class=\"line c%d%s\" d=\"", series->color, series->mark == PLOT_DASHES ? " dashes" : "");
    for (int i = 0; i < series->count; i++) {
        bool is_there = isfinite(series->y[i]);
        if (is_there)
            buf_printf(out, " %c%.1f %.1f", pen_down ? 'L' : 'M', place_x(s, series->x[i]), place_y(s, series->y[i]));
        pen_down = is_there;
    }
    buf_puts(out, "\"/>\n");
}

static void put_whisker(struct buf *out, const struct plot_series *series, const struct scale *s, int i, double x) {
    double spread = spread_at(series, i), low = fmax(series->y[i] - spread, 0);
    if (!(spread > 0)) return;
    buf_printf(out, "<path class=\"whisker c%d\" d=\"M%.1f %.1f V%.1f\"/>\n", series->color, x, place_y(s, low),
               place_y(s, series->y[i] + spread));
}

static void put_points(struct buf *out, const struct plot_series *series, const struct scale *s) {
    put_path(out, series, s);
    for (int i = 0; i < series->count && series->mark == PLOT_LINE; i++) {
        double x = place_x(s, series->x[i]);
        if (!isfinite(series->y[i])) continue;
        put_whisker(out, series, s, i, x);
        buf_printf(out, "<circle class=\"point c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>%.4g</title></circle>\n",
                   series->color, x, place_y(s, series->y[i]), series->y[i]);
    }
}

static bool has_bar_at(const struct plot_series *s, double x) {
    for (int i = 0; i < s->count && s->mark == PLOT_BARS; i++)
        if (s->x[i] == x && isfinite(s->y[i])) return true;
    return false;
}

/* Of the bars at x those of the first `series` of a panel. */
static int count_bars_at(const struct plot_panel *p, int series, double x) {
    int count = 0;
    for (int i = 0; i < series; i++) count += has_bar_at(&p->series[i], x);
    return count;
}

static void put_bar(struct buf *out, const struct plot_series *series, const struct scale *s, int i, double left,
                    double width, double below) {
    double y = place_y(s, below + series->y[i]);
    buf_printf(out,
               "<rect class=\"bar c%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%.4g</title>"
               "</rect>\n",
               series->color, left, y, width * 0.92, place_y(s, below) - y, series->y[i]);
    put_whisker(out, series, s, i, left + width * 0.46);
}

static void put_bars(struct buf *out, const struct plot_panel *p, int which, const struct scale *s) {
    const struct plot_series *series = &p->series[which];
    const bool is_pile = series->mark == PLOT_PILES;
    for (int i = 0; i < series->count; i++) {
        const double x = series->x[i];
        if (!isfinite(series->y[i])) continue;
        const int bars = is_pile ? 1 : count_bars_at(p, p->count, x), before = is_pile ? 0 : count_bars_at(p, which, x);
        const double width = 0.8 * AREA / (s->x_high - s->x_low) / bars;
        put_bar(out, series, s, i, place_x(s, x) + (before - bars / 2.0) * width, width,
                pile_below(p->series, which, i));
    }
}

static void put_legend(struct buf *out, const struct plot_panel *p, const struct scale *s) {
    int entries = 0;
    for (int i = 0; i < p->count; i++) {
        const struct plot_series *series = &p->series[i];
        if (!series->name) continue;
        double x = s->left + entries % 2 * ENTRY_WIDTH, y = TOP + HEIGHT + BELOW + ENTRY * (entries / 2 + 0.5);
        entries++;
        if (is_bar(series))
            buf_printf(out, "<rect class=\"bar c%d\" x=\"%.1f\" y=\"%.1f\" width=\"22\" height=\"10\"/>\n",
                       series->color, x, y - 5);
        else
            buf_printf(out, "<path class=\"line c%d%s\" d=\"M%.1f %.1f h22\"/>\n", series->color,
                       series->mark == PLOT_DASHES ? " dashes" : "", x, y);
        put_label(out, x + 28, y + 4, "", series->name);
    }
}

static void put_panel(struct buf *out, const struct plot_panel *p, int index) {
    struct scale s = scale_of(p, index);
    put_axes(out, p, &s);
    for (int i = 0; i < p->count; i++) {
        if (is_bar(&p->series[i]))
            put_bars(out, p, i, &s);
        else
            put_points(out, &p->series[i], &s);
    }
    put_legend(out, p, &s);
}

/* --- the picture ---------------------------------------------------------------------------------------------- */

/* Series take their colours by class, so that the reader's scheme chooses them. */
static const char style[] =
    "<style>\n"
    "text{font:12px system-ui,sans-serif;fill:#1f2328}\n"
    ".title{font-weight:600;font-size:13px}.head{font-weight:600;font-size:15px}\n"
    ".ground{fill:#ffffff}.axis{stroke:#59636e}.grid{stroke:#d1d9e0}\n"
    ".level{stroke:#59636e;stroke-dasharray:1 3}\n"
    ".line{fill:none;stroke:currentColor;stroke-width:2}.dashes{stroke-dasharray:6 4;stroke-width:1.5}\n"
    ".whisker{stroke:currentColor;stroke-width:1.5}.point,.bar{fill:currentColor}\n"
    ".c0{color:#0969da}.c1{color:#1a7f37}.c2{color:#bc4c00}.c3{color:#8250df}.c4{color:#bf3989}.c5{color:#6e7781}"
    ".c6{color:#9a6700}\n"
    "@media (prefers-color-scheme:dark){\n"
    "text{fill:#f0f6fc}.ground{fill:#0d1117}.axis,.level{stroke:#9198a1}.grid{stroke:#3d444d}\n"
    ".c0{color:#58a6ff}.c1{color:#3fb950}.c2{color:#f0883e}.c3{color:#bc8cff}.c4{color:#ff7bb8}.c5{color:#b1bac4}"
    ".c6{color:#d4a72c}\n"
    "}\n"
    "</style>\n";

static int legend_lines(const struct plot_panel *panels, int count) {
    int most = 0;
    for (int i = 0; i < count; i++) {
        int entries = 0;
        for (int j = 0; j < panels[i].count; j++) entries += panels[i].series[j].name != NULL;
        if ((entries + 1) / 2 > most) most = (entries + 1) / 2;
    }
    return most;
}

void plot_svg(struct buf *out, const char *title, const struct plot_panel *panels, int count) {
    int width = PANEL * count, height = TOP + HEIGHT + BELOW + ENTRY * legend_lines(panels, count) + 12;
    buf_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
               "role=\"img\">\n<title>",
               width, height, width, height);
    put_text(out, title);
    buf_printf(out, "</title>\n%s<rect class=\"ground\" width=\"%d\" height=\"%d\"/>\n", style, width, height);
    put_label(out, 16, 28, " class=\"head\"", title);
    for (int i = 0; i < count; i++) put_panel(out, &panels[i], i);
    buf_puts(out, "</svg>");
}
