/* --resume: what the output of an earlier run holds. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json.h"
#include "cli/batch.h"
#include "cli/batch_results.h"

/* --- records -------------------------------------------------------------------------------------------------- */

/* What a record says of its line. */
struct origin {
    int64_t number;
    uint64_t hash;
    bool failed; /* an error record: its line is tried again */
    bool is_spec_bench;
};

/* The sixteen digits that record_put_hash writes, and nothing behind them. */
static bool read_hash(const char *text, uint64_t *hash) {
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) return false;
    *hash = strtoull(text, NULL, 16);
    return true;
}

/* "NUMBER-HASH" behind `prefix`. */
static bool read_key(const cJSON *item, const char *prefix, struct origin *out) {
    char *end;
    size_t skip = strlen(prefix);
    if (!cJSON_IsString(item) || strncmp(item->valuestring, prefix, skip) != 0) return false;
    out->number = strtoll(item->valuestring + skip, &end, 10);
    return *end == '-' && read_hash(end + 1, &out->hash);
}

static bool read_own(const cJSON *record, struct origin *out) {
    const cJSON *hash = json_get(record, "line_hash"), *finish = json_get(record, "finish_reason");
    if (!json_int(json_get(record, "index"), &out->number) || !cJSON_IsString(finish)) return false;
    out->failed = !cJSON_IsString(hash) || !read_hash(hash->valuestring, &out->hash);
    return true;
}

static bool read_origin(const char *line, size_t n, struct origin *out) {
    cJSON *record;
    *out = (struct origin){0};
    if (json_parse(&record, line, n) != 0) return false;
    bool found = read_own(record, out);
    if (!found && read_key(json_get(record, "id"), OPENAI_ID, out)) {
        found = json_get(record, "custom_id") && json_get(record, "response");
        out->failed = json_get(record, "error") != NULL;
    } else if (!found && read_key(json_get(record, "answer_id"), "", out)) {
        found = out->is_spec_bench = json_get(record, "choices") != NULL;
    }
    cJSON_Delete(record);
    return found;
}

/* As much of a record as a crash may have left. */
static bool is_start_of_record(const char *text, size_t n) {
    static const char openai[] = "{\"id\": \"" OPENAI_ID;
    static const char *const starts[] = {"{\"index\": ", openai, "{\"question_id\": "};
    for (int i = 0; i < 3; i++) {
        size_t len = strlen(starts[i]);
        if (memcmp(text, starts[i], n < len ? n : len) == 0) return true;
    }
    return false;
}

/* --- the file -------------------------------------------------------------------------------------------------- */

/* Cuts what a crash left behind the last whole line. Was that all, and the start of a record? */
static bool cut_torn(struct buf *old) {
    size_t n = old->len;
    while (n > 0 && old->data[n - 1] != '\n') n--;
    bool begun = n == 0 && is_start_of_record(old->data + n, old->len - n);
    old->len = n;
    return begun;
}

static int compare_numbers(const void *key, const void *element) {
    int64_t a = *(const int64_t *)key, b = ((const struct result *)element)->number;
    return (a > b) - (a < b);
}

/* Finished records that the file holds, by the line of the input that each is of. */
struct tally {
    int kept;
    int changed; /* of a line that is another now, or in another form */
    int strays;  /* there is no such line */
};

/* Keeps the line of the file, if it is a good record of a line of the input. Returns whether it is a record at all. */
static bool keep(struct results *r, const char *line, size_t n, bool spec_bench, struct tally *tally) {
    struct origin origin;
    if (!read_origin(line, n, &origin)) return false;
    if (origin.failed) return true;
    struct result *result = bsearch(&origin.number, r->list, (size_t)r->total, sizeof *r->list, compare_numbers);
    const bool same = result && origin.hash == line_hash(result->line, result->len);
    if (same && origin.is_spec_bench == spec_bench) {
        result->kept = line, result->kept_len = n;
        tally->kept++;
    } else {
        tally->changed += result != NULL;
        tally->strays += !result;
    }
    return true;
}

/* A line that was edited is done again. But finished records are not given up for an input that is none of theirs. */
static int refuse_other_input(const struct tally *t, const char *name) {
    const int lost = t->changed + t->strays;
    if (t->strays == 0 && t->changed <= t->kept) return 0;
    return err_set(
        ERR_USAGE,
        "%s: %d of its %d finished records belong%s to no line of this input (is it another one? --force writes "
        "over them)",
        name, lost, lost + t->kept, lost == 1 ? "s" : "");
}

/* Finds what stands in its place already, and marks what is kept. */
static void settle(struct results *r) {
    const char *line;
    size_t n;
    for (struct lines l = lines_of(&r->old); lines_next(&l, &line, &n) && r->first < r->total; r->first++) {
        if (r->list[r->first].kept != line) break;
        r->in_place = l.at - buf_text(&r->old);
    }
    for (int i = 0; i < r->total; i++) {
        if (!r->list[i].kept) continue;
        r->list[i].is_written = true;
        r->kept++;
        if (i >= r->first) r->last = i;
    }
    r->made = r->written = r->kept;
}

int results_resume(struct results *r, const char *path, bool spec_bench) {
    const char *line, *name = r->output.name;
    struct tally tally = {0};
    size_t n;
    if (!r->output.is_regular || r->output.fd == STDOUT_FILENO)
        return err_set(ERR_USAGE, "%s: is no regular file, so there is nothing to resume", name);
    TRY(input_read(path, &r->old));
    bool is_ours = r->old.len == 0 || cut_torn(&r->old);
    for (struct lines l = lines_of(&r->old); lines_next(&l, &line, &n);)
        is_ours |= keep(r, line, n, spec_bench, &tally);
    if (!is_ours) return err_set(ERR_USAGE, "%s: holds no record of duet batch (--force writes over it)", name);
    TRY(refuse_other_input(&tally, name));
    settle(r);
    return 0;
}
