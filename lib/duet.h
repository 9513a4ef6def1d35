/* libduet: speculative decoding as a C library.
 *
 * A pair is a target model with something that drafts tokens for it. Open one with duet_open, ask it with duet_generate, or with
 * duet_start and duet_step for many answers at once, read each answer, free it, and close the pair. The text is distributed exactly
 * as if the target alone had been sampled; at temperature 0 it is the same text.
 *
 * Errors. A function that can fail returns DUET_OK or one of the negative codes, and leaves one sentence of the calling thread's,
 * duet_error(). The library never prints, never exits, reads no environment and handles no signal. Two ends of the process remain
 * with the caller: where memory for text runs out the library calls abort() (large memory, such as that of models, is an error:
 * DUET_ERR_MEMORY), and a model's file that is cut short while it is mapped raises SIGBUS.
 *
 * Threads. A pair, and the answers of it that run, belong to one thread at a time; callbacks run on the thread that called, inside
 * duet_step or duet_generate. Several pairs may run in several threads. Only duet_cancel may be called from anywhere. The
 * CUDA device that a thread has selected is as it was when a call returns; inside callbacks it is the pair's. A finished
 * answer is plain memory. After fork() a child opens its own pairs. The library stays loaded until the process ends: threads of it
 * wait for work.
 *
 * Strings are UTF-8 and end at their NUL; they and arrays are copied or used up before a call returns, unless said. Structs that the
 * caller fills in carry their size, structs that the library fills in are told it, so that both may grow at their end: an older
 * program runs with a newer libduet.so.0. */
#ifndef DUET_DUET_H
#define DUET_DUET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DUET_API __attribute__((visibility("default")))

enum duet_status {
    DUET_OK = 0,
    DUET_ERR_USAGE = -1,       /* the call makes no sense */
    DUET_ERR_IO = -2,          /* a file could not be read */
    DUET_ERR_FORMAT = -3,      /* a file is malformed; an id is outside the vocabulary */
    DUET_ERR_UNSUPPORTED = -4, /* well formed, but unknown here: a model's architecture, a chat template */
    DUET_ERR_MEMORY = -5,      /* out of memory, host or device */
    DUET_ERR_LIMIT = -6,       /* does not fit the context */
    DUET_ERR_DEVICE = -8,      /* a device call failed: the pair is of no use any more */
    DUET_ERR_NUMERIC = -9,     /* the model gave logits that are no numbers */
    DUET_ERR_INTERNAL = -10,
};

/* "0.1.0" */
DUET_API const char *duet_version(void);
/* The calling thread's last sentence; "" if there was none. Stands until its next error. */
DUET_API const char *duet_error(void);

/* --- a pair --------------------------------------------------------------------------------------------- */

struct duet;

enum duet_accept { DUET_ACCEPT_TOKEN, DUET_ACCEPT_COUPLED, DUET_ACCEPT_BLOCK };

struct duet_options {
    size_t size;        /* set by duet_options_init, like all defaults */
    const char *target; /* a directory in Hugging Face's format or a GGUF file; NULL: the embedded pair */
    const char *
        draft; /* likewise; or "ngram", which needs no model, or "mtp", the target's own head; NULL: none, or that of the embedded pair */
    const char *assets; /* the embedded pair's directory; NULL: share/duet beside the library */
    const char
        *chat_template; /* its name, or a file that ends with ".jinja"; NULL: the one that the target's files hold */
    const char *device; /* "host", "cuda"; NULL or "auto": CUDA where there is one */
    int32_t gpu;        /* which one of several */
    int32_t threads;    /* of the host; 0: the CPUs that affinity and cgroup allow */
    int32_t context;    /* tokens of prompt and answer; 0: the least of the pair's limits, 8192 and what fits */
    int32_t batch;      /* answers that run at the same time (1); more wait in line */
    int32_t k;          /* tokens drafted a round, 0 to 63 (4); 0: plain decoding */
    int32_t accept;     /* enum duet_accept */
    /* Called while models load, on the calling thread: "loading target", 3 of 12. NULL: never. */
    void (*on_progress)(void *user, const char *what, int64_t done, int64_t total);
    void *user;
    const char *
        date; /* "2026-11-30": the day, for a chat template that can state it; NULL: that of duet_open, where it has to */
    const char
        *reasoning_effort; /* "low", "medium", "high", for one that can tell it; NULL: what it takes for granted */
};
/* Sets all defaults. `size`: sizeof(struct duet_options). */
DUET_API void duet_options_init(struct duet_options *, size_t size);

/* Loads both models. *out is NULL where it fails. `options` NULL: the defaults. */
DUET_API int duet_open(struct duet **out, const struct duet_options *options);
/* Answers that still run become cancelled; they, too, are freed by duet_answer_free. NULL is allowed. Not in a callback. */
DUET_API void duet_close(struct duet *);

struct duet_info {
    const char *device;      /* these stand until duet_close */
    const char *proposer;    /* "draft model", "n-gram", "MTP head", "EAGLE-3 head", "DFlash head", "assistant" or "" */
    const char *device_note; /* why "auto" did not take CUDA although this build has it; "" */
    int64_t target_parameters, draft_parameters;
    int32_t context, vocab, k, batch; /* ids lie in [0, vocab) */
};
DUET_API void duet_get_info(const struct duet *, struct duet_info *out, size_t size);

