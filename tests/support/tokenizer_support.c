#include "tests/support/tokenizer_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/damage.h"

struct tokenizer *tokenizer_open(const char *dir) {
    struct tokenizer *t;
    ck_ok(checkpoint_tokenizer(test_checkpoint(dir), &t));
    return t;
}

void tokenizer_write(const char *text, size_t n) {
    char path[256];
    snprintf(path, sizeof path, "%s/tokenizer.json", temp_dir());
    damage_write_file(path, text, n);
}

struct tokenizer *tokenizer_load_text(const char *json) {
    tokenizer_write(json, strlen(json));
    return tokenizer_open(temp_dir());
}

void tokenizer_refuse_text(const char *json, int code, const char *part) {
    struct tokenizer *t = (void *)json;
    tokenizer_write(json, strlen(json));
    ck_assert_int_eq(checkpoint_tokenizer(test_checkpoint(temp_dir()), &t), code);
    ck_assert_ptr_null(t);
    ck_assert_msg(strstr(err_message(), "/tokenizer.json: "), "%s", err_message());
    ck_assert_msg(strstr(err_message(), part), "'%s' lacks '%s'", err_message(), part);
}

struct ids tokenizer_encode_all(const struct tokenizer *t, const char *text, size_t n, bool special) {
    struct ids ids = {0};
    ck_ok(tokenizer_encode(t, text, n, &(struct encode_options){.special = special}, &ids));
    return ids;
}

struct buf tokenizer_decode_all(const struct tokenizer *t, const struct ids *ids, bool skip_special) {
    struct buf text = {0};
    ck_ok(tokenizer_decode(t, ids->data, ids->len, skip_special, &text));
    return text;
}

void tokenizer_check_text(const struct buf *got, const struct buf *want) {
    ck_assert_msg(got->len == want->len && memcmp(buf_text(got), buf_text(want), got->len) == 0, "'%s' is not '%s'",
                  buf_text(got), buf_text(want));
}

void tokenizer_check_streaming(const struct tokenizer *t, const struct ids *ids, bool skip_special) {
    struct detokenizer *d;
    struct buf streamed = {0}, whole = tokenizer_decode_all(t, ids, skip_special);
    ck_ok(detokenizer_create(t, skip_special, &d));
    for (int round = 0; round < 2; round++) { /* finishing makes ready for another text */
        buf_clear(&streamed);
        for (size_t i = 0; i < ids->len; i++) {
            size_t before = streamed.len;
            ck_ok(detokenizer_push(d, ids->data[i], &streamed));
            ck_assert(utf8_is_valid(buf_text(&streamed) + before, streamed.len - before));
        }
        ck_ok(detokenizer_finish(d, &streamed));
        tokenizer_check_text(&streamed, &whole);
    }
    detokenizer_free(d);
    buf_free(&streamed);
    buf_free(&whole);
}

void tokenizer_check_ids(const struct ids *got, const cJSON *want, const char *about) {
    size_t i = 0;
    for (const cJSON *item = want->child; item; item = item->next, i++) {
        int64_t id;
        ck_assert(json_int(item, &id));
        ck_assert_msg(i < got->len && got->data[i] == id, "%s: id %zu differs", about, i);
    }
    ck_assert_msg(i == got->len, "%s: %zu ids, expected %zu", about, got->len, i);
}

void tokenizer_check_vector(const struct tokenizer *t, const cJSON *vector) {
    struct buf text = {0}, decoded = {0};
    ck_assert(json_string(json_get(vector, "text"), &text));
    ck_assert(json_string(json_get(vector, "decoded"), &decoded));
    struct ids ids = tokenizer_encode_all(t, buf_text(&text), text.len, false);
    struct ids special = tokenizer_encode_all(t, buf_text(&text), text.len, true);
    tokenizer_check_ids(&ids, json_get(vector, "ids"), buf_text(&text));
    tokenizer_check_ids(&special, json_get(vector, "ids_special"), buf_text(&text));
    struct buf got = tokenizer_decode_all(t, &ids, false);
    tokenizer_check_text(&got, &decoded);
    tokenizer_check_streaming(t, &special, false);
    tokenizer_check_streaming(t, &special, true);
    buf_free(&text);
    buf_free(&decoded);
    buf_free(&got);
    ids_free(&ids);
    ids_free(&special);
}

int64_t tokenizer_cpu_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
