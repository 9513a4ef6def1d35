/* The words of a draft vocabulary: which ids they choose, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "draft/vocab.h"
#include "engine/internal.h"
#include "tests/support/damage.h"
#include "tests/support/engine_support.h"
#include "tests/support/support.h"

enum { SIZE = 1000 };

static const int32_t end_ids[] = {990, 2, 5000};
static const struct ids ends = {(int32_t *)(uintptr_t)end_ids, 3, 3}; /* one past the vocabulary */

static const char *write_text(const char *name, const char *text) {
    static char paths[2][512];
    static int turn;
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", temp_dir(), name);
    damage_write_file(path, text, strlen(text));
    return path;
}

static void must_choose(const char *wish, const struct tokenizer *t, const int32_t *expected, int count) {
    struct ids ids = {0};
    ck_ok(draft_vocab_choose(&ids, wish, &(struct draft_vocab_source){SIZE, t, &ends}));
    ck_assert_msg((int)ids.len == count, "'%s': %zu ids", wish, ids.len);
    for (int i = 0; i < count; i++)
        ck_assert_msg(ids.data[i] == expected[i], "'%s': id %d is %d, expected %d", wish, i, ids.data[i], expected[i]);
    ids_free(&ids);
}

static void must_refuse(int code, const char *wish, const char *words) {
    struct ids ids = {0};
    ck_assert_int_eq(draft_vocab_choose(&ids, wish, &(struct draft_vocab_source){SIZE, NULL, &ends}), code);
    ck_assert_msg(strstr(err_message(), words), "'%s' lacks '%s'", err_message(), words);
    ck_assert(ids.len == 0);
}

START_TEST(a_number_takes_the_lowest_ids_and_the_ends)
{
    must_choose("5", NULL, (const int32_t[]){0, 1, 2, 3, 990}, 5);
    must_choose("2", NULL, (const int32_t[]){2, 990}, 2);
    int32_t all[SIZE];
    for (int i = 0; i < SIZE; i++) all[i] = i;
    must_choose("1000", NULL, all, SIZE);
}
END_TEST

START_TEST(a_file_is_taken_as_it_is_with_the_ends)
{
    const int32_t expected[] = {2, 7, 40, 990};
    must_choose(write_text("lines.txt", "40\n\n  7 \r\n2"), NULL, expected, 4);
    must_choose(write_text("list.json", " [40, 7]\n"), NULL, expected, 4);
}
END_TEST

START_TEST(a_text_gives_its_most_frequent_ids_then_the_lowest)
{
    struct tokenizer *t;
    struct ids one = {0};
    ck_ok(checkpoint_tokenizer(test_checkpoint(asset_path("target")), &t));
    ck_ok(tokenizer_encode(t, "aaabb", 1, NULL, &one)); /* "a" */
    ck_ok(tokenizer_encode(t, "b", 1, NULL, &one));
    ck_assert(one.len == 2 && one.data[0] < one.data[1] && one.data[0] > 2);
    char wish[600];
    snprintf(wish, sizeof wish, "4:%s", write_text("ab.txt", "b"));
    must_choose(wish, t, (const int32_t[]){0, 2, one.data[1], 990}, 4);
    snprintf(wish, sizeof wish, "3:%s", write_text("ab.txt", "b"));
    must_choose(wish, t, (const int32_t[]){2, one.data[1], 990}, 3);
    ids_free(&one);
    tokenizer_free(t);
}
END_TEST

START_TEST(what_cannot_be_is_refused_with_its_place)
{
    must_refuse(ERR_USAGE, "1", "expected 2 to 1000 ids");
    must_refuse(ERR_USAGE, "1001", "expected 2 to 1000 ids");
    must_refuse(ERR_USAGE, "99999999999999999999", "expected 2 to 1000 ids");
    must_refuse(ERR_USAGE, "10:text.txt", "tokenizer.json");
    must_refuse(ERR_IO, "/nowhere/ids.txt", "/nowhere/ids.txt");
    must_refuse(ERR_FORMAT, write_text("twice.txt", "4\n5\n4\n"), "twice.txt, line 3: id 4 comes twice");
    must_refuse(ERR_FORMAT, write_text("past.txt", "4\n1000\n"), "past.txt, line 2: id 1000 is outside");
    must_refuse(ERR_FORMAT, write_text("below.json", "[3, -1]"), "below.json, element 2: id -1 is outside");
    must_refuse(ERR_FORMAT, write_text("half.json", "[3, 4.5]"), "half.json, element 2: expected an id");
    must_refuse(ERR_FORMAT, write_text("open.json", "[3,"), "open.json: ");
    must_refuse(ERR_FORMAT, write_text("words.txt", "3\nfour\n"), "words.txt, line 2: 'four' is no id");
    must_refuse(ERR_FORMAT, write_text("two.txt", "3 4\n"), "two.txt, line 1: '3 4' is no id");
    must_refuse(ERR_FORMAT, write_text("blank.txt", "\n \n"), "blank.txt: there is no id in it");
    must_refuse(ERR_FORMAT, write_text("none.json", "[]"), "none.json: there is no id in it");
}
END_TEST

