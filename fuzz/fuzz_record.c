/* A record of batch output holds what went in, whatever the texts are. The input makes a request that is done and its
 * answers: bytes for the counts, texts with a byte 0xff behind each, ids of four bytes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/batch.h"
#include "fuzz/fuzz.h"

enum { FUZZ_BYTES_MAX = 256, ANSWERS_MAX = 4 };
enum { HAS_TEXT = 1, HAS_ERROR = 2, HAS_ID = 4, HAS_TURNS = 8, DETAILS = 16, SPEC_BENCH = 32, OPENAI = 64 };

struct sample {
    struct request request;
    struct answer answers[ANSWERS_MAX];
    int count;
    struct record_style style;
};

static uint64_t input_number(struct input *in, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)input_byte(in) << 8 * i;
    return value;
}

static void read_answer(struct answer *a, struct input *in) {
    struct input text = input_until(in, 0xff);
    buf_append(&a->text, text.data, text.n);
    for (int ids = input_byte(in) % 8; ids > 0; ids--) ids_push(&a->ids, (int32_t)input_number(in, 4));
    a->prompt_tokens = (int)input_number(in, 3);
    a->finish = FINISH_STOP + input_byte(in) % 3;
    a->stats.rounds = (int64_t)input_number(in, 4);
    a->stats.plain_rounds = (int64_t)input_number(in, 2);
    a->stats.drafted = (int64_t)input_number(in, 5);
    a->stats.accepted = (int64_t)input_number(in, 4);
    for (int rounds = (int)a->stats.plain_rounds % 5; rounds > 0; rounds--) ids_push(&a->lengths, rounds);
    a->wall_us = a->stats.rounds;
}

/* In JSON, where a byte that is not valid UTF-8 is U+FFFD; malloc'ed. */
static char *quote(const char *bytes, size_t n) {
    struct buf text = {0};
    json_put_string(&text, bytes, n);
    return text.data;
}

static void read_sample(struct sample *s, struct input *in) {
    int flags = input_byte(in);
    struct request *r = &s->request;
    *s = (struct sample){.count = input_byte(in) % (ANSWERS_MAX + 1)};
    s->style = (struct record_style){
        .has_text = flags & HAS_TEXT, .details = flags & DETAILS, .spec_bench = flags & SPEC_BENCH, .model = "a model"};
    r->line = 1 + (int)input_number(in, 3);
    r->seed = input_number(in, 8);
    struct input id = input_until(in, 0xff), error = input_until(in, 0xff);
    if (flags & HAS_ID) r->id = quote((const char *)id.data, id.n);
    if (flags & HAS_ERROR) r->error = input_text(&error);
    if (flags & OPENAI) r->form = FORM_CHAT + r->line % 2;
    if (flags & HAS_TURNS) r->turns = calloc(1, sizeof *r->turns);
    for (int i = 0; i < s->count; i++) read_answer(&s->answers[i], in);
}

static void sample_free(struct sample *s) {
    for (int i = 0; i < s->count; i++) {
        buf_free(&s->answers[i].text);
        ids_free(&s->answers[i].ids);
        ids_free(&s->answers[i].lengths);
    }
    request_free(&s->request);
}

/* --- invariants ------------------------------------------------------------------------------------------------- */

static void claim_number(const cJSON *object, const char *name, int64_t wanted) {
    int64_t value;
    claim(json_int(json_get(object, name), &value) && value == wanted, "%s is not %lld", name, (long long)wanted);
}

static void claim_same_json(const cJSON *object, const char *name, const char *wanted) {
    struct buf printed = {0};
    claim(cJSON_IsString(json_get(object, name)), "%s is no string", name);
    json_print(json_get(object, name), &printed);
    claim_same(name, printed.data, printed.len, wanted, strlen(wanted));
    buf_free(&printed);
}

static void claim_text(const cJSON *object, const char *name, const char *bytes, size_t n) {
    char *quoted = quote(bytes, n);
    claim_same_json(object, name, quoted);
    free(quoted);
}

static void claim_ids(const cJSON *object, const struct ids *ids) {
    int64_t value;
    size_t i = 0;
    for (const cJSON *id = json_get(object, "ids")->child; id; id = id->next, i++)
        claim(i < ids->len && json_int(id, &value) && value == ids->data[i], "id %zu", i);
    claim(i == ids->len, "%zu ids of %zu", i, ids->len);
}

static void claim_seed(const cJSON *object, uint64_t seed) {
    const cJSON *item = json_get(object, "seed");
    if (seed <= (uint64_t)1 << 53)
        claim_number(object, "seed", (int64_t)seed);
    else
        claim(cJSON_IsString(item) && strtoull(item->valuestring, NULL, 10) == seed, "seed %llu",
              (unsigned long long)seed);
}

static void claim_rate(const cJSON *object, const char *name, double wanted) {
    double rate;
    bool is_there = json_number(json_get(object, name), &rate);
    claim(is_there == isfinite(wanted), "%s is not %g", name, wanted);
    claim(!is_there || fabs(rate - wanted) <= 1e-14 * fabs(wanted), "%s is %g, not %g", name, rate, wanted);
}

/* The rounds of all, one behind the other; `list` may be absent. */
static void claim_lengths(const cJSON *list, const struct answer *of, int count) {
    const cJSON *length = list ? list->child : NULL;
    for (int i = 0; i < count; i++)
        for (size_t j = 0; j < of[i].lengths.len; j++, length = length->next)
            claim(length && length->valueint == of[i].lengths.data[j], "round %zu of answer %d", j, i);
    claim(list && !length, "more rounds than there were");
}

