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

static int encode_next(const struct chat_encoding *e, const struct chat_message *user, bool answer_was_cut,
                       struct ids *out) {
    struct chat_text t = {{0}, {0}};
    int rc = chat_template_next(e->chat_template, user, answer_was_cut, e->think, &t);
    if (rc == 0) rc = encode(e, &t, false, out);
    chat_text_free(&t);
    return rc;
}

static bool begins_with(const struct ids *ids, const struct ids *end) {
    return end->len > 0 && ids->len >= end->len && memcmp(ids->data, end->data, end->len * sizeof *end->data) == 0;
}

/* Encoded behind the end of turn, which may take white space along (Phi-3's), and what stands behind it is not the beginning of a
 * text. The ids of the end are in the history already unless the answer was cut. */
int chat_encode_next(const struct chat_encoding *e, const struct chat_message *user, bool answer_was_cut,
                     struct ids *out) {
    if (!e->chat_template) return encode_bare(e, user, false, out);
    if (answer_was_cut) return encode_next(e, user, true, out);
    struct ids ids = {0}, end = {0};
    int rc = encode_next(e, user, true, &ids);
    if (rc == 0) rc = chat_encode_end_of_turn(e, &end);
    bool behind_end = rc == 0 && begins_with(&ids, &end);
    if (behind_end) ids_append(out, ids.data + end.len, ids.len - end.len);
    ids_free(&ids);
    ids_free(&end);
    return rc != 0 || behind_end ? rc : encode_next(e, user, false, out);
}

/* Does the text of ids [n], behind that of others, say what the message says? */
static int compare_text(const struct tokenizer *t, const struct ids *ids, const struct chat_message *m, bool *same) {
    struct detokenizer *d;
    struct buf text = {0};
    TRY(detokenizer_create(t, false, &d));
    int rc = detokenizer_follow(d, ids->data, ids->len);
    for (size_t i = 0; i < ids->len && rc == 0; i++) rc = detokenizer_push(d, ids->data[i], &text);
    if (rc == 0) rc = detokenizer_finish(d, &text);
    *same = rc == 0 && text.len == m->len && memcmp(text.data, m->content, m->len) == 0;
    buf_free(&text);
    detokenizer_free(d);
    return rc;
}

static int encode_by_template(const struct chat_encoding *e, const struct chat_message *answer, struct ids *out) {
    struct chat_text t = {{0}, {0}};
    chat_template_answer(e->chat_template, answer, &t);
    int rc = encode(e, &t, false, out);
    chat_text_free(&t);
    return rc;
}

/* A tokenizer that puts a blank before every text (Llama 2's) would double the one that the answer begins with. */
int chat_encode_answer(const struct chat_encoding *e, const struct chat_message *answer, struct ids *out) {
    if (e->chat_template) return encode_by_template(e, answer, out);
    if (answer->len < 2 || answer->content[0] != ' ') return encode_bare(e, answer, false, out);
    struct chat_message rest = {answer->role, answer->content + 1, answer->len - 1};
    struct ids ids = {0};
    bool same = false;
    int rc = encode_bare(e, &rest, false, &ids);
    if (rc == 0) rc = compare_text(e->tokenizer, &ids, answer, &same);
    if (same) ids_append(out, ids.data, ids.len);
    ids_free(&ids);
    return rc != 0 || same ? rc : encode_bare(e, answer, false, out);
}

int chat_encode_end_of_turn(const struct chat_encoding *e, struct ids *out) {
    if (!e->chat_template) return 0;
    const char *end = chat_template_end_of_turn(e->chat_template);
    return tokenizer_encode(e->tokenizer, end, strlen(end), NULL, out);
}
