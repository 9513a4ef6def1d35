/* Thirty-two numbers of four bits, where a vector picks from sixteen f32: the sixteen are mapped, not the thirty-two. Included by
 * vec_*.h alone, behind the vectors of integers; beside it stands nibbles_pairs. */
#include "model/kernels/host/vec_map.h"

typedef struct {
    ivec half[2]; /* bits above the low four are anything */
} nibbles;
typedef vec vec_list; /* sixteen values of at most eight significant bits */

VEC vec_list vec_list_of(const float *values) {
    return vec_load(values);
}
/* Sixteen bytes hold the step's first half low, its second half high. */
VEC nibbles nibbles_halves(const unsigned char *p) {
    const ivec both = ivec_u8(p);
    nibbles out = {{both, ivec_down(both, 4)}};
    return out;
}
/* The four bits from `shift` on of 32 bytes. */
VEC nibbles nibbles_bytes(const unsigned char *p, const int shift) {
    nibbles out = {{ivec_down(ivec_u8(p), shift), ivec_down(ivec_u8(p + 16), shift)}};
    return out;
}
/* The two halves have scales of their own. */
VEC void vec_listed(const enum map map, vec_list list, nibbles n, const vec times[2], vec other, vec out[2]) {
    for (int h = 0; h < 2; h++) out[h] = vec_pick(vec_mapped(map, list, times[h], other), n.half[h]);
}
