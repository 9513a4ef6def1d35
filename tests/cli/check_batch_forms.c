/* duet batch from outside: lines and answers of OpenAI's batch API, Spec-Bench's answer files, details, a terminal. */
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "tests/support/program.h"
#include "tests/support/support.h"
#include "tests/support/xml.h"

static struct program p;

static void run(const char *input, const char *const *arguments) {
    program_free(&p);
    program_run(&p, input, arguments);
}

#define LINE(id, url, body) \
    "{\"custom_id\": \"" id "\", \"method\": \"POST\", \"url\": \"" url "\", \"body\": " body "}\n"
#define CHAT(id, body)       LINE(id, "/v1/chat/completions", body)
#define COMPLETION(id, body) LINE(id, "/v1/completions", body)
#define HELLO                "\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]"

static const cJSON *get(const cJSON *object, const char *name) {
    const cJSON *item = json_get(object, name);
    ck_assert_msg(item != NULL, "no '%s'", name);
    return item;
}

static const cJSON *element(const cJSON *object, const char *name, int i) {
    return cJSON_GetArrayItem(get(object, name), i);
}

/* --- OpenAI --------------------------------------------------------------------------------------------------- */

START_TEST(a_chat_of_openai_is_answered_in_its_form_as_the_same_messages_are)
{
    run(CHAT("q-1", "{\"model\": \"gpt-x\", " HELLO
                    ", \"max_tokens\": 9, \"seed\": 7}") "{" HELLO ", \"max_tokens\": 9, \"seed\": 7}\n",
        ARGUMENTS("batch"));
    program_expect_status(&p, 0);
    cJSON *r = json_line(&p.out, 0), *own = json_line(&p.out, 1);
    const cJSON *response = get(r, "response"), *body = get(response, "body"), *choice = element(body, "choices", 0);
    const cJSON *message = get(choice, "message"), *usage = get(body, "usage");
    ck_assert_str_eq(get_string(r, "custom_id"), "q-1");
    ck_assert_int_eq(strncmp(get_string(r, "id"), "batch_req_", 10), 0);
    ck_assert(cJSON_HasObjectItem(r, "error") && cJSON_HasObjectItem(choice, "logprobs"));
    ck_assert(!json_get(r, "error") && !json_get(choice, "logprobs"));
    ck_assert_double_eq(get_number(response, "status_code"), 200);
    ck_assert(cJSON_IsString(get(response, "request_id")) && cJSON_IsString(get(body, "id")));
    ck_assert_str_eq(get_string(body, "object"), "chat.completion");
    ck_assert_str_eq(get_string(body, "model"), "gpt-x");
    ck_assert_double_gt(get_number(body, "created"), 1.7e9);
    ck_assert_double_eq(get_number(body, "seed"), 7);
    ck_assert_double_eq(get_number(choice, "index"), 0);
    ck_assert_str_eq(get_string(message, "role"), "assistant");
    ck_assert_str_eq(get_string(message, "content"), get_string(own, "text"));
    ck_assert_str_eq(get_string(choice, "finish_reason"), get_string(own, "finish_reason"));
    ck_assert_double_eq(get_number(usage, "prompt_tokens"), get_number(own, "prompt_tokens"));
    ck_assert_double_eq(get_number(usage, "completion_tokens"), get_number(own, "completion_tokens"));
    ck_assert_double_eq(get_number(usage, "total_tokens"),
                        get_number(own, "prompt_tokens") + get_number(own, "completion_tokens"));
    cJSON_Delete(r);
    cJSON_Delete(own);
}
END_TEST

START_TEST(a_completion_of_openai_takes_a_text_a_list_of_it_or_ids)
{
    run(COMPLETION("a", "{\"prompt\": \"Once upon\", \"seed\": 1, \"max_tokens\": 6}")
            COMPLETION("b", "{\"prompt\": [\"Once upon\"], \"seed\": 1, \"max_tokens\": 6}")
                COMPLETION("c", "{\"prompt\": [5, 6], \"seed\": 1, \"max_tokens\": 6}") COMPLETION(
                    "d", "{\"prompt\": [\"a\", \"b\"]}") "{\"prompt_ids\": [5, 6], \"seed\": 1, \"max_tokens\": 6}\n",
        ARGUMENTS("batch"));
    program_expect_error(&p, 1, "1 of 5 lines failed");
    cJSON *r[5];
    const cJSON *choice[3];
    for (int i = 0; i < 5; i++) r[i] = json_line(&p.out, i);
    for (int i = 0; i < 3; i++) {
        const cJSON *body = get(get(r[i], "response"), "body");
        choice[i] = element(body, "choices", 0);
        ck_assert_str_eq(get_string(body, "object"), "text_completion");
        ck_assert_str_eq(get_string(body, "model"), "embedded");
    }
    ck_assert_str_eq(get_string(choice[0], "text"), get_string(choice[1], "text"));
    ck_assert_str_eq(get_string(choice[2], "text"), get_string(r[4], "text"));
    for (int i = 0; i < 5; i++) cJSON_Delete(r[i]);
}
END_TEST

