/* The filtered, normalised distribution of one row of logits.
 *
 * Filters never sort the vocabulary: a cut (the last id kept, in the order of rule_order) is found by a radix
 * selection over the 32-bit order, weighted by 1 for top-k and by fixed-point mass for top-p, so sums are exact. */
#include <string.h>

#include "base/err.h"
#include "sampler/sampler.h"
#include "sampler/vector.h"

struct cut {
    uint32_t order;
    int id;
};

/* The weight of id i in a selection: what is added up until the target is reached. */
enum unit { UNIT_IDS, UNIT_MASS };

static uint64_t unit_of(enum unit unit, float weight) {
    return unit == UNIT_IDS ? 1 : rule_mass(weight);
}

/* Digits of an order of 32 bits: of up to some 500 ids histograms of 11 bits cost more than the ids. */
enum { DIGIT_BITS = 11, FEW_DIGIT_BITS = 8, FEW_IDS = 512 };

/* The shortest prefix, most probable first, of ids with weight > floor whose units add up to `target`; they do add
 * up to that much in all. */
static struct cut find_cut(const float *weight, const float *logits, int n, float floor, enum unit unit,
                           uint64_t target) {
    const int most = n <= FEW_IDS ? FEW_DIGIT_BITS : DIGIT_BITS;
    uint32_t prefix = 0, mask = 0;
    for (int left = 32; left > 0;) {
        const int bits = left < most ? left : most;
        uint64_t histogram[1 << DIGIT_BITS];
        memset(histogram, 0, sizeof *histogram << bits);
        left -= bits;
        uint32_t digit_mask = (1u << bits) - 1, digit = digit_mask;
        for (int i = 0; i < n; i++) {
            uint32_t order = rule_order(logits[i]);
            if (weight[i] > floor && (order & mask) == prefix)
                histogram[order >> left & digit_mask] += unit_of(unit, weight[i]);
        }
        while (digit > 0 && histogram[digit] < target) target -= histogram[digit--];
        prefix |= digit << left;
        mask |= digit_mask << left;
    }
    struct cut cut = {prefix, -1};
    for (int i = 0; i < n && target > 0; i++) {
        if (!(weight[i] > floor) || rule_order(logits[i]) != prefix) continue;
        uint64_t units = unit_of(unit, weight[i]);
        target = units < target ? target - units : 0;
        cut.id = i;
    }
    return cut;
}

static void keep_top_k(const struct vector *v, float *weight, const float *logits, int n, int k) {
    if (v->count_above(weight, n, 0) <= k) return;
    struct cut cut = find_cut(weight, logits, n, 0, UNIT_IDS, (uint64_t)k);
    v->zero_after(weight, logits, n, cut.order, cut.id);
}

/* An id of the nucleus is followed, itself included, by more than total - target of mass: by at most n ids, none of
 * them heavier. So ids below (total - target) / n cannot be in it; half of that leaves room for rounding. */
static void keep_top_p(const struct vector *v, float *weight, const float *logits, int n, float top_p) {
    uint64_t total = v->mass(weight, n), target = rule_nucleus(total, top_p);
    float floor = (float)((total - target) / (uint64_t)n) * 0x1p-43f;
    struct cut cut = find_cut(weight, logits, n, floor, UNIT_MASS, target);
    v->zero_after(weight, logits, n, cut.order, cut.id);
}

bool distribution_of(const struct vector *v, const struct sampling *sampling, const float *logits, int vocab,
                     float *p) {
    bool finite;
    float max = v->max(logits, vocab, &finite);
    if (!finite) return false;
    if (sampling->temperature == 0) {
        int best = 0;
        while (logits[best] != max) best++;
        memset(p, 0, sizeof *p * (size_t)vocab);
        p[best] = 1;
        return true;
    }
    v->weights(logits, vocab, max, sampling->temperature, p);
    if (sampling->top_k > 0 && sampling->top_k < vocab) keep_top_k(v, p, logits, vocab, sampling->top_k);
    if (sampling->top_p < 1) keep_top_p(v, p, logits, vocab, sampling->top_p);
    if (sampling->min_p > 0) v->zero_below(p, vocab, sampling->min_p);
    v->divide(p, vocab, rule_sum(v->mass(p, vocab)));
    return true;
}

int sampling_distribution(const struct sampling *sampling, const float *logits, int vocab, float *p) {
    TRY(sampling_check(sampling));
    if (distribution_of(vector_at(0), sampling, logits, vocab, p)) return 0;
    return err_set(ERR_NUMERIC, "the logits hold a value that is not finite");
}

int sampling_draw(const float *p, int vocab, uint64_t key, uint64_t position, enum philox_purpose purpose) {
    return vector_at(0)->race(p, vocab, NULL, key, position, (int)purpose);
}
