/* What a file or a user can make long costs no more than n log n: lines of a batch, headers, conversations, pages, words at a
 * terminal. See check_complexity.c. */
#include <stdlib.h>

#include "cli/batch.h"
#include "cli/wrap.h"
#include "engine/conversation.h"
#include "model/files/safetensors.h"
#include "model/kv_pages.h"
#include "tests/support/damage.h"
#include "tests/support/growth.h"
#include "tests/support/program.h"
#include "tests/support/support.h"
#include "tests/support/tokenizer_support.h"

/* --- lines of a batch ---------------------------------------------------------------------------------------------------------------- */

static struct request_context context;
static struct options options;

static void make_context(void) {
    char *arguments[] = {"duet", "batch"};
    struct tokenizer *t = tokenizer_open(asset_path("target"));
    struct chat_template *chat_template;
    ck_ok(options_parse(&options, 2, arguments));
    ck_ok(checkpoint_chat_template(test_checkpoint(asset_path("target")), NULL, &chat_template));
    context = (struct request_context){
        .o = &options, .tokenizer = t, .chat_template = chat_template, .vocab = tokenizer_size(t), .context = 1 << 24};
}

static void drop_context(void) {
    tokenizer_free((struct tokenizer *)context.tokenizer);
    chat_template_free((struct chat_template *)context.chat_template);
}

static void parse_line(void *input) {
    const struct buf *line = input;
    struct request r;
    request_parse(&r, &context, 1, line->data, line->len);
    require(r.error == NULL, "%s", r.error);
    request_free(&r);
}

GROWN_TEXT(line_of_ids, "{\"prompt_ids\": [1", ", 1000", "]}")
GROWN_TEXT(line_of_turns, "{\"turns\": [\"a\"", ", \"the cat\"", "]}")
GROWN_TEXT(line_of_stops, "{\"prompt\": \"a\", \"stop\": [\"a\"", ", \"stop\"", "]}")
GROWN_TEXT(line_of_messages, "{\"messages\": [",
           "{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}, ",
           "{\"role\": \"user\", \"content\": \"c\"}]}")
GROWN_TEXT(line_of_text, "{\"prompt\": \"", "the cat sat ", "\"}")
GROWN_TEXT(line_of_members, "{\"prompt\": \"a\"", ", \"unknown\": 1", "}")

static const struct growth line_cases[] = {
    {"ids", 2000, line_of_ids, parse_line, drop_text},
    {"turns", 1000, line_of_turns, parse_line, drop_text},
    {"stop strings", 1000, line_of_stops, parse_line, drop_text},
    {"messages", 200, line_of_messages, parse_line, drop_text},
    {"a prompt", 500, line_of_text, parse_line, drop_text},
    {"unknown members", 1000, line_of_members, parse_line, drop_text},
};

START_TEST(a_line_takes_time_in_proportion_to_its_length)
{ must_grow_like_n_log_n(&line_cases[_i]); }
END_TEST

/* --- headers, conversations, pages, words at a terminal ------------------------------------------------------------------------------- */

static void *header_of_tensors(size_t n) {
    struct buf header = {0}, file = {0};
    for (size_t i = 0; i < n; i++)
        buf_printf(&header,
                   "%c\"layers.%zu.weight\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [%zu, %zu]}",
                   i ? ',' : '{', (i * 7919) % n, 4 * i, 4 * i + 4);
    buf_putc(&header, '}');
    for (int i = 0; i < 8; i++) buf_putc(&file, (char)(header.len >> 8 * i & 0xff));
    buf_append(&file, header.data, header.len);
    for (size_t i = 0; i < n; i++) buf_append(&file, "\0\0\0", 4);
    damage_write_file(temp_path("model.safetensors"), file.data, file.len);
    buf_free(&header), buf_free(&file);
    return NULL;
}

static void open_tensors(void *unused) {
    struct safetensors *s;
    (void)unused;
    ck_ok(safetensors_open(&s, temp_path("model.safetensors")));
    safetensors_close(s);
}

static void drop_nothing(void *unused) {
    (void)unused;
}

START_TEST(a_header_takes_time_in_proportion_to_its_tensors)
{ must_grow_like_n_log_n(&(struct growth){"tensors", 1000, header_of_tensors, open_tensors, drop_nothing}); }
END_TEST

static struct engine *engine;

static void load_turns(struct conversation *c, size_t n) {
    struct chat_message *messages = calloc(2 * n, sizeof *messages);
    require(messages != NULL, "no memory");
    for (size_t i = 0; i < 2 * n; i++) messages[i] = (struct chat_message){i % 2 ? "assistant" : "user", "a", 1};
    ck_ok(conversation_load(c, messages, 2 * (int)n));
    free(messages);
}

static void *loaded_turns(size_t n) {
    struct conversation *c;
    ck_ok(conversation_create(&c, &(struct conversation_options){.engine = engine}));
    load_turns(c, n);
    return c;
}