START_TEST(values_that_ask_for_nothing_are_accepted)
{
    run(CHAT("a",
             "{" HELLO ", \"max_tokens\": 1, \"n\": 1, \"stream\": false, \"logprobs\": false, \"top_logprobs\": 0, "
             "\"frequency_penalty\": 0.0, \"presence_penalty\": 0, \"best_of\": 1, \"tools\": null, "
             "\"logit_bias\": null, \"response_format\": {\"type\": \"text\"}, \"tool_choice\": \"none\", "
             "\"user\": \"u\", \"metadata\": {}, \"store\": false, \"service_tier\": \"auto\"}") "{\"prompt\": \"a\", "
                                                                                                 "\"max_tokens\": 1, "
                                                                                                 "\"n\": 1, "
                                                                                                 "\"repetition_"
                                                                                                 "penalty\": 1.0, "
                                                                                                 "\"echo\": false}\n",
        ARGUMENTS("batch", "--strict"));
    program_expect_status(&p, 0);
}
END_TEST

static const cJSON *choice_of(const cJSON *record) {
    return element(get(get(record, "response"), "body"), "choices", 0);
}

/* The log probabilities of a record, which are as many as its ids. */
static int read_logprobs(const cJSON *list, double *out, int most) {
    ck_assert(cJSON_IsArray(list));
    int n = cJSON_GetArraySize(list);
    for (int i = 0; i < n && i < most; i++) out[i] = cJSON_GetArrayItem(list, i)->valuedouble;
    return n;
}

/* Loop index: K. */
START_TEST(log_probabilities_come_in_every_form_and_are_the_same)
{
    double own[64], other[64];
    char k[8];
    snprintf(k, sizeof k, "%d", 3 * _i);
    run("{\"prompt\": \"Once upon\", \"max_tokens\": 9, \"ignore_eos\": true, \"logprobs\": true}\n" COMPLETION(
            "c", "{\"prompt\": \"Once upon\", \"max_tokens\": 9, \"ignore_eos\": true, \"logprobs\": 0}")
            CHAT("d", "{" HELLO ", \"max_tokens\": 5, \"ignore_eos\": true, \"logprobs\": true}"),
        ARGUMENTS("batch", "--temperature", "0", "--k", k));
    program_expect_status(&p, 0);
    cJSON *record = json_line(&p.out, 0), *completion = json_line(&p.out, 1), *chat = json_line(&p.out, 2);
    ck_assert_int_eq(read_logprobs(json_get(record, "logprobs"), own, 64), 9);
    const cJSON *logprobs = json_get(choice_of(completion), "logprobs");
    ck_assert_int_eq(read_logprobs(json_get(logprobs, "token_logprobs"), other, 64), 9);
    ck_assert_int_eq(cJSON_GetArraySize(json_get(logprobs, "tokens")), 9);
    for (int i = 0; i < 9; i++) ck_assert(own[i] == other[i] && own[i] <= 0 && own[i] > -15);
    const cJSON *content = json_get(json_get(choice_of(chat), "logprobs"), "content");
    ck_assert_int_eq(cJSON_GetArraySize(content), 5);
    ck_assert(cJSON_IsString(json_get(cJSON_GetArrayItem(content, 4), "token")));
    ck_assert(json_get(cJSON_GetArrayItem(content, 4), "logprob")->valuedouble <= 0);
    cJSON_Delete(record), cJSON_Delete(completion), cJSON_Delete(chat);
}
END_TEST

