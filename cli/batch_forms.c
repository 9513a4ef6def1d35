/* Records in the forms of others: OpenAI's batch API (as `vllm run-batch` writes it), and Spec-Bench's answer files. Both name
 * the line and its hash (--resume) in an id that is theirs. */
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "cli/batch.h"
#include "cli/io.h"

static void put_key(struct buf *out, const char *prefix, const struct request *r) {
    buf_printf(out, "\"%s%d-%016llx\"", prefix, r->line, (unsigned long long)r->hash);
}

/* JSON that a line gave, or null. */
static void put_given(struct buf *out, const char *json) {
    buf_puts(out, json ? json : "null");
}

static void put_text(struct buf *out, const struct answer *a) {
    json_put_string(out, buf_text(&a->text), a->text.len);
}

/* --- OpenAI --------------------------------------------------------------------------------------------------- */

/* A token alone as text; half a character becomes U+FFFD. */
static void put_token(struct buf *out, const struct tokenizer *t, int32_t id) {
    struct buf text = {0};
    if (t && tokenizer_decode(t, &id, 1, false, &text) == 0)
        json_put_string(out, buf_text(&text), text.len);
    else
        buf_puts(out, "null");
    buf_free(&text);
}

static void put_chat_logprobs(struct buf *out, const struct answer *a, const struct tokenizer *t) {
    buf_puts(out, "{\"content\": [");
    for (size_t i = 0; i < a->ids.len; i++) {
        buf_puts(out, i ? ", {\"token\": " : "{\"token\": ");
        put_token(out, t, a->ids.data[i]);
        buf_printf(out, ", \"logprob\": %.9g, \"bytes\": null, \"top_logprobs\": []}", record_logprob(a, i));
    }
    buf_puts(out, "]}");
}

static void put_completion_logprobs(struct buf *out, const struct answer *a, const struct tokenizer *t) {
    buf_puts(out, "{\"tokens\": [");
    for (size_t i = 0; i < a->ids.len; i++) {
        json_put_element(out);
        put_token(out, t, a->ids.data[i]);
    }
    buf_puts(out, "], \"token_logprobs\": ");
    record_put_logprobs(out, a);
    buf_puts(out, ", \"top_logprobs\": null}");
}

static void put_logprobs(struct buf *out, const struct request *r, const struct answer *a, const struct tokenizer *t) {
    if (!r->logprobs)
        buf_puts(out, "null");
    else if (r->form == FORM_CHAT)
        put_chat_logprobs(out, a, t);
    else
        put_completion_logprobs(out, a, t);
}

static void put_choice(struct buf *out, const struct request *r, const struct answer *a, const struct tokenizer *t) {
    buf_puts(out, "{\"index\": 0, ");
    buf_puts(out, r->form == FORM_CHAT ? "\"message\": {\"role\": \"assistant\", \"content\": " : "\"text\": ");
    put_text(out, a);
    buf_puts(out, r->form == FORM_CHAT ? "}, \"logprobs\": " : ", \"logprobs\": ");
    put_logprobs(out, r, a, t);
    buf_printf(out, ", \"finish_reason\": \"%s\"}", record_finish_name(a->finish));
}

static void put_body(struct buf *out, const struct request *r, const struct answer *a,
                     const struct record_style *style) {
    bool chat = r->form == FORM_CHAT;
    int tokens = (int)a->ids.len;
    buf_puts(out, "{\"id\": ");
    put_key(out, chat ? "chatcmpl-" : "cmpl-", r);
    buf_printf(out,
               ", \"object\": \"%s\", \"created\": %lld, \"model\": ", chat ? "chat.completion" : "text_completion",
               (long long)time(NULL));
    if (r->model)
        buf_puts(out, r->model);
    else
        json_put_string(out, style->model, strlen(style->model));
    buf_puts(out, ", \"choices\": [");
    put_choice(out, r, a, style->tokenizer);
    buf_printf(out, "], \"usage\": {\"prompt_tokens\": %d, \"completion_tokens\": %d, \"total_tokens\": %d}",
               a->prompt_tokens, tokens, a->prompt_tokens + tokens);
    record_put_seed(out, r->seed);
    if (style->details) record_put_details(out, a, 1);
    buf_putc(out, '}');
}

void openai_write(struct buf *out, const struct request *r, const struct answer *answers, int count,
                  const struct record_style *style) {
    bool failed = r->error || count == 0;
    buf_puts(out, "{\"id\": ");
    put_key(out, OPENAI_ID, r);
    buf_puts(out, ", \"custom_id\": ");
    put_given(out, r->id);
    buf_printf(out, ", \"response\": {\"status_code\": %d, \"request_id\": ", failed ? 400 : 200);
    put_key(out, "req_", r);
    buf_puts(out, ", \"body\": ");
    if (failed)
        buf_puts(out, "null");
    else
        put_body(out, r, answers, style);
    buf_puts(out, "}, \"error\": ");
    if (r->error) {
        buf_puts(out, "{\"code\": \"invalid_request\", \"message\": ");
        record_put_sentence(out, r);
        buf_puts(out, "}}");
    } else {
        buf_puts(out, "null}");
    }
}

/* --- Spec-Bench ------------------------------------------------------------------------------------------------- */

static void put_steps(struct buf *out, const struct answer *a) {
    buf_printf(out, "%zu", a->lengths.len);
}

static void put_new_tokens(struct buf *out, const struct answer *a) {
    int tokens = 0;
    for (size_t i = 0; i < a->lengths.len; i++) tokens += a->lengths.data[i];
    buf_printf(out, "%d", tokens);
}

static void put_seconds(struct buf *out, const struct answer *a) {
    buf_printf(out, "%.6f", (double)a->wall_us * 1e-6);
}

/* A list with an element for each answer. */
static void put_list(struct buf *out, const char *name, const struct answer *answers, int count,
                     void (*put)(struct buf *, const struct answer *)) {
    buf_printf(out, ", \"%s\": [", name);
    for (int i = 0; i < count; i++) {
        json_put_element(out);
        put(out, &answers[i]);
    }
    buf_putc(out, ']');
}

/* What evaluation/speed.py and equal.py read: new_tokens (as there with the end id), wall_time in seconds and decoding_steps
 * have an element a turn, accept_lengths one a round of all turns. */
void spec_bench_write(struct buf *out, const struct request *r, const struct answer *answers, int count,
                      const struct record_style *style) {
    buf_puts(out, "{\"question_id\": ");
    if (r->id)
        buf_puts(out, r->id);
    else
        buf_printf(out, "%d", r->line);
    buf_puts(out, ", \"category\": ");
    put_given(out, r->category);
    buf_puts(out, ", \"answer_id\": ");
    put_key(out, "", r);
    buf_puts(out, ", \"model_id\": ");
    json_put_string(out, style->model, strlen(style->model));
    buf_puts(out, ", \"choices\": [{\"index\": 0");
    put_list(out, "turns", answers, count, put_text);
    put_list(out, "decoding_steps", answers, count, put_steps);
    put_list(out, "new_tokens", answers, count, put_new_tokens);
    put_list(out, "wall_time", answers, count, put_seconds);
    buf_puts(out, ", \"accept_lengths\": ");
    record_put_lengths(out, answers, count);
    buf_puts(out, "}]");
    record_put_seed(out, r->seed);
    buf_printf(out, ", \"tstamp\": %lld}", (long long)time(NULL));
}
