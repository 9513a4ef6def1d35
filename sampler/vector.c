/* Loops over the vocabulary for the CPU at hand. */
#include <string.h>

#include "sampler/vector.h"

/* Ids of one step of the race, at most: skipped as a whole when none is possible. */
enum { RACE_IDS = 256 };

static void race_words(uint64_t key, uint64_t position, uint64_t first_block, int count, uint32_t *words) {
    for (int b = 0; b < count / 4; b++) {
        struct philox_block block = philox_block(key, position, first_block + (uint64_t)b);
        memcpy(words + 4 * b, block.w, sizeof block.w);
    }
}

/* The words of ids [count], ascending: a block serves all of its four that follow each other. */
static void race_listed_words(uint64_t key, uint64_t position, uint64_t first_block, const int32_t *ids, int count,
                              uint32_t *words) {
    struct philox_block block = {{0}};
    int of = -1;
    for (int i = 0; i < count; i++) {
        if (ids[i] / 4 != of) block = philox_block(key, position, first_block + (uint64_t)(of = ids[i] / 4));
        words[i] = block.w[ids[i] % 4];
    }
}

#define LOOP(name) name##_portable
#define LOOP_CPU
#include "sampler/vector_loops.h"
#undef LOOP
#undef LOOP_CPU

#if defined(__x86_64__)
#define LOOP(name) name##_avx2
#define LOOP_CPU   __attribute__((target("avx2,fma")))
#include "sampler/vector_loops.h"
#undef LOOP
#undef LOOP_CPU

#define LOOP(name) name##_avx512
#define LOOP_CPU   __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#include "sampler/vector_loops.h"
#undef LOOP
#undef LOOP_CPU

const struct vector *vector_at(int index) {
    bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (has_avx512 && index-- == 0) return &vector_avx512;
    if (has_avx2 && index-- == 0) return &vector_avx2;
    return index == 0 ? &vector_portable : NULL;
}
#else
const struct vector *vector_at(int index) {
    return index == 0 ? &vector_portable : NULL;
}
#endif
