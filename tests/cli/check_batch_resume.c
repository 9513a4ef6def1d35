/* duet batch from outside: output files that exist, and runs that go on where an earlier one ended. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/io.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

enum { LINES = 24 };

static struct program p;
static char in[256], out[256];
static struct buf whole; /* what an uninterrupted run writes */
static const char *line[LINES];
static int length[LINES]; /* its lines, newlines included */

static void run(const char *const *arguments) {
    program_free(&p);
    program_run(&p, NULL, arguments);
}

#define BATCH(...) ARGUMENTS("batch", "-i", in, "-o", out, "--threads", "1", "--ignore-eos", __VA_ARGS__)

/* `count` lines with a blank one among them; the last but one cannot be answered. */
static void write_input(int count, int tokens, int edited) {
    struct buf text = {0};
    for (int i = 0; i < count; i++) {
        bool is_bad = i == count - 2;
        buf_printf(&text, "{\"prompt\": \"%s\", \"id\": %d, \"max_tokens\": %d}\n%s",
                   is_bad        ? ""
                   : i == edited ? "Another"
                                 : "The",
                   i, 1 + i % tokens, i == 4 ? " \n" : "");
    }
    text_to_file(in, buf_text(&text));
    buf_free(&text);
}

static void expect_output(const struct buf *expected) {
    struct buf held = {0};
    text_of_file(out, &held);
    ck_assert_str_eq(buf_text(&held), buf_text(expected));
    buf_free(&held);
}

static void set_up(void) {
    snprintf(in, sizeof in, "%s", temp_path("in"));
    snprintf(out, sizeof out, "%s", temp_path("out"));
}

static void run_whole(const char *const *arguments) {
    remove(out);
    run(arguments);
    program_expect_error(&p, 1, "1 of ");
    buf_clear(&whole);
    text_of_file(out, &whole);
    const char *at = buf_text(&whole);
    for (int i = 0; i < LINES && *at; i++) {
        line[i] = at;
        length[i] = (int)strcspn(at, "\n") + 1;
        at += length[i];
    }
}

/* --- what is found ---------------------------------------------------------------------------------------------- */

static void put(struct buf *text, int i) {
    buf_append(text, line[i], (size_t)length[i]);
}

static void put_range(struct buf *text, int from, int to) {
    for (int i = from; i < to; i++) put(text, i);
}

/* Of the right line, but with another text. */
static void put_spliced(struct buf *text, int i) {
    static const char name[] = "\"text\": \"";
    const char *at = strstr(line[i], name) + strlen(name);
    buf_append(text, line[i], (size_t)(at - line[i]));
    buf_putc(text, 'x');
    buf_append(text, at, (size_t)(line[i] + length[i] - at));
}

static void put_error(struct buf *text) {
    buf_puts(text, "{\"index\": 9, \"finish_reason\": \"error\", \"error\": \"line 9: out of memory\"}\n");
}

/* Outputs as an end of any kind may leave them. */
static void leave(int how, struct buf *text) {
    put_range(text, 0, how < 5 ? 7 : 0);
    switch (how) {
    case 0: /* torn */
        buf_append(text, line[7], (size_t)length[7] - 1);
        break;
    case 1: /* Ctrl-C: gaps */
        put(text, 9), put(text, 12);
        break;
    case 2: /* killed while the gaps were filled */
        put(text, 9), put(text, 12), put(text, 7), buf_append(text, line[8], 20);
        break;
    case 3: /* killed while it was put in order, and two records became one: the copy is whole */
        put(text, 7), put_spliced(text, 9), buf_append(text, line[8], 30),
            buf_append(text, line[12] + 40, (size_t)length[12] - 40);
        put(text, 8), put_range(text, 7, 13);
        break;
    case 4: /* the lines of an error, and of another that the input lacks */
        put_error(text);
        put_range(text, 8, LINES);
        buf_puts(text, "{\"index\": 99, \"finish_reason\": \"error\", \"error\": \"line 99: out of memory\"}\n");
        break;
    case 5: /* the first record, torn */
        buf_append(text, line[0], 5);
        break;
    case 6: /* an empty file */
        break;
    case 7: /* only errors behind what is in order */
        put_range(text, 0, 3);
        put_error(text);
        break;
    default: /* all there */
        put_range(text, 0, LINES);
    }
}

