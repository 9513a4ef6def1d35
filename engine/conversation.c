/* The turns are the truth: each keeps its texts and its ids, and the history is their concatenation. The sequence is made
 * to follow when a question is asked: normally it is a prefix of the history and only new ids are appended; after
 * something was dropped, loaded or restored it is emptied and ingests the history again as it stands.
 *
 *   history = head + answer[first] + (asked[i] + answer[i]) for i > first
 *
 * `head` is the first kept question rendered as the first turn of a chat (BOS, system prompt, question); asked[i] is what
 * follows an answer (end of turn if that was cut, separator, question). Dropping moves `first` and renders `head` again;
 * no answer is ever tokenised again. */
#include "engine/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct turn {
    struct buf question, answer;
    struct ids asked, answered; /* asked: as a later turn; unused for turn 0 */
    int first_before;           /* `first` before this turn was asked: what undo restores */
    bool cut;                   /* the answer does not end with the template's end of turn */
};

struct conversation {
    struct engine *engine;
    struct chat_encoding encoding;
    struct sequence *sequence;
    bool has_system;
    bool asked; /* the last turn waits for conversation_answered */
    int limit;  /* positions of the sequence */
    struct buf system;
    struct ids end_of_turn;
    struct turn *turns; /* [count], of which [first, count) are in the history */
    int count, first, cap;
    bool has_undone;
    struct turn undone; /* what conversation_redo puts back */
    int undone_first;   /* `first` while it was there */
    struct ids head;
    struct ids history; /* scratch */
};

static void turn_free(struct turn *t) {
    buf_free(&t->question);
    buf_free(&t->answer);
    ids_free(&t->asked);
    ids_free(&t->answered);
    *t = (struct turn){0};
}

static void forget_undone(struct conversation *c) {
    turn_free(&c->undone);
    c->has_undone = false;
}

static void drop_all_turns(struct conversation *c) {
    forget_undone(c);
    for (int i = 0; i < c->count; i++) turn_free(&c->turns[i]);
    c->count = c->first = 0;
    c->asked = false;
    c->head.len = 0;
}

/* --- life ------------------------------------------------------------------------------------------------ */

static int conversation_open(struct conversation *c, const struct conversation_options *o) {
    c->engine = o->engine;
    c->encoding = (struct chat_encoding){.tokenizer = engine_tokenizer(o->engine),
                                         .chat_template = o->chat_template,
                                         .think = o->think,
                                         .parse_special = o->parse_special,
                                         .interrupt = o->interrupt};
    if (!c->encoding.tokenizer)
        return err_set(ERR_IO, "tokenizer.json: the target has none, and a conversation needs it");
    int context = engine_info(o->engine).context;
    c->limit = o->reserve_tok > 0 && o->reserve_tok < context ? o->reserve_tok : context;
    TRY(chat_encode_end_of_turn(&c->encoding, &c->end_of_turn));
    return engine_open(c->engine, c->limit, &c->sequence);
}

