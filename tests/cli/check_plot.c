/* Charts: what plot_svg writes, and the picture of --alpha-report. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/plot.h"
#include "cli/report.h"
#include "tests/support/program.h"
#include "tests/support/support.h"
#include "tests/support/xml.h"

/* --- charts ----------------------------------------------------------------------------------------------------- */

START_TEST(ticks_are_round_and_not_too_many)
{
    static const struct {
        double range;
        int most;
        double tick;
    } cases[] = {{8, 10, 1}, {1.58, 6, 0.5}, {0.78, 6, 0.2}, {63, 10, 10}, {1, 1, 1}, {1234, 6, 500}, {0.06, 6, 0.01}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_double_eq_tol(plot_tick(cases[i].range, cases[i].most), cases[i].tick, 1e-9 * cases[i].tick);
}
END_TEST

START_TEST(a_chart_is_xml_with_a_mark_for_each_point_and_a_gap_where_there_is_none)
{
    const double x[] = {0, 1, 2, 3, 4}, y[] = {1, 1.5, NAN, 1.2, 1.1}, spread[] = {0, 0.1, NAN, NAN, 0};
    const struct plot_series lines[] = {{"a < b & c", PLOT_LINE, 0, x, y, spread, 5},
                                        {NULL, PLOT_DASHES, 1, x, y, NULL, 5}};
    const struct plot_series bars[] = {{"one", PLOT_BARS, 2, x, y, NULL, 5}, {"two", PLOT_BARS, 3, x, y, NULL, 2}};
    const struct plot_panel panels[] = {{"left", "x", "y", lines, 2, 1}, {"right", "x", "y", bars, 2, NAN}};
    struct buf svg = {0};
    plot_svg(&svg, "a <title>", panels, 2);
    expect_xml(buf_text(&svg));
    ck_assert_int_eq(count_parts(buf_text(&svg), "<circle"), 4);
    ck_assert_int_eq(count_parts(buf_text(&svg), "class=\"whisker"), 1);
    ck_assert_int_eq(count_parts(buf_text(&svg), "class=\"bar"), 4 + 2 + 2); /* and two in the legend */
    ck_assert_int_eq(count_parts(buf_text(&svg), "class=\"level\""), 1);
    ck_assert_int_eq(count_parts(buf_text(&svg), ">a &lt; b &amp; c</text>"), 1);
    ck_assert_int_eq(count_parts(strstr(buf_text(&svg), "line c0"), " M"),
                     2 + 2); /* each line begins again behind the gap */
    ck_assert_ptr_null(strstr(buf_text(&svg), "nan"));
    ck_assert_ptr_nonnull(strstr(buf_text(&svg), "prefers-color-scheme:dark"));
    buf_free(&svg);
}
END_TEST

/* The n-th bar of a chart. */
struct bar {
    double x, y, width, height;
};
static struct bar bar_at(const struct buf *svg, int n) {
    const char *at = buf_text(svg);
    struct bar b = {0};
    for (int i = 0; i <= n && at; i++) at = strstr(i ? at + 1 : at, "<rect class=\"bar");
    ck_assert_ptr_nonnull(at);
    ck_assert_int_eq(
        sscanf(strstr(at, " x="), " x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"", &b.x, &b.y, &b.width, &b.height),
        4);
    return b;
}

START_TEST(bars_stand_beside_those_of_the_same_x_alone)
{
    const double x[] = {1, 2}, y[] = {3, 4};
    const struct plot_series apart[] = {{NULL, PLOT_BARS, 0, x, y, NULL, 1}, {NULL, PLOT_BARS, 1, x + 1, y, NULL, 1}},
                             beside[] = {{NULL, PLOT_BARS, 0, x, y, NULL, 2}, {NULL, PLOT_BARS, 1, x, y, NULL, 2}};
    const struct plot_panel panels[] = {{"", "x", "y", apart, 2, NAN}, {"", "x", "y", beside, 2, NAN}};
    struct buf svg = {0};
    plot_svg(&svg, "bars", panels, 2);
    const struct bar alone = bar_at(&svg, 0), next = bar_at(&svg, 1), left = bar_at(&svg, 2), right = bar_at(&svg, 4);
    ck_assert_double_eq_tol(next.width, alone.width, 0.2);
    ck_assert_double_eq_tol(left.width, alone.width / 2, 0.2);
    ck_assert_double_gt(right.x, left.x + left.width);
    ck_assert_double_lt(right.x, left.x + alone.width);
    buf_free(&svg);
}
END_TEST

START_TEST(piles_stand_on_what_came_before_and_fit_the_axis)
{
    const double x[] = {0, 5}, y[][2] = {{3, 1}, {NAN, 2}, {4, 2}};
    const struct plot_series piles[] = {{NULL, PLOT_PILES, 0, x, y[0], NULL, 2},
                                        {NULL, PLOT_PILES, 1, x, y[1], NULL, 2},
                                        {NULL, PLOT_PILES, 2, x, y[2], NULL, 2}};
    const struct plot_panel panel = {"", "x", "y", piles, 3, NAN};
    struct buf svg = {0};
    plot_svg(&svg, "piles", &panel, 1);
    const struct bar low = bar_at(&svg, 0), low_right = bar_at(&svg, 1), middle_right = bar_at(&svg, 2),
                     high = bar_at(&svg, 3), high_right = bar_at(&svg, 4);
    ck_assert_double_eq_tol(high.y + high.height, low.y, 0.2); /* nothing lies between them */
    ck_assert_double_eq_tol(high.height / low.height, 4.0 / 3, 0.01);
    ck_assert_double_eq_tol(middle_right.y + middle_right.height, low_right.y, 0.2);
    ck_assert_double_eq_tol(high_right.y + high_right.height, middle_right.y, 0.2);
    ck_assert_double_eq_tol(high.x, low.x, 0.2);
    ck_assert_ptr_nonnull(strstr(buf_text(&svg), ">8</text>")); /* of the axis: 7 is in the picture */
    buf_free(&svg);
}
END_TEST

START_TEST(a_chart_without_a_point_has_its_axes_still)
{
    const double x[] = {1}, y[] = {NAN};
    const struct plot_series series[] = {{"none", PLOT_BARS, 0, x, y, NULL, 1}, {"less", PLOT_LINE, 1, x, y, NULL, 0}};
    const struct plot_panel panel = {"empty", "x", "y", series, 2, NAN};
    struct buf svg = {0};
    plot_svg(&svg, "nothing", &panel, 1);
    expect_xml(buf_text(&svg));
    ck_assert_int_ge(count_parts(buf_text(&svg), "class=\"grid\""), 2);
    ck_assert_ptr_null(strstr(buf_text(&svg), "nan"));
    ck_assert_ptr_null(strstr(buf_text(&svg), "inf"));
    buf_free(&svg);
}
END_TEST

/* --- the picture of --alpha-report ------------------------------------------------------------------------------ */

START_TEST(a_forecast_is_the_expected_tokens_over_the_measured_cost_of_a_round)
{
    const double ms[FORECAST_K + 1] = {10, 12, 14, 25, NAN, NAN, NAN, NAN, NAN};
    struct forecast f = forecast_make(0.5, 1, ms);
    ck_assert_double_eq_tol(f.speed_up[0], 1, 1e-12);
    ck_assert_double_eq_tol(f.speed_up[1], 1.5 * 10 / 12, 1e-12);
    ck_assert_double_eq_tol(f.speed_up[2], 1.75 * 10 / 14, 1e-12);
    ck_assert_double_eq_tol(f.speed_up[3], 1.875 * 10 / 25, 1e-12);
    ck_assert(isnan(f.speed_up[4])); /* not measured */
    ck_assert_int_eq(f.best, 1);
    ck_assert_int_eq(f.largest, 3);
    ck_assert_int_eq(forecast_make(0.01, 1, ms).best, 0);
    ck_assert(isnan(forecast_make(NAN, 1, ms).speed_up[0])); /* nothing was drafted */
}
END_TEST

/* Loop index: K; 0 drafts nothing. */
START_TEST(a_report_to_a_file_of_svg_is_a_picture)
{
    char option[300];
    const char *k = _i ? "2" : "0";
    struct buf svg = {0};
    struct program p;
    snprintf(option, sizeof option, "--alpha-report=%s", temp_path("report.SVG"));
    program_run(&p, "{\"prompt\": \"A\"}\n", ARGUMENTS("batch", "-n", "12", "--k", k, "-q", option));
    program_expect_status(&p, 0);
    text_of_file(temp_path("report.SVG"), &svg);
    expect_xml(buf_text(&svg));
    ck_assert_int_eq(count_parts(buf_text(&svg), "class=\"bar"), _i ? 3 + 2 : 0);
    ck_assert_int_eq(count_parts(buf_text(&svg), "<circle"),
                     _i ? 2 + 1 + 1 : 0); /* of the forecast, up to k-max, and its best once more */
    ck_assert_int_eq(count_parts(buf_text(&svg), ">best: K = "), _i);
    /* rounds without a draft, of which auto has many, are none of those that it is the mean of */
    ck_assert_int_eq(count_parts(buf_text(&svg), ", mean acceptance length "), 2 * _i);
    ck_assert_ptr_null(strstr(buf_text(&svg), "nan"));
    buf_free(&svg);
    program_free(&p);
}
END_TEST

Suite *check_plot(void);
Suite *check_plot(void) {
    Suite *suite = suite_create("plot");
    TCase *plot = tcase_create("plot");
    tcase_set_timeout(plot, 60);
    tcase_add_test(plot, ticks_are_round_and_not_too_many);
    tcase_add_test(plot, a_chart_is_xml_with_a_mark_for_each_point_and_a_gap_where_there_is_none);
    tcase_add_test(plot, bars_stand_beside_those_of_the_same_x_alone);
    tcase_add_test(plot, piles_stand_on_what_came_before_and_fit_the_axis);
    tcase_add_test(plot, a_chart_without_a_point_has_its_axes_still);
    tcase_add_test(plot, a_forecast_is_the_expected_tokens_over_the_measured_cost_of_a_round);
    tcase_add_loop_test(plot, a_report_to_a_file_of_svg_is_a_picture, 0, 2);
    suite_add_tcase(suite, plot);
    return suite;
}