static void ignore(void *user, struct token_block *block) {
    (void)user, (void)block;
}

/* Most turns do not fit and are dropped; undo puts them back. */
static void ask_and_undo(void *input) {
    struct conversation *c = input;
    struct generation g = {.max_tokens = 1, .sampling = {.temperature = 0, .top_p = 1}, .seed = 1, .on_tokens = ignore};
    int dropped;
    ck_ok(conversation_ask(c, "and", 3, &g, &dropped));
    ck_assert_int_gt(dropped, 100);
    engine_stop(engine, conversation_sequence(c));
    ck_ok(conversation_undo(c));
}

static void drop_conversation(void *input) {
    conversation_free(input);
}

START_TEST(dropping_turns_takes_time_in_proportion_to_their_number)
{
    ck_ok(engine_create(
        &engine, &(struct engine_options){
                     .target = test_checkpoint(asset_path("target")), .device = "host", .threads = 1, .context = 64}));
    must_grow_like_n_log_n(&(struct growth){"turns", 2000, loaded_turns, ask_and_undo, drop_conversation});
    engine_destroy(engine);
}
END_TEST

struct pages {
    struct kv_pages *pages;
    int32_t *list;
    int count;
};

static void *all_pages(size_t n) {
    struct pages *p = calloc(1, sizeof *p);
    require(p != NULL, "no memory");
    p->count = (int)n;
    p->list = calloc(n, sizeof *p->list);
    require(p->list != NULL, "no memory");
    ck_ok(kv_pages_create(&p->pages, p->count + 1));
    return p;
}

static void drop_pages(void *input) {
    struct pages *p = input;
    kv_pages_destroy(p->pages);
    free(p->list);
    free(p);
}

/* One by one, and back from the last to the first. */
static void take_and_give(void *input) {
    struct pages *p = input;
    for (int i = 0; i < p->count; i++) require_ok(kv_pages_take(p->pages, 1, &p->list[i]));
    for (int i = p->count; i > 0; i--) kv_pages_give(p->pages, 1, &p->list[i - 1]);
}

/* With all pages out, the first and the last are given and taken in turn. */
static void take_from_both_ends(void *input) {
    struct pages *p = input;
    ck_ok(kv_pages_take(p->pages, p->count, p->list));
    for (int i = 0; i < p->count; i++) {
        int32_t *page = &p->list[i % 2 ? p->count - 1 : 0];
        kv_pages_give(p->pages, 1, page);
        require_ok(kv_pages_take(p->pages, 1, page));
    }
    kv_pages_give(p->pages, p->count, p->list);
}

static const struct growth page_cases[] = {
    {"pages in order", 4000, all_pages, take_and_give, drop_pages},
    {"pages from both ends", 4000, all_pages, take_from_both_ends, drop_pages},
};

START_TEST(pages_take_time_in_proportion_to_their_number)
{ must_grow_like_n_log_n(&page_cases[_i]); }
END_TEST

GROWN_TEXT(one_long_word, "", "abc", "")
GROWN_TEXT(words_and_blanks, "", "ab  cd\t", "")

static void wrap_byte_by_byte(void *input) {
    const struct buf *text = input;
    struct wrap w = {.columns = 80, .style = "\033[2m", .reset = "\033[0m"};
    for (size_t i = 0; i < text->len; i++) wrap_push(&w, text->data + i, 1);
    wrap_finish(&w);
    wrap_free(&w);
}

static const struct growth wrap_cases[] = {
    {"a long word", 2000, one_long_word, wrap_byte_by_byte, drop_text},
    {"words", 1000, words_and_blanks, wrap_byte_by_byte, drop_text},
};

START_TEST(wrapping_takes_time_in_proportion_to_the_text)
{ must_grow_like_n_log_n(&wrap_cases[_i]); }
END_TEST

Suite *check_complexity_lines(void);
Suite *check_complexity_lines(void) {
    Suite *suite = suite_create("complexity_lines");
    TCase *lines = tcase_create("lines"), *rest = tcase_create("rest");
    tcase_add_checked_fixture(lines, make_context, drop_context);
    tcase_add_loop_test(lines, a_line_takes_time_in_proportion_to_its_length, 0, GROWTH_COUNT(line_cases));
    suite_add_tcase(suite, lines);
    tcase_add_test(rest, a_header_takes_time_in_proportion_to_its_tensors);
    tcase_add_test(rest, dropping_turns_takes_time_in_proportion_to_their_number);
    tcase_add_loop_test(rest, pages_take_time_in_proportion_to_their_number, 0, GROWTH_COUNT(page_cases));
    tcase_add_loop_test(rest, wrapping_takes_time_in_proportion_to_the_text, 0, GROWTH_COUNT(wrap_cases));
    suite_add_tcase(suite, rest);
    return suite;
}
