/* duet tokenize: encodes and decodes the lines of a JSONL file. */
#include "base/json.h"
#include "cli/cli.h"
#include "cli/io.h"
#include "model/text/tokenizer.h"

struct tokenize {
    const struct options *o;
    struct models models; /* its target is DIR */
    struct tokenizer *tokenizer;
    struct buf input;
    struct output output;
    int lines, failed;
};

/* {"text": ...} -> {"ids": [...], "decoded": "..."} */
static int tokenize_text(const struct tokenize *t, const char *line, size_t n, struct buf *out) {
    cJSON *object;
    struct buf text = {0}, decoded = {0};
    struct ids ids = {0};
    struct encode_options options = {.special = t->o->special};
    TRY(json_parse(&object, line, n));
    int rc = 0;
    if (!cJSON_IsObject(object))
        rc = err_set(ERR_FORMAT, "not an object");
    else if (!json_get(object, "text"))
        rc = err_set(ERR_FORMAT, "no 'text'");
    else if (!json_string(json_get(object, "text"), &text))
        rc = err_set(ERR_FORMAT, "'text' must be a string");
    if (rc == 0) rc = tokenizer_encode(t->tokenizer, buf_text(&text), text.len, &options, &ids);
    if (rc == 0) rc = tokenizer_decode(t->tokenizer, ids.data, ids.len, false, &decoded);
    if (rc == 0) {
        buf_puts(out, "{\"ids\": ");
        put_json_ids(out, ids.data, ids.len);
        buf_puts(out, ", \"decoded\": ");
        json_put_string(out, buf_text(&decoded), decoded.len);
        buf_putc(out, '}');
    }
    buf_free(&text);
    buf_free(&decoded);
    ids_free(&ids);
    cJSON_Delete(object);
    return rc;
}

static int tokenize_line(struct tokenize *t, int number, const char *line, size_t n, struct buf *out) {
    t->lines++;
    if (tokenize_text(t, line, n, out) == 0) return 0;
    t->failed++;
    buf_clear(out);
    struct buf sentence = {0};
    buf_printf(&sentence, "line %d: %s", number, err_message());
    buf_puts(out, "{\"error\": ");
    json_put_string(out, buf_text(&sentence), sentence.len);
    buf_putc(out, '}');
    buf_free(&sentence);
    return 0;
}

static int tokenize_lines(struct tokenize *t) {
    struct lines lines = lines_of(&t->input);
    struct buf out = {0};
    const char *line;
    size_t n;
    int rc = output_begin(&t->output);
    while (rc == 0 && lines_next(&lines, &line, &n)) {
        if (line_is_blank(line, n)) continue;
        buf_clear(&out);
        rc = tokenize_line(t, lines.number, line, n, &out);
        if (rc == 0) rc = output_line(&t->output, buf_text(&out), out.len);
    }
    buf_free(&out);
    return rc;
}

static int tokenize_run(struct tokenize *t) {
    TRY(models_find(t->o->directory, &t->models.target));
    TRY(checkpoint_need_tokenizer(t->models.target));
    TRY(checkpoint_tokenizer(t->models.target, &t->tokenizer));
    TRY(output_open(&t->output, t->o->output));
    TRY(output_refuse_input(&t->output, t->o->input));
    TRY(output_refuse_models(&t->output, &t->models));
    if (!t->o->force) TRY(output_refuse_existing(&t->output, false));
    TRY(input_read(t->o->input, &t->input));
    TRY(tokenize_lines(t));
    return output_close(&t->output);
}

int tokenize_main(const struct options *o) {
    struct tokenize t = {.o = o, .output = OUTPUT_CLOSED};
    int rc = tokenize_run(&t);
    int status = STATUS_OK;
    if (rc != 0) {
        status = cli_fail(rc);
    } else if (t.failed) {
        cli_error("%d of %d lines failed", t.failed, t.lines);
        status = STATUS_FAILED;
    }
    (void)output_close(&t.output);
    tokenizer_free(t.tokenizer);
    models_free(&t.models);
    buf_free(&t.input);
    return status;
}
