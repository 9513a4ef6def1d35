#include "base/json_number.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

static locale_t plain; /* the C locale, until the process ends */

static void make_plain(void) {
    plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!plain) memory_exhausted();
}

/* The calling thread's own locale, for `uselocale` to give back. */
static locale_t enter_plain(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_plain);
    return uselocale(plain);
}

double json_number_read(const char *text) {
    locale_t before = enter_plain();
    double value = strtod(text, NULL);
    uselocale(before);
    return value;
}

void json_number_write(double value, char out[JSON_NUMBER_BYTES]) {
    locale_t before = enter_plain();
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, JSON_NUMBER_BYTES, "%.*g", digits, value);
        if (strtod(out, NULL) == value) break;
    }
    uselocale(before);
}

double json_number_of_float(float value) {
    char text[JSON_NUMBER_BYTES];
    locale_t before = enter_plain();
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    double nearest = strtod(text, NULL);
    uselocale(before);
    return nearest;
}
