/* Normal forms: the characters are utf8proc's, the time is not. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "model/text/tokenizer_internal.h"
#include "tests/support/damage.h"
#include "tests/support/tokenizer_support.h"

static const int forms[] = {
    UTF8PROC_STABLE | UTF8PROC_COMPOSE,
    UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
    UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
    UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
};
enum { FORMS = sizeof forms / sizeof *forms };

static void must_be_as_mapped(int form, const struct buf *text) {
    struct buf want = {0};
    struct piece_buf out = {.text = {0}};
    struct piece piece = {.text = buf_text(text), .n = text->len};
    utf8proc_uint8_t *mapped = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)buf_text(text), (utf8proc_ssize_t)text->len, &mapped,
                                      (utf8proc_option_t)form);
    require(n >= 0, "utf8proc_map");
    buf_append(&want, mapped, (size_t)n);
    require_ok(unicode_normalize(form, &piece, &out));
    require(out.text.len == want.len && memcmp(buf_text(&out.text), buf_text(&want), want.len) == 0,
            "'%s' becomes '%s', not '%s'", buf_text(text), buf_text(&out.text), buf_text(&want));
    free(mapped);
    piece_buf_free(&out);
    buf_free(&want);
}

static void put(struct buf *out, uint32_t c) {
    char bytes[4];
    if (c >= 0xd800 && c < 0xe000) c = ' ';
    buf_append(out, bytes, (size_t)utf8_encode(c, bytes));
}

START_TEST(every_character_alone_and_between_marks_is_as_mapped)
{
    struct buf text = {0};
    for (uint32_t c = 0; c < 0x110000; c += c < 0x30000 || !test_is_small() ? 1 : 97) {
        buf_clear(&text);
        put(&text, c);
        put(&text, 0x301);
        put(&text, c);
        put(&text, 0x316);
        put(&text, 0x301);
        must_be_as_mapped(forms[_i], &text);
    }
    buf_free(&text);
}
END_TEST

/* Blocks in which characters decompose, compose and change places. */
START_TEST(random_text_is_as_mapped)
{
    static const struct {
        uint32_t first, count;
    } blocks[] = {{'a', 26},       {' ', 1},        {0xc0, 0x1c0},    {0x300, 0x70},   {0x300, 0x70},   {0x5b0, 0x20},
                  {0x64b, 0x15},   {0x900, 0x100},  {0x1100, 0x100},  {0x11a7, 0x1d},  {0xac00, 11172}, {0x1e00, 0x200},
                  {0x2100, 0x80},  {0x3040, 0x60},  {0x3099, 2},      {0xf900, 0x100}, {0xfb00, 0x100}, {0xfdf0, 0x10},
                  {0x110a0, 0x60}, {0x1d150, 0x60}, {0x2f800, 0x200}, {0, 0x110000}};
    struct damage chance = {11};
    struct buf text = {0};
    for (int i = 0; i < (test_is_small() ? 20000 : 100000); i++) {
        buf_clear(&text);
        for (uint32_t n = damage_below(&chance, 12); n > 0; n--) {
            uint32_t b = damage_below(&chance, sizeof blocks / sizeof *blocks);
            put(&text, blocks[b].first + damage_below(&chance, blocks[b].count));
        }
        must_be_as_mapped(forms[i % FORMS], &text);
    }
    buf_free(&text);
}
END_TEST

/* Loop index: the form. */
START_TEST(marks_out_of_order_take_no_quadratic_time)
{
    static const char *const names[] = {"NFC", "NFD", "NFKC", "NFKD"};
    static const char *const units[] = {"\xcc\x81\xcc\x96", "\xcc\x96\xcc\x81\xd6\xb0", "\xe3\x82\x99\xcc\xb4\xcc\x95"};
    struct buf json = {0};
    buf_printf(&json, "{\"normalizer\":{\"type\":\"%s\"},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}", names[_i]);
    struct tokenizer *t = tokenizer_load_text(json.data);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        struct buf text = {0};
        buf_putc(&text, 'a');
        while (text.len < 500000) buf_puts(&text, units[u]);
        int64_t start = tokenizer_cpu_us();
        struct ids ids = tokenizer_encode_all(t, text.data, text.len, false);
        ck_assert_int_lt(tokenizer_cpu_us() - start, 2000000); /* measured: 0.02 s */
        ck_assert_uint_le(ids.len, 1);
        ids_free(&ids);
        buf_free(&text);
    }
    tokenizer_free(t);
    buf_free(&json);
}
END_TEST

Suite *check_tokenizer_forms(void) {
    Suite *suite = suite_create("tokenizer_forms");
    TCase *forms_case = tcase_create("forms");
    tcase_add_loop_test(forms_case, every_character_alone_and_between_marks_is_as_mapped, 0, FORMS);
    tcase_add_test(forms_case, random_text_is_as_mapped);
    tcase_add_loop_test(forms_case, marks_out_of_order_take_no_quadratic_time, 0, FORMS);
    suite_add_tcase(suite, forms_case);
    return suite;
}
