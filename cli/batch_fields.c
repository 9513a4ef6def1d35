#include "cli/batch_fields.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/memory.h"

static const char *const known[] = {
    "prompt",      "messages",
    "turns",       "prompt_ids",
    "max_tokens",  "max_completion_tokens",
    "temperature", "top_k",
    "top_p",       "min_p",
    "seed",        "stop",
    "ignore_eos",  "repetition_penalty",
    "logprobs",    "chat_template_kwargs",
};
static const char *const ids[] = {"id", "question_id", "task_id"};

/* What a line has beside these, and a body: of an account, without a meaning for the text. */
static const char *const of_question[] = {"category"};
static const char *const of_envelope[] = {"custom_id", "method", "url", "body"};
static const char *const of_body[] = {
    "model", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "stream_options",
};

/* Other words for known ones. */
static const struct {
    const char *name, *meant;
} synonyms[] = {
    {"temp", "temperature"},
    {"max_new_tokens", "max_tokens"},
    {"max_length", "max_tokens"},
    {"max_gen_toks", "max_tokens"},
    {"max_output_tokens", "max_tokens"},
    {"n_predict", "max_tokens"},
    {"num_predict", "max_tokens"},
    {"stop_sequences", "stop"},
    {"stop_strings", "stop"},
    {"stop_words", "stop"},
    {"until", "stop"},
    {"repeat_penalty", "repetition_penalty"},
    {"random_seed", "seed"},
    {"input_ids", "prompt_ids"},
    {"token_ids", "prompt_ids"},
    {"prompt_token_ids", "prompt_ids"},
};

/* Options of the run, not of a line. */
static const struct {
    const char *name, *option;
} of_run[] = {
    {"k", "--k"},
    {"num_speculative_tokens", "--k"},
    {"speculative_tokens", "--k"},
    {"think", "--think"},
    {"enable_thinking", "--think"},
    {"chat_template", "--template"},
    {"reasoning_effort", "--reasoning-effort"},
};

/* Options of other engines: sampling, constraints, adapters, what is to be returned. */
static const char *const refused[] = {
    "n",
    "stream",
    "best_of",
    "num_return_sequences",
    "use_beam_search",
    "num_beams",
    "length_penalty",
    "early_stopping",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
    "no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "typical_p",
    "typical",
    "tfs_z",
    "tfs",
    "top_a",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "dynatemp_range",
    "dynatemp_exponent",
    "epsilon_cutoff",
    "eta_cutoff",
    "smoothing_factor",
    "min_tokens",
    "min_new_tokens",
    "min_length",
    "logit_bias",
    "bad_words",
    "bad_words_ids",
    "allowed_token_ids",
    "logits_processors",
    "stop_token_ids",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "top_logprobs",
    "prompt_logprobs",
    "echo",
    "suffix",
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_decoding_backend",
    "guided_whitespace_pattern",
    "grammar",
    "json_schema",
    "regex",
    "ebnf",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "functions",
    "function_call",
    "documents",
    "lora",
    "lora_id",
    "lora_path",
    "lora_request",
    "adapter",
    "adapter_id",
    "add_generation_prompt",
    "continue_final_message",
    "images",
    "image_url",
    "multi_modal_data",
};

/* Values of these that ask for nothing, as json_print writes them. */
static const struct {
    const char *name, *value;
} neutral[] = {
    {"n", "1"},
    {"stream", "false"},
    {"best_of", "1"},
    {"num_return_sequences", "1"},
    {"use_beam_search", "false"},
    {"num_beams", "1"},
    {"length_penalty", "1"},
    {"early_stopping", "false"},
    {"repeat_penalty", "1"},
    {"presence_penalty", "0"},
    {"frequency_penalty", "0"},
    {"no_repeat_ngram_size", "0"},
    {"typical_p", "1"},
    {"min_tokens", "0"},
    {"min_new_tokens", "0"},
    {"min_length", "0"},
    {"include_stop_str_in_output", "false"},
    {"skip_special_tokens", "true"},
    {"top_logprobs", "0"},
    {"echo", "false"},
    {"suffix", "\"\""},
    {"response_format", "{\"type\": \"text\"}"},
    {"tool_choice", "\"none\""},
    {"add_generation_prompt", "true"},
    {"continue_final_message", "false"},
};
#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* Names of data sets that look like fields and are none. */
static const char *const innocent[] = {"prompt_id", "turn_id", "message", "tops"};

static bool is_among(const char *name, const char *const *list, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(name, list[i]) == 0) return true;
    return false;
}

/* --- nearly the same ------------------------------------------------------------------------------------------ */

enum { SHORT_NAME = 32 };