START_TEST(a_repetition_penalty_of_the_run_or_of_the_line_is_the_same)
{
    run("{\"prompt\": \"Once upon\", \"max_tokens\": 60, \"repetition_penalty\": 1.4}\n"
        "{\"prompt\": \"Once upon\", \"max_tokens\": 60, \"repetition_penalty\": 1}\n",
        ARGUMENTS("batch", "--temperature", "0"));
    cJSON *own = json_line(&p.out, 0), *without = json_line(&p.out, 1);
    run("{\"prompt\": \"Once upon\", \"max_tokens\": 60}\n",
        ARGUMENTS("batch", "--temperature", "0", "--repetition-penalty", "1.4"));
    cJSON *of_run = json_line(&p.out, 0);
    ck_assert_str_eq(get_string(own, "text"), get_string(of_run, "text"));
    ck_assert_str_ne(get_string(own, "text"), get_string(without, "text"));
    cJSON_Delete(own), cJSON_Delete(without), cJSON_Delete(of_run);
}
END_TEST

static const struct {
    const char *line, *part;
} bad_lines[] = {
    {COMPLETION("x", "{\"prompt\": \"a\", \"logprobs\": 1}"), "'logprobs' must be true or false"},
    {LINE("x", "/v1/embeddings", "{\"input\": \"a\"}"), "'url' is /v1/embeddings"},
    {"{\"custom_id\": \"x\", \"method\": \"GET\", \"url\": \"/v1/completions\", \"body\": {}}\n", "'method'"},
    {"{\"custom_id\": \"x\", \"method\": \"POST\", \"body\": {}}\n", "'url'"},
    {LINE("x", "/v1/completions", "[]"), "'body' must be an object"},
    {CHAT("x", "{\"max_tokens\": 3}"), "'body' has no 'messages'"},
    {CHAT("x", "{\"prompt\": \"a\"}"), "'prompt' is no field of this url's body"},
    {COMPLETION("x", "{\"prompt\": \"a\", \"prompt_ids\": [2]}"), "'prompt_ids' is no field"},
    {COMPLETION("x", "{\"prompt\": \"a\", \"n\": 2}"), "'n' is not supported"},
    {COMPLETION("x", "{\"prompt\": \"a\", \"stream\": true}"), "'stream' is not supported"},
    {COMPLETION("x", "{\"prompt\": \"a\", \"frequency_penalty\": 0.5}"), "'frequency_penalty' is not supported"},
    {CHAT("x", "{" HELLO ", \"response_format\": {\"type\": \"json_object\"}}"), "'response_format' is not supported"},
    {CHAT("x", "{" HELLO ", \"temperature\": -1}"), "temperature"},
    {CHAT("x", "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}"), "'image_url'"},
    {CHAT("x", "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]}"), "part 1"},
    {"{\"custom_id\": \"x\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"top_k\": 1, \"body\": {}}\n",
     "'top_k' belongs into 'body'"},
};

START_TEST(what_is_wrong_with_a_line_of_openai_is_said_in_its_form)
{
    enum { BAD = sizeof bad_lines / sizeof *bad_lines };
    struct buf input = {0}, sentence = {0};
    for (int i = 0; i < BAD; i++) buf_puts(&input, bad_lines[i].line);
    buf_puts(&input, "{\"url\": \"a\", \"body\": {}}\n" CHAT("last", "{" HELLO ", \"max_tokens\": 1}"));
    run(buf_text(&input), ARGUMENTS("batch"));
    buf_printf(&sentence, "%d of %d lines failed", BAD + 1, BAD + 2);
    program_expect_error(&p, 1, buf_text(&sentence));
    for (int i = 0; i < BAD + 1; i++) {
        cJSON *r = json_line(&p.out, i);
        const cJSON *response = get(r, "response"), *error = get(r, "error");
        const char *message = get_string(error, "message"), *part = i < BAD ? bad_lines[i].part : "'custom_id'";
        buf_clear(&sentence);
        buf_printf(&sentence, "line %d: ", i + 1);
        ck_assert_double_eq(get_number(response, "status_code"), 400);
        ck_assert(cJSON_HasObjectItem(response, "body") && !json_get(response, "body"));
        ck_assert_str_eq(get_string(error, "code"), "invalid_request");
        ck_assert_msg(strncmp(message, buf_text(&sentence), sentence.len) == 0, "%s", message);
        ck_assert_msg(strstr(message, part) != NULL, "'%s' is not in: %s", part, message);
        if (i < BAD) ck_assert_str_eq(get_string(r, "custom_id"), "x");
        cJSON_Delete(r);
    }
    buf_free(&input);
    buf_free(&sentence);
}
END_TEST

