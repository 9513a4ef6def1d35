/* What the suites of libduet share: the embedded pair, requests whose answers repeat, and calls that must go well or be refused. */
#ifndef DUET_TESTS_API_SUPPORT_H
#define DUET_TESTS_API_SUPPORT_H

#include <stdbool.h>
#include <string.h>

#include "lib/duet.h"

#define PROMPT "Once upon a time there was a little"

/* The call fails with this code and a sentence that holds `part`. */
#define ck_refused(call, code, part)                                                      \
    do {                                                                                  \
        ck_assert_int_eq(call, code);                                                     \
        ck_assert_msg(strstr(duet_error(), part) != NULL, "%s: %s", #call, duet_error()); \
    } while (0)
#define ck_done(call) ck_assert_msg((call) == DUET_OK, "%s: %s", #call, duet_error())

/* The embedded pair on one thread, with 512 tokens of context. */
struct duet *api_open_pair(int batch);
/* Past the end ids, up to max_tokens. */
struct duet_request api_request(const char *prompt, int max_tokens, uint64_t seed);
/* Until no answer runs. */
void api_run_all(struct duet *);
/* Of two answers that are not empty. */
bool api_same_ids(const struct duet_answer *, const struct duet_answer *);

#endif
