/* The ids that models answer with do not change by a change of the engine: hashes of greedy and seeded answers, kept in
 * tests/cli/ids.tsv (model, setting, hash). Sampled ids may only change where docs/CORRECTNESS.md says that the numbers did; then
 * DUET_WRITE_IDS=FILE writes a new table from what the program gives now. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

static const struct model {
    const char *name, *target, *draft; /* paths below the shared data; NULL: see find_model */
} models[] = {
    {"embedded", NULL, NULL},
    {"smollm2", NULL, "models/smollm2-draft"},
    {"stories260K", "models/stories260K", "models/llama2xs-267K"},
    {"babyllama", "models/babyllama-target", "models/babyllama-draft"},
    {"llama-gqa-tied", "fixtures/checkpoints/llama-gqa-tied", "fixtures/checkpoints/llama-gqa-tied"},
    {"llama-mha-untied", "fixtures/checkpoints/llama-mha-untied", "fixtures/checkpoints/llama-mha-untied"},
    {"llama-mqa-headdim32", "fixtures/checkpoints/llama-mqa-headdim32", "fixtures/checkpoints/llama-mqa-headdim32"},
    {"llama3-rope-scaled", "fixtures/checkpoints/llama3-rope-scaled", "fixtures/checkpoints/llama3-rope-scaled"},
    {"mistral-swa", "fixtures/checkpoints/mistral-swa", "fixtures/checkpoints/mistral-swa"},
    {"qwen2-bias", "fixtures/checkpoints/qwen2-bias", "fixtures/checkpoints/qwen2-bias"},
    {"qwen3-qknorm", "fixtures/checkpoints/qwen3-qknorm", "fixtures/checkpoints/qwen3-qknorm"},
};
enum { MODELS = sizeof models / sizeof *models };

static const struct setting {
    const char *name, *arguments[12];
} settings[] = {
    {"greedy", {"--temperature", "0", "--k", "4"}},
    {"plain", {"--temperature", "0.9", "--k", "0", "--seed", "7"}},
    {"token", {"--temperature", "0.8", "--top-p", "0.95", "--k", "4", "--seed", "7"}},
    {"coupled", {"--temperature", "0.9", "--k", "3", "--seed", "7", "--accept", "coupled"}},
    {"block", {"--temperature", "1.1", "--k", "5", "--seed", "7", "--accept", "block", "--top-k", "40"}},
    {"min-p", {"--temperature", "1.3", "--k", "2", "--seed", "9", "--min-p", "0.05"}},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

/* A prompt longer than a chunk of prefill, short ones, and one of a single token. */
static void write_input(struct buf *out) {
    static const char *const prompts[] = {"[5]", "[3, 17, 42, 7, 101]",
                                          "[9, 8, 7, 6, 5, 4, 3, 2, 11, 12, 13, 14, 15, 16, 17, 18, 19]"};
    for (int i = 0; i < 3; i++) buf_printf(out, "{\"prompt_ids\": %s}\n", prompts[i]);
    buf_puts(out, "{\"prompt_ids\": [4");
    for (int i = 0; i < 299; i++) buf_printf(out, ", %d", 3 + i * 7 % 90);
    buf_puts(out, "]}\n");
}

static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t n) { /* FNV-1a */
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    return hash;
}

/* Hash of the lists of ids in all records. */
static uint64_t hash_ids(const struct buf *records) {
    uint64_t hash = 0xcbf29ce484222325u;
    struct buf ids = {0};
    for (int i = 0; i < count_lines(records); i++) {
        cJSON *record = json_line(records, i);
        buf_clear(&ids);
        if (json_get(record, "ids")) json_print(json_get(record, "ids"), &ids);
        hash = hash_bytes(hash, buf_text(&ids), ids.len);
        cJSON_Delete(record);
    }
    buf_free(&ids);
    return hash;
}

/* The model's arguments; false where it is not here. */
static bool find_model(const struct model *m, const char *arguments[5]) {
    const char *smollm2 = getenv("DUET_SMOLLM2"), *target, *draft;
    arguments[0] = NULL;
    if (strcmp(m->name, "embedded") == 0) return true;
    target = m->target ? shared_path(m->target) : smollm2;
    draft = shared_path(m->draft);
    if (!target || !draft || access(target, R_OK) != 0) return false;
    arguments[0] = "--target", arguments[1] = target, arguments[2] = "--draft", arguments[3] = draft,
    arguments[4] = NULL;
    return true;
}

static uint64_t run_setting(const char *const *model, const struct setting *s) {
    static struct program p;
    const char *arguments[32] = {"batch", "-n", "40", "--ignore-eos", "--device", "host"};
    int n = 6;
    for (int i = 0; model[i]; i++) arguments[n++] = model[i];
    for (int i = 0; s->arguments[i]; i++) arguments[n++] = s->arguments[i];
    struct buf input = {0};
    write_input(&input);
    program_run(&p, buf_text(&input), arguments);
    ck_assert_msg(count_lines(&p.out) == 4, "%s", buf_text(&p.err)); /* where a prompt does not fit, its error */
    uint64_t hash = hash_ids(&p.out);
    program_free(&p);
    buf_free(&input);
    return hash;
}

/* The hash of the table; "" if it has none. */
static void find_kept(const struct buf *table, const char *model, const char *setting, char out[17]) {
    char key[128];
    int n = snprintf(key, sizeof key, "\n%s\t%s\t", model, setting);
    const char *at = strstr(buf_text(table), key);
    snprintf(out, 17, "%.16s", at ? at + n : "");
}

/* Loop index: model. */
START_TEST(greedy_and_seeded_ids_are_what_they_were)
{
    const struct model *m = &models[_i];
    const char *arguments[5], *write = getenv("DUET_WRITE_IDS");
    struct buf table = {0};
    if (!find_model(m, arguments)) {
        skip(m->name);
        return;
    }
    text_of_file("tests/cli/ids.tsv", &table);
    for (int i = 0; i < SETTINGS; i++) {
        char kept[17], now[17];
        snprintf(now, sizeof now, "%016llx", (unsigned long long)run_setting(arguments, &settings[i]));
        find_kept(&table, m->name, settings[i].name, kept);
        FILE *file = write ? fopen(write, "a") : NULL;
        if (file) {
            fprintf(file, "%s\t%s\t%s\n", m->name, settings[i].name, now);
            fclose(file);
        } else {
            ck_assert_msg(strcmp(kept, now) == 0, "%s, %s: %s, kept %s", m->name, settings[i].name, now, kept);
        }
    }
    buf_free(&table);
}
END_TEST

Suite *check_ids(void);
Suite *check_ids(void) {
    Suite *suite = suite_create("ids");
    TCase *ids = tcase_create("ids");
    tcase_add_loop_test(ids, greedy_and_seeded_ids_are_what_they_were, 0, MODELS);
    suite_add_tcase(suite, ids);
    return suite;
}
