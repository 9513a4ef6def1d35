#include "tests/faults/scenario.h"

#include <stddef.h>

#include "tests/faults/log.h"

#define EVERY_KIND ((1u << FAULT_KINDS) - 1)

/* Every form of a line, and two that are wrong. The first record is written while the second line still runs, which is the
 * longest: those behind it are done before. */
static const char batch_lines[] =
    "{\"id\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"What is rain?\"}], \"max_tokens\": 3}\n"
    "{\"prompt\": \"Once upon a time\", \"max_tokens\": 24, \"ignore_eos\": true}\n"
    "{\"turns\": [\"Hello.\", \"And you?\"], \"max_tokens\": 2}\n"
    "{\"prompt\": \"a\", \"temperature\": -1}\n"
    "{\"prompt_ids\": [5, 6, 7], \"max_tokens\": 2, \"seed\": \"18446744073709551615\"}\n"
    "\n"
    "{\"prompt\": \"unfinished\n"
    "{\"prompt\": \"The sun\", \"stop\": [\"shine\", \"e\"], \"temperature\": 0.7, \"top_k\": 20, \"min_p\": 0.05}\n";

static const char tokenize_lines[] = "{\"text\": \"Once upon a time, there were two of them.\"}\n"
                                     "{\"text\": \"\\u00e9t\\u00e9 \\ud83d\\ude00 \\\"x\\\"\"}\n"
                                     "{\"text\": 5}\n"
                                     "{\"text\": \"\"}\n";

static const char chat_lines[] = "Hello.\n"
                                 "/save! @/saved.json\n"
                                 "Go on.\n"
                                 "/undo\n"
                                 "/load @/given.jsonl\n"
                                 "And then?\n"
                                 "/regen\n"
                                 "/k 2\n"
                                 "/system Be kind.\n"
                                 "Hi.\n";

static const char conversation[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Who are you?\"}, {\"role\": "
                                   "\"assistant\", \"content\": \"I am a fox.\"}]}\n";

static const char *const typed_lines[] = {"Hello.", "/he\t", "/show", "/nonsense", "Go \\", "on.", NULL};

const struct scenario scenarios[] = {
    {
        .name = "chat_prompt",
        .arguments = {"chat", "-p", "What is rain?", "--seed", "1", "-n", "6", "--threads", "1"},
        .leaves = LEAVES_START,
        .kinds = EVERY_KIND,
    },
    {
        .name = "chat_prompt_from_input",
        .arguments = {"chat", "-p", "-", "--seed", "1", "-n", "4", "--threads", "1", "--k", "0"},
        .input = "What is\nrain?\n",
        .leaves = LEAVES_START,
        .kinds = EVERY_KIND,
    },
    {
        .name = "chat_lines",
        .arguments = {"chat", "--seed", "1", "-n", "4", "--threads", "1"},
        .input = chat_lines,
        .given = conversation,
        .kinds = EVERY_KIND,
        .file = {{"saved.json", LEAVES_WHOLE}},
    },
    {
        .name = "chat_at_a_terminal",
        .arguments = {"chat", "--seed", "1", "-n", "3", "--threads", "1", "--k", "2", "--k-max", "2"},
        .typed = typed_lines,
        .kinds = EVERY_KIND,
    },
    {
        .name = "batch",
        .arguments = {"batch", "-i", "@/given.jsonl", "-o", "@/out.jsonl", "--force", "--seed", "3", "-n", "4",
                      "--batch", "3", "--threads", "1"},
        .given = batch_lines,
        .status = 1,
        .kinds = EVERY_KIND,
        .file = {{"out.jsonl", LEAVES_RECORDS}},
    },
    {
        .name = "batch_to_output",
        .arguments = {"batch", "--seed", "3", "-n", "4", "--batch", "2", "--threads", "1"},
        .input = batch_lines,
        .leaves = LEAVES_RECORDS,
        .status = 1,
        .kinds = EVERY_KIND,
    },
    {
        .name = "batch_report",
        .arguments = {"batch", "-i", "@/given.jsonl", "-o", "@/out.jsonl", "--force", "--alpha-report=@/report.json",
                      "--seed", "3", "-n", "4", "--threads", "1"},
        .given = "{\"prompt\": \"Once upon\"}\n{\"prompt\": \"The sun\"}\n",
        .has_times = true,
        .kinds = EVERY_KIND,
        .file = {{"out.jsonl", LEAVES_RECORDS}, {"report.json", LEAVES_WHOLE}},
    },
    {
        .name = "batch_threads",
        .arguments = {"batch", "-i", "@/given.jsonl", "-o", "@/out.jsonl", "--force", "--seed", "3", "-n", "4",
                      "--threads", "3"},
        .given = "{\"prompt\": \"Once upon a time\"}\n",
        .kinds = 1u << FAULT_THREAD,
        .file = {{"out.jsonl", LEAVES_RECORDS}},
    },
    {
        .name = "tokenize",
        .arguments = {"tokenize", "@target", "-i", "@/given.jsonl", "-o", "@/out.jsonl", "--force"},
        .given = tokenize_lines,
        .status = 1,
        .kinds = EVERY_KIND,
        .file = {{"out.jsonl", LEAVES_RECORDS}},
    },
    {
        .name = "tokenize_to_output",
        .arguments = {"tokenize", "@draft"},
        .input = tokenize_lines,
        .leaves = LEAVES_RECORDS,
        .status = 1,
        .kinds = EVERY_KIND,
    },
    {
        .name = "inspect",
        .arguments = {"inspect", "--threads", "1"},
        .leaves = LEAVES_START,
        .kinds = EVERY_KIND,
    },
    {
        .name = "inspect_shards",
        .arguments = {"inspect", "@/shards", "--tensors"},
        .leaves = LEAVES_START,
        .is_shards = true,
        .kinds = EVERY_KIND,
    },
    {
        .name = "inspect_memory",
        .arguments = {"inspect", "--memory", "--k", "3", "--gpu-memory", "24GiB"},
        .leaves = LEAVES_START,
        .kinds = EVERY_KIND,
    },
    {
        .name = "inspect_graphs",
        .arguments = {"inspect", "--graphs", "--batch", "2", "--threads", "1"},
        .leaves = LEAVES_START,
        .has_times = true,
        .kinds = EVERY_KIND,
    },
    {.name = "models", .arguments = {"models"}, .leaves = LEAVES_START, .kinds = 1u << FAULT_MEMORY},
    {.name = "help", .arguments = {"--help"}, .leaves = LEAVES_START, .kinds = EVERY_KIND},
    {.name = "help_of_batch", .arguments = {"batch", "--help"}, .leaves = LEAVES_START, .kinds = EVERY_KIND},
    {.name = "man", .arguments = {"--man"}, .leaves = LEAVES_START, .kinds = EVERY_KIND},
};
const int scenario_count = sizeof scenarios / sizeof *scenarios;

const char *scenario_watched(const struct scenario *s) {
    return s->file[0].name && s->file[0].leaves == LEAVES_RECORDS ? s->file[0].name : NULL;
}
