/* Requests, and the answers to them: queued, stepped, cancelled, read. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/memory.h"
#include "lib/internal.h"
#include "sampler/sampler.h"

void duet_request_init(struct duet_request *r, size_t size) {
    struct duet_request all = {
        .size = size, .max_tokens = 256, .temperature = 0.7f, .top_p = 1, .repetition_penalty = 1, .think = 1};
    copy_sized(r, size, &all, sizeof all);
}

/* --- prompts ------------------------------------------------------------------------------------------------ */

static int check_text(const char *text, const char *what) {
    if (!text) return err_set(ERR_USAGE, "%s: no text", what);
    if (!utf8_is_valid(text, strlen(text))) return err_set(ERR_USAGE, "%s: not valid UTF-8", what);
    return 0;
}

static int check_request(const struct duet *d, const struct duet_request *r) {
    const struct tokenizer *tokenizer = engine_tokenizer(d->engine);
    int prompts = (r->prompt != NULL) + (r->messages != NULL) + (r->prompt_ids != NULL);
    if (prompts != 1)
        return err_set(ERR_USAGE, "%d prompts: exactly one of prompt, messages and prompt_ids is needed", prompts);
    if (r->prompt_id_count > INT32_MAX || r->message_count > INT32_MAX || r->stop_count > INT32_MAX)
        return err_set(ERR_LIMIT, "a list of more than %d", INT32_MAX);
    if (!tokenizer && (!r->prompt_ids || r->stop_count > 0))
        return err_set(ERR_USAGE, "texts need a tokenizer.json, which the target lacks; prompt_ids work without");
    if (r->prompt) TRY(check_text(r->prompt, "prompt"));
    for (size_t i = 0; i < r->stop_count; i++) TRY(check_text(r->stop[i], "stop"));
    return 0;
}

static int take_message(struct chat_message *m, const struct duet_message *from) {
    static const char *const roles[] = {"system", "user", "assistant"};
    TRY(check_text(from->role, "role"));
    TRY(check_text(from->content, "content"));
    *m = (struct chat_message){NULL, from->content, strlen(from->content)};
    for (int i = 0; i < 3; i++)
        if (strcmp(roles[i], from->role) == 0) m->role = roles[i];
    return m->role ? 0 : err_set(ERR_USAGE, "role '%s': system, user or assistant is expected", from->role);
}

static int encode_messages(const struct duet *d, const struct duet_request *r, struct ids *out) {
    if (!d->chat_template)
        return err_set(ERR_UNSUPPORTED, "messages need a chat template%s%s; name one in duet_options.chat_template",
                       d->template_error ? ": " : ", and the target has none",
                       d->template_error ? d->template_error : "");
    struct chat_encoding encoding = {.tokenizer = engine_tokenizer(d->engine),
                                     .chat_template = d->chat_template,
                                     .think = r->think,
                                     .parse_special = r->parse_special};
    struct chat_message *messages = calloc(r->message_count + 1, sizeof *messages);
    int rc = messages ? 0 : err_set(ERR_MEMORY, "no memory for %zu messages", r->message_count);
    for (size_t i = 0; i < r->message_count && rc == 0; i++) {
        rc = take_message(&messages[i], &r->messages[i]);
        if (rc != 0) err_prefix(rc, "message %zu", i + 1);
    }
    if (rc == 0) rc = chat_encode(&encoding, messages, (int)r->message_count, out);
    free(messages);
    return rc;
}

static int encode(const struct duet *d, const struct duet_request *r, struct ids *out) {
    const struct encode_options options = {.special = true};
    TRY(check_request(d, r));
    if (r->messages) return encode_messages(d, r, out);
    if (r->prompt) return tokenizer_encode(engine_tokenizer(d->engine), r->prompt, strlen(r->prompt), &options, out);
    ids_append(out, r->prompt_ids, r->prompt_id_count);
    return 0;
}

/* --- tokens ------------------------------------------------------------------------------------------------- */

/* Tells the caller of `size` bytes at the end of the text. True: the answer shall end here. */
static bool tell(struct duet_answer *a, int32_t id, bool drafted, float logprob, size_t size) {
    struct duet_token token = {buf_text(&a->text) + a->text.len - size, size, id, drafted, logprob};
    bool ends = a->on_token && a->on_token(a->user, &token) != 0;
    return ends || atomic_load(&a->is_cancelled);
}

/* The sentence stands until another answer's callback fails. */
static void fail(struct duet_answer *a, int rc) {
    a->rc = rc;
    a->error = memory_copy_text(err_message());
    a->ending = DUET_FINISH_ERROR;
}

static void take_token(struct duet_answer *a, int32_t id, bool drafted, float logprob) {
    size_t before = a->text.len;
    bool stopped = false;
    ids_push(&a->ids, id);
    if (a->ids.len == 1) a->stats.first_token_us = clock_us() - a->start_us;
    int rc = a->stream ? text_stream_push(a->stream, id, &a->text, &stopped) : 0;
    if (tell(a, id, drafted, logprob, a->text.len - before)) a->ending = DUET_FINISH_CANCELLED;
    if (stopped) a->ending = DUET_FINISH_STOP;
    if (rc != 0) fail(a, rc);
}

