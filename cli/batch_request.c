/* One line of batch input: its fields, their types and ranges. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "cli/batch.h"
#include "cli/cli.h"
#include "sampler/penalty.h"

void request_fail(struct request *r, const char *sentence) {
    free(r->error);
    r->error = memory_copy_text(sentence);
}

void request_free(struct request *r) {
    free(r->id);
    free(r->error);
    free(r->model);
    free(r->category);
    ids_free(&r->ids);
    for (int i = 0; i < r->turn_count; i++) buf_free(&r->turns[i]);
    for (int i = 0; i < r->stop_count; i++) buf_free(&r->stops[i]);
    free(r->turns);
    free(r->stops);
    chat_template_free(r->told);
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

/* A completion of OpenAI's asks by the number of other tokens beside each. */
static int parse_logprobs(struct request *r, const cJSON *line) {
    const cJSON *item = json_get(line, "logprobs");
    double number = -1;
    if (!item || json_bool(item, &r->logprobs)) return 0;
    r->logprobs = r->form == FORM_COMPLETION && json_number(item, &number) && number == 0;
    return r->logprobs ? 0
                       : err_set(ERR_FORMAT, "'logprobs' must be true or false: those of the answer's own tokens%s",
                                 r->form == FORM_COMPLETION ? ", or 0" : "");
}

static int parse_sampling(struct request *r, const cJSON *line, const struct options *o) {
    int64_t top_k, max_tokens;
    r->sampling = o->sampling;
    TRY(parse_float(line, "temperature", &r->sampling.temperature));
    TRY(parse_float(line, "top_p", &r->sampling.top_p));
    TRY(parse_float(line, "min_p", &r->sampling.min_p));
    TRY(parse_float(line, "repetition_penalty", &r->sampling.repetition_penalty));
    TRY(parse_logprobs(r, line));
    TRY(json_get_int(line, "top_k", o->sampling.top_k, 0, INT32_MAX, &top_k));
    TRY(json_get_int(line, "max_completion_tokens", o->max_tokens, 1, INT32_MAX,
                     &max_tokens)); /* OpenAI's newer name */
    TRY(json_get_int(line, "max_tokens", max_tokens, 1, INT32_MAX, &max_tokens));
    TRY(json_get_bool(line, "ignore_eos", o->ignore_eos, &r->ignore_eos));
    r->sampling.top_k = (int32_t)top_k;
    r->max_tokens = (int)max_tokens;
    if (r->sampling.repetition_penalty == 0)
        return err_set(ERR_FORMAT, "'repetition_penalty' is 0, expected %g to %g (1: off)", (double)PENALTY_MIN,
                       (double)PENALTY_MAX);
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

static int parse_text(struct request *r, const cJSON *item, const struct request_context *c) {
    struct buf text = {0};
    struct encode_options options = {.special = true, .interrupt = c->interrupt};
    TRY(need_tokenizer(c, "prompt"));
    r->continues = true;
    int rc = json_string(item, &text) ? 0 : err_set(ERR_FORMAT, "'prompt' must be a string");
    if (rc == 0) rc = tokenizer_encode(c->tokenizer, buf_text(&text), text.len, &options, &r->ids);
    buf_free(&text);
    return rc;
}

static int parse_ids(struct request *r, const cJSON *item, const char *name, const struct request_context *c) {
    const cJSON *entry;
    int64_t id;
    if (!cJSON_IsArray(item)) return err_set(ERR_FORMAT, "'%s' must be a list of token ids", name);
    r->continues = true;
    cJSON_ArrayForEach(entry, item) {
        if (!json_int(entry, &id)) return err_set(ERR_FORMAT, "'%s' must be a list of whole numbers", name);
        if (id < 0 || id >= c->vocab)
            return err_set(ERR_FORMAT, "token id %lld at index %zu of '%s' lies outside the vocabulary of %d",
                           (long long)id, r->ids.len, name, c->vocab);
        ids_push(&r->ids, (int32_t)id);
    }
    return 0;
}

/* OpenAI's may be a list too: of ids, or of one string. */
static int parse_prompt(struct request *r, const cJSON *item, const struct request_context *c) {
    if (r->form != FORM_COMPLETION || !cJSON_IsArray(item)) return parse_text(r, item, c);
    const cJSON *first = cJSON_GetArrayItem(item, 0);
    if (!first || cJSON_IsNumber(first)) return parse_ids(r, item, "prompt", c);
    if (cJSON_GetArraySize(item) > 1) return err_set(ERR_UNSUPPORTED, "several prompts in a line are not supported");
    return parse_text(r, first, c);
}

static int parse_prompt_ids(struct request *r, const cJSON *item, const struct request_context *c) {
    return parse_ids(r, item, "prompt_ids", c);
}

const struct chat_template *request_template(const struct request *r, const struct request_context *c) {
    return r->told ? r->told : c->chat_template;
}

struct chat_encoding request_encoding(const struct request *r, const struct request_context *c) {
    return (struct chat_encoding){.tokenizer = c->tokenizer,
                                  .chat_template = request_template(r, c),
                                  .think = c->think,
                                  .parse_special = c->o->parse_special,
                                  .interrupt = c->interrupt};
}

/* Parts of text, one a line: as vLLM and llama.cpp join them. */
static int parse_parts(const cJSON *list, int message, struct buf *content) {
    const cJSON *part;
    int i = 0;
    cJSON_ArrayForEach(part, list) {
        const cJSON *type = json_get(part, "type");
        if (i++ > 0) buf_putc(content, '\n');
        if (!cJSON_IsString(type))
            return err_set(ERR_FORMAT, "message %d: part %d must be an object with a 'type'", message, i);
        if (strcmp(type->valuestring, "text") != 0)
            return err_set(ERR_UNSUPPORTED, "message %d: parts of type '%s' are not supported, expected text", message,
                           type->valuestring);
        if (!json_string(json_get(part, "text"), content))
            return err_set(ERR_FORMAT, "message %d: part %d must have the string 'text'", message, i);
    }
    return 0;
}

static int parse_message(const cJSON *item, int number, struct chat_message *m, struct buf *content) {
    static const char *const roles[] = {"system", "user", "assistant"};
    struct buf role = {0};
    const cJSON *given = json_get(item, "content");
    bool is_list = cJSON_IsArray(given);
    bool ok = json_string(json_get(item, "role"), &role) && (is_list || json_string(given, content));
    m->role = NULL;
    for (int i = 0; ok && i < 3; i++)
        if (strcmp(buf_text(&role), roles[i]) == 0) m->role = roles[i];
    int rc = 0;
    if (!ok)
        rc = err_set(ERR_FORMAT, "message %d must be an object with the strings 'role' and 'content'", number);
    else if (!m->role)
        rc = err_set(ERR_FORMAT, "message %d has the role '%s', expected system, user or assistant", number,
                     buf_text(&role));
    else if (is_list)
        rc = parse_parts(given, number, content);
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
        TRY(parse_message(entry, i + 1, &messages[i], &contents[i]));
        i++;
    }
    struct chat_encoding encoding = request_encoding(r, c);
    return chat_encode(&encoding, messages, count, &r->ids);
}

