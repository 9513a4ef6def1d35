/* Conversations: rendered whole, and piece by piece. The first byte chooses the template, the second says how; then
 * messages, each with a byte 0xff behind it: a letter for the role, and the content. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "fuzz/fuzz.h"
#include "model/text/chat_template.h"

enum { FUZZ_BYTES_MAX = 512, MESSAGES_MAX = 9, TEMPLATES = 32 };
enum { THINK = 1, CUT = 2, SYSTEM = 4, ANY_ROLES = 8 };

/* --- the templates ------------------------------------------------------------------------------------------- */

#define BODY   "'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'"
#define TAIL   "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
#define CHATML "{% for message in messages %}{{" BODY "}}" TAIL
#define SYSTEM_FIRST                                                                                       \
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>" \
    "system\\nHelp.<|im_end|>\\n' }}{% endif %}{{" BODY "}}" TAIL

static void put_config(const char *jinja) {
    struct buf json = {0};
    buf_puts(&json, "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}, \"chat_template\": ");
    json_put_string(&json, jinja, strlen(jinja));
    buf_putc(&json, '}');
    fuzz_write("tokenizer_config.json", json.data, json.len);
    buf_free(&json);
}

/* Two that are recognised, and all names. */
static const struct chat_template *template_at(int index) {
    static struct chat_template *loaded[TEMPLATES];
    struct chat_template **t = &loaded[index];
    if (*t) return *t;
    put_config(index == 0 ? "{{ bos_token }}" CHATML : SYSTEM_FIRST);
    int rc;
    if (index < 2) {
        rc = checkpoint_chat_template(fuzz_checkpoint(), NULL, t);
    } else {
        char *names = strdup(chat_template_names()), *save, *name = strtok_r(names, ", ", &save);
        for (int i = 2; i < index && name; i++) name = strtok_r(NULL, ", ", &save);
        rc = checkpoint_chat_template(fuzz_checkpoint(), name ? name : "chatml", t);
        free(names);
    }
    claim(rc == 0 && *t, "%s", err_message());
    fuzz_remove("tokenizer_config.json");
    return *t;
}

static bool is_named(const struct chat_template *t, const char *name) {
    return strcmp(chat_template_name(t), name) == 0;
}

/* --- the conversation ----------------------------------------------------------------------------------------- */

struct chat {
    struct chat_message messages[MESSAGES_MAX];
    struct buf texts[MESSAGES_MAX];
    int count;
};

static const char *role_of(uint8_t letter, int flags, int index) {
    static const char *const roles[] = {"system", "user", "assistant", "robot"};
    if (flags & ANY_ROLES) return roles[letter % 4];
    if (flags & SYSTEM) return index == 0 ? "system" : roles[1 + (index - 1) % 2];
    return roles[1 + index % 2];
}

/* Templates trim answers in a whole render, which the history does not: a mark at both ends keeps them as they are. */
static void put_content(struct buf *out, const struct input *content, bool is_answer) {
    if (is_answer) buf_putc(out, '.');
    buf_append(out, content->data, content->n);
    if (is_answer) buf_putc(out, '.');
}

static void read_chat(struct chat *c, struct input in, int flags) {
    for (c->count = 0; c->count < MESSAGES_MAX && in.n > 0; c->count++) {
        struct input part = input_until(&in, 0xff);
        const char *role = role_of(input_byte(&part), flags, c->count);
        struct buf *text = &c->texts[c->count];
        put_content(text, &part, !(flags & ANY_ROLES) && strcmp(role, "assistant") == 0);
        c->messages[c->count] = (struct chat_message){role, buf_text(text), text->len};
    }
}

static void chat_free(struct chat *c) {
    for (int i = 0; i < MESSAGES_MAX; i++) buf_free(&c->texts[i]);
}

/* --- whole and in pieces ---------------------------------------------------------------------------------------- */

/* The marks say of each byte whether a message brought it. */
static void take(struct buf *out, struct chat_text *text) {
    claim(text->plain.len == text->text.len, "%zu marks of %zu bytes", text->plain.len, text->text.len);
    buf_append(out, buf_text(&text->text), text->text.len);
    chat_text_free(text);
}