/* One block, up to the token that ends the answer; without an end id. */
static void on_tokens(void *user, struct token_block *block) {
    static const enum duet_finish finishes[] = {DUET_RUNNING, DUET_FINISH_STOP, DUET_FINISH_LENGTH, DUET_FINISH_ERROR};
    struct duet_answer *a = user;
    int count = block->count - (block->ended ? 1 : 0);
    if (atomic_load(&a->is_cancelled)) { /* by the callback of another answer of this round */
        a->ending = DUET_FINISH_CANCELLED;
        block->keep = 0;
        block->stop = true;
        return;
    }
    for (int i = 0; i < count; i++) {
        take_token(a, block->tokens[i], i < block->accepted, block->logprobs ? block->logprobs[i] : 0);
        if (a->ending == DUET_RUNNING) continue;
        block->keep = i + 1;
        block->stop = true;
        return;
    }
    a->ending = finishes[block->finish];
    if (block->finish == FINISH_ERROR) fail(a, engine_finish_error(a->sequence));
}

/* --- the end ------------------------------------------------------------------------------------------------ */

static void unlink_answer(struct duet_answer *a) {
    struct duet_answer **at = &a->pair->first;
    while (*at != a) at = &(*at)->next;
    *at = a->next;
    a->pair = NULL;
}

/* What was held back because it might have become a stop string. *stopped: in the end it was one. */
static void flush_text(struct duet_answer *a, bool *stopped) {
    size_t before = a->text.len;
    if (!a->stream || text_stream_finish(a->stream, &a->text, stopped) != 0) return;
    if (a->text.len > before) (void)tell(a, -1, false, 0, a->text.len - before);
}

static void answer_destroy(struct duet_answer *a) {
    text_stream_free(a->stream);
    buf_free(&a->text);
    ids_free(&a->ids);
    free(a->error);
    free(a);
}

void answer_settle(struct duet_answer *a, enum duet_finish finish) {
    struct duet *d = a->pair;
    bool stopped = false;
    if (finish == DUET_FINISH_ERROR && !a->error) a->error = memory_copy_text(err_message());
    engine_stop(d->engine, a->sequence);
    stats_set(&a->stats, engine_sequence_stats(a->sequence));
    a->stats.completion_tokens = (int64_t)a->ids.len;
    a->stats.duration_us = clock_us() - a->start_us;
    acceptance_merge(&d->stats, engine_sequence_stats(a->sequence));
    d->prompt_tokens += a->stats.prompt_tokens;
    d->completion_tokens += a->stats.completion_tokens;
    engine_close(d->engine, a->sequence);
    a->sequence = NULL;
    flush_text(a, &stopped);
    text_stream_free(a->stream);
    a->stream = NULL;
    a->finish = stopped && finish == DUET_FINISH_LENGTH ? DUET_FINISH_STOP : finish;
    unlink_answer(a);
    if (a->is_abandoned && !a->is_held) answer_destroy(a);
}

void duet_answer_free(struct duet_answer *a) {
    if (!a) return;
    a->on_token = NULL;
    a->is_abandoned = true;
    if (!a->pair) {
        if (!a->is_held) answer_destroy(a);
    } else if (a->pair->is_stepping) {
        duet_cancel(a); /* the engine may be in the middle of it */
    } else {
        answer_settle(a, DUET_FINISH_CANCELLED);
    }
}

/* --- the start ---------------------------------------------------------------------------------------------- */

static int create_stream(struct duet_answer *a, const struct tokenizer *tokenizer, const struct duet_request *r) {
    size_t *lens = calloc(r->stop_count + 1, sizeof *lens);
    if (!lens) return err_set(ERR_MEMORY, "no memory for %zu stop strings", r->stop_count);
    for (size_t i = 0; i < r->stop_count; i++) lens[i] = strlen(r->stop[i]);
    int rc = text_stream_create(tokenizer, r->stop, lens, (int)r->stop_count, &a->stream);
    free(lens);
    return rc;
}

static int open_sequence(struct duet *d, struct duet_answer *a, const struct duet_request *r, const struct ids *ids) {
    const int64_t need = (int64_t)ids->len + r->max_tokens, context = engine_info(d->engine).context;
    struct generation g = {
        .max_tokens = r->max_tokens,
        .sampling = {r->temperature, r->top_p, r->min_p, r->top_k, r->repetition_penalty},
        .seed = a->stats.seed,
        .ignore_end = r->ignore_eos,
        .logprobs = r->logprobs,
        .on_tokens = on_tokens,
        .user = a,
    };
    if (r->max_tokens < 1) return err_set(ERR_USAGE, "max_tokens is %d, at least 1 is needed", r->max_tokens);
    if (ids->len > (size_t)context)
        return err_set(ERR_LIMIT, "a prompt of %zu tokens does not fit the context of %d tokens", ids->len,
                       (int)context);
    TRY(engine_open(d->engine, (int)(need < context ? need : context), &a->sequence));
    return engine_generate(d->engine, a->sequence, ids->data, (int)ids->len, &g);
}

