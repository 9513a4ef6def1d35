/* The fidelity suite (tests/fidelity) at small sizes: the same claims, the same bounds. */
#include "tests/fidelity/fidelity.h"
#include "tests/support/support.h"

/* Loop index: the group. Whole texts say no more under sanitizers than check_lossless and check_accept_texts do. */
START_TEST(every_claim_holds)
{
    static struct fidelity f;
    void (*run)(struct fidelity *) = fidelity_groups[_i].run;
    if (SANITIZED && (run == fidelity_greedy || run == fidelity_sampled)) return;
    f = (struct fidelity){.small = true};
    run(&f);
    for (int i = 0; i < f.count; i++) {
        const struct fidelity_row *row = &f.rows[i];
        if (row->state == FIDELITY_SKIPPED) skip(row->sample);
        ck_assert_msg(row->state != FIDELITY_FAIL, "%s: %s: %s, expected %s", row->claim, row->sample, row->figure,
                      row->bound);
    }
}
END_TEST

DEVICE_SUITE(check_fidelity);
Suite *check_fidelity(void) {
    Suite *suite = suite_create("fidelity");
    TCase *tc = tcase_create("fidelity");
    tcase_add_loop_test(tc, every_claim_holds, 0, FIDELITY_GROUPS);
    suite_add_tcase(suite, tc);
    return suite;
}