/* Lower case, letters and digits alone; false for what is longer than any field. */
static bool reduce(const char *name, char out[SHORT_NAME]) {
    size_t n = 0;
    for (; *name; name++) {
        const char c = letter_to_lower(*name);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9')) continue;
        if (n + 1 == SHORT_NAME) return false;
        out[n++] = c;
    }
    out[n] = '\0';
    return n > 0;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* Letters to insert, delete, replace, or neighbours to swap, until a is b (optimal string alignment). */
static int distance(const char *a, const char *b) {
    int cost[SHORT_NAME + 1][SHORT_NAME + 1], n = (int)strlen(a), m = (int)strlen(b);
    for (int i = 0; i <= n; i++) cost[i][0] = i;
    for (int j = 0; j <= m; j++) cost[0][j] = j;
    for (int i = 1; i <= n; i++)
        for (int j = 1; j <= m; j++) {
            cost[i][j] = least(least(cost[i - 1][j], cost[i][j - 1]) + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                cost[i][j] = least(cost[i][j], cost[i - 2][j - 2] + 1);
        }
    return cost[n][m];
}

/* Short names have many neighbours that mean something else ("seed", "stop": only their plurals count). */
static bool is_near(const char *name, const char *field) {
    char a[SHORT_NAME], b[SHORT_NAME];
    if (!reduce(name, a) || !reduce(field, b)) return false;
    size_t n = strlen(b);
    if (strcmp(a, b) == 0) return true;
    if (n < 4) return false;
    if (n < 5) return strncmp(a, b, n) == 0 && strcmp(a + n, "s") == 0;
    return distance(a, b) <= (n < 9 ? 1 : 2);
}

static const char *find_meant(const char *name) {
    for (int i = 0; i < COUNT(synonyms); i++)
        if (strcmp(name, synonyms[i].name) == 0) return synonyms[i].meant;
    if (is_among(name, innocent, COUNT(innocent))) return NULL;
    for (int i = 0; i < COUNT(known); i++)
        if (is_near(name, known[i])) return known[i];
    for (int i = 0; i < COUNT(ids); i++)
        if (is_near(name, ids[i])) return ids[i];
    return NULL;
}

/* --- the check ------------------------------------------------------------------------------------------------ */

static void add_ignored(struct ignored_fields *ignored, const char *name) {
    if (!ignored || is_among(name, (const char *const *)ignored->names, ignored->count)) return;
    ignored->more = ignored->count == IGNORED_MAX;
    if (!ignored->more) ignored->names[ignored->count++] = memory_copy_text(name);
}

static bool is_neutral(const cJSON *member) {
    bool found = false;
    for (int i = 0; i < COUNT(neutral) && !found; i++) {
        if (strcmp(member->string, neutral[i].name) != 0) continue;
        struct buf value = {0};
        json_print(member, &value);
        found = strcmp(buf_text(&value), neutral[i].value) == 0;
        buf_free(&value);
    }
    return found;
}

static bool is_known(const char *name, enum fields_of of) {
    switch (of) {
    case FIELDS_OF_LINE:
        break;
    case FIELDS_OF_QUESTION:
        if (is_among(name, of_question, COUNT(of_question))) return true;
        break;
    case FIELDS_OF_ENVELOPE:
        return is_among(name, of_envelope, COUNT(of_envelope)) || is_among(name, ids, COUNT(ids));
    case FIELDS_OF_BODY:
        if (is_among(name, of_body, COUNT(of_body))) return true;
        break;
    }
    return is_among(name, known, COUNT(known)) || is_among(name, ids, COUNT(ids));
}

/* A name that would have meant something. */
static int check_name(const char *name) {
    if (is_among(name, refused, COUNT(refused))) return err_set(ERR_UNSUPPORTED, "'%s' is not supported", name);
    for (int i = 0; i < COUNT(of_run); i++)
        if (strcmp(name, of_run[i].name) == 0)
            return err_set(ERR_FORMAT, "'%s' is no field of a line, but an option of the run (%s)", name,
                           of_run[i].option);
    const char *meant = find_meant(name);
    return meant ? err_set(ERR_FORMAT, "'%s' is no field of a line: is '%s' meant?", name, meant) : 0;
}

static int check_member(const cJSON *member, enum fields_of of, bool strict, struct ignored_fields *ignored) {
    const char *name = member->string;
    if (cJSON_IsNull(member) || is_known(name, of) || is_neutral(member)) return 0;
    if (of != FIELDS_OF_ENVELOPE)
        TRY(check_name(name));
    else if (is_among(name, known, COUNT(known)) || is_among(name, refused, COUNT(refused)))
        return err_set(ERR_FORMAT, "'%s' belongs into 'body'", name);
    if (strict) return err_set(ERR_FORMAT, "'%s' is no field of a line (--strict)", name);
    add_ignored(ignored, name);
    return 0;
}

int fields_check(const cJSON *object, enum fields_of of, bool strict, struct ignored_fields *ignored) {
    for (const cJSON *member = object->child; member; member = member->next)
        TRY(check_member(member, of, strict, ignored));
    return 0;
}

void ignored_fields_list(const struct ignored_fields *ignored, struct buf *out) {
    for (int i = 0; i < ignored->count; i++) buf_printf(out, "%s'%s'", i ? ", " : "", ignored->names[i]);
    if (ignored->more) buf_puts(out, " and others");
}

void ignored_fields_free(struct ignored_fields *ignored) {
    for (int i = 0; i < ignored->count; i++) free(ignored->names[i]);
    *ignored = (struct ignored_fields){0};
}
