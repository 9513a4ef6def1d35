#include "model/text/answer_parts.h"

#include <string.h>

static int32_t find(const struct tokenizer *t, const char *token) {
    return tokenizer_find(t, token, strlen(token));
}

void answer_parts_begin(struct answer_parts *p, const struct tokenizer *t, const struct chat_template *chat,
                        bool think) {
    *p = (struct answer_parts){t, -1, -1, -1, -1, -1, -1, ANSWER_TEXT, false, "", 0};
    const char *const *marks = chat ? chat_template_marks(chat) : NULL;
    if (!marks || !*marks) return;
    if (chat_template_has_channels(chat)) {
        const int32_t channel = find(t, "<|channel|>"), message = find(t, "<|message|>");
        if (channel < 0 || message < 0) return; /* a tokenizer of another model: its text is shown as it comes */
        p->channel = channel, p->message = message, p->start = find(t, "<|start|>"), p->end = find(t, "<|end|>");
        p->part = ANSWER_MARK;
        return;
    }
    p->think = find(t, marks[0]), p->end_think = find(t, marks[1]);
    if (chat_template_opens_thought(chat, think) && p->end_think >= 0) p->part = ANSWER_THOUGHT;
}

bool answer_parts_in_channels(const struct answer_parts *p) {
    return p->channel >= 0;
}

static void add_to_name(struct answer_parts *p, int32_t id) {
    size_t n;
    const char *token = tokenizer_token(p->tokenizer, id, &n);
    if (!token) return;
    if (n > sizeof p->name - p->name_length) n = sizeof p->name - p->name_length;
    memcpy(p->name + p->name_length, token, n);
    p->name_length += n;
}

static bool names_a_thought(const struct answer_parts *p) {
    static const char thought[] = "analysis";
    return p->name_length >= sizeof thought - 1 && memcmp(p->name, thought, sizeof thought - 1) == 0;
}

static enum answer_part take_in_channels(struct answer_parts *p, int32_t id) {
    if (id == p->message && p->part == ANSWER_MARK) {
        p->part = names_a_thought(p) ? ANSWER_THOUGHT : ANSWER_TEXT;
        p->names = false;
        return ANSWER_MARK;
    }
    if (id == p->channel || id == p->start || id == p->end) {
        p->part = ANSWER_MARK;
        p->names = id == p->channel;
        p->name_length = 0;
    } else if (p->names) {
        add_to_name(p, id);
    }
    return p->part;
}

enum answer_part answer_parts_take(struct answer_parts *p, int32_t id) {
    if (p->channel >= 0) return take_in_channels(p, id);
    if (id == p->think && id >= 0) p->part = ANSWER_THOUGHT;
    const enum answer_part its = p->part;
    if (id == p->end_think && id >= 0) p->part = ANSWER_TEXT;
    return its;
}
