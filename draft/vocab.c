#include "draft/vocab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"

enum { FILE_BYTES_MAX = 256 << 20 };

struct choice {
    const struct draft_vocab_source *from;
    const char *wish; /* for messages */
    bool *has;        /* [size] */
    int count;
};

static void take(struct choice *c, int id) {
    c->count += !c->has[id];
    c->has[id] = true;
}

static void take_always(struct choice *c) {
    for (size_t i = 0; i < c->from->always->len; i++)
        if (c->from->always->data[i] < c->from->size) take(c, c->from->always->data[i]);
}

/* --- N ids ------------------------------------------------------------------------------------------------ */

struct tally {
    int64_t count;
    int id;
};

static int compare_tallies(const void *a, const void *b) {
    const struct tally *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return x->id - y->id;
}

static int count_text(const struct choice *c, const char *path, struct tally *tallies) {
    struct buf text = {0};
    struct ids ids = {0};
    int rc = file_read(path, FILE_BYTES_MAX, &text);
    if (rc == 0 && !utf8_is_valid(buf_text(&text), text.len)) rc = err_set(ERR_FORMAT, "%s: not valid UTF-8", path);
    if (rc == 0 && text.len == 0) rc = err_set(ERR_FORMAT, "%s: the file is empty, its text was to be counted", path);
    if (rc == 0) rc = tokenizer_encode(c->from->tokenizer, buf_text(&text), text.len, NULL, &ids);
    for (size_t i = 0; i < ids.len; i++)
        if (ids.data[i] < c->from->size) tallies[ids.data[i]].count++;
    ids_free(&ids);
    buf_free(&text);
    return rc;
}

/* `path` NULL: by their order alone. */
static int take_number(struct choice *c, long long n, const char *path) {
    const int size = c->from->size;
    take_always(c);
    const int least = c->count > 1 ? c->count : 1;
    if (n < least || n > size)
        return err_set(ERR_USAGE, "draft vocabulary '%s': expected %d to %d ids", c->wish, least, size);
    if (path && !c->from->tokenizer)
        return err_set(ERR_USAGE, "draft vocabulary '%s': to count a text the target needs a tokenizer.json", c->wish);
    struct tally *tallies = calloc((size_t)size, sizeof *tallies);
    if (!tallies) return err_set(ERR_MEMORY, "out of memory for %d ids", size);
    for (int id = 0; id < size; id++) tallies[id].id = id;
    int rc = path ? count_text(c, path, tallies) : 0;
    if (rc == 0) qsort(tallies, (size_t)size, sizeof *tallies, compare_tallies);
    for (int i = 0; rc == 0 && c->count < n; i++) take(c, tallies[i].id);
    free(tallies);
    return rc;
}

/* --- a file of ids ---------------------------------------------------------------------------------------- */

/* The number `at` of the file, counted in `unit`s from 1. */
static int take_given(struct choice *c, int64_t id, const char *unit, int at) {
    if (id < 0 || id >= c->from->size)
        return err_set(ERR_FORMAT, "%s, %s %d: id %lld is outside the vocabulary that target and draft share (%d ids)",
                       c->wish, unit, at, (long long)id, c->from->size);
    if (c->has[id]) return err_set(ERR_FORMAT, "%s, %s %d: id %lld comes twice", c->wish, unit, at, (long long)id);
    take(c, (int)id);
    return 0;
}

static int take_json(struct choice *c, const struct buf *text) {
    cJSON *root;
    int rc = json_parse(&root, text->data, text->len), at = 0;
    if (rc != 0) return err_prefix(rc, "%s", c->wish);
    for (const cJSON *item = root->child; item && rc == 0; item = item->next) {
        int64_t id;
        at++;
        rc = json_int(item, &id) ? take_given(c, id, "element", at)
                                 : err_set(ERR_FORMAT, "%s, element %d: expected an id", c->wish, at);
    }
    cJSON_Delete(root);
    return rc;
}

static int take_lines(struct choice *c, const char *text) {
    static const char blank[] = " \t\r";
    for (int line = 1; *text; line++) {
        const size_t n = strcspn(text, "\n");
        const char *at = text + strspn(text, blank);
        text += n + (text[n] == '\n');
        if (*at == '\n' || *at == '\0') continue;
        char *end;
        errno = 0;
        const long long id = strtoll(at, &end, 10);
        const char *rest = end + strspn(end, blank);
        if (end == at || errno != 0 || (*rest != '\n' && *rest != '\0'))
            return err_set(ERR_FORMAT, "%s, line %d: '%.*s' is no id", c->wish, line, (int)(n < 40 ? n : 40), at);
        TRY(take_given(c, id, "line", line));
    }
    return 0;
}

static int take_file(struct choice *c) {
    struct buf text = {0};
    int rc = file_read(c->wish, FILE_BYTES_MAX, &text);
    const char *first = buf_text(&text) + strspn(buf_text(&text), " \t\r\n");
    if (rc == 0) rc = *first == '[' ? take_json(c, &text) : take_lines(c, buf_text(&text));
    if (rc == 0 && c->count == 0) rc = err_set(ERR_FORMAT, "%s: there is no id in it", c->wish);
    buf_free(&text);
    take_always(c);
    return rc;
}

/* --- the choice ------------------------------------------------------------------------------------------- */

static int choose(struct choice *c) {
    const size_t digits = strspn(c->wish, "0123456789");
    const char *rest = c->wish + digits;
    if (digits == 0 || (*rest != '\0' && *rest != ':')) return take_file(c);
    return take_number(c, digits < 10 ? atoll(c->wish) : INT64_MAX, *rest == ':' ? rest + 1 : NULL);
}

int draft_vocab_choose(struct ids *out, const char *wish, const struct draft_vocab_source *from) {
    struct choice c = {from, wish, calloc((size_t)from->size, sizeof *c.has), 0};
    if (!c.has) return err_set(ERR_MEMORY, "out of memory for %d ids", from->size);
    int rc = choose(&c);
    for (int id = 0; rc == 0 && id < from->size; id++)
        if (c.has[id]) ids_push(out, id);
    free(c.has);
    return rc;
}
