/* Spreading one loop over threads.
 *
 * A loop is cut into parts, which the calling thread and its helpers take one by one. The caller takes parts like
 * the others and waits for parts that were begun, never for a helper to arrive: on a busy machine, where a helper
 * does not get a CPU, it does the work itself. (OpenMP's team must meet at the end of every loop: with hundreds of
 * loops of some microseconds a pass, a second busy process makes that 5 to 30 times slower.)
 *
 * Helpers belong to the process. They are started when first needed, watch for the next loop for some tens of
 * microseconds, and sleep after that. A caller that finds them at work for another thread, or that runs inside a
 * part, does all parts itself. After fork the child starts its own. */
#ifndef DUET_BASE_PARALLEL_H
#define DUET_BASE_PARALLEL_H

#include <stdint.h>

/* Does part `part` of `parts` of a loop; parts may run at the same time and in any order. */
typedef void (*parallel_fn)(const void *context, int part, int parts);

/* Runs all parts on at most `threads` threads and returns when they are done. `work` is the loop's size in
 * multiply-adds or the like: little work is one part in the calling thread, more is up to four parts a thread.
 * Results must not depend on the number of parts. */
void parallel_run(int threads, int64_t work, parallel_fn run, const void *context);

/* The range of `units` that belongs to a part: contiguous; sizes differ by at most one. */
struct range {
    int first, end;
};
static inline struct range parallel_range(int units, int part, int parts) {
    struct range r = {(int)((int64_t)units * part / parts), (int)((int64_t)units * (part + 1) / parts)};
    return r;
}

#endif
