/* One line of batch input: its fields, their types and ranges. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "cli/batch.h"
#include "cli/cli.h"

void request_fail(struct request *r, const char *sentence) {
    free(r->error);
    r->error = memory_copy_text(sentence);
}

void request_free(struct request *r) {
    free(r->id);
    free(r->error);
    ids_free(&r->ids);
    for (int i = 0; i < r->turn_count; i++) buf_free(&r->turns[i]);
    for (int i = 0; i < r->stop_count; i++) buf_free(&r->stops[i]);
    free(r->turns);
    free(r->stops);
    *r = (struct request){0};
}

/* --- options of a line ------------------------------------------------------------------------------------ */

static int parse_float(const cJSON *line, const char *name, float *value) {
    double x;
    TRY(json_get_number(line, name, *value, &x));
    if (fabs(x) > FLT_MAX) return err_set(ERR_FORMAT, "%s %g is out of range", name, x);
    *value = (float)x;
    return 0;
}

static int parse_sampling(struct request *r, const cJSON *line, const struct options *o) {
    int64_t top_k, max_tokens;
    r->sampling = o->sampling;
    TRY(parse_float(line, "temperature", &r->sampling.temperature));
    TRY(parse_float(line, "top_p", &r->sampling.top_p));
    TRY(parse_float(line, "min_p", &r->sampling.min_p));
    TRY(json_get_int(line, "top_k", o->sampling.top_k, 0, INT32_MAX, &top_k));
    TRY(json_get_int(line, "max_completion_tokens", o->max_tokens, 1, INT32_MAX,
                     &max_tokens)); /* OpenAI's newer name */
    TRY(json_get_int(line, "max_tokens", max_tokens, 1, INT32_MAX, &max_tokens));
    TRY(json_get_bool(line, "ignore_eos", o->ignore_eos, &r->ignore_eos));
    r->sampling.top_k = (int32_t)top_k;
    r->max_tokens = (int)max_tokens;
    return sampling_check(&r->sampling);
}

/* A whole number, or its digits as a string. */
static bool parse_seed_value(const cJSON *item, uint64_t *seed) {
    int64_t number;
    if (json_int(item, &number)) {
        *seed = (uint64_t)number;
        return number >= 0;
    }
    struct buf digits = {0};
    bool ok = json_string(item, &digits) && digits.len > 0 && digits.len <= 20 &&
              strspn(buf_text(&digits), "0123456789") == digits.len;
    uint64_t value = 0;
    for (size_t i = 0; ok && i < digits.len; i++)
        ok = !__builtin_mul_overflow(value, 10, &value) &&
             !__builtin_add_overflow(value, (uint64_t)(digits.data[i] - '0'), &value);
    buf_free(&digits);
    *seed = value;
    return ok;
}

static int parse_seed(struct request *r, const cJSON *line, const struct options *o) {
    const cJSON *item = json_get(line, "seed");
    if (!item)
        r->seed = option_given(o, "seed") ? seed_for_record(o->seed, (uint64_t)r->line) : seed_random();
    else if (!parse_seed_value(item, &r->seed))
        return err_set(ERR_FORMAT, "'seed' must be a whole number from 0 to 2^64 - 1, above 2^53 as a string");
    return 0;
}

static void add_stop(struct request *r, const char *text, size_t n) {
    buf_append(&r->stops[r->stop_count++], text, n);
}

static int parse_stop_list(struct request *r, const cJSON *item) {
    const cJSON *entry;
    r->stops = calloc((size_t)cJSON_GetArraySize(item) + 1, sizeof *r->stops);
    if (!r->stops) return err_set(ERR_MEMORY, "out of memory for stop strings");
    cJSON_ArrayForEach(entry, item) {
        if (!json_string(entry, &r->stops[r->stop_count++]))
            return err_set(ERR_FORMAT, "'stop' must be a string or a list of strings");
    }
    return 0;
}

