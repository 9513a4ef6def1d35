/* Text broken between words as it comes: where, what is held back, and what is not. */
#include "cli/wrap.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

#define NI     "\xe4\xbd\xa0" /* two columns */
#define HAO    "\xe5\xa5\xbd"
#define ACUTE  "\xcc\x81" /* U+0301, no column of its own */
#define THUMB  "\xf0\x9f\x91\x8d"
#define BROWN  "\xf0\x9f\x8f\xbd" /* joins the emoji before it */
#define JOINER "\xe2\x80\x8d"
#define ELEVEN "abcdefghijk"
#define TWENTY "abcdefghijklmnopqrst"

static size_t character_length(const char *text, size_t n) {
    uint32_t c;
    int length = utf8_decode(text, n, &c);
    return length > 0 ? (size_t)length : 1;
}

/* What comes out of pieces of `step` characters, the first one of `first`. */
static struct buf wrap_pieces(int columns, const char *text, int first, int step) {
    struct wrap w = {.columns = columns};
    struct buf out = {0};
    size_t n = strlen(text), at = 0;
    for (int take = first; at < n; take = step) {
        size_t from = at;
        for (int i = 0; i < take && at < n; i++) at += character_length(text + at, n - at);
        wrap_push(&w, text + from, at - from);
    }
    wrap_finish(&w);
    buf_append(&out, w.out.data, w.out.len);
    wrap_free(&w);
    return out;
}

/* However the text is cut. */
static void expect(int columns, const char *text, const char *wrapped) {
    static const int steps[] = {1, 3, 1 << 20 /* all the rest */};
    for (int first = 0; first <= (int)strlen(text); first++)
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            struct buf out = wrap_pieces(columns, text, first, steps[i]);
            ck_assert_str_eq(buf_text(&out), wrapped);
            buf_free(&out);
        }
}

START_TEST(lines_broken_here_are_indented_and_others_are_not)
{
    struct wrap w = {.columns = 20, .indent = 4, .column = 12, .blanks_end = 12};
    const char *text = "behind a name, seventeen.and.more.letters\nits own line";
    wrap_push(&w, text, strlen(text));
    wrap_finish(&w);
    ck_assert_str_eq(buf_text(&w.out), "behind a\n    name,\n    seventeen.and.more.letters\nits own line");
    wrap_free(&w);
}
END_TEST

START_TEST(a_word_that_does_not_fit_goes_to_the_next_line)
{
    expect(20, "I am a curious mind", "I am a curious mind");
    expect(20, "I am a most curious mind", "I am a most curious\nmind");
    expect(20, "I am a rather curious mind", "I am a rather\ncurious mind");
    expect(20, ELEVEN " " ELEVEN " " ELEVEN, ELEVEN "\n" ELEVEN "\n" ELEVEN);
    expect(20, "", "");
}
END_TEST

START_TEST(a_line_may_be_full_to_its_last_column)
{
    expect(20, ELEVEN " 12345678", ELEVEN " 12345678");
    expect(20, ELEVEN " 123456789", ELEVEN "\n123456789");
    expect(20, ELEVEN " 12345678 x", ELEVEN " 12345678\nx");
    expect(20, ELEVEN " 12345678\nx", ELEVEN " 12345678\nx");
    expect(20, TWENTY " " TWENTY " x", TWENTY "\n" TWENTY "\nx");
    expect(20, "x " TWENTY, "x\n" TWENTY);
}
END_TEST

START_TEST(blanks_go_where_a_line_is_broken_and_nowhere_else)
{
    expect(20, "a  b   c \n d  ", "a  b   c \n d  ");
    expect(20, ELEVEN "   " ELEVEN, ELEVEN "\n" ELEVEN);
    expect(20, "a                              b", "a\nb");
    expect(20, TWENTY "  \nx", TWENTY "\nx");
    expect(20, TWENTY "  ", TWENTY);
    expect(20, ELEVEN "         \nx", ELEVEN "         \nx");
}
END_TEST

START_TEST(line_breaks_and_indentation_of_the_text_stay)
{
    expect(20, "\n\n  a\n\n\tb\n", "\n\n  a\n\n\tb\n");
    expect(20, "    one two three four five", "    one two three\nfour five");
    expect(20, "a\n          " ELEVEN " x", "a\n          \n" ELEVEN " x");
    expect(20, "          " ELEVEN " x", "          \n" ELEVEN " x");
    expect(20, "                         x", "                         \nx");
    expect(20, "   \n   ", "   \n   ");
}
END_TEST

START_TEST(a_tab_reaches_to_the_next_multiple_of_eight)
{
    expect(20, "a\t345678901234", "a\t345678901234");
    expect(20, "a\t3456789012345", "a\n3456789012345");
    expect(20, "1234567\t901234567890", "1234567\t901234567890");
    expect(20, "12345678\t7890", "12345678\t7890");
    expect(20, "12345678\t78901", "12345678\n78901");
    expect(20, "\t\t7890 x", "\t\t7890\nx");
    expect(20, ELEVEN " \t7890", ELEVEN " \t7890");
    expect(20, ELEVEN " \t78901", ELEVEN "\n78901");
}
END_TEST

