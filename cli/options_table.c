/* The tables of commands and options. */
#include <stddef.h>

#include "cli/options.h"

static const struct operand_row bench_operands[] = {
    [BENCH_BUCKETS - 1] = {"buckets", "what each policy of --buckets costs and saves: graphs, memory, capture, padding "
                                      "by rows and by time, first uses"},
    [BENCH_STACK - 1] = {"stack", "what each step brings, one after the other: eager, graphs, launches that overlap, "
                                  "speculation at the best K"},
    [BENCH_OVERHEAD - 1] = {"overhead",
                            "where the time of a round goes: weights at the bandwidth's limit, kernels above "
                            "it, gaps, sampler, host, waiting; eager beside graphs"},
    [BENCH_ALPHA - 1] = {"alpha", "speed-up by alpha and K from measured times, and by batch the alpha from which "
                                  "speculation pays"},
    [BENCH_PEERS - 1] = {"peers",
                         "PyTorch eager and compiled, and transformers' generation, plain and assisted, on the "
                         "same models in the same run; what is not installed is skipped with a sentence"},
    [BENCH_START - 1] = {"start", "how long it takes until the first token, part by part, and loading beside a plain "
                                  "read of the files and a plain copy to the device"},
    [BENCH_VERIFY - 1] = {"verify",
                          "what the target takes to verify M = 1 to K + 1 rows of each of 1, 2, 4 and so on up "
                          "to --batch sequences, beside the bandwidth's and the matrix product's limit: "
                          "cliffs show"},
    [BENCH_DECODE - 1] = {"decode", "plain greedy decoding of the target at batch 1, 32 prompt tokens and -n steps: "
                                    "microseconds a step, and how far its logits are from f32"},
    {NULL, NULL},
};

const struct command_row command_table[COMMANDS] = {
    [COMMAND_NONE] = {"", "COMMAND [OPTION]...", "speculative decoding engine",
                      "A small draft model proposes K tokens, the target model checks them all in one pass, and a "
                      "rejection sampler keeps the output distributed exactly as if the target alone had been sampled. "
                      "Without --target and --draft the embedded pair is used.",
                      NULL},
    [COMMAND_CHAT] = {"chat", "[OPTION]...", "talk with the model",
                      "Answers stream as they are made. /help lists the commands. Without a terminal, each line of "
                      "input is one turn, or several lines between two \"\"\", and each answer ends with a newline.",
                      NULL},
    [COMMAND_BATCH] = {"batch", "-i IN -o OUT [OPTION]...", "generate for every line of a JSONL file",
                       "Each input line is an object with exactly one of prompt, messages, turns or prompt_ids, and "
                       "optionally id, max_tokens, temperature, top_k, top_p, min_p, repetition_penalty, "
                       "seed, stop, ignore_eos and logprobs; or it "
                       "is a line of OpenAI's batch API (custom_id, method, url, body). Each gives one output record, "
                       "in input order; a bad line gives an error record and the rest runs.",
                       NULL},
    [COMMAND_INSPECT] =
        {"inspect", "[DIR] [OPTION]...", "show a model, the memory plan, or the graphs",
         "DIR is a checkpoint directory, a GGUF file or ORG/NAME. With --memory or --graphs it is about the pair of "
         "--target and --draft. --json: target and draft (architecture, parameters, bytes, tensors and "
         "others), or memory (pool_bytes, context, context_bound, fits, refusal, slices and others) and "
         "graphs.",
         NULL},
    [COMMAND_TOKENIZE] = {"tokenize", "DIR [OPTION]...", "encode and decode the lines of a JSONL file",
                          "Reads {\"text\": ...} lines and writes {\"ids\": [...], \"decoded\": ...} lines. DIR needs "
                          "tokenizer.json alone; it may be a GGUF file.",
                          NULL},
    [COMMAND_BENCH] =
        {"bench", "[TABLE] [OPTION]...", "measure this machine and the pair on it",
         "Measures the read bandwidth, then each step of a round as a share of what that bandwidth allows, "
         "and tokens per second with and without speculation; with several K, a row for each. --json: device, batch, "
         "k, accept, prompts, max_tokens, temperature, context, draft_vocab, simulated_alpha, and measures: measure, "
         "value, unit, "
         "mb_read, limit_ms, percent_of_limit; of a TABLE, or several K, lists with an object a row, whose members are "
         "the columns of the CSV.",
         bench_operands},
    [COMMAND_MODELS] =
        {"models", "[OPTION]...", "list the models that are here, and their pairs",
         "Lists the embedded pair and the local Hugging Face cache. Models of one vocabulary letter have "
         "the same ids; a smaller one of them can draft for a larger one. --json: cache, and models: "
         "name, path, architecture, parameters, bytes, vocabulary, tokens, drafts (names), problem.",
         NULL},
    [COMMAND_TUNE] =
        {"tune", "[-i PROMPTS] [OPTION]...", "find the K and the rule of acceptance that pay",
         "Answers the prompts, lines as batch reads them, with K = 0, 1, 2 and so on and each rule of acceptance, then "
         "the fastest of them again in turns, and says what to use. It stops where no larger K can win, by alpha and "
         "the times of single steps, which the column predicted is made of too; +- is half of what lies between the "
         "slowest and the fastest run. --json: device, proposer, batch, prompts, max_tokens, temperature, k_max, "
         "round_ms (of the launches, by K), settings (tok_per_second, spread_percent, speed_up, predicted_speed_up, "
         "runs, and the members of --alpha-report=FILE.json), and recommendation: verdict (pays, unclear, does not "
         "pay), k, accept, speed_up, noise_percent, sentence.",
         NULL},
};

