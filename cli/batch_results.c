#include "cli/batch_results.h"

#include <stdlib.h>

#include "base/err.h"
#include "cli/cli.h"

int results_create(struct results *r, const struct buf *input) {
    const char *line;
    size_t n;
    for (struct lines l = lines_of(input); lines_next(&l, &line, &n);) r->total += !line_is_blank(line, n);
    r->last = -1;
    r->list = calloc((size_t)r->total + 1, sizeof *r->list);
    if (!r->list) return err_set(ERR_MEMORY, "out of memory for %d lines", r->total);
    int count = 0;
    for (struct lines l = lines_of(input); lines_next(&l, &line, &n);)
        if (!line_is_blank(line, n)) r->list[count++] = (struct result){.line = line, .len = n, .number = l.number};
    return 0;
}

void results_free(struct results *r) {
    for (int i = 0; r->list && i < r->total; i++) buf_free(&r->list[i].record);
    free(r->list);
    r->list = NULL;
    buf_free(&r->old);
    (void)output_close(&r->output);
}

int results_begin(struct results *r, bool resume) {
    r->is_begun = resume;
    if (!resume) return 0;
    return output_continue(&r->output, r->last < 0 ? r->in_place : (int64_t)r->old.len);
}

void results_put(struct results *r, int i, struct buf *record) {
    signals_hold();
    r->list[i].record = *record;
    r->made++;
    signals_release();
    *record = (struct buf){0};
}

/* What the file held before goes when the first record is there. */
static int begin_late(struct results *r) {
    int rc = r->is_begun ? 0 : output_begin(&r->output);
    r->is_begun |= rc == 0;
    return rc;
}

/* Between hold and release a sudden end sees the record as written or as not. */
static int write_record(struct results *r, struct result *result) {
    signals_hold();
    int rc = begin_late(r);
    if (rc == 0) rc = output_line(&r->output, result->record.data, result->record.len);
    if (rc != 0) r->is_broken = true;
    result->is_written = rc == 0;
    r->written += rc == 0;
    signals_release();
    if (r->last < 0) buf_free(&result->record);
    return rc;
}

static bool is_due(const struct result *result) {
    return !result->is_written && result->record.len > 0;
}

/* Everything that was written behind in_place, in order. */
static int put_in_order(struct results *r) {
    struct buf text = {0};
    for (int i = r->first; i < r->total; i++) {
        struct result *result = &r->list[i];
        if (!result->is_written) continue;
        if (result->kept)
            buf_append(&text, result->kept, result->kept_len);
        else
            buf_append(&text, result->record.data, result->record.len);
        buf_putc(&text, '\n');
        buf_free(&result->record);
    }
    int rc = output_reorder(&r->output, r->in_place, buf_text(&text), text.len);
    buf_free(&text);
    if (rc != 0) r->is_broken = true;
    r->last = -1;
    return rc;
}

int results_write_ready(struct results *r) {
    for (; r->next < r->total; r->next++) {
        struct result *result = &r->list[r->next];
        if (is_due(result)) TRY(write_record(r, result));
        if (!result->is_written) break;
    }
    return r->last >= 0 && r->next > r->last ? put_in_order(r) : 0;
}

int results_write_made(struct results *r) {
    for (int i = r->next; i < r->total; i++)
        if (is_due(&r->list[i])) TRY(write_record(r, &r->list[i]));
    return r->last >= 0 ? put_in_order(r) : 0;
}

void results_write_last(struct results *r) {
    for (int i = r->next; i < r->total && !r->is_broken; i++)
        if (is_due(&r->list[i]) && begin_late(r) == 0)
            output_line_last(&r->output, r->list[i].record.data, r->list[i].record.len);
}