START_TEST(a_wide_character_is_a_word_of_two_columns)
{
    expect(20, "1234567890123456" NI HAO NI, "1234567890123456" NI HAO "\n" NI);
    expect(20, "12345678901234567" NI HAO NI, "12345678901234567" NI "\n" HAO NI);
    expect(20, "12345678901234567 " NI HAO, "12345678901234567 " NI "\n" HAO);
    expect(20, "123456789012345678 " NI "a", "123456789012345678\n" NI "a");
    expect(20, "1234567890 " NI "1234567", "1234567890 " NI "1234567");
    expect(20, "1234567890 " NI "12345678", "1234567890 " NI "\n12345678");
    expect(20, NI NI NI NI NI NI NI NI NI NI NI, NI NI NI NI NI NI NI NI NI NI "\n" NI);
}
END_TEST

START_TEST(combining_marks_take_no_column_and_stay_with_their_character)
{
    expect(20, ELEVEN " 1234567e" ACUTE, ELEVEN " 1234567e" ACUTE);
    expect(20, ELEVEN " 12345678e" ACUTE, ELEVEN "\n12345678e" ACUTE);
    expect(20, "123456789012345678" NI ACUTE HAO, "123456789012345678" NI ACUTE "\n" HAO);
    expect(20, "123456789012345678" THUMB BROWN HAO, "123456789012345678" THUMB BROWN "\n" HAO);
    expect(20, "123456789012345678" THUMB JOINER THUMB " x", "123456789012345678" THUMB JOINER THUMB "\nx");
}
END_TEST

START_TEST(a_word_longer_than_a_line_stays_whole)
{
    expect(20, TWENTY ELEVEN " x", TWENTY ELEVEN " x");
    expect(20, "a " TWENTY ELEVEN " 12345678 x", "a\n" TWENTY ELEVEN " 12345678\nx");
    expect(20, TWENTY TWENTY " x", TWENTY TWENTY "\nx");
}
END_TEST

START_TEST(narrow_and_unknown_widths_change_nothing)
{
    const char *text = "  " TWENTY TWENTY "   " NI NI "\t \n" TWENTY " " TWENTY "  ";
    expect(0, text, text);
    expect(1, text, text);
    expect(WRAP_COLUMNS_MIN - 1, text, text);
    expect(10000, text, text);
}
END_TEST

START_TEST(bytes_that_are_no_characters_come_through)
{
    expect(20, "\xff\xc3 \xe4\xbd", "\xff\xc3 \xe4\xbd");
    expect(20, "1234567890123456789 \xff", "1234567890123456789\n\xff");
    expect(20, "123456789012345678 \xff 1", "123456789012345678 \xff\n1");
}
END_TEST

/* --- what is held back ------------------------------------------------------------------------------------------- */

static void push_expect(struct wrap *w, const char *text, const char *out) {
    wrap_push(w, text, strlen(text));
    ck_assert_str_eq(buf_text(&w->out), out);
    buf_clear(&w->out);
}

START_TEST(only_a_word_that_may_yet_move_is_held_back)
{
    struct wrap w = {.columns = 20};
    push_expect(&w, "  ", "  ");
    push_expect(&w, "o", "");
    push_expect(&w, "ne ", "one");
    push_expect(&w, "two", "");
    push_expect(&w, "\n", " two\n");
    push_expect(&w, "thr", "thr");
    push_expect(&w, "ee", "ee");
    push_expect(&w, " " NI, " " NI);
    push_expect(&w, HAO, HAO);
    push_expect(&w, " a", "");
    push_expect(&w, HAO, " a" HAO);
    push_expect(&w, "bcdefg", "");
    push_expect(&w, "h", "\nbcdefgh");
    push_expect(&w, "i", "i");
    wrap_free(&w);
}
END_TEST

START_TEST(the_end_brings_out_what_is_held_and_a_new_text_begins)
{
    struct wrap w = {.columns = 20};
    push_expect(&w, ELEVEN " 123", ELEVEN);
    wrap_finish(&w);
    ck_assert_str_eq(buf_text(&w.out), " 123");
    buf_clear(&w.out);
    wrap_finish(&w);
    ck_assert_uint_eq(w.out.len, 0);
    push_expect(&w, ELEVEN " ", ELEVEN);
    wrap_finish(&w);
    ck_assert_str_eq(buf_text(&w.out), " ");
    buf_clear(&w.out);
    push_expect(&w, ELEVEN " 12345678 ", ELEVEN " 12345678");
    wrap_finish(&w);
    push_expect(&w, "a", "a");
    wrap_free(&w);
}
END_TEST