/* Loop index: how the run before ended. */
START_TEST(whatever_an_end_leaves_a_resumed_run_makes_the_bytes_of_a_whole_one)
{
    struct buf left = {0};
    set_up();
    write_input(LINES, 5, -1);
    run_whole(BATCH("--seed", "3", "--batch", "4"));
    leave(_i, &left);
    text_to_file(out, buf_text(&left));
    run(BATCH("--seed", "3", "--batch", "2", "--resume"));
    program_expect_error(&p, 1, "1 of 24 lines failed");
    expect_output(&whole);
    buf_free(&left);
}
END_TEST

START_TEST(a_full_disk_while_records_are_put_in_order_loses_none)
{
    struct buf left = {0}, held = {0};
    struct rlimit limit, before;
    set_up();
    write_input(LINES, 5, -1);
    run_whole(BATCH("--seed", "3"));
    put_range(&left, 1, LINES);
    text_to_file(out, buf_text(&left));
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = whole.len + (size_t)length[LINES - 2] + 50; /* the error, again, but no copy */
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    run(BATCH("--seed", "3", "--resume"));
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    program_expect_error(&p, 1, "out: cannot write");
    text_of_file(out, &held);
    ck_assert_int_eq(strncmp(buf_text(&held), buf_text(&left), left.len), 0);
    ck_assert_int_eq(memcmp(buf_text(&held) + left.len, line[0], (size_t)length[0]), 0);
    run(BATCH("--seed", "3", "--resume"));
    program_expect_error(&p, 1, "1 of 24 lines failed");
    expect_output(&whole);
    buf_free(&left);
    buf_free(&held);
}
END_TEST

/* Without --seed a record that is made again is another. */
START_TEST(kept_records_are_not_made_again_and_edited_lines_are)
{
    struct buf held = {0};
    set_up();
    write_input(LINES, 5, -1);
    run_whole(BATCH("--temperature", "1"));
    write_input(LINES, 5, 10);
    run(BATCH("--temperature", "1", "--resume"));
    program_expect_error(&p, 1, "1 of 24 lines failed");
    text_of_file(out, &held);
    const char *at = buf_text(&held);
    for (int i = 0; i < LINES; i++) {
        int n = (int)strcspn(at, "\n") + 1;
        bool same = n == length[i] && memcmp(at, line[i], (size_t)n) == 0;
        ck_assert_msg(same == (i != 10), "%d: %.*s", i, n, at);
        at += n;
    }
    ck_assert_str_eq(at, "");
    buf_free(&held);
}
END_TEST

START_TEST(lines_that_failed_are_tried_again)
{
    struct buf held = {0};
    set_up();
    text_to_file(in, "{\"prompt_ids\": [5, 6, 7, 8, 9, 10]}\n{\"prompt_ids\": [5]}\n"
                     "{\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/completions\", "
                     "\"body\": {\"prompt\": [5, 6, 7, 8, 9, 10]}}\n");
    run(BATCH("--ctx", "4", "-n", "1"));
    program_expect_error(&p, 1, "2 of 3 lines failed");
    run(BATCH("--ctx", "16", "-n", "1", "--resume"));
    program_expect_status(&p, 0);
    text_of_file(out, &held);
    ck_assert_int_eq(count_lines(&held), 3);
    ck_assert_ptr_nonnull(strstr(buf_text(&held), "\"status_code\": 200"));
    buf_free(&held);
}
END_TEST

