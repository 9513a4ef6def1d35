#include "graphs/marks.h"

#include <stdlib.h>

#include "base/err.h"

int marks_create(struct marks *m, struct device *device, int cap) {
    *m = (struct marks){.events = calloc((size_t)cap, sizeof(struct event *))};
    if (!m->events) return err_set(ERR_MEMORY, "no memory for %d marks", cap);
    for (; m->cap < cap; m->cap++) TRY(event_create(device, &m->events[m->cap]));
    return 0;
}

void marks_destroy(struct marks *m) {
    for (int i = 0; i < m->cap; i++) event_destroy(m->events[i]);
    free(m->events);
    *m = (struct marks){0};
}

void marks_restart(struct marks *m) {
    m->count = 0;
}

int marks_add(struct marks *m, struct stream *stream) {
    if (!m) return 0;
    if (m->count == m->cap) return err_set(ERR_INTERNAL, "more than %d marks", m->cap);
    return event_record(m->events[m->count++], stream);
}

int marks_ms(const struct marks *m, int i, float *ms) {
    if (i < 0 || i + 1 >= m->count) return err_set(ERR_INTERNAL, "no mark %d of %d", i + 1, m->count);
    return event_elapsed_ms(m->events[i], m->events[i + 1], ms);
}
