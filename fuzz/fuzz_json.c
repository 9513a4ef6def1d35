/* json_parse and json_print: what is printed is read back as the same tree. The input is the text. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "fuzz/fuzz.h"

enum { FUZZ_BYTES_MAX = 4096 };

static bool same_string(const char *a, const char *b) {
    return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

/* A large one that was no integer may be printed as one, and keeps its digits from then on. */
static bool same_number(const cJSON *a, const cJSON *b) {
    claim(a->valuestring || isfinite(a->valuedouble), "a number without digits");
    return cJSON_IsNumber(b) && a->valuedouble == b->valuedouble &&
           (!a->valuestring || same_string(a->valuestring, b->valuestring));
}

static bool same_value(const cJSON *a, const cJSON *b) {
    if (cJSON_IsNumber(a)) return same_number(a, b);
    return a->type == b->type && same_string(a->valuestring, b->valuestring);
}

static void claim_same_trees(const cJSON *a, const cJSON *b) {
    claim(same_string(a->string, b->string) && same_value(a, b), "a value of type %d", a->type);
    const cJSON *x = a->child, *y = b->child;
    for (; x && y; x = x->next, y = y->next) claim_same_trees(x, y);
    claim(!x && !y, "a list with another length");
}

/* Makes a string anew from its bytes. */
static void claim_string(const cJSON *item, struct buf *bytes) {
    buf_clear(bytes);
    claim(json_string(item, bytes) == cJSON_IsString(item), "type %d", item->type);
    if (!cJSON_IsString(item)) return;
    claim(utf8_is_valid(buf_text(bytes), bytes->len), "a string that is not valid UTF-8");
    struct buf quoted = {0};
    cJSON *again;
    json_put_string(&quoted, buf_text(bytes), bytes->len);
    claim(json_parse(&again, quoted.data, quoted.len) == 0, "%s", err_message());
    claim(same_string(again->valuestring, item->valuestring), "'%s'", item->valuestring);
    buf_free(&quoted);
    cJSON_Delete(again);
}

static void claim_number(const cJSON *item) {
    int64_t whole = 0;
    double number = 0;
    if (json_int(item, &whole))
        claim((double)whole == item->valuedouble && !item->valuestring, "%lld", (long long)whole);
    claim(json_number(item, &number) == (cJSON_IsNumber(item) && isfinite(item->valuedouble)), "type %d", item->type);
}

/* Of members with one name the last one counts. The getters refuse what is of another type. */
static void claim_member(const cJSON *object, const cJSON *member) {
    const cJSON *found = json_get(object, member->string), *last = NULL;
    for (const cJSON *m = object->child; m; m = m->next)
        if (strcmp(m->string, member->string) == 0) last = m;
    claim(found == (cJSON_IsNull(last) ? NULL : last), "member '%s'", member->string);
    int64_t whole;
    double number;
    bool truth;
    forget_error();
    int rc = json_get_int(object, member->string, 3, -1000, 1000, &whole);
    if (rc != 0) claim_refusal(rc);
    claim(rc != 0 || (whole >= -1000 && whole <= 1000), "%lld", (long long)whole);
    forget_error();
    if ((rc = json_get_number(object, member->string, 0.5, &number)) != 0) claim_refusal(rc);
    claim(rc != 0 || isfinite(number), "%g", number);
    forget_error();
    if ((rc = json_get_bool(object, member->string, true, &truth)) != 0) claim_refusal(rc);
}

static void claim_parts(const cJSON *item, int depth, int *members, struct buf *bytes) {
    claim(depth <= JSON_DEPTH_MAX, "depth %d", depth);
    claim_string(item, bytes);
    claim_number(item);
    for (const cJSON *child = item->child; child; child = child->next) {
        if (cJSON_IsObject(item) && ++*members <= 8) claim_member(item, child);
        claim_parts(child, depth + 1, members, bytes);
    }
}

static void claim_line(const struct buf *text) {
    claim(text->len > 0 && strlen(text->data) == text->len, "a NUL byte was printed");
    claim_sentence(text->data);
}

static void claim_printed(const cJSON *tree) {
    struct buf once = {0}, twice = {0};
    cJSON *again;
    json_print(tree, &once);
    claim_line(&once);
    claim(json_parse(&again, once.data, once.len) == 0, "'%s': %s", once.data, err_message());
    claim_same_trees(tree, again);
    json_print(again, &twice);
    claim_same("printed again", twice.data, twice.len, once.data, once.len);
    cJSON_Delete(again);
    buf_free(&once);
    buf_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    cJSON *tree = (cJSON *)&tree;
    if (n > FUZZ_BYTES_MAX) return 0;
    forget_error();
    int rc = json_parse(&tree, (const char *)data, n);
    if (rc != 0) {
        claim(rc == ERR_FORMAT && !tree, "the code %d", rc);
        claim_refusal(rc);
        return 0;
    }
    struct buf bytes = {0};
    int members = 0;
    claim_parts(tree, 0, &members, &bytes);
    claim_printed(tree);
    buf_free(&bytes);
    cJSON_Delete(tree);
    return 0;
}
