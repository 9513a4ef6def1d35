/* Tables in each of their forms: as text, as CSV, as JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/sheet.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

static void begin_output(void) {
    ck_assert_ptr_nonnull(freopen(temp_path("sheet"), "w", stdout));
}

static void take_output(struct buf *out) {
    fflush(stdout);
    buf_clear(out);
    text_of_file(temp_path("sheet"), out);
}

static void show_sheet(struct sheet *s, const struct options *o, struct buf *out) {
    begin_output();
    sheet_show(s, o);
    take_output(out);
}

static void show(const struct options *o, struct buf *out) {
    static const struct sheet_column columns[] = {{"a name", "name"}, {"ms", "round_ms"}, {"of all", "share"}};
    struct sheet s = {0};
    sheet_say(&s, "said first");
    sheet_put_figure(&s, "batch", 2);
    sheet_put_word(&s, "shape", NULL);
    for (int i = 0; i < 2; i++) {
        struct table *t = sheet_add_table(&s, i ? "others" : "rows", columns, "lrr", "2");
        table_add(t, "one, two");
        sheet_add_figure(t, 1.25, 2);
        sheet_add_figure(t, NAN, 2);
    }
    sheet_note(&s, "said last");
    show_sheet(&s, o, out);
}

START_TEST(a_cell_of_csv_is_quoted_where_it_could_be_read_as_another)
{
    static const char *const cells[] = {"plain", "a, b", "say \"x\"", "two\nlines", "\r", " blank "};
    struct buf out = {0};
    struct table t = table_create("l", "");
    for (int i = 0; i < 6; i++) table_add(&t, "%s", cells[i]);
    begin_output();
    table_print_csv(&t, NULL);
    take_output(&out);
    ck_assert_str_eq(buf_text(&out), "plain\n\"a, b\"\n\"say \"\"x\"\"\"\n\"two\nlines\"\n\"\r\"\n blank \n");
    buf_free(&out);
}
END_TEST

/* Where standard error is no terminal, nobody reads remarks. */
START_TEST(csv_holds_no_remarks)
{
    struct buf out = {0};
    struct sheet s = {0};
    sheet_note_missing(&s, "no peer is there");
    table_add(sheet_add_table(&s, "rows", &(struct sheet_column){"a name", "name"}, "l", ""), "x");
    show_sheet(&s, &(struct options){.csv = 1}, &out);
    ck_assert_str_eq(buf_text(&out), "name\nx\n");
    buf_free(&out);
}
END_TEST

/* A column that both have is one; what a terminal alone shows is none. */
START_TEST(two_tables_are_one_csv_whose_rows_say_of_which_they_are)
{
    static const struct sheet_column first[] = {{"policy", "policy"}, {"bar", NULL}, {"ms", "ms"}},
                                     second[] = {{"sizes", "sizes"}, {"policy", "policy"}};
    struct buf out = {0};
    struct sheet s = {0};
    struct table *t = sheet_add_table(&s, "sets", first, "llr", "");
    table_add(t, "pow2"), table_add(t, "##"), table_add(t, "1.5");
    table_add(t, "a, b"), table_add(t, "#"), table_add(t, TABLE_NO_FIGURE);
    t = sheet_add_table(&s, "padding", second, "ll", "");
    table_add(t, "day"), table_add(t, "pow2");
    show_sheet(&s, &(struct options){.csv = 1}, &out);
    ck_assert_str_eq(buf_text(&out), "table,policy,ms,sizes\nsets,pow2,1.5,\nsets,\"a, b\",,\npadding,pow2,,day\n");
    buf_free(&out);
}
END_TEST

START_TEST(every_form_of_a_sheet_has_the_same_cells)
{
    struct buf out = {0};
    setenv("COLUMNS", "80", 1);
    show(&(struct options){0}, &out);
    ck_assert_str_eq(buf_text(&out), "said first\n\na name      ms  of all\none, two  1.25\n\na name      ms  of all\n"
                                     "one, two  1.25\n\nsaid last\n");
    show(&(struct options){.csv = 1}, &out);
    ck_assert_str_eq(buf_text(&out), "table,name,round_ms,share\nrows,\"one, two\",1.25,\nothers,\"one, two\",1.25,\n");
    show(&(struct options){.json = 1}, &out);
    ck_assert_str_eq(buf_text(&out), "{\"batch\": 2, \"shape\": null, "
                                     "\"rows\": [{\"name\": \"one, two\", \"round_ms\": 1.25, \"share\": null}], "
                                     "\"others\": [{\"name\": \"one, two\", \"round_ms\": 1.25, \"share\": null}]}\n");
    buf_free(&out);
}
END_TEST

Suite *check_sheet(void);
Suite *check_sheet(void) {
    Suite *suite = suite_create("sheet");
    TCase *tc = tcase_create("forms");
    tcase_add_test(tc, a_cell_of_csv_is_quoted_where_it_could_be_read_as_another);
    tcase_add_test(tc, csv_holds_no_remarks);
    tcase_add_test(tc, two_tables_are_one_csv_whose_rows_say_of_which_they_are);
    tcase_add_test(tc, every_form_of_a_sheet_has_the_same_cells);
    suite_add_tcase(suite, tc);
    return suite;
}
