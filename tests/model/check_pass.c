#include "model/pass.h"
#include "tests/support/support.h"

/* Attention, a product of it; gate and up, a product of that; a product of what nobody before it made. */
static struct pass make(float *attended, float *h, float *other) {
    struct pass p = {0};
    pass_add(&p, OP_ATTENTION)->attention.out.data = attended;
    struct op_project *project = &pass_add(&p, OP_PROJECT)->project;
    project->h.data = attended, project->w.rows = 3;
    pass_add(&p, OP_GATE_UP)->gate_up.h.data = h;
    project = &pass_add(&p, OP_PROJECT)->project;
    project->h.data = h, project->w.rows = 5;
    pass_add(&p, OP_GATE_UP)->gate_up.h.data = h;
    project = &pass_add(&p, OP_PROJECT)->project;
    project->h.data = other, project->w.rows = 7;
    return p;
}

START_TEST(writers_are_told_of_the_product_that_reads_next)
{
    float attended, h, other;
    struct pass p = make(&attended, &h, &other);
    pass_tell_readers(&p);
    ck_assert_int_eq(p.ops[0].attention.reader.rows, 3);
    ck_assert(p.ops[1].project.h_is_for_w);
    ck_assert_int_eq(p.ops[2].gate_up.reader.rows, 5);
    ck_assert(p.ops[3].project.h_is_for_w);
    pass_free(&p);
}
END_TEST

START_TEST(a_product_of_something_else_is_nobodys_reader)
{
    float attended, h, other;
    struct pass p = make(&attended, &h, &other);
    pass_tell_readers(&p);
    ck_assert_int_eq(p.ops[4].gate_up.reader.rows, 0);
    ck_assert(!p.ops[5].project.h_is_for_w);
    pass_free(&p);
}
END_TEST

START_TEST(what_is_told_is_in_copies_too)
{
    float attended, h, other;
    struct pass p = make(&attended, &h, &other), last;
    pass_tell_readers(&p);
    pass_copy_last_only(&last, &p);
    ck_assert_int_eq(last.ops[2].gate_up.reader.rows, 5);
    ck_assert(last.ops[3].project.h_is_for_w);
    pass_free(&last);
    pass_free(&p);
}
END_TEST

Suite *check_pass(void);
Suite *check_pass(void) {
    Suite *suite = suite_create("pass");
    TCase *tc = tcase_create("pass");
    tcase_add_test(tc, writers_are_told_of_the_product_that_reads_next);
    tcase_add_test(tc, a_product_of_something_else_is_nobodys_reader);
    tcase_add_test(tc, what_is_told_is_in_copies_too);
    suite_add_tcase(suite, tc);
    return suite;
}
