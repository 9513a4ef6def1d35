/* Chat templates of files. The input is tokenizer_config.json, then, behind a NUL byte, chat_template.jinja (without one
 * it is not there). */
#include <stdio.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "model/text/chat_template.h"

enum { FUZZ_BYTES_MAX = 8192 };

/* "a, b, c": the name at `index` modulo their number, into `name`. */
static void pick_name(size_t index, char name[32]) {
    const char *names = chat_template_names(), *at = names;
    size_t count = 1;
    for (const char *c = names; *c; c++) count += *c == ',';
    for (index %= count; index > 0; index--) at = strchr(at, ',') + 2;
    snprintf(name, 32, "%.*s", (int)strcspn(at, ","), at);
}

static const struct chat_message user = {"user", "hi\0!", 4};

/* 0: it renders the question, the same every time. */
static int claim_rendered(const struct chat_template *t, const struct chat_message *m, int count) {
    struct chat_text first = {{0}, {0}}, again = {{0}, {0}};
    const int rc = chat_template_render(t, m, count, true, &first);
    if (rc == 0) {
        claim(chat_template_render(t, m, count, true, &again) == 0, "%s", err_message());
        claim_same("rendered again", again.text.data, again.text.len, first.text.data, first.text.len);
        claim(first.plain.len == first.text.len, "%zu marks of %zu bytes", first.plain.len, first.text.len);
    } else {
        claim(first.text.len == 0, "a refusal appended something");
        claim_refusal(rc);
    }
    chat_text_free(&first);
    chat_text_free(&again);
    return rc;
}

/* What a template of anybody's says is not known: only that it says it, or refuses. */
static void claim_usable(const struct chat_template *t) {
    const struct chat_message chat[] = {{"system", "", 0}, user};
    struct chat_text next = {{0}, {0}};
    claim(chat_template_end_of_turn(t), "no end of turn");
    if (claim_rendered(t, &user, 1) != 0) claim_rendered(t, chat, 2);
    const int rc = chat_template_next(t, &user, true, false, &next);
    if (rc != 0) claim_refusal(rc);
    claim(rc == 0 || next.text.len == 0, "a refusal appended something");
    chat_text_free(&next);
}

static void claim_name(const struct chat_template *t) {
    const char *name = chat_template_name(t);
    claim(strcmp(name, "own") == 0 || strstr(chat_template_names(), name), "'%s' is no name", name);
}

static void claim_result(int rc, struct chat_template *t) {
    if (rc == 0) {
        if (t) claim_usable(t);
        chat_template_free(t);
        return;
    }
    claim(!t, "a result in spite of: %s", err_message());
    claim_refusal(rc);
    claim(strncmp(err_message(), fuzz_dir(), strlen(fuzz_dir())) == 0, "no file is named: %s", err_message());
}

/* By one of the names, whatever template is there. */
static void claim_by_name(size_t index) {
    struct chat_template *t = (struct chat_template *)&t;
    char name[32];
    pick_name(index, name);
    forget_error();
    int rc = checkpoint_chat_template(fuzz_checkpoint(), name, &t);
    claim(rc != 0 || (t && strcmp(chat_template_name(t), name) == 0), "not '%s'", name);
    claim_result(rc, t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    struct chat_template *t = (struct chat_template *)&t;
    if (n > FUZZ_BYTES_MAX) return 0;
    int mark = files_mark();
    struct input config = input_until(&in, '\0');
    fuzz_write("tokenizer_config.json", config.data, config.n);
    if (in.n > 0)
        fuzz_write("chat_template.jinja", in.data, in.n);
    else
        fuzz_remove("chat_template.jinja");
    forget_error();
    int rc = checkpoint_chat_template(fuzz_checkpoint(), NULL, &t);
    if (rc == 0 && t && n % 8 == 1) claim_name(t);
    claim_result(rc, t);
    if (n % 8 == 0) claim_by_name(n / 8); /* now and then, because it takes most of the time */
    claim_files_closed(mark);
    return 0;
}
