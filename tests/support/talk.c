#include "tests/support/talk.h"

#include <string.h>

#include "tests/support/support.h"

const char *const talk_questions[3] = {"Tell me a story about a cat.", "What is the sun?", "And the moon?"};

static struct engine *open_engine(const char *target, int k, int context) {
    struct engine_options options = {.target = test_checkpoint(target),
                                     .draft = k > 0 ? test_checkpoint(asset_path("draft")) : NULL,
                                     .device = "host",
                                     .threads = 1, /* short passes; other suites may run beside this one */
                                     .k = k,
                                     .k_max = k > 0 ? 8 : 0,
                                     .context = context};
    struct engine *e;
    ck_ok(engine_create(&e, &options));
    return e;
}

struct talk talk_open_target(const char *target, int k, int context, bool with_template) {
    struct talk t = {.engine = open_engine(target, k, context), .plain = open_engine(target, 0, context)};
    if (with_template) ck_ok(checkpoint_chat_template(test_checkpoint(target), NULL, &t.chat_template));
    struct conversation_options options = {.engine = t.engine, .chat_template = t.chat_template};
    ck_ok(conversation_create(&t.conversation, &options));
    return t;
}

struct talk talk_open(int k, int context, bool with_template) {
    return talk_open_target(asset_path("target"), k, context, with_template);
}

void talk_close(struct talk *t) {
    conversation_free(t->conversation);
    chat_template_free(t->chat_template);
    engine_destroy(t->engine);
    engine_destroy(t->plain);
}

/* --- answers ----------------------------------------------------------------------------------------------------- */

static void talk_listen(void *user, struct token_block *block) {
    struct talk_listener *l = user;
    ck_assert(!l->done);
    if (l->cut_at >= 0 && (int)l->ids.len + block->count >= l->cut_at) {
        block->keep = l->cut_at - (int)l->ids.len;
        block->stop = true;
    }
    ids_append(&l->ids, block->tokens, (size_t)block->keep);
    l->ended = block->ended && block->keep == block->count && !block->stop;
    l->done = block->stop || block->finish != FINISH_NONE;
}

struct generation talk_greedy(struct talk_listener *l, int max_tokens) {
    return (struct generation){
        .max_tokens = max_tokens, .sampling = {.top_p = 1}, .seed = 1, .on_tokens = talk_listen, .user = l};
}

void talk_run(struct engine *e, struct sequence *s) {
    int running;
    while (engine_is_running(s)) ck_ok(engine_step(e, &running));
}

void talk_expect_plain(struct engine *plain, const struct ids *history, const struct ids *answer) {
    struct talk_listener l = {.cut_at = -1};
    struct generation g = talk_greedy(&l, answer->len > 0 ? (int)answer->len : 1);
    struct sequence *s;
    ck_ok(engine_open(plain, engine_info(plain).context, &s));
    ck_ok(engine_generate(plain, s, history->data, (int)history->len, &g));
    talk_run(plain, s);
    if (answer->len > 0) ck_assert_uint_eq(l.ids.len, answer->len);
    for (size_t i = 0; i < answer->len; i++)
        ck_assert_msg(l.ids.data[i] == answer->data[i], "token %zu is %d, plain decoding gives %d", i, answer->data[i],
                      l.ids.data[i]);
    engine_close(plain, s);
    ids_free(&l.ids);
}

struct ids talk_history(const struct talk *t) {
    int n;
    struct ids ids = {0};
    const int32_t *tokens = engine_tokens(conversation_sequence(t->conversation), &n);
    ids_append(&ids, tokens, (size_t)n);
    return ids;
}

void talk_store(struct talk *t, const struct talk_listener *l) {
    struct buf text = {0};
    ck_ok(tokenizer_decode(engine_tokenizer(t->engine), l->ids.data, l->ids.len - l->ended, true, &text));
    ck_ok(conversation_answered(t->conversation, buf_text(&text), text.len, !l->ended));
    buf_free(&text);
}

int talk_say_cut(struct talk *t, const char *text, int cut_at, int max_tokens) {
    struct talk_listener l = {.cut_at = cut_at};
    struct generation g = talk_greedy(&l, max_tokens);
    int dropped;
    ck_ok(conversation_ask(t->conversation, text, strlen(text), &g, &dropped));
    struct ids before = talk_history(t);
    talk_run(t->engine, conversation_sequence(t->conversation));
    talk_expect_plain(t->plain, &before, &l.ids);
    talk_store(t, &l);
    ids_free(&before);
    ids_free(&l.ids);
    return dropped;
}

int talk_say(struct talk *t, const char *text) {
    return talk_say_cut(t, text, -1, ANSWER);
}

void must_equal_ids(const struct ids *a, const struct ids *b, const char *what) {
    ck_assert_msg(a->len == b->len, "%s: %zu ids, expected %zu", what, a->len, b->len);
    for (size_t i = 0; i < a->len; i++)
        ck_assert_msg(a->data[i] == b->data[i], "%s: id %zu is %d, expected %d", what, i, a->data[i], b->data[i]);
}

struct ids talk_rendered(const struct talk *t, const char *question) {
    struct chat_message messages[16];
    size_t n;
    int count = 0;
    const char *system = conversation_system(t->conversation, &n);
    if (system) messages[count++] = (struct chat_message){"system", system, n};
    for (int i = 0; i < conversation_turns(t->conversation); i++) {
        const struct buf *q, *a;
        conversation_turn(t->conversation, i, &q, &a);
        messages[count++] = (struct chat_message){"user", buf_text(q), q->len};
        messages[count++] = (struct chat_message){"assistant", buf_text(a), a->len};
    }
    messages[count++] = (struct chat_message){"user", question, strlen(question)};
    struct chat_text text = {{0}, {0}};
    struct ids ids = {0};
    ck_ok(chat_template_render(t->chat_template, messages, count, false, &text));
    struct encode_options options = {.plain = text.plain.data};
    ck_ok(tokenizer_encode(engine_tokenizer(t->engine), text.text.data, text.text.len, &options, &ids));
    chat_text_free(&text);
    return ids;
}

struct ids talk_asked(struct talk *t, const char *question) {
    struct talk_listener l = {.cut_at = -1};
    struct generation g = talk_greedy(&l, ANSWER);
    ck_ok(conversation_ask(t->conversation, question, strlen(question), &g, NULL));
    struct ids ids = talk_history(t);
    engine_stop(t->engine, conversation_sequence(t->conversation));
    ck_ok(conversation_undo(t->conversation));
    return ids;
}