static int parse_stop(struct request *r, const cJSON *line, const struct request_context *c) {
    const cJSON *item = json_get(line, "stop");
    if (cJSON_IsArray(item)) {
        TRY(parse_stop_list(r, item));
    } else {
        r->stops = calloc((size_t)c->o->stop_count + 1, sizeof *r->stops);
        if (!r->stops) return err_set(ERR_MEMORY, "out of memory for stop strings");
        for (int i = 0; !item && i < c->o->stop_count; i++) add_stop(r, c->o->stop[i], strlen(c->o->stop[i]));
        if (item && !json_string(item, &r->stops[r->stop_count++]))
            return err_set(ERR_FORMAT, "'stop' must be a string or a list of strings");
    }
    if (r->stop_count > 0 && !c->tokenizer)
        return err_set(ERR_FORMAT, "stop strings need a tokenizer.json, which the target lacks");
    return 0;
}

/* --- prompts ------------------------------------------------------------------------------------------------ */

static int need_tokenizer(const struct request_context *c, const char *field) {
    if (c->tokenizer) return 0;
    return err_set(ERR_FORMAT, "'%s' needs a tokenizer.json, which the target lacks; prompt_ids work without", field);
}

static int parse_prompt(struct request *r, const cJSON *item, const struct request_context *c) {
    struct buf text = {0};
    struct encode_options options = {.special = true, .interrupt = c->interrupt};
    TRY(need_tokenizer(c, "prompt"));
    r->continues = true;
    int rc = json_string(item, &text) ? 0 : err_set(ERR_FORMAT, "'prompt' must be a string");
    if (rc == 0) rc = tokenizer_encode(c->tokenizer, buf_text(&text), text.len, &options, &r->ids);
    buf_free(&text);
    return rc;
}

static int parse_prompt_ids(struct request *r, const cJSON *item, const struct request_context *c) {
    const cJSON *entry;
    int64_t id;
    if (!cJSON_IsArray(item)) return err_set(ERR_FORMAT, "'prompt_ids' must be a list of token ids");
    r->continues = true;
    cJSON_ArrayForEach(entry, item) {
        if (!json_int(entry, &id)) return err_set(ERR_FORMAT, "'prompt_ids' must be a list of whole numbers");
        if (id < 0 || id >= c->vocab)
            return err_set(ERR_FORMAT, "token id %lld at index %zu of 'prompt_ids' lies outside the vocabulary of %d",
                           (long long)id, r->ids.len, c->vocab);
        ids_push(&r->ids, (int32_t)id);
    }
    return 0;
}

struct chat_encoding request_encoding(const struct request_context *c) {
    return (struct chat_encoding){.tokenizer = c->tokenizer,
                                  .chat_template = c->chat_template,
                                  .think = c->think,
                                  .parse_special = c->o->parse_special,
                                  .interrupt = c->interrupt};
}

static int parse_message(const cJSON *item, int index, struct chat_message *m, struct buf *content) {
    static const char *const roles[] = {"system", "user", "assistant"};
    struct buf role = {0};
    bool ok = json_string(json_get(item, "role"), &role) && json_string(json_get(item, "content"), content);
    m->role = NULL;
    for (int i = 0; ok && i < 3; i++)
        if (strcmp(buf_text(&role), roles[i]) == 0) m->role = roles[i];
    int rc = 0;
    if (!ok)
        rc = err_set(ERR_FORMAT, "message %d must be an object with the strings 'role' and 'content'", index + 1);
    else if (!m->role)
        rc = err_set(ERR_FORMAT, "message %d has the role '%s', expected system, user or assistant", index + 1,
                     buf_text(&role));
    m->content = buf_text(content);
    m->len = content->len;
    buf_free(&role);
    return rc;
}

static int encode_messages(struct request *r, const cJSON *item, const struct request_context *c,
                           struct chat_message *messages, struct buf *contents, int count) {
    const cJSON *entry;
    int i = 0;
    cJSON_ArrayForEach(entry, item) {
        TRY(parse_message(entry, i, &messages[i], &contents[i]));
        i++;
    }
    struct chat_encoding encoding = request_encoding(c);
    return chat_encode(&encoding, messages, count, &r->ids);
}

