#include "tests/faults/promise.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "cli/io.h"

enum { SHOWN = 160 }; /* bytes of an offending line */

/* --- texts ------------------------------------------------------------------------------------------------------------ */

/* Numbers, bars and blanks become one blank, and none at the end of a line: what is left does not depend on times. */
static void without_figures(const struct buf *text, struct buf *out) {
    for (const char *p = buf_text(text); *p;) {
        size_t figures = strspn(p, " 0123456789.-#");
        if (figures == 0)
            buf_putc(out, *p);
        else if (p[figures] && p[figures] != '\n')
            buf_putc(out, ' ');
        p += figures > 0 ? figures : 1;
    }
}

/* `text` as it is compared. */
static struct buf comparable(const struct scenario *s, const struct buf *text) {
    struct buf copy = {0};
    if (s->has_times)
        without_figures(text, &copy);
    else
        buf_append(&copy, text->data, text->len);
    return copy;
}

static bool is_start_of(const struct buf *part, const struct buf *whole) {
    return part->len <= whole->len && memcmp(buf_text(part), buf_text(whole), part->len) == 0;
}

static bool is_equal(const struct scenario *s, const struct buf *a, const struct buf *b) {
    struct buf x = comparable(s, a), y = comparable(s, b);
    bool equal = x.len == y.len && is_start_of(&x, &y);
    buf_free(&x), buf_free(&y);
    return equal;
}

/* But for newlines at the end, which close a line that was begun. */
static bool is_start(const struct scenario *s, const struct buf *part, const struct buf *whole) {
    struct buf x = comparable(s, part), y = comparable(s, whole);
    while (x.len > 0 && x.data[x.len - 1] == '\n') x.len--;
    bool starts = is_start_of(&x, &y);
    buf_free(&x), buf_free(&y);
    return starts;
}

static bool has_line(const struct scenario *s, const struct buf *text, const char *line, size_t n) {
    struct buf lines = comparable(s, text), raw = {0}, wanted;
    bool found = false;
    buf_append(&raw, line, n);
    wanted = comparable(s, &raw);
    const char *at;
    size_t len;
    for (struct lines l = lines_of(&lines); !found && lines_next(&l, &at, &len);)
        found = len == wanted.len && memcmp(at, buf_text(&wanted), len) == 0;
    buf_free(&lines), buf_free(&raw), buf_free(&wanted);
    return found;
}

/* --- standard error ------------------------------------------------------------------------------------------------------ */

/* Every line is duet's, or one of a run without fault; *said: one of them is new. */
static bool check_error_lines(const struct scenario *s, const struct ending *reference, const struct ending *e,
                              bool *said, struct buf *why) {
    const char *line;
    size_t n;
    for (struct lines l = lines_of(&e->err); lines_next(&l, &line, &n);) {
        bool is_rule = strspn(line, "=") >= n; /* above a sanitizer's report */
        if (is_rule || has_line(s, &reference->err, line, n)) continue;
        if (n > 6 && strncmp(line, "duet: ", 6) == 0)
            *said = true;
        else if (!s->typed) /* libedit has sentences of its own */
            buf_printf(why, "on stderr: %.*s", n < SHOWN ? (int)n : SHOWN, line);
        if (why->len > 0) return false;
    }
    if (e->err.len > 0 && e->err.data[e->err.len - 1] != '\n') buf_puts(why, "half a line on stderr");
    return why->len == 0;
}

/* --- outputs of a run that failed ------------------------------------------------------------------------------------------ */

static cJSON *parse_line(const char *line, size_t n) {
    cJSON *object;
    if (json_parse(&object, line, n) != 0) return NULL;
    if (cJSON_IsObject(object)) return object;
    cJSON_Delete(object);
    return NULL;
}

static double index_of(const cJSON *record) {
    double index;
    return json_number(json_get(record, "index"), &index) ? index : -1;
}

/* The record that a run without fault gives in this place: of the same index, or the next one where there are none. */
static bool find_record(struct lines *records, double index, const char **line, size_t *n) {
    while (lines_next(records, line, n)) {
        cJSON *record = parse_line(*line, *n);
        bool found = record && index_of(record) == index;
        cJSON_Delete(record);
        if (found) return true;
    }
    return false;
}

static void check_record(struct lines *expected, const char *line, size_t n, struct buf *why) {
    const char *whole;
    size_t len;
    cJSON *record = parse_line(line, n);
    if (!record)
        buf_printf(why, "a line that is no record: %.*s", n < SHOWN ? (int)n : SHOWN, line);
    else if (!find_record(expected, index_of(record), &whole, &len))
        buf_printf(why, "a record out of order, or of no line: %.*s", n < SHOWN ? (int)n : SHOWN, line);
    else if (!(len == n && memcmp(whole, line, n) == 0) && !cJSON_IsString(json_get(record, "error")))
        buf_printf(why, "a wrong record: %.*s", n < SHOWN ? (int)n : SHOWN, line);
    cJSON_Delete(record);
}

