/* A request while it runs: its sequence, its answers, and the text of the one that is being made. */
#include "cli/batch_job.h"

#include <limits.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"

struct job *job_create(const struct request *request) {
    struct job *j = calloc(1, sizeof *j);
    if (!j) return NULL;
    j->request = *request;
    j->answers = calloc(request->turns ? (size_t)request->turn_count : 1, sizeof *j->answers);
    if (j->answers) return j;
    free(j);
    return NULL;
}

static void close_sequence(struct job *j) {
    if (j->conversation)
        conversation_free(j->conversation);
    else if (j->sequence)
        engine_close(j->engine, j->sequence);
    j->conversation = NULL;
    j->sequence = NULL;
    text_stream_free(j->text);
    j->text = NULL;
}

void job_free(struct job *j) {
    if (!j) return;
    close_sequence(j);
    int slots = j->request.turns ? j->request.turn_count : 1;
    for (int i = 0; i < slots; i++) {
        buf_free(&j->answers[i].text);
        ids_free(&j->answers[i].ids);
        ids_free(&j->answers[i].lengths);
        buf_free(&j->answers[i].logprobs);
    }
    free(j->answers);
    request_free(&j->request);
    free(j);
}

/* --- opening ------------------------------------------------------------------------------------------------ */

/* Ids of turn i as they will stand in the history, a cut answer before it assumed. */
static int count_turn(const struct request *r, const struct request_context *c, const struct buf *turn, bool first,
                      size_t *count) {
    struct chat_encoding encoding = request_encoding(r, c);
    struct chat_message user = {"user", buf_text(turn), turn->len};
    struct ids ids = {0};
    int rc = first ? chat_encode(&encoding, &user, 1, &ids) : chat_encode_next(&encoding, &user, true, &ids);
    *count = ids.len;
    ids_free(&ids);
    return rc;
}

/* Positions that all answers of the request need, at most the context. */
static int count_reserve(const struct request *r, const struct request_context *c, int *reserve) {
    int64_t need = (int64_t)r->ids.len;
    for (int i = 0; i < r->turn_count; i++) {
        size_t count;
        TRY(count_turn(r, c, &r->turns[i], i == 0, &count));
        need += (int64_t)count;
    }
    need += (int64_t)r->max_tokens * (r->turns ? r->turn_count : 1);
    *reserve = need < c->context ? (int)need : c->context;
    return 0;
}

static int open_sequence(struct job *j, const struct request_context *c) {
    int reserve;
    TRY(count_reserve(&j->request, c, &reserve));
    if (!j->request.turns) return engine_open(j->engine, reserve, &j->sequence);
    struct conversation_options options = {
        .engine = j->engine,
        .chat_template = request_template(&j->request, c),
        .think = c->think,
        .parse_special = c->o->parse_special,
        .interrupt = c->interrupt,
        .reserve_tok = reserve,
    };
    TRY(conversation_create(&j->conversation, &options));
    j->sequence = conversation_sequence(j->conversation);
    return 0;
}

/* --- an answer ---------------------------------------------------------------------------------------------- */

/* Takes one block: up to the id that completes a stop string, without an end id. */
static void take_tokens(void *user, struct token_block *block) {
    struct job *j = user;
    struct answer *a = &j->answers[j->count];
    int n = block->count - (block->ended ? 1 : 0);
    a->finish = block->finish;
    a->wall_us = clock_us() - j->start_us;
    ids_push(&a->lengths, block->count);
    for (int i = 0; i < n && j->rc == 0; i++) {
        bool stopped = false;
        ids_push(&a->ids, block->tokens[i]);
        if (block->logprobs) buf_append(&a->logprobs, (const char *)&block->logprobs[i], sizeof *block->logprobs);
        if (j->text) j->rc = text_stream_push(j->text, block->tokens[i], &a->text, &stopped);
        if (!stopped) continue;
        a->finish = FINISH_STOP;
        j->was_cut = true;
        block->keep = a->lengths.data[a->lengths.len - 1] = i + 1;
        block->stop = true;
        return;
    }
    j->was_cut = !block->ended;
}

