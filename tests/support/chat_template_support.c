#include "tests/support/chat_template_support.h"

#include <string.h>

struct chat_template *template_open(const char *dir) {
    struct chat_template *t;
    ck_ok(checkpoint_chat_template(test_checkpoint(dir), NULL, &t));
    ck_assert_ptr_nonnull(t);
    return t;
}

struct buf template_render(const struct chat_template *t, const struct chat_message *m, int count, bool think) {
    struct chat_text out = {{0}, {0}};
    ck_ok(chat_template_render(t, m, count, think, &out));
    buf_free(&out.plain);
    return out.text;
}

struct buf template_next(const struct chat_template *t, const struct chat_message *user, bool cut, bool think) {
    struct chat_text out = {{0}, {0}};
    ck_ok(chat_template_next(t, user, cut, think, &out));
    buf_free(&out.plain);
    return out.text;
}

void template_check_text(const struct buf *got, const char *want, size_t n) {
    ck_assert_msg(got->len == n && memcmp(buf_text(got), want, n) == 0, "'%s' is not '%s'", buf_text(got), want);
}
