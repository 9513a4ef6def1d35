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
    pass_tell_neighbours(&p);
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
    pass_tell_neighbours(&p);
    ck_assert_int_eq(p.ops[4].gate_up.reader.rows, 0);
    ck_assert(!p.ops[5].project.h_is_for_w);
    pass_free(&p);
}
END_TEST

/* Where attention and MLP lie side by side others stand between; not where what stands there reads the rows, too. */
START_TEST(a_writer_is_told_of_its_reader_past_those_that_read_others)
{
    float attended, h;
    struct pass p = {0};
    pass_add(&p, OP_GATE_UP)->gate_up.h.data = &h;
    pass_add(&p, OP_ATTENTION)->attention.out.data = &attended;
    pass_add(&p, OP_PROJECT)->project = (struct op_project){.h.data = &attended, .w.rows = 3};
    pass_add(&p, OP_PROJECT)->project = (struct op_project){.h.data = &h, .w.rows = 5};
    pass_add(&p, OP_ATTENTION)->attention.out.data = &attended;
    pass_add(&p, OP_GATE)->gate.h.data = &attended;
    pass_add(&p, OP_PROJECT)->project = (struct op_project){.h.data = &attended, .w.rows = 7};
    pass_tell_neighbours(&p);
    ck_assert(p.ops[0].gate_up.reader.rows == 5 && p.ops[3].project.h_is_for_w);
    ck_assert(p.ops[1].attention.reader.rows == 3 && p.ops[2].project.h_is_for_w);
    ck_assert(p.ops[4].attention.reader.rows == 0 && !p.ops[6].project.h_is_for_w);
    pass_free(&p);
}
END_TEST

START_TEST(what_is_told_is_in_copies_too)
{
    float attended, h, other;
    struct pass p = make(&attended, &h, &other), last;
    pass_tell_neighbours(&p);
    pass_copy_last_only(&last, &p);
    ck_assert_int_eq(last.ops[2].gate_up.reader.rows, 5);
    ck_assert(last.ops[3].project.h_is_for_w);
    pass_free(&last);
    pass_free(&p);
}
END_TEST

START_TEST(ops_are_told_of_the_one_whose_work_they_may_do)
{
    int32_t ids, other;
    struct pass p = {0};
    pass_add(&p, OP_ROUTE)->route = (struct op_route){.ids = &ids, .experts = 5};
    pass_add(&p, OP_EXPERTS_UP)->experts_up.ids = &ids;
    pass_add(&p, OP_EXPERTS_DOWN)->experts_down.ids = &ids;
    pass_add(&p, OP_ROUTE)->route.ids = &ids;
    pass_add(&p, OP_EXPERTS_UP)->experts_up.ids = &other;
    pass_add(&p, OP_EXPERTS_DOWN)->experts_down.ids = &other;
    pass_tell_neighbours(&p);
    ck_assert(p.ops[0].route.is_told && p.ops[1].experts_up.route.experts == 5);
    ck_assert(p.ops[2].experts_down.route.is_told && p.ops[2].experts_down.route.experts == 5);
    /* those choose as others say */
    ck_assert(!p.ops[3].route.is_told && !p.ops[4].experts_up.route.is_told && !p.ops[5].experts_down.route.is_told);
    pass_free(&p);
}
END_TEST

Suite *check_pass(void);
Suite *check_pass(void) {
    Suite *suite = suite_create("pass");
    TCase *tc = tcase_create("pass");
    tcase_add_test(tc, writers_are_told_of_the_product_that_reads_next);
    tcase_add_test(tc, ops_are_told_of_the_one_whose_work_they_may_do);
    tcase_add_test(tc, a_product_of_something_else_is_nobodys_reader);
    tcase_add_test(tc, a_writer_is_told_of_its_reader_past_those_that_read_others);
    tcase_add_test(tc, what_is_told_is_in_copies_too);
    suite_add_tcase(suite, tc);
    return suite;
}