static int parse_messages(struct request *r, const cJSON *item, const struct request_context *c) {
    TRY(need_tokenizer(c, "messages"));
    if (!c->chat_template)
        return err_set(ERR_FORMAT, "'messages' needs a chat template%s%s; hint: --template NAME",
                       c->template_error ? ": " : ", and the target has none",
                       c->template_error ? c->template_error : "");
    int count = cJSON_GetArraySize(item);
    if (!cJSON_IsArray(item)) return err_set(ERR_FORMAT, "'messages' must be a list of messages");
    if (count == 0) return err_set(ERR_FORMAT, "'messages' is empty: there is nothing to answer");
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
    if (!cJSON_IsArray(item)) return err_set(ERR_FORMAT, "'turns' must be a list of strings");
    if (count == 0) return err_set(ERR_FORMAT, "'turns' is empty: there is nothing to answer");
    r->turns = calloc((size_t)count, sizeof *r->turns);
    if (!r->turns) return err_set(ERR_MEMORY, "out of memory for %d turns", count);
    cJSON_ArrayForEach(entry, item) {
        if (!json_string(entry, &r->turns[r->turn_count++]))
            return err_set(ERR_FORMAT, "turn %d must be a string", r->turn_count);
    }
    return 0;
}

enum { KINDS = 4 };
static const struct {
    const char *name;
    int (*parse)(struct request *, const cJSON *, const struct request_context *);
} kinds[KINDS] = {
    {"prompt", parse_prompt}, {"messages", parse_messages}, {"turns", parse_turns}, {"prompt_ids", parse_prompt_ids}};

/* What the template is told beside the messages, by names of its own. */
static int parse_told(struct request *r, const cJSON *object, int kind, const struct request_context *c) {
    static const char name[] = "chat_template_kwargs";
    const cJSON *members = json_get(object, name);
    const bool is_chat = kinds[kind].parse == parse_messages || kinds[kind].parse == parse_turns;
    if (!members) return 0;
    if (!cJSON_IsObject(members)) return err_set(ERR_FORMAT, "'%s' must be an object", name);
    if (!is_chat || !c->chat_template)
        return err_set(ERR_FORMAT, "'%s' needs %s", name, is_chat ? "a chat template" : "'messages' or 'turns'");
    const int rc = chat_template_tell(&r->told, c->chat_template, members);
    return rc == 0 ? 0 : err_prefix(rc, "'%s'", name);
}

static int parse_kind(struct request *r, const cJSON *object, int kind, const struct request_context *c) {
    TRY(parse_told(r, object, kind, c));
    TRY(kinds[kind].parse(r, json_get(object, kinds[kind].name), c));
    if (!r->turns && r->ids.len == 0)
        return err_set(ERR_FORMAT, "'%s' is empty: there is no token to start from", kinds[kind].name);
    return 0;
}

