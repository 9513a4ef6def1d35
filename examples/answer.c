/* Answers questions through libduet, in a batch, and shows the first answer as it is made.
 *
 *     cc answer.c $(pkg-config --cflags --libs duet) -o answer
 *     ./answer "What is the sun?" "What is rain?"                                (the embedded pair)
 *     DUET_TARGET=DIR DUET_DRAFT=DIR ./answer "What is the sun?"                   (your own) */
#include <duet/duet.h>
#include <stdio.h>
#include <stdlib.h>

enum { QUESTIONS_MAX = 16 };

static int fail(void) {
    fprintf(stderr, "answer: %s\n", duet_error());
    return EXIT_FAILURE;
}

static int show(void *user, const struct duet_token *token) {
    (void)user;
    fwrite(token->text, 1, token->size, stdout);
    fflush(stdout);
    return 0; /* anything else would end the answer */
}

static int start(struct duet *duet, const char *question, duet_token_fn on_token, struct duet_answer **answer) {
    struct duet_message message = {"user", question};
    struct duet_request request;
    duet_request_init(&request, sizeof request);
    request.messages = &message;
    request.message_count = 1;
    request.max_tokens = 64;
    request.temperature = 0;
    request.on_token = on_token;
    return duet_start(duet, &request, answer);
}

static void report(const struct duet_answer *answer) {
    struct duet_stats stats;
    duet_answer_stats(answer, &stats, sizeof stats);
    printf("\n(%lld tokens in %lld rounds; %lld of %lld drafted tokens accepted)\n", (long long)stats.completion_tokens,
           (long long)stats.rounds, (long long)stats.accepted, (long long)stats.drafted);
}

int main(int argc, char **argv) {
    struct duet *duet;
    struct duet_answer *answers[QUESTIONS_MAX] = {NULL};
    struct duet_options options;
    int count = argc - 1 < QUESTIONS_MAX ? argc - 1 : QUESTIONS_MAX;
    duet_options_init(&options, sizeof options);
    options.target = getenv("DUET_TARGET");
    options.draft = getenv("DUET_DRAFT");
    options.batch = QUESTIONS_MAX;
    if (duet_open(&duet, &options) != DUET_OK) return fail();

    int32_t running = count;
    for (int i = 0; i < count; i++)
        if (start(duet, argv[i + 1], i == 0 ? show : NULL, &answers[i]) != DUET_OK) return fail();
    while (running > 0)
        if (duet_step(duet, &running) != DUET_OK) return fail();
    for (int i = 0; i < count; i++) {
        if (i > 0) printf("\n%s", duet_answer_text(answers[i], NULL));
        report(answers[i]);
        duet_answer_free(answers[i]);
    }
    duet_close(duet);
    return EXIT_SUCCESS;
}
