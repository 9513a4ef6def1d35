/* A user at a pseudo-terminal: types a line at each prompt; when there is none left, Ctrl-D until the program ends. */
#ifndef DUET_TESTS_FAULTS_TERMINAL_H
#define DUET_TESTS_FAULTS_TERMINAL_H

#include <stdbool.h>

struct typist {
    int fd;                   /* the user's side; -1: there is no terminal */
    char path[64];            /* the program's side */
    const char *const *lines; /* what is still to be typed */
    int matched;              /* of the bytes that a prompt is drawn with */
    int ends;                 /* that were typed */
};

void typist_open(struct typist *, const char *const *lines); /* NULL: no terminal */
/* Reads what is there (`ready`), or notes that nothing came for a while; types where it is time. */
void typist_go_on(struct typist *, bool ready);
void typist_close(struct typist *);

#endif