/* So the draft can end an answer, whatever is asked for. */
START_TEST(an_engine_s_cut_draft_has_the_end_ids)
{
    const struct pair pair = {"embedded", asset_path("target"), asset_path("draft")};
    struct engine_options options = pair_options(&pair, 2, 1);
    options.draft_vocab = "20";
    struct engine *e = must_open(&options);
    const struct model_config *c = engine_config(e);
    ck_assert_int_eq(engine_info(e).draft_vocab, 20);
    ck_assert_int_gt(c->end_count, 0);
    for (int i = 0; i < c->end_count; i++) {
        bool has = false;
        for (size_t j = 0; j < e->proposer->ids.len; j++) has = has || e->proposer->ids.data[j] == c->end_ids[i];
        ck_assert(has);
    }
    engine_destroy(e);
    options.draft = NULL, options.proposer = "ngram";
    ck_assert_int_eq(engine_create(&e, &options), ERR_USAGE);
    ck_assert(strstr(err_message(), "n-gram lookup has no head"));
}
END_TEST

/* So it can part a thought from the rest. */
START_TEST(an_engine_s_cut_draft_has_the_marks_of_thoughts)
{
    const char *template = shared_path("fixtures/templates/qwen3/tokenizer_config.json");
    if (!template) {
        skip("no shared test data");
        return;
    }
    static char dirs[2][4096];
    for (int i = 0; i < 2; i++) {
        char command[16384];
        snprintf(dirs[i], sizeof *dirs, "%s",
                 copy_model_with(asset_path(i ? "draft" : "target"), i ? "draft" : "target", "vocab_size", 4096));
        snprintf(command, sizeof command,
                 "cp %s %s/ && sed -i 's#\"{\": 93#\"<think>\": 93#; s#\"}\": 95#\"</think>\": 95#' %s/tokenizer.json",
                 template, dirs[i], dirs[i]);
        ck_assert_int_eq(system(command), 0);
    }
    const struct pair pair = {"that thinks", dirs[0], dirs[1]};
    struct engine_options options = pair_options(&pair, 2, 1);
    options.draft_vocab = "20";
    struct engine *e = must_open(&options);
    const struct ids *ids = &e->proposer->ids;
    ck_assert_uint_eq(ids->len, 20);
    ck_assert_int_eq(ids->data[18], 93);
    ck_assert_int_eq(ids->data[19], 95);
    engine_destroy(e);
}
END_TEST

/* Of either model of the pair, or both: the ids of the pair are those with rows. */
START_TEST(ids_past_the_embedding_belong_to_no_vocabulary)
{
    for (int i = 1; i < 4; i++) {
        char target[4096];
        const char *dir = asset_path("target");
        if (i & 1) dir = copy_model_with_token(dir, "target", 4096, "<image>");
        snprintf(target, sizeof target, "%s", dir);
        dir = asset_path("draft");
        if (i & 2) dir = copy_model_with_token(dir, "draft", 4096, "<image>");
        const struct pair pair = {"with a token more", target, dir};
        struct engine_options options = pair_options(&pair, 2, 1);
        struct engine *e = must_open(&options);
        ck_assert(e->vocab == 4096 && e->proposer->vocab == 4096 && e->proposer->inputs == 4096);
        struct request request = text_request(e, "Once upon a time", 8);
        struct answer answer;
        run_requests(e, &request, 1, &answer);
        ck_assert_uint_eq(answer.ids.len, 8);
        free_requests(&request, 1);
        free_answers(&answer, 1);
        engine_destroy(e);
    }
}
END_TEST

Suite *check_draft_vocab(void) {
    Suite *suite = suite_create("draft_vocab");
    TCase *tc = tcase_create("draft_vocab");
    tcase_add_test(tc, a_number_takes_the_lowest_ids_and_the_ends);
    tcase_add_test(tc, a_file_is_taken_as_it_is_with_the_ends);
    tcase_add_test(tc, a_text_gives_its_most_frequent_ids_then_the_lowest);
    tcase_add_test(tc, what_cannot_be_is_refused_with_its_place);
    tcase_add_test(tc, an_engine_s_cut_draft_has_the_end_ids);
    tcase_add_test(tc, an_engine_s_cut_draft_has_the_marks_of_thoughts);
    tcase_add_test(tc, ids_past_the_embedding_belong_to_no_vocabulary);
    suite_add_tcase(suite, tc);
    return suite;
}
