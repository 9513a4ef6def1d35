/* Templates: the input is one, rendered with three messages and a few variables. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "model/jinja/jinja.h"

enum { FUZZ_BYTES_MAX = 4096 };

#define SAY(role, content) \
    { role, content, sizeof content - 1 }
static const struct jinja_message messages[] = {SAY("system", " Be brief. "), SAY("user", "h\xc3\xa9\0<|im_end|>\xff"),
                                                SAY("assistant", "<think>\nHm.\n</think>\n\nYes.")};

static const struct jinja_variable variables[] = {{"bos_token", JINJA_IS_TEXT, "<s>"},
                                                  {"eos_token", JINJA_IS_TEXT, "</s>"},
                                                  {"add_generation_prompt", JINJA_IS_TRUE, NULL},
                                                  {"enable_thinking", JINJA_IS_FALSE, NULL},
                                                  {"tools", JINJA_IS_NONE, NULL}};

static void claim_marks(const struct buf *text, const struct buf *plain) {
    claim(text->len == plain->len, "%zu marks of %zu bytes", plain->len, text->len);
    for (size_t i = 0; i < plain->len; i++)
        claim(plain->data[i] == 0 || plain->data[i] == 1, "a mark of %d", plain->data[i]);
}

static void claim_rendered(const struct jinja *j) {
    const struct jinja_input input = {
        .messages = messages,
        .count = sizeof messages / sizeof *messages,
        .variables = variables,
        .variable_count = sizeof variables / sizeof *variables,
        .has_now = true,
        .now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 30, .tm_wday = 1, .tm_yday = 333}};
    struct buf text = {0}, plain = {0}, again = {0}, plain_again = {0};
    forget_error();
    const int rc = jinja_render(j, &input, &text, &plain);
    claim_marks(&text, &plain);
    if (rc == 0) {
        claim(jinja_render(j, &input, &again, &plain_again) == 0, "%s", err_message());
        claim_same("rendered again", again.data, again.len, text.data, text.len);
        claim_same("marked again", plain_again.data, plain_again.len, plain.data, plain.len);
    } else {
        claim(text.len == 0, "a refusal appended something");
        claim_refusal(rc);
    }
    buf_free(&text);
    buf_free(&plain);
    buf_free(&again);
    buf_free(&plain_again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct jinja *j = (struct jinja *)&j;
    if (n > FUZZ_BYTES_MAX) return 0;
    forget_error();
    const int rc = jinja_read(&j, (const char *)data, n);
    claim((rc == 0) == (j != NULL), "a result in spite of: %s", err_message());
    if (rc == 0)
        claim_rendered(j);
    else
        claim_refusal(rc);
    jinja_free(j);
    return 0;
}