int conversation_create(struct conversation **out, const struct conversation_options *options) {
    *out = NULL;
    struct conversation *c = calloc(1, sizeof *c);
    if (!c) return err_set(ERR_MEMORY, "no memory for a conversation");
    int rc = conversation_open(c, options);
    if (rc != 0) {
        conversation_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void conversation_free(struct conversation *c) {
    if (!c) return;
    if (c->sequence) engine_close(c->engine, c->sequence);
    drop_all_turns(c);
    free(c->turns);
    buf_free(&c->system);
    ids_free(&c->end_of_turn);
    ids_free(&c->head);
    ids_free(&c->history);
    free(c);
}

struct sequence *conversation_sequence(struct conversation *c) {
    return c->sequence;
}

/* --- ids of turns ---------------------------------------------------------------------------------------- */

/* A question as the first turn of a chat. */
static int encode_head(const struct conversation *c, const struct chat_encoding *e, const char *text, size_t n,
                       struct ids *out) {
    struct chat_message messages[2] = {{"system", buf_text(&c->system), c->system.len}, {"user", text, n}};
    int skip = c->has_system ? 0 : 1;
    out->len = 0;
    return chat_encode(e, messages + skip, 2 - skip, out);
}

/* A question as it follows an answer. */
static int encode_next(const struct conversation *c, const char *text, size_t n, bool answer_was_cut, struct ids *out) {
    struct chat_message user = {"user", text, n};
    out->len = 0;
    return chat_encode_next(&c->encoding, &user, answer_was_cut, out);
}

static int encode_first(struct conversation *c, const struct chat_encoding *e, int first) {
    c->first = first;
    const struct buf *question = &c->turns[first].question;
    return encode_head(c, e, buf_text(question), question->len, &c->head);
}

/* Makes `turns[first]` the first one of the history. */
static int set_first(struct conversation *c, int first) {
    return encode_first(c, &c->encoding, first);
}

/* The same for one that was the first before: it renders, and no interrupt leaves the history without its head. */
static int restore_first(struct conversation *c, int first) {
    struct chat_encoding patient = c->encoding;
    patient.interrupt = NULL;
    return encode_first(c, &patient, first);
}

static void build_history(struct conversation *c) {
    c->history.len = 0;
    for (int i = c->first; i < c->count; i++) {
        const struct ids *asked = i == c->first ? &c->head : &c->turns[i].asked;
        ids_append(&c->history, asked->data, asked->len);
        ids_append(&c->history, c->turns[i].answered.data, c->turns[i].answered.len);
    }
}

/* Cuts the sequence to what it shares with the history: all of the shorter one, or nothing. *kept = its new length. */
static int follow_history(struct conversation *c, int *kept) {
    int n;
    const int32_t *have = engine_tokens(c->sequence, &n);
    if (c->history.len < (size_t)n) n = (int)c->history.len;
    if (n > 0 && memcmp(have, c->history.data, (size_t)n * sizeof *have) != 0) n = 0;
    *kept = n;
    return engine_truncate(c->engine, c->sequence, n);
}

/* --- asking ---------------------------------------------------------------------------------------------- */

static struct turn *append_turn(struct conversation *c, const char *question, size_t n) {
    if (c->count == c->cap) {
        int cap = c->cap ? 2 * c->cap : 8;
        struct turn *turns = realloc(c->turns, (size_t)cap * sizeof *turns);
        if (!turns) return NULL;
        c->turns = turns, c->cap = cap;
    }
    struct turn *t = &c->turns[c->count++];
    *t = (struct turn){.first_before = c->first};
    buf_append(&t->question, question, n);
    return t;
}

/* Ids of the turns behind the first, as they follow one another. */
static size_t count_behind_first(const struct conversation *c) {
    size_t count = 0;
    for (int i = c->first + 1; i < c->count; i++) count += c->turns[i].asked.len + c->turns[i].answered.len;
    return count;
}

/* Drops oldest turns until the history and `room` ids fit. With all dropped one id of room must do. */
static int make_room(struct conversation *c, int room) {
    size_t limit = (size_t)c->limit, behind = count_behind_first(c);
    while (c->head.len + c->turns[c->first].answered.len + behind + (size_t)room > limit && c->first + 1 < c->count) {
        TRY(set_first(c, c->first + 1));
        behind -= c->turns[c->first].asked.len + c->turns[c->first].answered.len;
    }
    build_history(c);
    if (c->history.len + 1 > limit)
        return err_set(ERR_LIMIT, "the message does not fit: %zu tokens with its template, the context holds %zu",
                       c->history.len, limit);
    return 0;
}

static int start_answer(struct conversation *c, const struct generation *g, int *dropped) {
    struct turn *t = &c->turns[c->count - 1];
    if (c->count - 1 > c->first) {
        bool cut = c->turns[c->count - 2].cut;
        TRY(encode_next(c, buf_text(&t->question), t->question.len, cut, &t->asked));
    } else {
        TRY(set_first(c, c->first));
    }
    int room = c->limit / 8 < g->max_tokens ? c->limit / 8 : g->max_tokens;
    if (dropped)
        TRY(make_room(c, room > 1 ? room : 1));
    else
        build_history(c);
    int kept;
    TRY(follow_history(c, &kept));
    return engine_generate(c->engine, c->sequence, c->history.data + kept, (int)c->history.len - kept, g);
}

static void drop_last_turn(struct conversation *c) {
    int first = c->turns[c->count - 1].first_before;
    turn_free(&c->turns[--c->count]);
    c->asked = false;
    if (c->count == 0) {
        c->first = 0;
        c->head.len = 0;
    } else if (first != c->first) {
        (void)restore_first(c, first);
    }
}

int conversation_ask(struct conversation *c, const char *user, size_t n, const struct generation *g, int *dropped) {
    if (dropped) *dropped = 0;
    if (c->asked) return err_set(ERR_USAGE, "the last question has not been answered yet");
    if (!append_turn(c, user, n)) return err_set(ERR_MEMORY, "no memory for a turn");
    int first = c->first;
    int rc = start_answer(c, g, dropped);
    if (rc != 0) {
        drop_last_turn(c);
        return rc;
    }
    if (dropped) *dropped = c->first - first;
    c->asked = true;
    return 0;
}

/* --- answers --------------------------------------------------------------------------------------------- */

static bool ends_with(const struct ids *ids, const struct ids *suffix) {
    return suffix->len > 0 && ids->len >= suffix->len &&
           memcmp(ids->data + ids->len - suffix->len, suffix->data, suffix->len * sizeof *ids->data) == 0;
}

static bool is_end_id(const struct engine *engine, int32_t id) {
    const struct model_config *config = engine_config(engine);
    for (int i = 0; i < config->end_count; i++)
        if (config->end_ids[i] == id) return true;
    return false;
}

int conversation_answered(struct conversation *c, const char *text, size_t n, bool cut) {
    if (!c->asked) return err_set(ERR_USAGE, "there is no open question");
    if (engine_is_running(c->sequence)) return err_set(ERR_USAGE, "the answer is still running");
    struct turn *t = &c->turns[c->count - 1];
    int length;
    const int32_t *tokens = engine_tokens(c->sequence, &length);
    if ((size_t)length < c->history.len) return err_set(ERR_USAGE, "the answer was stopped before it began");
    ids_append(&t->answered, tokens + c->history.len, (size_t)length - c->history.len);
    t->cut = cut || !ends_with(&t->answered, &c->end_of_turn);
    /* Another end id than the template's own is no part of the history. */
    if (!cut && t->cut && t->answered.len > 0 && is_end_id(c->engine, t->answered.data[t->answered.len - 1])) {
        t->answered.len--;
        TRY(engine_truncate(c->engine, c->sequence, length - 1));
    }
    buf_append(&t->answer, text, n);
    c->asked = false;
    forget_undone(c);
    return 0;
}

/* --- the rest -------------------------------------------------------------------------------------------- */

void conversation_reset(struct conversation *c) {
    engine_stop(c->engine, c->sequence);
    drop_all_turns(c);
    (void)engine_truncate(c->engine, c->sequence, 0); /* fails only while running */
}

static int set_system(struct conversation *c, const char *text, size_t n) {
    if (text && !c->encoding.chat_template)
        return err_set(ERR_USAGE, "there is no chat template, so there is no system prompt");
    struct buf old = c->system;
    bool had_system = c->has_system;
    c->system = (struct buf){0};
    c->has_system = text != NULL;
    if (text) buf_append(&c->system, text, n);
    struct ids trial = {0};
    int rc = encode_head(c, &c->encoding, "?", 1, &trial);
    ids_free(&trial);
    if (rc != 0) {
        buf_free(&c->system);
        c->system = old, c->has_system = had_system;
        return rc;
    }
    buf_free(&old);
    return 0;
}

int conversation_set_system(struct conversation *c, const char *text, size_t n) {
    TRY(set_system(c, text, n));
    conversation_reset(c);
    return 0;
}

int conversation_turns(const struct conversation *c) {
    return c->count - c->first;
}

int conversation_dropped(const struct conversation *c) {
    return c->first;
}

void conversation_turn(const struct conversation *c, int i, const struct buf **question, const struct buf **answer) {
    *question = &c->turns[c->first + i].question;
    *answer = &c->turns[c->first + i].answer;
}

const char *conversation_system(const struct conversation *c, size_t *n) {
    *n = c->system.len;
    return c->has_system ? buf_text(&c->system) : NULL;
}

/* Moves the last turn to `undone`; an empty one stays behind. */
static void keep_last_turn(struct conversation *c) {
    struct turn *last = &c->turns[c->count - 1];
    forget_undone(c);
    c->undone = *last, c->undone_first = c->first, c->has_undone = true;
    *last = (struct turn){.first_before = last->first_before};
}

int conversation_undo(struct conversation *c) {
    if (c->count == 0) return err_set(ERR_USAGE, "there is no turn to undo");
    if (engine_is_running(c->sequence)) return err_set(ERR_USAGE, "the answer is still running");
    if (!c->asked) keep_last_turn(c);
    drop_last_turn(c);
    build_history(c);
    int kept;
    return follow_history(c, &kept);
}

int conversation_redo(struct conversation *c) {
    if (!c->has_undone || c->asked) return err_set(ERR_USAGE, "there is no turn to put back");
    c->turns[c->count++] = c->undone; /* where it was: there is room */
    c->undone = (struct turn){0};
    c->has_undone = false;
    return restore_first(c, c->undone_first);
}

/* Checks the order of roles: [system,] (user, assistant)*. */
static int check_messages(const struct chat_message *messages, int count, int *first) {
    *first = count > 0 && strcmp(messages[0].role, "system") == 0 ? 1 : 0;
    for (int i = *first; i < count; i++) {
        const char *expected = (i - *first) % 2 == 0 ? "user" : "assistant";
        if (strcmp(messages[i].role, expected) != 0)
            return err_set(ERR_FORMAT, "message %d has the role '%s', expected '%s'", i + 1, messages[i].role,
                           expected);
    }
    if ((count - *first) % 2 != 0) return err_set(ERR_FORMAT, "the last message is a question without its answer");
    return 0;
}

static int load_turn(struct conversation *c, const struct chat_message *question, const struct chat_message *answer) {
    struct turn *t = append_turn(c, question->content, question->len);
    if (!t) return err_set(ERR_MEMORY, "no memory for a turn");
    buf_append(&t->answer, answer->content, answer->len);
    t->cut = true; /* its end of turn comes with the next question */
    TRY(chat_encode_answer(&c->encoding, answer, &t->answered));
    if (c->count == 1) return set_first(c, 0);
    return encode_next(c, question->content, question->len, true, &t->asked);
}

int conversation_load(struct conversation *c, const struct chat_message *messages, int count) {
    int first;
    TRY(check_messages(messages, count, &first));
    TRY(conversation_set_system(c, first ? messages[0].content : NULL, first ? messages[0].len : 0));
    for (int i = first; i < count; i += 2) {
        int rc = load_turn(c, &messages[i], &messages[i + 1]);
        if (rc != 0) {
            conversation_reset(c);
            return rc;
        }
    }
    return 0;
}
