/* One record of batch output, in duet's own form. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "cli/batch.h"
#include "cli/io.h"

const char *record_finish_name(enum finish finish) {
    return finish == FINISH_STOP ? "stop" : finish == FINISH_LENGTH ? "length" : "error";
}

static void put_rate(struct buf *out, const char *name, double rate) {
    json_put_name(out, name);
    if (isnan(rate))
        buf_puts(out, "null");
    else
        buf_printf(out, "%.15g", rate);
}

/* A seed above 2^53 is no exact JSON number. */
void record_put_seed(struct buf *out, uint64_t seed) {
    const char *quote = seed > (uint64_t)1 << 53 ? "\"" : "";
    buf_printf(out, ", \"seed\": %s%llu%s", quote, (unsigned long long)seed, quote);
}

void record_put_lengths(struct buf *out, const struct answer *answers, int count) {
    struct ids all = {0};
    for (int i = 0; i < count; i++) ids_append(&all, answers[i].lengths.data, answers[i].lengths.len);
    put_json_ids(out, all.data, all.len);
    ids_free(&all);
}

void record_put_details(struct buf *out, const struct answer *answers, int count) {
    int64_t wall_us = 0;
    for (int i = 0; i < count; i++) wall_us += answers[i].wall_us;
    buf_printf(out, ", \"wall_time\": %.6f, \"accept_lengths\": ", (double)wall_us * 1e-6);
    record_put_lengths(out, answers, count);
}

double record_logprob(const struct answer *a, size_t token) {
    float logprob;
    memcpy(&logprob, a->logprobs.data + token * sizeof logprob, sizeof logprob);
    return (double)logprob;
}

void record_put_logprobs(struct buf *out, const struct answer *a) {
    buf_putc(out, '[');
    for (size_t i = 0; i < a->ids.len; i++) buf_printf(out, "%s%.9g", i ? ", " : "", record_logprob(a, i));
    buf_putc(out, ']');
}

/* "text", "ids", the counts and the figures: what a record and each of its turns have. */
static void put_answer(struct buf *out, const struct answer *last, const struct answer *sum, const char *finish,
                       const struct request *r, bool has_text, int completion_tokens) {
    if (has_text) {
        buf_puts(out, "\"text\": ");
        json_put_string(out, buf_text(&last->text), last->text.len);
        buf_puts(out, ", ");
    }
    buf_puts(out, "\"ids\": ");
    put_json_ids(out, last->ids.data, last->ids.len);
    if (r->logprobs) {
        buf_puts(out, ", \"logprobs\": ");
        record_put_logprobs(out, last);
    }
    buf_printf(out, ", \"prompt_tokens\": %d, \"completion_tokens\": %d, \"finish_reason\": \"%s\"", sum->prompt_tokens,
               completion_tokens, finish);
    record_put_seed(out, r->seed);
    buf_printf(out, ", \"rounds\": %lld, \"drafted\": %lld, \"accepted\": %lld",
               (long long)(sum->stats.rounds + sum->stats.plain_rounds), (long long)sum->stats.drafted,
               (long long)sum->stats.accepted);
    put_rate(out, "draft_acceptance_rate", acceptance_draft_rate(&sum->stats));
    put_rate(out, "mean_acceptance_length", acceptance_mean_length(&sum->stats));
}

static void put_turns(struct buf *out, const struct request *r, const struct answer *answers, int count,
                      const struct record_style *style) {
    buf_puts(out, ", \"turns\": [");
    for (int i = 0; i < count; i++) {
        buf_puts(out, i ? ", {" : "{");
        put_answer(out, &answers[i], &answers[i], record_finish_name(answers[i].finish), r, style->has_text,
                   (int)answers[i].ids.len);
        if (style->details) record_put_details(out, &answers[i], 1);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

void record_put_sentence(struct buf *out, const struct request *r) {
    struct buf sentence = {0};
    buf_printf(&sentence, "line %d: %s", r->line, r->error);
    json_put_string(out, buf_text(&sentence), sentence.len);
    buf_free(&sentence);
}

static void put_answers(struct buf *out, const struct request *r, const struct answer *answers, int count,
                        const struct record_style *style) {
    const struct answer *last = &answers[count - 1];
    struct answer sum = {0};
    int completion_tokens = 0;
    for (int i = 0; i < count; i++) {
        sum.prompt_tokens += answers[i].prompt_tokens;
        completion_tokens += (int)answers[i].ids.len;
        acceptance_merge(&sum.stats, &answers[i].stats);
    }
    buf_puts(out, ", ");
    put_answer(out, last, &sum, r->error ? "error" : record_finish_name(last->finish), r, style->has_text,
               completion_tokens);
    if (style->k_auto) buf_puts(out, ", \"k\": \"auto\"");
    if (style->details) record_put_details(out, answers, count);
    if (r->turns) put_turns(out, r, answers, count, style);
}

static void put_record(struct buf *out, const struct request *r, const struct answer *answers, int count,
                       const struct record_style *style) {
    buf_printf(out, "{\"index\": %d", r->line);
    if (r->id) {
        json_put_name(out, "id");
        buf_puts(out, r->id);
    }
    if (count > 0)
        put_answers(out, r, answers, count, style);
    else
        buf_puts(out, ", \"finish_reason\": \"error\"");
    if (r->error) {
        buf_puts(out, ", \"error\": ");
        record_put_sentence(out, r);
    } else {
        buf_printf(out, ", \"line_hash\": \"%016llx\"", (unsigned long long)r->hash);
    }
    buf_putc(out, '}');
}

/* Spec-Bench's scripts know no errors: they stop at the record of a line that failed. */
void record_write(struct buf *out, const struct request *r, const struct answer *answers, int count,
                  const struct record_style *style) {
    if (style->spec_bench && !r->error)
        spec_bench_write(out, r, answers, count, style);
    else if (r->form != FORM_RECORD && !style->spec_bench)
        openai_write(out, r, answers, count, style);
    else
        put_record(out, r, answers, count, style);
}