static int create_text(struct job *j, const struct tokenizer *tokenizer) {
    const struct request *r = &j->request;
    const char **stops = calloc((size_t)r->stop_count + 1, sizeof *stops);
    size_t *lens = calloc((size_t)r->stop_count + 1, sizeof *lens);
    for (int i = 0; stops && lens && i < r->stop_count; i++) {
        stops[i] = buf_text(&r->stops[i]);
        lens[i] = r->stops[i].len;
    }
    text_stream_free(j->text);
    j->text = NULL;
    int rc = stops && lens ? text_stream_create(tokenizer, stops, lens, r->stop_count, &j->text)
                           : err_set(ERR_MEMORY, "out of memory for stop strings");
    free(stops);
    free(lens);
    return rc;
}

static int start_answer(struct job *j, const struct request_context *c) {
    const struct request *r = &j->request;
    struct generation g = {.max_tokens = r->max_tokens,
                           .sampling = r->sampling,
                           .seed = r->seed,
                           .ignore_end = r->ignore_eos,
                           .logprobs = r->logprobs,
                           .on_tokens = take_tokens,
                           .user = j};
    if (c->tokenizer) TRY(create_text(j, c->tokenizer));
    engine_reset_sequence_stats(j->sequence);
    j->start_us = clock_us();
    if (r->turns) {
        const struct buf *turn = &r->turns[j->count];
        int rc = conversation_ask(j->conversation, buf_text(turn), turn->len, &g, NULL);
        if (rc != 0 && r->turn_count > 1) err_prefix(rc, "turn %d", j->count + 1);
        TRY(rc);
    } else {
        TRY(engine_generate(j->engine, j->sequence, r->ids.data, (int)r->ids.len, &g));
    }
    int *n = &j->answers[j->count].prompt_tokens;
    const int32_t *prompt = engine_tokens(j->sequence, n);
    bool continues = r->continues || (r->turns && !c->chat_template);
    if (!j->text) return 0;
    return continues ? text_stream_follow(j->text, prompt, (size_t)*n)
                     : text_stream_answers(j->text, request_template(r, c), c->think);
}

/* What is wrong with one request alone does not end the run. */
static bool is_of_request(int rc) {
    return rc == ERR_USAGE || rc == ERR_FORMAT || rc == ERR_LIMIT || rc == ERR_UNSUPPORTED || rc == ERR_NUMERIC;
}

static int settle(struct job *j, int rc) {
    if (rc == 0 || !is_of_request(rc)) return rc;
    request_fail(&j->request, err_message());
    j->done = true;
    close_sequence(j);
    return 0;
}

int job_start(struct job *j, struct engine *engine, const struct request_context *c) {
    j->engine = engine;
    int rc = open_sequence(j, c);
    if (rc == 0) rc = start_answer(j, c);
    return settle(j, rc);
}

static int end_answer(struct job *j, const struct request_context *c) {
    struct answer *a = &j->answers[j->count];
    TRY(j->rc);
    if (a->finish == FINISH_ERROR) return engine_finish_error(j->sequence);
    bool stopped = false;
    if (j->text) TRY(text_stream_finish(j->text, &a->text, &stopped));
    if (stopped) a->finish = FINISH_STOP;
    a->stats = *engine_sequence_stats(j->sequence);
    if (j->request.turns) TRY(conversation_answered(j->conversation, buf_text(&a->text), a->text.len, j->was_cut));
    j->count++;
    if (j->count < j->request.turn_count) return start_answer(j, c);
    j->done = true;
    close_sequence(j);
    return 0;
}

int job_advance(struct job *j, const struct request_context *c) {
    if (engine_is_running(j->sequence)) return 0;
    return settle(j, end_answer(j, c));
}