/* Loop index: the input of the run that would go on. */
START_TEST(records_are_not_given_up_for_an_input_that_is_none_of_theirs)
{
    static const char *const parts[] = {
        "out: 23 of its 23 finished records belong to no line of this input", /* empty */
        "out: 3 of its 23 finished records belong to no line of this input",  /* shorter */
        "out: 23 of its 23 finished records belong to no line of this input", /* another */
        "out: 22 of its 23 finished records belong to no line of this input", /* another with the same first line */
        "out: 23 of its 23 finished records belong to no line of this input", /* the same, in another form */
    };
    struct buf text = {0};
    set_up();
    write_input(LINES, 5, -1);
    run_whole(BATCH("--seed", "3"));
    text_of_file(in, &text);
    const char *at = buf_text(&text);
    if (_i == 0) text_to_file(in, "");
    if (_i == 1) text.data[strstr(at, "\"id\": 20") - strlen("{\"prompt\": \"The\", ") - at] = 0, text_to_file(in, at);
    if (_i == 2 || _i == 3) {
        struct buf other = {0};
        if (_i == 3) buf_append(&other, at, strcspn(at, "\n") + 1);
        for (int i = 0; i < LINES; i++) buf_printf(&other, "{\"prompt\": \"A %d\"}\n", i);
        text_to_file(in, buf_text(&other));
        buf_free(&other);
    }
    run(BATCH("--seed", "3", "--resume", "--format", _i == 4 ? "spec-bench" : "auto"));
    program_expect_error(&p, 2, parts[_i]);
    expect_output(&whole);
    buf_free(&text);
}
END_TEST

/* --- runs that are ended ------------------------------------------------------------------------------------------ */

static off_t size_of_output(void) {
    struct stat st = {0};
    return stat(out, &st) == 0 ? st.st_size : 0;
}