/* Exactly one of the four. */
static int parse_prompts(struct request *r, const cJSON *line, const struct request_context *c) {
    int found = -1;
    for (int i = 0; i < KINDS; i++) {
        if (!json_get(line, kinds[i].name)) continue;
        if (found >= 0)
            return err_set(ERR_FORMAT, "both '%s' and '%s': exactly one of prompt, messages, turns and prompt_ids",
                           kinds[found].name, kinds[i].name);
        found = i;
    }
    if (found < 0) return err_set(ERR_FORMAT, "no prompt: one of prompt, messages, turns and prompt_ids is needed");
    return parse_kind(r, line, found, c);
}

/* --- the line --------------------------------------------------------------------------------------------- */

/* As JSON; NULL: absent. */
static char *print(const cJSON *item) {
    struct buf text = {0};
    if (item) json_print(item, &text);
    return text.data;
}

static void take_id(struct request *r, const cJSON *line) {
    static const char *const names[] = {"id", "question_id", "task_id"};
    for (int i = 0; i < 3 && !r->id; i++) r->id = print(json_get(line, names[i]));
}

static int parse_settings(struct request *r, const cJSON *object, const struct request_context *c) {
    TRY(parse_sampling(r, object, c->o));
    TRY(parse_seed(r, object, c->o));
    return parse_stop(r, object, c);
}

/* --- OpenAI's batch form ------------------------------------------------------------------------------------ */

static const struct {
    const char *url;
    enum record_form form;
    int kind; /* the one that its body has */
} endpoints[] = {{"/v1/chat/completions", FORM_CHAT, 1}, {"/v1/completions", FORM_COMPLETION, 0}};

/* Data sets may have some of these names, but then a prompt beside them. */
static bool is_openai(const cJSON *line) {
    for (int i = 0; i < KINDS; i++)
        if (json_get(line, kinds[i].name)) return false;
    return json_get(line, "custom_id") || (json_get(line, "url") && json_get(line, "body"));
}

static bool is_word(const cJSON *item, const char *word) {
    return cJSON_IsString(item) && strcmp(item->valuestring, word) == 0;
}

static int parse_body(struct request *r, const cJSON *body, int kind, const struct request_context *c) {
    if (!cJSON_IsObject(body)) return err_set(ERR_FORMAT, "'body' must be an object");
    if (cJSON_IsString(json_get(body, "model"))) r->model = print(json_get(body, "model"));
    TRY(fields_check(body, FIELDS_OF_BODY, c->o->strict, c->ignored));
    for (int i = 0; i < KINDS; i++)
        if (!json_get(body, kinds[i].name) != (i != kind))
            return err_set(ERR_FORMAT, i == kind ? "'body' has no '%s'" : "'%s' is no field of this url's body",
                           kinds[i].name);
    TRY(parse_settings(r, body, c));
    return parse_kind(r, body, kind, c);
}

static int parse_openai(struct request *r, const cJSON *line, const struct request_context *c) {
    const cJSON *id = json_get(line, "custom_id"), *url = json_get(line, "url"), *method = json_get(line, "method");
    int found = -1;
    r->form = FORM_CHAT;
    r->id = print(id);
    TRY(fields_check(line, FIELDS_OF_ENVELOPE, c->o->strict, c->ignored));
    if (!cJSON_IsString(id)) return err_set(ERR_FORMAT, "'custom_id' must be a string");
    if (!is_word(method, "POST")) return err_set(ERR_UNSUPPORTED, "'method' must be \"POST\"");
    for (int i = 0; i < 2; i++)
        if (is_word(url, endpoints[i].url)) found = i;
    if (found < 0)
        return err_set(ERR_UNSUPPORTED, "'url' is %.100s, expected %s or %s",
                       cJSON_IsString(url) ? url->valuestring : "no string", endpoints[0].url, endpoints[1].url);
    r->form = endpoints[found].form;
    TRY(need_tokenizer(c, endpoints[found].url));
    return parse_body(r, json_get(line, "body"), endpoints[found].kind, c);
}

/* --- any line ------------------------------------------------------------------------------------------------- */

static int parse_object(struct request *r, const cJSON *line, const struct request_context *c) {
    if (!cJSON_IsObject(line)) return err_set(ERR_FORMAT, "not a JSON object");
    bool is_question = c->o->format == FORMAT_SPEC_BENCH;
    if (is_question) r->category = print(json_get(line, "category"));
    if (is_openai(line)) return parse_openai(r, line, c);
    take_id(r, line);
    TRY(fields_check(line, is_question ? FIELDS_OF_QUESTION : FIELDS_OF_LINE, c->o->strict, c->ignored));
    TRY(parse_settings(r, line, c));
    return parse_prompts(r, line, c);
}

uint64_t line_hash(const char *line, size_t n) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)line[i]) * 0x100000001b3u;
    return hash;
}

int request_parse(struct request *r, const struct request_context *c, int number, const char *line, size_t n) {
    *r = (struct request){.line = number, .hash = line_hash(line, n)};
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