START_TEST(a_content_may_be_a_list_of_texts)
{
    run("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Hello\"}, "
        "{\"type\": \"text\", \"text\": \"you!\"}]}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\\nyou!\"}]}\n",
        ARGUMENTS("batch", "-n", "6", "--temperature", "0"));
    program_expect_status(&p, 0);
    cJSON *parts = json_line(&p.out, 0), *text = json_line(&p.out, 1);
    ck_assert_double_eq(get_number(parts, "prompt_tokens"), get_number(text, "prompt_tokens"));
    ck_assert_str_eq(get_string(parts, "text"), get_string(text, "text"));
    cJSON_Delete(parts);
    cJSON_Delete(text);
}
END_TEST

/* --- Spec-Bench, details -------------------------------------------------------------------------------------- */

static double sum(const cJSON *list) {
    double total = 0;
    const cJSON *item;
    ck_assert(cJSON_IsArray(list));
    cJSON_ArrayForEach(item, list) total += item->valuedouble;
    return total;
}

#define QUESTIONS                                                                           \
    "{\"question_id\": 81, \"category\": \"writing\", \"turns\": [\"Hello.\", \"Why?\"]}\n" \
    "{\"prompt\": \"Once upon\", \"max_tokens\": 4}\n"

START_TEST(spec_bench_gets_the_fields_that_its_scripts_read)
{
    run(QUESTIONS "{\"prompt\": \"\"}\n",
        ARGUMENTS("batch", "-n", "12", "--seed", "1", "--ignore-eos", "--format", "spec-bench", "--strict"));
    program_expect_error(&p, 1, "1 of 3 lines failed");
    cJSON *r = json_line(&p.out, 0), *plain = json_line(&p.out, 1), *bad = json_line(&p.out, 2);
    const cJSON *choice = element(r, "choices", 0);
    ck_assert_double_eq(get_number(r, "question_id"), 81);
    ck_assert_str_eq(get_string(r, "category"), "writing");
    ck_assert_str_eq(get_string(r, "model_id"), "embedded");
    ck_assert_double_eq(get_number(choice, "index"), 0);
    ck_assert_int_eq(cJSON_GetArraySize(get(choice, "turns")), 2);
    ck_assert(cJSON_IsString(element(choice, "turns", 1)));
    for (int i = 0; i < 2; i++) {
        ck_assert_double_eq(element(choice, "new_tokens", i)->valuedouble, 12);
        ck_assert_double_gt(element(choice, "wall_time", i)->valuedouble, 0);
    }
    ck_assert_double_eq(sum(get(choice, "accept_lengths")), 24);
    ck_assert_double_eq(cJSON_GetArraySize(get(choice, "accept_lengths")), sum(get(choice, "decoding_steps")));
    ck_assert_double_eq(get_number(plain, "question_id"), 2);
    ck_assert(cJSON_HasObjectItem(plain, "category"));
    ck_assert_str_eq(get_string(bad, "finish_reason"), "error");
    cJSON_Delete(r);
    cJSON_Delete(plain);
    cJSON_Delete(bad);
}
END_TEST

START_TEST(details_are_the_time_and_the_tokens_of_each_round)
{
    run(QUESTIONS
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}], \"temperature\": 0, \"max_tokens\": 400}\n",
        ARGUMENTS("batch", "-n", "12", "--seed", "1", "--details", "--alpha-report", "--stop", "qqqq"));
    ck_assert_int_eq(p.status, 0);
    for (int i = 0; i < 3; i++) {
        cJSON *r = json_line(&p.out, i);
        const cJSON *lengths = get(r, "accept_lengths"), *turn;
        double ended = 0, wall_time = 0, rounds = 0;
        cJSON_ArrayForEach(turn, json_get(r, "turns")) {
            ended += strcmp(get_string(turn, "finish_reason"), "stop") == 0;
            wall_time += get_number(turn, "wall_time");
            rounds += cJSON_GetArraySize(get(turn, "accept_lengths"));
        }
        if (i > 0) ended = strcmp(get_string(r, "finish_reason"), "stop") == 0;
        ck_assert_double_eq(cJSON_GetArraySize(lengths), get_number(r, "rounds"));
        ck_assert_double_eq(sum(lengths), get_number(r, "completion_tokens") + ended); /* and the end id */
        ck_assert_double_gt(get_number(r, "wall_time"), 0);
        if (i == 0) ck_assert_double_eq_tol(get_number(r, "wall_time"), wall_time, 1e-5);
        if (i == 0) ck_assert_double_eq(cJSON_GetArraySize(lengths), rounds);
        if (i == 2) ck_assert_double_eq(ended, 1);
        cJSON_Delete(r);
    }
    run(QUESTIONS, ARGUMENTS("batch", "-n", "1", "-q"));
    ck_assert_ptr_null(strstr(buf_text(&p.out), "wall_time"));
}
END_TEST

