/* One line of batch input, and the record of a line that is wrong. The first byte says what the run has; the rest is the
 * line. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/batch.h"
#include "fuzz/tokenizers.h"

enum { FUZZ_BYTES_MAX = 2048, LINE = 3 };
enum { NO_TOKENIZER = 1, NO_TEMPLATE = 2, TEMPLATE_ERROR = 4, SEED = 8, PIECES = 16, NO_THINKING = 32 };

/* --- the run ---------------------------------------------------------------------------------------------------- */

static const struct options *options_of(int flags) {
    static char *plain[] = {"duet", "batch"}, *seeded[] = {"duet", "batch", "--seed", "7", "--stop", "END", "-n", "5"};
    static struct options parsed[2];
    struct options *o = &parsed[(flags & SEED) != 0];
    if (o->command != COMMAND_BATCH)
        claim((flags & SEED ? options_parse(o, 8, seeded) : options_parse(o, 2, plain)) == 0, "%s", err_message());
    return o;
}

static const struct chat_template *template_of(int flags) {
    static struct chat_template *chatml, *llama2;
    struct chat_template **t = flags & PIECES ? &llama2 : &chatml;
    if (!*t)
        claim(checkpoint_chat_template(fuzz_checkpoint(), flags & PIECES ? "llama2" : "chatml", t) == 0, "%s",
              err_message());
    return flags & (NO_TOKENIZER | NO_TEMPLATE | TEMPLATE_ERROR) ? NULL : *t;
}

static struct request_context context_of(int flags) {
    const struct tokenizer *t = fixed_tokenizer(flags & PIECES ? TOKENIZER_PIECES : TOKENIZER_EMBEDDED);
    return (struct request_context){
        .o = options_of(flags),
        .tokenizer = flags & NO_TOKENIZER ? NULL : t,
        .chat_template = template_of(flags),
        .template_error = flags & TEMPLATE_ERROR ? "the chat template is none that duet knows" : NULL,
        .vocab = tokenizer_size(t),
        .context = 64,
        .think = !(flags & NO_THINKING),
    };
}

/* --- invariants ------------------------------------------------------------------------------------------------- */

/* What a request without an error promises to the engine. */
static void claim_valid(const struct request *r, const struct request_context *c) {
    claim(sampling_check(&r->sampling) == 0, "%s", err_message());
    claim(r->max_tokens >= 1, "%d tokens at most", r->max_tokens);
    claim(r->turns ? r->turn_count > 0 && r->ids.len == 0 : r->ids.len > 0, "%d turns, %zu ids", r->turn_count,
          r->ids.len);
    for (size_t i = 0; i < r->ids.len; i++)
        claim(r->ids.data[i] >= 0 && r->ids.data[i] < c->vocab, "id %d of %d", r->ids.data[i], c->vocab);
    for (int i = 0; i < r->turn_count; i++)
        claim(utf8_is_valid(buf_text(&r->turns[i]), r->turns[i].len), "turn %d is not valid UTF-8", i);
    for (int i = 0; i < r->stop_count; i++)
        claim(utf8_is_valid(buf_text(&r->stops[i]), r->stops[i].len), "stop string %d is not valid UTF-8", i);
    claim(c->tokenizer || (r->stop_count == 0 && !r->turns), "text without a tokenizer");
}

static void claim_same_requests(const struct request *a, const struct request *b, int flags) {
    claim(!a->error == !b->error && (!a->error || strcmp(a->error, b->error) == 0), "%s",
          a->error ? a->error : b->error);
    claim_same("ids", a->ids.data, a->ids.len * sizeof(int32_t), b->ids.data, b->ids.len * sizeof(int32_t));
    claim(a->turn_count == b->turn_count && a->stop_count == b->stop_count, "%d turns", a->turn_count);
    claim(a->max_tokens == b->max_tokens && a->ignore_eos == b->ignore_eos, "%d tokens", a->max_tokens);
    claim(memcmp(&a->sampling, &b->sampling, sizeof a->sampling) == 0, "another sampling");
    claim(!(flags & SEED) || a->seed == b->seed, "another seed");
}

static void claim_id(const cJSON *record, const char *name, const char *given) {
    struct buf written = {0};
    const cJSON *id = json_get(record, name);
    if (id) json_print(id, &written);
    claim(!id == (!given || strcmp(given, "null") == 0), "%s: %s", name, buf_text(&written));
    if (id) claim_same(name, written.data, written.len, given, strlen(given));
    buf_free(&written);
}

/* {"index", "id", "finish_reason": "error"}; returns the sentence. */
static const cJSON *claim_own(const cJSON *record, const struct request *r) {
    int64_t index;
    claim(json_int(json_get(record, "index"), &index) && index == LINE, "another index");
    claim(strcmp(json_get(record, "finish_reason")->valuestring, "error") == 0, "another finish_reason");
    claim_id(record, "id", r->id);
    return json_get(record, "error");
}

/* {"custom_id", "response": {"status_code": 400}, "error": {"message"}} */
static const cJSON *claim_openai(const cJSON *record, const struct request *r) {
    int64_t status;
    claim(json_int(json_get(json_get(record, "response"), "status_code"), &status) && status == 400, "another status");
    claim_id(record, "custom_id", r->id);
    return json_get(json_get(record, "error"), "message");
}

/* The record of a line without an answer. */
static void claim_record(const struct request *r) {
    struct record_style style = {.has_text = true, .model = "m"};
    struct buf line = {0}, words = {0};
    cJSON *record;
    record_write(&line, r, NULL, 0, &style);
    claim_sentence(buf_text(&line));
    claim(json_parse(&record, line.data, line.len) == 0, "%s: %s", line.data, err_message());
    const cJSON *error = r->form == FORM_RECORD ? claim_own(record, r) : claim_openai(record, r);
    if (r->error) buf_printf(&words, "line %d: %s", LINE, r->error);
    claim(!r->error == !error, "%s", line.data);
    if (r->error) claim(strcmp(error->valuestring, words.data) == 0, "%s", line.data);
    cJSON_Delete(record);
    buf_free(&line);
    buf_free(&words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    struct request r, again;
    if (n > FUZZ_BYTES_MAX) return 0;
    int flags = input_byte(&in);
    struct request_context c = context_of(flags);
    forget_error();
    request_parse(&r, &c, LINE, (const char *)in.data, in.n);
    claim(r.line == LINE, "line %d", r.line);
    if (r.error) claim_sentence(r.error);
    if (!r.error) claim_valid(&r, &c);
    request_parse(&again, &c, LINE, (const char *)in.data, in.n);
    claim_same_requests(&r, &again, flags);
    claim_record(&r);
    request_free(&r);
    request_free(&again);
    return 0;
}
