/* The program with one call that fails at a time: memory (here), then files, streams, maps and threads (check_faults_files.c).
 * `make torture` lets every call fail; here it is one of each site, in the first scenario that has it and in some of the others. What is
 * promised: tests/faults/promise.h. */
#include <stdio.h>

#include "tests/faults/campaign.h"
#include "tests/support/support.h"

/* Loop index: scenario. */
START_TEST(a_failed_allocation_keeps_the_promise)
{ campaign_expect(&scenarios[_i], 1u << FAULT_MEMORY); }
END_TEST

Suite *check_faults(void);
Suite *check_faults(void) {
    Suite *suite = suite_create("faults");
    campaign_share();
    TCase *memory = tcase_create("memory");
    tcase_add_loop_test(memory, a_failed_allocation_keeps_the_promise, 0, scenario_count);
    suite_add_tcase(suite, memory);
    return suite;
}
