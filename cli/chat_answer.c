/* One answer of the chat: asked, streamed, stored.
 *
 * What was shown is what the history keeps, by whole tokens: every token that was fed to the text stream stays, and text
 * of it that was held back is shown at the end (unless it is a stop string). */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/chat.h"
#include "engine/text.h"

struct answer {
    struct chat *chat;
    struct text_stream *stream;
    struct buf text, fresh; /* all that was shown; what one token adds */
    bool after_thought;     /* a thought that is no part of the text stands on the terminal, and nothing behind it */
    bool stopped, ended;    /* by a stop string, by an end id */
    enum finish finish;
    struct answer_figures figures;
    int rc;
};

/* A thought beside the text is shown where it can be told from it. */
static void print_thought(struct answer *a) {
    const struct buf *thought = text_stream_thought(a->stream);
    if (thought->len == 0 || !terminal_is_tty(STDOUT_FILENO)) return;
    chat_print(a->chat, STYLE_DIM, buf_text(thought), thought->len);
    a->after_thought = true;
}

static void print_text(struct answer *a, bool accepted) {
    const char *text = buf_text(&a->fresh);
    if (a->fresh.len > 0 && a->after_thought) chat_print(a->chat, STYLE_RESET, "\n\n", 2), a->after_thought = false;
    if (text_stream_part(a->stream) == ANSWER_THOUGHT)
        chat_print(a->chat, STYLE_DIM, text, a->fresh.len);
    else if (a->chat->show)
        chat_print_marked(a->chat, accepted, text, a->fresh.len);
    else
        chat_print(a->chat, STYLE_RESET, text, a->fresh.len);
    buf_append(&a->text, text, a->fresh.len);
}

static int show_token(struct answer *a, int32_t id, bool accepted) {
    buf_clear(&a->fresh);
    TRY(text_stream_push(a->stream, id, &a->fresh, &a->stopped));
    print_thought(a);
    print_text(a, accepted);
    ids_push(&a->chat->answer_ids, id);
    buf_putc(&a->chat->answer_accepted, accepted);
    return 0;
}

static void note_time(struct answer *a, int tokens) {
    struct answer_figures *f = &a->figures;
    f->last_us = clock_us();
    if (f->tokens == 0 && tokens > 0) f->first_us = f->last_us, f->first_tokens = tokens;
    f->tokens += tokens;
}

/* A pipe without a reader ends the chat quietly. */
static int fail_output(void) {
    if (errno == EPIPE) signals_end(SIGPIPE);
    return err_set(ERR_IO, "standard output: %s", strerror(errno));
}

static void on_tokens(void *user, struct token_block *block) {
    struct answer *a = user;
    progress_clear();
    int shown = 0, count = block->ended ? block->count - 1 : block->count;
    signals_hold();
    while (shown < count && a->rc == 0 && !a->stopped) {
        a->rc = show_token(a, block->tokens[shown], shown < block->accepted);
        shown++;
    }
    fflush(stdout);
    signals_release();
    if (a->rc == 0 && ferror(stdout)) a->rc = fail_output();
    if (a->rc != 0 || a->stopped) {
        block->keep = shown;
        block->stop = true;
    }
    a->finish = block->finish;
    a->ended = block->ended && !block->stop;
    note_time(a, shown);
}

enum { SILENCE_US = 500000 };

/* A long prompt shows how far it is, until the answer begins. `before`: what was ingested with earlier turns. */
static void show_ingestion(const struct answer *a, const struct sequence *s, int before) {
    const int64_t silent_us = clock_us() - a->figures.start_us;
    if (engine_load(a->chat->engine).ingesting == 0) {
        progress_clear();
    } else if (silent_us > SILENCE_US) {
        int all, done = engine_ingested(s, &all);
        char tail[32];
        snprintf(tail, sizeof tail, "%.0f tok/s", (done - before) * 1e6 / (double)silent_us);
        progress_draw("reading", done, all, tail);
    }
}

/* Steps the engine to the end of the answer or to Ctrl-C; ERR_INTERRUPTED: before the first token. */
static int run(struct answer *a, bool *interrupted) {
    struct chat *c = a->chat;
    struct sequence *s = conversation_sequence(c->conversation);
    int rc = 0, running, all, before = engine_ingested(s, &all), length;
    const int32_t *prompt = engine_tokens(s, &length);
    if (!c->chat_template) rc = text_stream_follow(a->stream, prompt, (size_t)length);
    while (rc == 0 && engine_is_running(s)) {
        *interrupted = signals_interrupted();
        if (*interrupted)
            engine_stop(c->engine, s);
        else
            rc = engine_step(c->engine, &running);
        if (a->figures.tokens == 0) show_ingestion(a, s, before);
    }
    if (rc != 0) engine_stop(c->engine, s);
    if (rc == 0) rc = a->rc;
    if (rc == 0 && a->finish == FINISH_ERROR) rc = err_prefix(engine_finish_error(s), "the turn is taken back");
    if (rc == 0 && *interrupted && a->figures.tokens == 0) rc = err_set(ERR_INTERRUPTED, "interrupted");
    return rc;
}