/* --- answers -------------------------------------------------------------------------------------------- */

struct duet_answer;

struct duet_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
};

/* One token of an answer, in order. */
struct duet_token {
    /* [size] what it adds to the text, of whole characters, NUL-terminated; valid during the call. Nothing where text is held back, half a
     * character or perhaps the beginning of a stop string, and of a thought in a channel of its own (gpt-oss). */
    const char *text;
    size_t size;
    int32_t id;      /* -1: no token, the last text that was held back */
    int32_t drafted; /* 1: the draft proposed it and the target accepted */
    float logprob;   /* with duet_request.logprobs: natural, of the target before temperature and filters; else 0 */
};
/* Returns 0 to go on; anything else cancels the answer behind this token. May call duet_cancel, duet_answer_free, and of the rest
 * only what reads. */
typedef int (*duet_token_fn)(void *user, const struct duet_token *);

struct duet_request {
    size_t size; /* set by duet_request_init, like all defaults */
    /* Exactly one of three: a text that is continued as it stands; a chat, through the template; token ids. */
    const char *prompt;
    const struct duet_message *messages; /* [message_count]; gpt-oss' template adds the day that the pair was opened */
    const int32_t *prompt_ids;           /* [prompt_id_count] */
    size_t message_count, prompt_id_count;

    int32_t max_tokens;       /* (256) */
    float temperature;        /* (0.7); 0: the most probable token */
    float top_p, min_p;       /* (1, 0: off) */
    int32_t top_k;            /* (0: off) */
    float repetition_penalty; /* of tokens that the text has, prompt included; 0.01 to 100 (1: off) */
    int32_t logprobs;         /* of each token (0) */
    uint64_t seed;            /* with has_seed; the same seed gives the same answer, whatever runs beside it */
    int32_t has_seed;         /* (0: drawn at random, and told by the statistics) */
    int32_t ignore_eos;       /* go on past end-of-sequence tokens (0) */
    int32_t think;            /* where the chat template can say so: think before the answer (1) */
    int32_t parse_special;    /* special tokens in messages are control tokens, not text (0) */
    const char *const *stop;  /* [stop_count] the answer ends before the first of these */
    size_t stop_count;
    duet_token_fn on_token; /* NULL: none */
    void *user;
};
DUET_API void duet_request_init(struct duet_request *, size_t size);

/* Queues a request. Errors are those of the request; *out is NULL then. Not in a callback. */
DUET_API int duet_start(struct duet *, const struct duet_request *, struct duet_answer **out);
/* Does a little for all answers: a chunk of a prompt, a round. *running = answers that have not finished; step until it is 0. An
 * error is one of the device and ends them all. Not in a callback. */
DUET_API int duet_step(struct duet *, int32_t *running);
/* duet_start, and steps until this answer has finished (others advance too). 0 for an answer that was cancelled. Callbacks
 * find the answer in *out. Where it fails, and where a callback has freed the answer, which is 0, *out is NULL. */
DUET_API int duet_generate(struct duet *, const struct duet_request *, struct duet_answer **out);
/* Ends a running answer at the next step, or chunk of its prompt; what it has stays. From any thread or signal handler, while the
 * answer is not freed. */
DUET_API void duet_cancel(struct duet_answer *);
/* Also one that runs: it is cancelled. NULL is allowed. */
DUET_API void duet_answer_free(struct duet_answer *);

enum duet_finish {
    DUET_RUNNING,
    DUET_FINISH_STOP,   /* an end-of-sequence token, or a stop string */
    DUET_FINISH_LENGTH, /* max_tokens, or the context is full */
    DUET_FINISH_CANCELLED,
    DUET_FINISH_ERROR, /* duet_answer_error */
};
DUET_API enum duet_finish duet_answer_finish(const struct duet_answer *);
DUET_API const char *duet_answer_error(const struct duet_answer *); /* ""; a sentence */
/* The text so far, without a stop string; "" without a tokenizer. NUL-terminated, *size (if not NULL) bytes. Stands until the next
 * step. */
DUET_API const char *duet_answer_text(const struct duet_answer *, size_t *size);
/* Its ids, without an end-of-sequence token; likewise. */
DUET_API const int32_t *duet_answer_ids(const struct duet_answer *, size_t *count);

struct duet_stats {
    int64_t rounds;                      /* passes of the target; every one gives a token beside the accepted ones */
    int64_t drafted, accepted, rejected; /* drafted ones behind a rejected one were not tested */
    int64_t prompt_tokens, completion_tokens;
    uint64_t seed;                       /* of an answer */
    int64_t first_token_us, duration_us; /* of an answer, since duet_start */
};
DUET_API void duet_answer_stats(const struct duet_answer *, struct duet_stats *out, size_t size);
/* Sums over all finished answers of the pair; no seed and no times. */
DUET_API void duet_get_stats(const struct duet *, struct duet_stats *out, size_t size);

/* The seed of record n (from 1) in a run of `duet batch --seed SEED`, which gives each line numbers of its own. */
DUET_API uint64_t duet_record_seed(uint64_t seed, uint64_t record);

#ifdef __cplusplus
}
#endif
#endif