START_TEST(tokens_past_a_stop_string_are_of_no_round)
{
    static const char *const stops[] = {"a t", "im", ", t", "ere", "as a", "ttle"};
    struct buf input = {0};
    for (int i = 0; i < 6; i++)
        buf_printf(&input, "{\"prompt\": \"Once upon\", \"temperature\": 0, \"stop\": \"%s\"}\n", stops[i]);
    run(buf_text(&input), ARGUMENTS("batch", "-n", "24", "--k", "7", "--details"));
    program_expect_status(&p, 0);
    for (int i = 0; i < 6; i++) {
        cJSON *r = json_line(&p.out, i);
        ck_assert_double_eq(sum(get(r, "accept_lengths")), get_number(r, "completion_tokens"));
        if (i < 4) ck_assert_str_eq(get_string(r, "finish_reason"), "stop");
        cJSON_Delete(r);
    }
    buf_free(&input);
}
END_TEST

/* --- resuming ------------------------------------------------------------------------------------------------- */

/* Without what time makes of it. */
static char *timeless(const struct buf *text, int i) {
    static const char *const times[] = {"\"created\": ", "\"tstamp\": ", "\"wall_time\": ["};
    cJSON *r = json_line(text, i);
    struct buf printed = {0};
    json_print(r, &printed);
    cJSON_Delete(r);
    for (int t = 0; t < 3; t++) {
        char *at = strstr(printed.data, times[t]);
        if (!at) continue;
        const char *end = at + strlen(times[t]);
        end += strspn(end, "0123456789., ");
        memmove(at, end, strlen(end) + 1);
    }
    return printed.data;
}

/* Loop index: the form. */
START_TEST(every_form_can_be_resumed)
{
    static const char *const formats[] = {"auto", "spec-bench"};
    static const char *const inputs[] = {CHAT("a", "{" HELLO "}") COMPLETION("b", "{\"prompt\": \"Once\"}")
                                             CHAT("c", "{" HELLO ", \"top_k\": 3}"),
                                         QUESTIONS "{\"prompt\": \"The sun\", \"id\": \"s\"}\n"};
    char out[256];
    struct buf whole = {0}, again = {0};
    snprintf(out, sizeof out, "%s", temp_path("out"));
#define FORM_ARGUMENTS(...) \
    ARGUMENTS("batch", "-o", out, "-q", "--seed", "5", "-n", "6", "--format", formats[_i], __VA_ARGS__)
    run(inputs[_i], FORM_ARGUMENTS("--threads", "1"));
    program_expect_status(&p, 0);
    text_of_file(out, &whole);
    const char *second = strchr(buf_text(&whole), '\n') + 1, *third = strchr(second, '\n') + 1;
    text_to_file(out, third);
    run(inputs[_i], FORM_ARGUMENTS("--resume"));
    program_expect_status(&p, 0);
    text_of_file(out, &again);
    ck_assert_int_eq(count_lines(&again), 3);
    for (int i = 0; i < 3; i++) {
        char *a = timeless(&whole, i), *b = timeless(&again, i);
        ck_assert_str_eq(a, b);
        free(a), free(b);
    }
    ck_assert_ptr_nonnull(strstr(buf_text(&again), third)); /* as it was, its time too */
    buf_free(&whole);
    buf_free(&again);
}
END_TEST

/* --- a terminal ------------------------------------------------------------------------------------------------- */

/* Runs a batch of `lines`, without answers that end early, whose standard error is a terminal; appends what that sees. */
static void batch_at_terminal(const char *lines, const char *const *more, struct buf *seen) {
    int master, slave, status;
    char block[512], in[256], out[256];
    struct winsize size = {.ws_row = 40, .ws_col = 160};
    snprintf(in, sizeof in, "%s", temp_path("in"));
    snprintf(out, sizeof out, "%s", temp_path("out"));
    text_to_file(in, lines);
    const char *argv[32] = {"duet", "batch", "-i", in, "-o", out, "--force", "--ignore-eos", "--seed", "1"};
    for (int n = 10, i = 0; more[i] && n < 31; i++) argv[n++] = more[i];
    ck_assert_int_eq(openpty(&master, &slave, NULL, NULL, &size), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(slave, 2);
        close(slave), close(master);
        execv(program_path(), (char *const *)argv);
        _exit(127);
    }
    close(slave);
    for (ssize_t n; (n = read(master, block, sizeof block)) > 0;) buf_append(seen, block, (size_t)n);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    close(master);
}