static int start(struct duet *d, struct duet_answer *a, const struct duet_request *r) {
    const struct tokenizer *tokenizer = engine_tokenizer(d->engine);
    struct ids ids = {0};
    a->on_token = r->on_token;
    a->user = r->user;
    a->start_us = clock_us();
    a->stats.seed = r->has_seed ? r->seed : seed_random();
    int rc = encode(d, r, &ids);
    if (rc == 0 && tokenizer) rc = create_stream(a, tokenizer, r);
    if (rc == 0 && a->stream)
        rc = r->messages ? text_stream_answers(a->stream, d->chat_template, r->think)
                         : text_stream_follow(a->stream, ids.data, ids.len);
    if (rc == 0) rc = open_sequence(d, a, r, &ids);
    a->stats.prompt_tokens = (int64_t)ids.len;
    ids_free(&ids);
    return rc;
}

static int refuse_in_callback(const struct duet *d) {
    return d->is_stepping ? err_set(ERR_USAGE, "the call is not allowed inside a callback") : 0;
}

int duet_start(struct duet *d, const struct duet_request *given, struct duet_answer **out) {
    struct duet_request r;
    *out = NULL;
    duet_request_init(&r, sizeof r);
    TRY(refuse_in_callback(d));
    TRY(take_sized(&r, sizeof r, given, given->size, "duet_request"));
    struct duet_answer *a = calloc(1, sizeof *a);
    if (!a) return err_set(ERR_MEMORY, "no memory for an answer");
    int rc = start(d, a, &r);
    if (rc != 0) {
        if (a->sequence) engine_close(d->engine, a->sequence);
        answer_destroy(a);
        return rc;
    }
    a->pair = d;
    a->next = d->first;
    d->first = a;
    *out = a;
    return 0;
}

/* --- steps -------------------------------------------------------------------------------------------------- */

static void settle_cancelled(struct duet *d) {
    for (struct duet_answer *a = d->first, *next; a; a = next) {
        next = a->next;
        if (atomic_load(&a->is_cancelled)) answer_settle(a, DUET_FINISH_CANCELLED);
    }
}

static void settle_ended(struct duet *d) {
    for (struct duet_answer *a = d->first, *next; a; a = next) {
        next = a->next;
        if (a->ending != DUET_RUNNING) answer_settle(a, a->ending);
    }
}

static int step(struct duet *d) {
    int running;
    settle_cancelled(d);
    if (!d->first) return 0;
    int rc = engine_resume(d->engine);
    if (rc == 0) {
        rc = engine_step(d->engine, &running);
        engine_suspend(d->engine);
    }
    settle_ended(d);
    while (rc != 0 && d->first) answer_settle(d->first, DUET_FINISH_ERROR);
    return rc;
}

int duet_step(struct duet *d, int32_t *running) {
    TRY(refuse_in_callback(d));
    d->is_stepping = true;
    int rc = step(d);
    d->is_stepping = false;
    *running = 0;
    for (const struct duet_answer *a = d->first; a; a = a->next) ++*running;
    return rc;
}

int duet_generate(struct duet *d, const struct duet_request *r, struct duet_answer **out) {
    int32_t running;
    TRY(duet_start(d, r, out));
    struct duet_answer *a = *out;
    int rc = 0;
    a->is_held = true; /* a callback may free it */
    while (rc == 0 && a->pair) rc = duet_step(d, &running);
    a->is_held = false;
    if (rc == 0 && a->rc != 0 && !a->is_abandoned) rc = err_set((enum err)a->rc, "%s", a->error);
    if (rc == 0 && !a->is_abandoned) return 0;
    if (a->pair)
        duet_answer_free(a);
    else
        answer_destroy(a);
    *out = NULL;
    return rc;
}

void duet_cancel(struct duet_answer *a) {
    atomic_store(&a->is_cancelled, true);
}

/* --- reading ------------------------------------------------------------------------------------------------ */

enum duet_finish duet_answer_finish(const struct duet_answer *a) {
    return a->finish;
}

const char *duet_answer_error(const struct duet_answer *a) {
    return a->error ? a->error : "";
}

const char *duet_answer_text(const struct duet_answer *a, size_t *size) {
    if (size) *size = a->text.len;
    return buf_text(&a->text);
}

const int32_t *duet_answer_ids(const struct duet_answer *a, size_t *count) {
    *count = a->ids.len;
    return a->ids.data;
}

void duet_answer_stats(const struct duet_answer *a, struct duet_stats *out, size_t size) {
    struct duet_stats all = a->stats;
    if (a->pair) {
        stats_set(&all, engine_sequence_stats(a->sequence));
        all.completion_tokens = (int64_t)a->ids.len;
        all.duration_us = clock_us() - a->start_us;
    }
    copy_sized(out, size, &all, sizeof all);
}