static int parse_messages(struct request *r, const cJSON *item, const struct request_context *c) {
    TRY(need_tokenizer(c, "messages"));
    if (!c->chat_template)
        return err_set(ERR_FORMAT, "'messages' needs a chat template%s%s; hint: --template NAME",
                       c->template_error ? ": " : ", and the target has none",
                       c->template_error ? c->template_error : "");
    int count = cJSON_GetArraySize(item);
    if (!cJSON_IsArray(item) || count == 0) return err_set(ERR_FORMAT, "'messages' must be a list of messages");
    struct chat_message *messages = calloc((size_t)count, sizeof *messages);
    struct buf *contents = calloc((size_t)count, sizeof *contents);
    int rc = messages && contents ? encode_messages(r, item, c, messages, contents, count)
                                  : err_set(ERR_MEMORY, "out of memory for %d messages", count);
    for (int i = 0; contents && i < count; i++) buf_free(&contents[i]);
    free(contents);
    free(messages);
    return rc;
}

static int parse_turns(struct request *r, const cJSON *item, const struct request_context *c) {
    const cJSON *entry;
    TRY(need_tokenizer(c, "turns"));
    if (c->template_error) return err_set(ERR_FORMAT, "'turns' needs a chat template: %s", c->template_error);
    int count = cJSON_GetArraySize(item);
    if (!cJSON_IsArray(item) || count == 0) return err_set(ERR_FORMAT, "'turns' must be a list of strings");
    r->turns = calloc((size_t)count, sizeof *r->turns);
    if (!r->turns) return err_set(ERR_MEMORY, "out of memory for %d turns", count);
    cJSON_ArrayForEach(entry, item) {
        if (!json_string(entry, &r->turns[r->turn_count++]))
            return err_set(ERR_FORMAT, "turn %d must be a string", r->turn_count);
    }
    return 0;
}

/* Exactly one of the four. */
static int parse_prompts(struct request *r, const cJSON *line, const struct request_context *c) {
    static const struct {
        const char *name;
        int (*parse)(struct request *, const cJSON *, const struct request_context *);
    } kinds[] = {{"prompt", parse_prompt},
                 {"messages", parse_messages},
                 {"turns", parse_turns},
                 {"prompt_ids", parse_prompt_ids}};
    int found = -1;
    for (int i = 0; i < 4; i++) {
        if (!json_get(line, kinds[i].name)) continue;
        if (found >= 0)
            return err_set(ERR_FORMAT, "both '%s' and '%s': exactly one of prompt, messages, turns and prompt_ids",
                           kinds[found].name, kinds[i].name);
        found = i;
    }
    if (found < 0) return err_set(ERR_FORMAT, "no prompt: one of prompt, messages, turns and prompt_ids is needed");
    TRY(kinds[found].parse(r, json_get(line, kinds[found].name), c));
    if (!r->turns && r->ids.len == 0)
        return err_set(ERR_FORMAT, "'%s' is empty: there is no token to start from", kinds[found].name);
    return 0;
}

/* --- the line --------------------------------------------------------------------------------------------- */

static void take_id(struct request *r, const cJSON *line) {
    static const char *const names[] = {"id", "question_id", "task_id"};
    for (int i = 0; i < 3 && !r->id; i++) {
        const cJSON *item = json_get(line, names[i]);
        if (!item) continue;
        struct buf text = {0};
        json_print(item, &text);
        r->id = text.data;
    }
}

static int parse_object(struct request *r, const cJSON *line, const struct request_context *c) {
    if (!cJSON_IsObject(line)) return err_set(ERR_FORMAT, "not a JSON object");
    take_id(r, line);
    TRY(fields_check(line, c->o->strict, c->ignored));
    TRY(parse_sampling(r, line, c->o));
    TRY(parse_seed(r, line, c->o));
    TRY(parse_stop(r, line, c));
    return parse_prompts(r, line, c);
}

int request_parse(struct request *r, const struct request_context *c, int number, const char *line, size_t n) {
    *r = (struct request){.line = number};
    cJSON *object;
    int rc = json_parse(&object, line, n);
    if (rc == 0) {
        rc = parse_object(r, object, c);
        cJSON_Delete(object);
    }
    if (rc == ERR_INTERRUPTED) return rc;
    if (rc != 0) request_fail(r, err_message());
    return 0;
}
