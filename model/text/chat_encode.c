#include "model/text/chat_encode.h"

#include <string.h>

#include "base/err.h"

static int encode(const struct chat_encoding *e, const struct chat_text *t, bool special, struct ids *out) {
    struct encode_options options = {
        .special = special,
        .plain = e->parse_special ? NULL : buf_text(&t->plain),
        .interrupt = e->interrupt,
    };
    return tokenizer_encode(e->tokenizer, buf_text(&t->text), t->text.len, &options, out);
}

/* A message without anything around it. */
static int encode_bare(const struct chat_encoding *e, const struct chat_message *m, bool special, struct ids *out) {
    struct chat_text t = {{0}, {0}};
    chat_text_put(&t, m->content, m->len);
    int rc = encode(e, &t, special, out);
    chat_text_free(&t);
    return rc;
}

int chat_encode(const struct chat_encoding *e, const struct chat_message *messages, int count, struct ids *out) {
    if (!e->chat_template) return encode_bare(e, &messages[count - 1], true, out);
    struct chat_text t = {{0}, {0}};
    int rc = chat_template_render(e->chat_template, messages, count, e->think, &t);
    if (rc == 0) rc = encode(e, &t, false, out);
    chat_text_free(&t);
    return rc;
}

int chat_encode_next(const struct chat_encoding *e, const struct chat_message *user, bool answer_was_cut,
                     struct ids *out) {
    if (!e->chat_template) return encode_bare(e, user, false, out);
    struct chat_text t = {{0}, {0}};
    int rc = chat_template_next(e->chat_template, user, answer_was_cut, e->think, &t);
    if (rc == 0) rc = encode(e, &t, false, out);
    chat_text_free(&t);
    return rc;
}

int chat_encode_answer(const struct chat_encoding *e, const struct chat_message *answer, struct ids *out) {
    return encode_bare(e, answer, false, out);
}

int chat_encode_end_of_turn(const struct chat_encoding *e, struct ids *out) {
    if (!e->chat_template) return 0;
    const char *end = chat_template_end_of_turn(e->chat_template);
    return tokenizer_encode(e->tokenizer, end, strlen(end), NULL, out);
}