/* Starts a run, and ends it once it has written something. */
static void end_by(int signal_number, const char *const *arguments) {
    off_t before = size_of_output();
    program_free(&p);
    program_start(&p, NULL, arguments);
    for (int i = 0; i < 6000 && size_of_output() == before; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    ck_assert_int_eq(kill(p.pid, signal_number), 0);
    program_wait(&p);
    ck_assert_msg(p.status == 128 + signal_number, "status %d: %s", p.status, buf_text(&p.err));
}

START_TEST(a_run_that_is_ended_again_and_again_ends_as_one_that_was_not)
{
    const int lines = test_is_small() ? 100 : 200;
    char failed[64];
    snprintf(failed, sizeof failed, "1 of %d lines failed", lines);
    set_up();
    write_input(lines, test_is_small() ? 12 : 30, -1);
    run_whole(BATCH("--seed", "3"));
    remove(out);
    end_by(SIGINT, BATCH("--seed", "3"));
    end_by(SIGKILL, BATCH("--seed", "3", "--resume"));
    end_by(SIGTERM, BATCH("--seed", "3", "--resume"));
    run(BATCH("--seed", "3", "--resume"));
    program_expect_error(&p, 1, failed);
    expect_output(&whole);
}
END_TEST

/* --- what exists -------------------------------------------------------------------------------------------------- */

static void expect_refused(const char *path, const char *flag, const char *part) {
    run(ARGUMENTS("batch", "-i", in, "-o", path, "-n", "1", flag));
    program_expect_error(&p, 2, part);
}

START_TEST(an_output_that_is_not_empty_is_kept_unless_force_or_resume_is_given)
{
    struct buf held = {0};
    set_up();
    text_to_file(in, "{\"prompt\": \"a\"}\n");
    text_to_file(out, "{\"results\": \"of yesterday\"}\n{\"ind");
    expect_refused(out, "--quiet", "out: is not empty (--resume continues it, --force writes over it)");
    expect_refused(out, "--resume", "out: holds no record of duet batch");
    expect_refused("-", "--resume", "--resume: needs an output file");
    expect_refused("/dev/null", "--resume", "/dev/null: is no regular file");
    run(BATCH("--force", "--resume"));
    program_expect_error(&p, 2, "--force: ");
    text_of_file(out, &held);
    ck_assert_str_eq(buf_text(&held), "{\"results\": \"of yesterday\"}\n{\"ind");
    run(BATCH("--force", "-n", "1"));
    program_expect_status(&p, 0);
    buf_clear(&held);
    text_of_file(out, &held);
    ck_assert_int_eq(count_lines(&held), 1);
    buf_free(&held);
}
END_TEST

START_TEST(an_input_without_a_line_empties_no_output)
{
    struct buf before = {0};
    set_up();
    buf_puts(&before, "{\"results\": \"of yesterday\"}\n");
    text_to_file(in, "\n \n");
    text_to_file(out, buf_text(&before));
    run(BATCH("--force"));
    program_expect_error(&p, 2, "in: holds no line to answer, so ");
    expect_output(&before);
    buf_clear(&before);
    buf_puts(&before, "{\"index\": 1, \"finish_reason\": \"error\", \"error\": \"line 1: no\"}\n");
    text_to_file(out, buf_text(&before));
    run(BATCH("--resume"));
    program_expect_error(&p, 2, "in: holds no line to answer, so ");
    expect_output(&before);
    text_to_file(out, "");
    run(BATCH("--resume"));
    program_expect_status(&p, 0);
    buf_free(&before);
}
END_TEST

START_TEST(what_an_output_held_stays_until_the_first_record_is_written)
{
    struct buf before = {0};
    set_up();
    buf_puts(&before, "{\"results\": \"of yesterday\"}\n");
    text_to_file(out, buf_text(&before));
    text_to_file(in, "{\"prompt\": \"a\", \"max_tokens\": 100000}\n{\"prompt\": \"b\", \"max_tokens\": 900}\n");
    program_free(&p);
    program_start(&p, NULL,
                  ARGUMENTS("batch", "-i", in, "-o", out, "--force", "--ignore-eos", "--k", "0", "--batch", "1"));
    nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
    ck_assert_int_eq(kill(p.pid, SIGTERM), 0);
    program_wait(&p);
    if (p.status == 128 + SIGTERM && strstr(buf_text(&p.err), "2 of 2 records")) expect_output(&before);
    buf_free(&before);
}
END_TEST

START_TEST(standard_output_and_what_is_no_file_is_never_refused)
{
    char command[2048];
    struct buf held = {0};
    set_up();
    text_to_file(in, "{\"prompt\": \"a\"}\n");
    run(ARGUMENTS("batch", "-i", in, "-o", "/dev/null", "-n", "1"));
    program_expect_status(&p, 0);
    text_to_file(out, "a line\n");
    snprintf(command, sizeof command, "%s batch -i %s -o /dev/stdout -n 1 >>%s", program_path(), in, out);
    ck_assert_int_eq(system(command), 0);
    text_of_file(out, &held);
    ck_assert_int_eq(count_lines(&held), 2);
    ck_assert_int_eq(strncmp(buf_text(&held), "a line\n{", 8), 0);
    buf_free(&held);
}
END_TEST

Suite *check_batch_resume(void) {
    Suite *suite = suite_create("batch resume");
    TCase *found = tcase_create("found");
    tcase_add_loop_test(found, whatever_an_end_leaves_a_resumed_run_makes_the_bytes_of_a_whole_one, 0, 9);
    tcase_add_test(found, a_full_disk_while_records_are_put_in_order_loses_none);
    tcase_add_test(found, kept_records_are_not_made_again_and_edited_lines_are);
    tcase_add_loop_test(found, records_are_not_given_up_for_an_input_that_is_none_of_theirs, 0, 5);
    tcase_add_test(found, lines_that_failed_are_tried_again);
    suite_add_tcase(suite, found);
    TCase *ended = tcase_create("ended");
    tcase_set_timeout(ended, SANITIZED ? 600 : 120);
    tcase_add_test(ended, a_run_that_is_ended_again_and_again_ends_as_one_that_was_not);
    suite_add_tcase(suite, ended);
    TCase *exists = tcase_create("exists");
    tcase_add_test(exists, an_output_that_is_not_empty_is_kept_unless_force_or_resume_is_given);
    tcase_add_test(exists, an_input_without_a_line_empties_no_output);
    tcase_add_test(exists, what_an_output_held_stays_until_the_first_record_is_written);
    tcase_add_test(exists, standard_output_and_what_is_no_file_is_never_refused);
    suite_add_tcase(suite, exists);
    return suite;
}