static int finish(struct answer *a, bool interrupted) {
    struct chat *c = a->chat;
    buf_clear(&a->fresh);
    TRY(text_stream_finish(a->stream, &a->fresh, &a->stopped));
    signals_hold();
    print_thought(a);
    print_text(a, false);
    chat_print_end(c);
    fflush(stdout);
    signals_release();
    bool at_line_start = !a->after_thought && (a->text.len == 0 || a->text.data[a->text.len - 1] == '\n');
    if (c->interactive ? !at_line_start : !c->options.null) putchar('\n');
    TRY(conversation_answered(c->conversation, buf_text(&a->text), a->text.len, !a->ended));
    if (interrupted)
        a->figures.cut = "stopped";
    else if (!a->ended && !a->stopped)
        a->figures.cut = a->figures.tokens == c->options.max_tokens ? "cut at max-tokens" : "cut: the context is full";
    if (!c->interactive) return 0;
    a->figures.speed_up = chat_speed_of_answer(c);
    chat_print_figures(c, &a->figures);
    chat_note_loss(c, a->figures.speed_up);
    return 0;
}

/* --- asking ---------------------------------------------------------------------------------------------------- */

/* The seed S of an answer; turn n has the key (S, n), so a chat can be repeated, undo and reset included. /regen under a given
 * seed takes one that follows from it; without one every answer has a random seed. Of 32 bits, to be typed again. */
static uint64_t seed_of_answer(const struct chat *c) {
    if (!c->has_seed) return (uint32_t)seed_random();
    if (c->attempt == 0) return c->options.seed;
    return (uint32_t)seed_for_record(c->options.seed, (uint64_t)c->attempt << 32);
}

static int ask(struct answer *a, const char *question, size_t n) {
    struct chat *c = a->chat;
    int context = engine_info(c->engine).context, dropped;
    c->answer_seed = seed_of_answer(c);
    struct generation g = {
        .max_tokens = c->options.max_tokens > 0 ? c->options.max_tokens : context,
        .sampling = c->options.sampling,
        .seed = seed_for_record(c->answer_seed, (uint64_t)c->turn + 1),
        .ignore_end = c->options.ignore_eos,
        .on_tokens = on_tokens,
        .user = a,
    };
    engine_reset_sequence_stats(conversation_sequence(c->conversation));
    chat_speed_begin(c);
    c->answer_ids.len = 0;
    buf_clear(&c->answer_accepted);
    a->figures.start_us = clock_us();
    TRY(conversation_ask(c->conversation, question, n, &g, &dropped));
    c->turn++;
    if (dropped > 0)
        chat_note(c, "the context of %d tokens is full: %d oldest turn%s dropped", context, dropped,
                  dropped == 1 ? "" : "s");
    return 0;
}

static int answer_create(struct answer *a, struct chat *c) {
    const struct tokenizer *t = engine_tokenizer(c->engine);
    size_t lens[STOPS_MAX];
    for (int i = 0; i < c->options.stop_count; i++) lens[i] = strlen(c->options.stop[i]);
    *a = (struct answer){.chat = c};
    TRY(text_stream_create(t, c->options.stop, lens, c->options.stop_count, &a->stream));
    return text_stream_answers(a->stream, c->chat_template, c->options.think);
}

static void say_taken_back(const struct chat *c) {
    chat_note(c, "stopped before the answer began; %s",
              c->attempt > 0 ? "the one before stays" : "the question is taken back");
}

int chat_answer(struct chat *c, const char *question, size_t n, bool *interrupted) {
    struct answer a;
    *interrupted = false;
    if (!utf8_is_valid(question, n)) return err_set(ERR_FORMAT, "the message is not valid UTF-8");
    if (c->interactive) signals_clear();
    int rc = answer_create(&a, c);
    if (rc == 0) rc = ask(&a, question, n);
    if (rc == 0) {
        rc = run(&a, interrupted);
        if (rc == 0) rc = finish(&a, *interrupted);
        if (rc != 0) {
            c->turn--;
            (void)conversation_undo(c->conversation); /* there is a turn, and nothing runs */
        }
    }
    chat_print_end(c); /* where an error ended it */
    if (rc != 0 && a.text.len > 0 && (c->interactive || !c->options.null)) putchar('\n');
    if (rc == ERR_INTERRUPTED) {
        *interrupted = true;
        say_taken_back(c);
        rc = 0;
    }
    if (c->interactive) signals_clear(); /* it was meant for the answer, not for the next prompt */
    text_stream_free(a.stream);
    buf_free(&a.text);
    buf_free(&a.fresh);
    return rc;
}