START_TEST(a_terminal_sees_progress_and_a_line_at_the_end)
{
    struct buf seen = {0};
    batch_at_terminal("{\"prompt\": \"The\"}\n{\"prompt\": \"\"}\n{\"prompt\": \"A\"}\n",
                      ARGUMENTS("--batch", "1", "-n", "5"), &seen);
    static const char *const parts[] = {"1/3  eta ",
                                        "3/3  ",
                                        "duet: 3 records, 1 failed, 10 tokens in ",
                                        " tokens a round, ",
                                        " times plain decoding by what rounds take",
                                        "duet: 1 of 3 lines failed"};
    for (int i = 0; i < 6; i++)
        ck_assert_msg(strstr(buf_text(&seen), parts[i]) != NULL, "'%s' is not in %s", parts[i], buf_text(&seen));
    const char *rate = strstr(buf_text(&seen), "tok/s, ");
    double accepted = -1;
    int end = 0;
    ck_assert_msg(rate && sscanf(rate, "tok/s, %lf accepted%n", &accepted, &end) == 1 && end > 0, "%s",
                  buf_text(&seen));
    ck_assert_msg(accepted >= 0 && accepted <= 1, "%g of the drafted tokens", accepted);
    buf_free(&seen);
}
END_TEST

/* A draft that takes longer than its target loses, however much of it is accepted. Loop index: under auto, or for a few tokens, nothing
 * is said. */
START_TEST(a_batch_that_was_slower_than_plain_decoding_ends_with_the_remedy)
{
    static const struct {
        const char *k, *tokens;
        int said;
    } cases[] = {{"8", "90", 1}, {"auto", "90", 0}, {"8", "20", 0}};
    char small[4096], large[4096];
    struct buf seen = {0};
    ck_assert_ptr_nonnull(realpath(asset_path("draft"), small));
    ck_assert_ptr_nonnull(realpath(asset_path("target"), large));
    batch_at_terminal("{\"prompt\": \"The\"}\n{\"prompt\": \"A\"}\n{\"prompt\": \"One\"}\n",
                      ARGUMENTS("--target", small, "--draft", large, "--k", cases[_i].k, "-n", cases[_i].tokens),
                      &seen);
    ck_assert_msg(
        count_parts(buf_text(&seen), "K = 8 made these answers slower than plain decoding: --k auto chooses") ==
            cases[_i].said,
        "%s", buf_text(&seen));
    buf_free(&seen);
}
END_TEST

Suite *check_batch_forms(void) {
    Suite *suite = suite_create("batch forms");
    TCase *openai = tcase_create("OpenAI");
    tcase_add_test(openai, a_chat_of_openai_is_answered_in_its_form_as_the_same_messages_are);
    tcase_add_test(openai, a_completion_of_openai_takes_a_text_a_list_of_it_or_ids);
    tcase_add_test(openai, values_that_ask_for_nothing_are_accepted);
    tcase_add_loop_test(openai, log_probabilities_come_in_every_form_and_are_the_same, 0, 2);
    tcase_add_test(openai, a_repetition_penalty_of_the_run_or_of_the_line_is_the_same);
    tcase_add_test(openai, what_is_wrong_with_a_line_of_openai_is_said_in_its_form);
    tcase_add_test(openai, a_content_may_be_a_list_of_texts);
    suite_add_tcase(suite, openai);
    TCase *others = tcase_create("others");
    tcase_add_test(others, spec_bench_gets_the_fields_that_its_scripts_read);
    tcase_add_test(others, details_are_the_time_and_the_tokens_of_each_round);
    tcase_add_test(others, tokens_past_a_stop_string_are_of_no_round);
    tcase_add_loop_test(others, every_form_can_be_resumed, 0, 2);
    tcase_add_test(others, a_terminal_sees_progress_and_a_line_at_the_end);
    tcase_add_loop_test(others, a_batch_that_was_slower_than_plain_decoding_ends_with_the_remedy, 0, 3);
    suite_add_tcase(suite, others);
    return suite;
}