/* `written`: bytes that were there when the fault came. */
static void check_records(const struct buf *expected, const struct buf *text, int64_t written, bool may_be_torn,
                          struct buf *why) {
    struct lines records = lines_of(expected);
    const char *line;
    size_t n;
    struct buf kept = {0};
    if (written > 0)
        buf_append(&kept, expected->data, (size_t)written < expected->len ? (size_t)written : expected->len);
    while (kept.len > 0 && kept.data[kept.len - 1] != '\n') kept.len--;
    if (!is_start_of(&kept, text)) buf_puts(why, "a record that was written is lost");
    for (struct lines l = lines_of(text); why->len == 0 && lines_next(&l, &line, &n);) {
        bool whole = line + n < buf_text(text) + text->len;
        if (whole)
            check_record(&records, line, n, why);
        else if (!may_be_torn)
            buf_printf(why, "half a record: %.*s", n < SHOWN ? (int)n : SHOWN, line);
    }
    buf_free(&kept);
}

static void check_whole(const struct buf *text, struct buf *why) {
    if (text->len == 0) return;
    cJSON *object = text->data[text->len - 1] == '\n' ? parse_line(text->data, text->len - 1) : NULL;
    if (!object) buf_printf(why, "half a file of %zu bytes", text->len);
    cJSON_Delete(object);
}

static void check_file(const struct scenario *s, int i, const struct ending *reference, const struct ending *e,
                       const struct fault_log *log, struct buf *why) {
    const struct scenario_file *f = &s->file[i];
    const struct buf *old = fault_old_text();
    size_t before = why->len;
    bool is_watched = scenario_watched(s) == f->name, begun = log->watched_bytes != (int64_t)old->len;
    if (!e->has_file[i])
        buf_puts(why, "the file is gone");
    else if (e->file[i].len == old->len && is_start_of(&e->file[i], old))
        return;
    else if (f->leaves == LEAVES_RECORDS)
        check_records(&reference->file[i], &e->file[i], is_watched && begun ? log->watched_bytes : 0, false, why);
    else
        check_whole(&e->file[i], why);
    if (why->len > before) buf_printf(why, " (%s)", f->name);
}

static void check_output(const struct scenario *s, const struct ending *reference, const struct ending *e,
                         const struct fault *f, const struct fault_log *log, struct buf *why) {
    bool has_hole = f->kind == FAULT_WRITE && f->how == FAULT_ONCE; /* stdio goes on behind what was not written */
    if (s->leaves == LEAVES_START && !has_hole && !is_start(s, &e->out, &reference->out))
        buf_puts(why, "other text on stdout");
    if (s->leaves == LEAVES_RECORDS)
        check_records(&reference->out, &e->out, log->watched_bytes, f->kind == FAULT_WRITE, why);
}

/* --- both --------------------------------------------------------------------------------------------------------------------- */

/* stdio gives up where it is interrupted. Nothing interrupts it: the program's only handler ends it, or is held off. */
static bool is_of_stdio(const struct fault_log *log) {
    enum { OWN_CALL = 3 }; /* functions between the system call and the program that made it */
    uint32_t depth = 0;
    while (depth < log->call[0].depth && log->call[0].frames[depth] >> FAULT_MODULE_SHIFT != 0) depth++;
    return depth > OWN_CALL;
}

static bool is_harmless(const struct fault *f, const struct fault_log *log) {
    return f->how == FAULT_SHORT || (f->error == EINTR && !is_of_stdio(log)) || f->kind == FAULT_THREAD;
}

static void check_same(const struct scenario *s, const struct ending *reference, const struct ending *e,
                       struct buf *why) {
    if (!is_equal(s, &e->out, &reference->out)) buf_puts(why, "no error is told, and stdout is another");
    for (int i = 0; i < SCENARIO_FILES && why->len == 0; i++)
        if (s->file[i].name && !is_equal(s, &e->file[i], &reference->file[i]))
            buf_printf(why, "no error is told, and %s is another", s->file[i].name);
}

static void check_said(const struct scenario *s, const struct ending *reference, const struct ending *e,
                       const struct fault *f, const struct fault_log *log, bool said, struct buf *why) {
    if (e->status != 1)
        buf_printf(why, "status %d", e->status);
    else if (!said)
        buf_puts(why, "status 1 without a sentence");
    else
        check_output(s, reference, e, f, log, why);
    for (int i = 0; i < SCENARIO_FILES && why->len == 0; i++)
        if (s->file[i].name) check_file(s, i, reference, e, log, why);
}

enum verdict promise_check(const struct scenario *s, const struct ending *reference, const struct ending *e,
                           const struct fault *f, const struct fault_log *log, struct buf *why) {
    bool said = false;
    buf_clear(why);
    if (e->is_late)
        buf_puts(why, "does not end");
    else if (e->status > 128)
        buf_printf(why, "ends by signal %d (%s)", e->status - 128, strsignal(e->status - 128));
    else
        check_error_lines(s, reference, e, &said, why);
    if (why->len > 0) return BROKEN;
    bool same = e->status == reference->status && (e->status == 0 || !said);
    if (same)
        check_same(s, reference, e, why);
    else if (is_harmless(f, log))
        buf_puts(why, "this must change nothing");
    else
        check_said(s, reference, e, f, log, said, why);
    return why->len > 0 ? BROKEN : same ? SAME : SAID;
}