START_TEST(a_new_width_holds_from_the_next_word_on)
{
    struct wrap w = {.columns = 40};
    push_expect(&w, ELEVEN " " ELEVEN " ", ELEVEN " " ELEVEN);
    w.columns = 20;
    push_expect(&w, "x " ELEVEN " ", "\nx " ELEVEN);
    push_expect(&w, "123", "");
    w.columns = 0;
    push_expect(&w, "4", " 1234");
    push_expect(&w, " " TWENTY, " " TWENTY);
    w.columns = 20;
    push_expect(&w, " x ", "\nx");
    wrap_free(&w);
}
END_TEST

START_TEST(colours_take_no_column_and_surround_what_they_colour)
{
    struct wrap w = {.columns = 20, .reset = "]"};
    push_expect(&w, ELEVEN " 12", ELEVEN);
    w.style = "[";
    push_expect(&w, "345678 ", " 12[345678]");
    push_expect(&w, "a b", "\n[a]");
    w.style = "(";
    push_expect(&w, "c" NI, " [b](c](" NI "]");
    push_expect(&w, " \n", " \n");
    push_expect(&w, "d", "(d]");
    w.style = NULL;
    push_expect(&w, "e f", "e");
    wrap_finish(&w);
    ck_assert_str_eq(buf_text(&w.out), " f");
    wrap_free(&w);
}
END_TEST

/* --- against the greedy rule, written down once more ------------------------------------------------------------- */

/* Words of up to 25 columns, behind each a space or now and then a newline. */
static void random_text(struct buf *text, unsigned *seed) {
    buf_clear(text);
    for (int words = 0; words < 60; words++) {
        int length = 1 + rand_r(seed) % (rand_r(seed) % 8 == 0 ? 25 : 9);
        for (int i = 0; i < length; i++) buf_putc(text, (char)('a' + rand_r(seed) % 26));
        buf_putc(text, rand_r(seed) % 12 == 0 ? '\n' : ' ');
    }
    buf_puts(text, "end");
}

static void greedy(struct buf *out, const char *text, size_t columns) {
    size_t column = 0;
    buf_clear(out);
    while (*text) {
        size_t n = strcspn(text, " \n");
        bool moves = column > 0 && column + 1 + n > columns;
        if (column > 0) buf_putc(out, moves ? '\n' : ' ');
        column = column == 0 || moves ? n : column + 1 + n;
        if (n > columns) column = n - columns;
        buf_append(out, text, n);
        text += n;
        if (*text == '\n') {
            buf_putc(out, '\n');
            column = 0;
        }
        text += *text != '\0';
    }
}

START_TEST(every_line_takes_the_words_that_fit)
{
    struct buf text = {0}, expected = {0};
    unsigned seed = 1;
    for (int run = 0; run < 300; run++) {
        int columns = 20 + run % 20;
        random_text(&text, &seed);
        greedy(&expected, buf_text(&text), (size_t)columns);
        struct buf out = wrap_pieces(columns, buf_text(&text), run % 5, 1 + run % 7);
        ck_assert_str_eq(buf_text(&out), buf_text(&expected));
        buf_free(&out);
    }
    buf_free(&text);
    buf_free(&expected);
}
END_TEST

Suite *check_wrap(void) {
    Suite *suite = suite_create("wrap");
    TCase *lines = tcase_create("lines");
    tcase_add_test(lines, lines_broken_here_are_indented_and_others_are_not);
    tcase_add_test(lines, a_word_that_does_not_fit_goes_to_the_next_line);
    tcase_add_test(lines, a_line_may_be_full_to_its_last_column);
    tcase_add_test(lines, blanks_go_where_a_line_is_broken_and_nowhere_else);
    tcase_add_test(lines, line_breaks_and_indentation_of_the_text_stay);
    tcase_add_test(lines, a_tab_reaches_to_the_next_multiple_of_eight);
    tcase_add_test(lines, a_wide_character_is_a_word_of_two_columns);
    tcase_add_test(lines, combining_marks_take_no_column_and_stay_with_their_character);
    tcase_add_test(lines, a_word_longer_than_a_line_stays_whole);
    tcase_add_test(lines, narrow_and_unknown_widths_change_nothing);
    tcase_add_test(lines, bytes_that_are_no_characters_come_through);
    tcase_add_test(lines, every_line_takes_the_words_that_fit);
    suite_add_tcase(suite, lines);
    TCase *stream = tcase_create("stream");
    tcase_add_test(stream, only_a_word_that_may_yet_move_is_held_back);
    tcase_add_test(stream, the_end_brings_out_what_is_held_and_a_new_text_begins);
    tcase_add_test(stream, a_new_width_holds_from_the_next_word_on);
    tcase_add_test(stream, colours_take_no_column_and_surround_what_they_colour);
    suite_add_tcase(suite, stream);
    return suite;
}
