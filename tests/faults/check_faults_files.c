/* The program with one call that fails at a time: files, streams, maps and threads. See check_faults.c. */
#include "tests/faults/campaign.h"
#include "tests/support/support.h"

/* Loop index: scenario. */
START_TEST(a_failed_read_or_open_keeps_the_promise)
{ campaign_expect(&scenarios[_i], 1u << FAULT_OPEN | 1u << FAULT_READ | 1u << FAULT_STAT | 1u << FAULT_MAP); }
END_TEST

START_TEST(a_failed_write_keeps_the_promise)
{ campaign_expect(&scenarios[_i], 1u << FAULT_WRITE | 1u << FAULT_CLOSE | 1u << FAULT_CUT | 1u << FAULT_SYNC); }
END_TEST

START_TEST(a_thread_that_cannot_be_had_changes_nothing)
{ campaign_expect(&scenarios[_i], 1u << FAULT_THREAD); }
END_TEST

Suite *check_faults_files(void);
Suite *check_faults_files(void) {
    Suite *suite = suite_create("faults_files");
    campaign_share();
    TCase *files = tcase_create("files");
    tcase_add_loop_test(files, a_failed_read_or_open_keeps_the_promise, 0, scenario_count);
    tcase_add_loop_test(files, a_failed_write_keeps_the_promise, 0, scenario_count);
    tcase_add_loop_test(files, a_thread_that_cannot_be_had_changes_nothing, 0, scenario_count);
    suite_add_tcase(suite, files);
    return suite;
}