/* A record, or one of its turns. `of` [count] are added up. */
static void claim_answer(const cJSON *object, const struct sample *s, const struct answer *of, int count) {
    const struct answer *last = &of[count - 1];
    struct acceptance sum = {0};
    int64_t prompt = 0, completion = 0;
    for (int i = 0; i < count; i++) {
        prompt += of[i].prompt_tokens;
        completion += (int64_t)of[i].ids.len;
        acceptance_merge(&sum, &of[i].stats);
    }
    claim(s->style.has_text == (json_get(object, "text") != NULL), "text: %d", s->style.has_text);
    if (s->style.has_text) claim_text(object, "text", buf_text(&last->text), last->text.len);
    claim_ids(object, &last->ids);
    claim_number(object, "prompt_tokens", prompt);
    claim_number(object, "completion_tokens", completion);
    claim_number(object, "rounds", sum.rounds + sum.plain_rounds);
    claim_number(object, "drafted", sum.drafted);
    claim_number(object, "accepted", sum.accepted);
    claim_rate(object, "draft_acceptance_rate", acceptance_draft_rate(&sum));
    claim_rate(object, "mean_acceptance_length", acceptance_mean_length(&sum));
    claim_seed(object, s->request.seed);
    claim(s->style.details == (json_get(object, "accept_lengths") != NULL), "details: %d", s->style.details);
    if (s->style.details) claim_lengths(json_get(object, "accept_lengths"), of, count);
}

static void claim_finish(const cJSON *object, const char *wanted) {
    const cJSON *finish = json_get(object, "finish_reason");
    claim(cJSON_IsString(finish) && strcmp(finish->valuestring, wanted) == 0, "finish_reason is not %s", wanted);
}

static void claim_turns(const cJSON *record, const struct sample *s) {
    const cJSON *turn = json_get(record, "turns") ? json_get(record, "turns")->child : NULL;
    for (int i = 0; i < s->count && s->request.turns; i++, turn = turn->next) {
        claim(turn, "%d turns of %d", i, s->count);
        claim_answer(turn, s, &s->answers[i], 1);
    }
    claim(!turn, "more than %d turns", s->count);
}

static void claim_own(const cJSON *record, const struct sample *s) {
    static const char *const names[] = {[FINISH_STOP] = "stop", [FINISH_LENGTH] = "length", [FINISH_ERROR] = "error"};
    const struct request *r = &s->request;
    struct buf error = {0};
    claim_number(record, "index", r->line);
    if (r->id)
        claim_same_json(record, "id", r->id);
    else
        claim(!json_get(record, "id"), "an id from nowhere");
    if (s->count > 0) claim_answer(record, s, s->answers, s->count);
    if (s->count > 0) claim_turns(record, s);
    claim_finish(record, r->error || s->count == 0 ? "error" : names[s->answers[s->count - 1].finish]);
    if (r->error) {
        buf_printf(&error, "line %d: %s", r->line, r->error);
        claim_text(record, "error", error.data, error.len);
    } else {
        claim(!json_get(record, "error"), "an error from nowhere");
    }
    buf_free(&error);
}

static void claim_openai(const cJSON *record, const struct sample *s) {
    const struct request *r = &s->request;
    const cJSON *response = json_get(record, "response"), *body = json_get(response, "body");
    bool ok = s->count > 0 && !r->error;
    claim_number(response, "status_code", ok ? 200 : 400);
    claim(ok == (body != NULL), "body: %d", ok);
    claim(!r->error == !json_get(record, "error"), "error: %d", !r->error);
    if (r->id) claim_same_json(record, "custom_id", r->id);
    if (!ok) return;
    const struct answer *a = &s->answers[0];
    const cJSON *choice = json_get(body, "choices")->child, *usage = json_get(body, "usage");
    const cJSON *holder = r->form == FORM_CHAT ? json_get(choice, "message") : choice;
    claim_text(holder, r->form == FORM_CHAT ? "content" : "text", buf_text(&a->text), a->text.len);
    claim_number(usage, "total_tokens", a->prompt_tokens + (int64_t)a->ids.len);
    claim_seed(body, r->seed);
}

static void claim_spec_bench(const cJSON *record, const struct sample *s) {
    const cJSON *choice = json_get(record, "choices")->child;
    static const char *const lists[] = {"turns", "new_tokens", "wall_time", "decoding_steps"};
    for (int i = 0; i < 4; i++)
        claim(cJSON_GetArraySize(json_get(choice, lists[i])) == s->count, "%s of %d turns", lists[i], s->count);
    claim_lengths(json_get(choice, "accept_lengths"), s->answers, s->count);
    if (s->request.id) claim_same_json(record, "question_id", s->request.id);
}

static void claim_record(const cJSON *record, const struct sample *s) {
    if (s->style.spec_bench && !s->request.error)
        claim_spec_bench(record, s);
    else if (s->request.form != FORM_RECORD && !s->style.spec_bench)
        claim_openai(record, s);
    else
        claim_own(record, s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    struct sample s;
    struct buf line = {0};
    cJSON *record;
    if (n > FUZZ_BYTES_MAX) return 0;
    read_sample(&s, &in);
    record_write(&line, &s.request, s.answers, s.count, &s.style);
    claim(strlen(line.data) == line.len, "a NUL byte");
    claim_sentence(line.data);
    claim(json_parse(&record, line.data, line.len) == 0, "%s: %s", line.data, err_message());
    claim_record(record, &s);
    cJSON_Delete(record);
    buf_free(&line);
    sample_free(&s);
    return 0;
}