/* What is rendered is appended, the same every time; a refusal appends nothing. */
static int render(const struct chat_template *t, const struct chat *c, int count, bool think, struct buf *out) {
    struct chat_text text = {0}, again = {0};
    forget_error();
    int rc = chat_template_render(t, c->messages, count, think, &text);
    if (rc != 0) {
        claim(rc == ERR_USAGE && text.text.len == 0, "the code %d, %zu bytes", rc, text.text.len);
        claim_refusal(rc);
        chat_text_free(&text);
        return rc;
    }
    claim(chat_template_render(t, c->messages, count, think, &again) == 0, "%s", err_message());
    claim_same("again", again.text.data, again.text.len, text.text.data, text.text.len);
    take(out, &text);
    chat_text_free(&again);
    return 0;
}

static void put_answer(struct buf *out, const struct chat_template *t, const struct chat_message *m) {
    const bool is_llama2 = is_named(t, "llama2");
    if (is_llama2 || is_named(t, "mistral-v1") || is_named(t, "mistral-v3")) buf_puts(out, " ");
    buf_append(out, m->content, m->len);
    if (is_llama2) buf_puts(out, " ");
}

static void render_pieces(const struct chat_template *t, const struct chat *c, int flags, struct buf *out) {
    int first = flags & SYSTEM ? 2 : 1;
    bool think = flags & THINK, cut = flags & CUT;
    claim(render(t, c, first, first == c->count ? think : true, out) == 0, "%s", err_message());
    for (int i = first; i + 1 < c->count; i += 2) {
        put_answer(out, t, &c->messages[i]);
        if (!cut) buf_puts(out, chat_template_end_of_turn(t));
        struct chat_text next = {0};
        bool thinks = i + 2 == c->count ? think : true;
        claim(chat_template_next(t, &c->messages[i + 1], cut, thinks, &next) == 0, "%s", err_message());
        take(out, &next);
    }
}

/* What chat_template.h excepts: a system prompt that moves, thoughts, and what Qwen 3 takes for no question. */
static bool is_excepted(const struct chat_template *t, const struct chat *c, int flags) {
    if (is_named(t, "mistral-nemo") || is_named(t, "mistral-v3")) return flags & SYSTEM;
    if (chat_template_thoughts(t) == THOUGHTS_ALWAYS)
        return c->count > (flags & SYSTEM ? 2 : 1); /* there is an answer */
    if (!is_named(t, "qwen3") && !is_named(t, "deepseek-r1-2025-01")) return false;
    for (int i = 0; i < c->count; i++)
        if (memmem(c->messages[i].content, c->messages[i].len, "</think>", 8) ||
            memmem(c->messages[i].content, c->messages[i].len, "</tool_response>", 16))
            return true;
    return false;
}

static void claim_pieces(const struct chat_template *t, struct chat *c, int flags) {
    struct buf whole = {0}, pieces = {0};
    int first = flags & SYSTEM ? 2 : 1;
    if ((c->count - first) % 2 != 0) c->count--; /* the last message is a question */
    if (c->count < first) return;
    if ((is_named(t, "mistral") || is_named(t, "gemma2")) && flags & SYSTEM) return; /* refuse system messages */
    bool is_dated = is_named(t, "granite3.1") || strncmp(chat_template_name(t), "mistral-small3", 14) == 0;
    if (is_dated && !(flags & SYSTEM)) return; /* refuse conversations without one */
    claim(render(t, c, c->count, flags & THINK, &whole) == 0, "%s", err_message());
    render_pieces(t, c, flags, &pieces);
    if (!is_excepted(t, c, flags)) claim_same("pieces", pieces.data, pieces.len, whole.data, whole.len);
    buf_free(&whole);
    buf_free(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    struct chat chat = {0};
    struct buf out = {0};
    if (n > FUZZ_BYTES_MAX) return 0;
    const struct chat_template *t = template_at(input_byte(&in) % TEMPLATES);
    int flags = input_byte(&in);
    read_chat(&chat, in, flags);
    buf_puts(&out, "before");
    render(t, &chat, chat.count, flags & THINK, &out);
    claim(memcmp(out.data, "before", 6) == 0, "what was there is '%.6s'", out.data);
    if (!(flags & ANY_ROLES)) claim_pieces(t, &chat, flags);
    buf_free(&out);
    chat_free(&chat);
    return 0;
}