#define AT(field) offsetof(struct options, field), 0

const struct option_row option_table[] = {
    {"target", 't', "MODEL", OPTION_NAME, AT(target), NULL, NULL, NULL, "the embedded pair",
     "target model: a directory, a GGUF file, or ORG/NAME in the local Hugging Face cache; alone it decodes plainly",
     ON_PAIR, false},
    {"draft", 'd', "MODEL", OPTION_NAME, AT(draft), NULL, NULL, NULL, NULL,
     "draft model that proposes tokens to the target, or a head that was trained for it (EAGLE-3, DFlash, a "
     "Gemma 4 assistant); or ngram, which needs no second model: it proposes what followed earlier in the text; or "
     "mtp: the target's own head for multi-token prediction (a directory of that name is ./ngram)",
     ON_PAIR, false},
    {"k", 'k', "N|auto", OPTION_INT_OR_AUTO, AT(k), "[0, 63]", "auto", "4", "auto in chat without --seed, else 4",
     "tokens that the draft proposes a round; 0 decodes plainly and needs no draft; auto: what is fastest, chosen "
     "before "
     "every round by measured times, so that a seed repeats its text at temperature 0 and under --accept coupled alone",
     ON_CHAT | ON_BATCH, false},
    {"k", 'k', "N,N...", OPTION_INTS, offsetof(struct options, ks), offsetof(struct options, k_count), "[0, 63]", NULL,
     NULL, "4; 16 of verify, 0 of decode, 1 to 8 of alpha and stack, auto of start",
     "tokens that the draft proposes a round, or several such K, as 0,1,2,4; 0 decodes plainly and needs no draft",
     ON_BENCH, false},
    {"k", 'k', "N|auto", OPTION_INT_OR_AUTO, AT(k), "[0, 63]", "auto", NULL, "4",
     "tokens that the draft proposes a round; 0 decodes plainly and needs no draft; auto: what --k auto plans and "
     "captures, for any K up to --k-max",
     ON_INSPECT, false},
    {"k-max", 0, "N", OPTION_INT, AT(k_max), "[0, 63]", NULL, NULL,
     "the larger of K and 8 in chat, of K and 16 in bench of one K, 8 with --k auto, else K",
     "largest K that buffers and graphs are made for", ON_SET | ON_INSPECT, false},
    {"k-max", 0, "N", OPTION_INT, AT(k_max), "[1, 63]", NULL, NULL, "8", "largest K to try", ON_TUNE, false},
    {"accept", 0, "RULE", OPTION_CHOICE, AT(accept), NULL, "token|coupled|block", "token", NULL,
     "how drafted tokens are accepted, each way exact: token, one by one; coupled, so that the text depends on the "
     "seed alone, for any draft and K; block, all together, which keeps more",
     ON_SET, false},
    {"temperature", 0, "X", OPTION_NUMBER, AT(sampling.temperature), "[0, inf)", NULL, "0.7", NULL,
     "sampling temperature; 0 takes the most probable token", ON_RUN, false},
    {"top-k", 0, "N", OPTION_INT, AT(sampling.top_k), "[0, 2147483647]", NULL, NULL, "0, off",
     "keep the N most probable tokens", ON_RUN, false},
    {"top-p", 0, "X", OPTION_NUMBER, AT(sampling.top_p), "(0, 1]", NULL, "1", "1, off",
     "keep the smallest set of most probable tokens whose probabilities sum to X", ON_RUN, false},
    {"min-p", 0, "X", OPTION_NUMBER, AT(sampling.min_p), "[0, 1)", NULL, NULL, "0, off",
     "keep tokens at least X times as probable as the most probable one", ON_RUN, false},
    {"repetition-penalty", 0, "X", OPTION_NUMBER, AT(sampling.repetition_penalty), "[0.01, 100]", NULL, "1", "1, off",
     "divide the logits of tokens that the text has, prompt included, by X (multiply those below 0)", ON_RUN, false},
    {"max-tokens", 'n', "N", OPTION_INT, AT(max_tokens), "[1, 2147483647]", NULL, NULL,
     "256 in batch, 128 in bench and tune, 127 in bench decode, what the context allows in chat",
     "longest answer in tokens", ON_RUN, false},
    {"seed", 's', "S", OPTION_SEED, AT(seed), "[0, 18446744073709551615]", NULL, NULL, "random, and shown",
     "seed of the run; line n of a batch gets the key (S, n)", ON_RUN, false},
    {"stop", 0, "TEXT", OPTION_TEXTS, offsetof(struct options, stop), offsetof(struct options, stop_count), NULL, NULL,
     NULL, NULL, "end an answer before this text; may be repeated", ON_CHAT | ON_BATCH | ON_TUNE, false},
    {"ignore-eos", 0, NULL, OPTION_FLAG, AT(ignore_eos), NULL, NULL, NULL, NULL, "go on past end-of-sequence tokens",
     ON_CHAT | ON_BATCH | ON_TUNE, false},
    {"batch", 'b', "N", OPTION_INT, AT(batch), "[1, 256]", NULL, NULL,
     "8; 1 in bench and tune, 64 in bench verify, 8 there on the host", "sequences that run at the same time",
     ON_BATCH | ON_BENCH | ON_TUNE | ON_INSPECT, false},
    {"ctx", 'c', "N", OPTION_INT, AT(context), "[2, 16777216]", NULL, NULL,
     "the least of the pair's limits, 8192 and what fits", "context of a sequence in tokens", ON_PAIR, false},
    {"template", 0, "NAME|FILE.jinja", OPTION_NAME, AT(chat_template), NULL, NULL, NULL, "the model's own",
     "chat template, by a name or from a file, in place of the one that the model's files hold",
     ON_CHAT | ON_BATCH | ON_BENCH | ON_TUNE | ON_INSPECT, false},
    {"think", 0, "on|off", OPTION_CHOICE, AT(think), NULL, "off|on", "on", NULL,
     "whether a model thinks before it answers, where its chat template can tell it (Qwen 3)",
     ON_CHAT | ON_BATCH | ON_BENCH | ON_TUNE, false},
    {"reasoning-effort", 0, "EFFORT", OPTION_CHOICE, AT(effort), NULL, "low|medium|high", NULL, "the template's own",
     "how much a chat template tells the model to think, if it can (gpt-oss): low, medium or high",
     ON_CHAT | ON_BATCH | ON_BENCH | ON_TUNE, false},
    {"date", 0, "YYYY-MM-DD", OPTION_NAME, AT(date), NULL, NULL, NULL, "the day's",
     "the date that a chat template states, if it can state the day's (gpt-oss)",
     ON_CHAT | ON_BATCH | ON_BENCH | ON_TUNE, false},
    {"parse-special", 0, NULL, OPTION_FLAG, AT(parse_special), NULL, NULL, NULL, NULL,
     "special tokens typed in chats are control tokens, not text", ON_CHAT | ON_BATCH | ON_BENCH | ON_TUNE, false},
    {"threads", 0, "N", OPTION_INT, AT(threads), "[1, 4096]", NULL, NULL, "the CPUs that affinity and cgroup allow",
     "threads of the host device, and of loading", ON_PAIR, false},
    {"device", 0, "NAME", OPTION_WORD, AT(device), NULL, "auto|host|cuda", "auto", NULL,
     "where to run: auto, host or cuda; auto takes CUDA where there is one", ON_PAIR, false},
    {"gpu", 0, "N", OPTION_INT, AT(gpu), "[0, 63]", NULL, NULL, "0", "which GPU, where there are several", ON_PAIR,
     false},
    {"graphs", 0, "on|off|debug", OPTION_CHOICE, AT(graphs), NULL, "on|off|debug", "on", NULL,
     "replay graphs, run every op eagerly, or replay with a break around everything", ON_RUN, false},
    {"buckets", 0, "POLICY", OPTION_CHOICE, AT(buckets), NULL, "pow2|step8|step16|exact", "pow2", NULL,
     "batch sizes that graphs are captured for: pow2, step8, step16 or exact", ON_PAIR, false},
    {"prefill-graphs", 0, "on|off", OPTION_CHOICE, AT(prefill_graphs), NULL, "auto|off|on", "auto", NULL,
     "replay graphs for chunks of prompts too, attention left out; auto: on CUDA", ON_PAIR, false},
    {"draft-weights", 0, "TYPE", OPTION_CHOICE, AT(draft_weights), NULL, "stored|fp8|int4", "stored", NULL,
     "quantise the draft at loading: fp8 or int4 (its head fp8); what it proposes changes, and no text does; what its "
     "files have quantised stays as it is",
     ON_PAIR, false},
    {"draft-vocab", 0, "N|FILE", OPTION_NAME, AT(draft_vocab), NULL, NULL, NULL, "all of it",
     "cut the draft's head to N ids, so that its steps cost less: the lowest N, or the N that a text has most of "
     "(N:TEXT.txt), or those of FILE, one a line or a JSON array; ids that end an answer are always among them; what "
     "it "
     "proposes changes, and no text does",
     ON_PAIR, false},
    {"target-weights", 0, "TYPE", OPTION_CHOICE, AT(target_weights), NULL, "stored|fp8|int4", "stored", NULL,
     "quantise the target at loading: fp8 or int4 (its head fp8), which makes another model of it, and other text; "
     "what its files have quantised stays as it is",
     ON_PAIR, false},
    {"kv", 0, "TYPE", OPTION_CHOICE, AT(kv), NULL, "auto|fp8", "auto", NULL,
     "what keys and values are kept as: auto, 16 bits on CUDA and f32 on the host; or fp8, half and a quarter of that, "
     "which makes another model of the target, and other text",
     ON_PAIR, false},
    {"alpha-report", 0, "FILE.json", OPTION_OPTIONAL_NAME, offsetof(struct options, alpha_report_file),
     offsetof(struct options, alpha_report), NULL, NULL, NULL, NULL,
     "acceptance figures of the run to standard error, and as JSON to FILE.json, or drawn to a FILE.svg",
     ON_CHAT | ON_BATCH, false},
    {"prompt", 'p', "TEXT", OPTION_TEXT, AT(prompt), NULL, NULL, NULL, NULL,
     "stream one answer to TEXT and exit; what is piped in follows it on the next line (< /dev/null: nothing does); - "
     "takes that alone",
     ON_CHAT, false},
    {"null", '0', NULL, OPTION_FLAG, AT(null), NULL, NULL, NULL, NULL,
     "without a terminal: end what each turn or command gives with a NUL in place of the newline, so that answers of "
     "several lines can be told apart",
     ON_CHAT, false},
    {"system", 0, "TEXT", OPTION_TEXT, AT(system), NULL, NULL, NULL, "the template's", "system prompt", ON_CHAT, false},
    {"input", 'i', "FILE", OPTION_NAME, AT(input), NULL, NULL, NULL, "-",
     "JSONL to read; - for standard input (bench, tune: prompts in place of the built-in ones)",
     ON_BATCH | ON_TOKENIZE | ON_BENCH | ON_TUNE, false},
    {"output", 'o', "FILE", OPTION_NAME, AT(output), NULL, NULL, NULL, "-", "where to write; - for standard output",
     ON_BATCH | ON_TOKENIZE, false},
    {"resume", 0, NULL, OPTION_FLAG, AT(resume), NULL, NULL, NULL, NULL,
     "go on with an output file that an earlier run, with the same options, left unfinished: the records of lines that "
     "are "
     "still the same are kept, errors and all that is missing are done",
     ON_BATCH, false},
    {"force", 0, NULL, OPTION_FLAG, AT(force), NULL, NULL, NULL, NULL, "write over an output file that is not empty",
     ON_BATCH | ON_TOKENIZE | ON_BENCH | ON_TUNE, false},
    {"format", 0, "FORM", OPTION_CHOICE, AT(format), NULL, "auto|spec-bench", "auto", NULL,
     "auto: duet's records, and answers in OpenAI's batch form to lines in that form; spec-bench: what Spec-Bench's "
     "scripts "
     "read (give --batch 1 for times to compare)",
     ON_BATCH, false},
    {"details", 0, NULL, OPTION_FLAG, AT(details), NULL, NULL, NULL, NULL,
     "add to each record wall_time, in seconds, and accept_lengths, the tokens of each round", ON_BATCH, false},
    {"strict", 0, NULL, OPTION_FLAG, AT(strict), NULL, NULL, NULL, NULL,
     "refuse lines with fields that mean nothing, instead of naming these at the end", ON_BATCH | ON_TUNE, false},
    {"special", 0, NULL, OPTION_FLAG, AT(special), NULL, NULL, NULL, NULL,
     "add the special tokens of the file's post_processor", ON_TOKENIZE, false},
    {"tensors", 0, NULL, OPTION_FLAG, AT(tensors), NULL, NULL, NULL, NULL, "list every tensor, not a summary by layer",
     ON_INSPECT, false},
    {"memory", 0, NULL, OPTION_FLAG, AT(show_memory), NULL, NULL, NULL, NULL,
     "print the memory plan of the pair, without loading it; the status is 1 where it does not fit", ON_INSPECT, false},
    {"graphs", 0, NULL, OPTION_FLAG, AT(show_graphs), NULL, NULL, NULL, NULL,
     "load the pair, capture, and print both graph sets", ON_INSPECT, false},
    {"gpu-memory", 0, "SIZE", OPTION_BYTES, AT(gpu_memory), NULL, NULL, NULL, NULL,
     "with --memory: plan for a GPU with so much free memory (24GiB), whether there is one or not", ON_INSPECT, false},
    {"shape", 0, "TARGET[,DRAFT]", OPTION_NAME, AT(shape), NULL, NULL, NULL, NULL,
     "models with random weights in place of files: llama-3.1-8b, eagle3-llama-3.1-8b and dflash-llama-3.1-8b (heads "
     "that draft for it), "
     "llama-3.2-1b (its head a matrix of its own), "
     "llama-3.2-1b-tied, llama-3.1-70b, qwen2.5-7b, "
     "qwen2.5-0.5b, qwen3-32b, qwen3-0.6b, qwen3-30b-a3b, qwen3.5-27b, qwen3.5-4b, qwen3.5-0.8b, granite-4.0-h-small, "
     "granite-4.0-h-1b, nemotron-3-nano-30b-a3b, nemotron-nano-9b-v2, lfm2-8b-a1b, lfm2-2.6b, lfm2-350m, smollm2-135m, "
     "gemma-3-12b, gemma-4-31b, gemma-4-31b-assistant (which drafts for it), phi-4, mixtral-8x7b, "
     "gpt-oss-20b, or a FILE.json like config.json",
     ON_BENCH | ON_INSPECT, false},
    {"write", 0, "DIR", OPTION_NAME, AT(write), NULL, NULL, NULL, NULL,
     "with --shape: write it to a new directory, config.json and random weights in safetensors, for measurements that "
     "want files",
     ON_INSPECT, false},
    {"simulate-alpha", 0, "A", OPTION_NUMBER, AT(simulate_alpha), "(0, 1]", NULL, NULL, "off",
     "accept drafted tokens with probability A whatever the models say; the text means nothing then", ON_BENCH, false},
    {"csv", 0, NULL, OPTION_FLAG, AT(csv), NULL, NULL, NULL, NULL,
     "print CSV in place of the table; two tables are one there, with a column that says which", ON_BENCH | ON_TUNE,
     false},
    {"plot", 0, "FILE.svg", OPTION_NAME, AT(plot), NULL, NULL, NULL, NULL,
     "draw the table (tune: the speed-up over K, measured and predicted, and the acceptance by position)",
     ON_BENCH | ON_TUNE, false},
    {"repeats", 0, "N", OPTION_INT, AT(repeats), "[1, 99]", NULL, "3", NULL,
     "how often K = 0 and the settings near the best are run", ON_TUNE, false},
    {"json", 0, NULL, OPTION_FLAG, AT(json), NULL, NULL, NULL, NULL, "print one JSON object in place of text",
     ON_INSPECT | ON_BENCH | ON_MODELS | ON_TUNE, false},
    {"config", 0, "FILE", OPTION_NAME, AT(config), NULL, NULL, NULL, "~/.config/duet/config, where it is there",
     "options for every run, `name = value` a line, which the command line overrides; none: no file", ON_ALL, false},
    {"quiet", 'q', NULL, OPTION_FLAG, AT(quiet), NULL, NULL, NULL, NULL,
     "no notes and no progress bar; of a report with a file no text either", ON_ALL, false},
    {"version", 0, NULL, OPTION_FLAG, AT(version), NULL, NULL, NULL, NULL, "print the version and exit", ON_ALL, false},
    {"help", 'h', NULL, OPTION_FLAG, AT(help), NULL, NULL, NULL, NULL, "print this help and exit", ON_ALL, false},
    {"completion", 0, "SHELL", OPTION_WORD, AT(completion), NULL, "bash|zsh|fish", NULL, NULL,
     "print what completes duet's command line in bash, zsh or fish, and exit", 1 << COMMAND_NONE, false},
    {"man", 0, NULL, OPTION_FLAG, AT(man), NULL, NULL, NULL, NULL, "print the manual page as roff and exit",
     1 << COMMAND_NONE, true},
};
const int option_count = sizeof option_table / sizeof *option_table;

_Static_assert(sizeof option_table / sizeof *option_table <= 64, "options.given has 64 bits");
