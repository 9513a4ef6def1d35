/* The bodies of struct vector, included by vector.c once for each CPU: LOOP(name) names a function, LOOP_CPU is its
 * target attribute. Order and fused operations are spelled out, so all of them give the same bits. Maxima are taken
 * over integers, whose order compilers may change. */

LOOP_CPU static float LOOP(max)(const float *x, int n, bool *finite) {
    uint32_t max = 0, largest = 0;
#pragma omp simd reduction(max : max, largest)
    for (int i = 0; i < n; i++) {
        uint32_t order = rule_order(x[i]), magnitude = fmath_bits(x[i]) & 0x7FFFFFFFu;
        max = order > max ? order : max;
        largest = magnitude > largest ? magnitude : largest;
    }
    *finite = largest < 0x7F800000u;
    return rule_logit(max);
}

LOOP_CPU static void LOOP(weights)(const float *restrict logits, int n, float max_logit, float temperature,
                                   float *restrict weight) {
#pragma omp simd
    for (int i = 0; i < n; i++) weight[i] = rule_weight(logits[i], max_logit, temperature);
}

LOOP_CPU static uint64_t LOOP(mass)(const float *x, int n) {
    uint64_t mass = 0;
#pragma omp simd reduction(+ : mass)
    for (int i = 0; i < n; i++) mass += rule_mass(x[i]);
    return mass;
}

LOOP_CPU static uint64_t LOOP(mass_min)(const float *p, int n, struct short_row row) {
    const float *q = row.q;
    const int32_t *ids = row.ids;
    int both = ids ? 0 : n < row.n ? n : row.n, listed = ids ? row.n : 0;
    uint64_t mass = 0;
#pragma omp simd reduction(+ : mass)
    for (int i = 0; i < both; i++) mass += rule_mass(p[i] < q[i] ? p[i] : q[i]);
#pragma omp simd reduction(+ : mass)
    for (int i = 0; i < listed; i++) {
        float x = p[ids[i]];
        mass += rule_mass(x < q[i] ? x : q[i]);
    }
    return mass;
}

LOOP_CPU static void LOOP(divide)(float *x, int n, float by) {
#pragma omp simd
    for (int i = 0; i < n; i++) x[i] /= by;
}

LOOP_CPU static int LOOP(count_above)(const float *x, int n, float bound) {
    int count = 0;
#pragma omp simd reduction(+ : count)
    for (int i = 0; i < n; i++) count += x[i] > bound;
    return count;
}

LOOP_CPU static void LOOP(zero_below)(float *x, int n, float bound) {
#pragma omp simd
    for (int i = 0; i < n; i++) x[i] = x[i] < bound ? 0.0f : x[i];
}

LOOP_CPU static void LOOP(zero_after)(float *restrict weight, const float *restrict logits, int n, uint32_t order,
                                      int id) {
#pragma omp simd
    for (int i = 0; i < n; i++) {
        uint32_t own = rule_order(logits[i]);
        int keep = (own > order) | ((own == order) & (i <= id));
        weight[i] = keep ? weight[i] : 0.0f;
    }
}

LOOP_CPU static void LOOP(residual)(float carry, const float *restrict p, int n, struct short_row row,
                                    float *restrict out) {
    const float *restrict q = row.q;
    int both = row.ids ? 0 : n < row.n ? n : row.n;
#pragma omp simd
    for (int i = 0; i < both; i++) out[i] = rule_excess(carry, p[i], q[i]);
#pragma omp simd
    for (int i = both; i < n; i++) out[i] = rule_excess(carry, p[i], 0);
    for (int i = 0; row.ids && i < row.n; i++) out[row.ids[i]] = rule_excess(carry, p[row.ids[i]], q[i]);
}

/* A listed id's part without q goes again, which sums of integers allow. */
LOOP_CPU static uint64_t LOOP(mass_excess)(float carry, const float *p, int n, struct short_row row) {
    const float *q = row.q;
    const int32_t *ids = row.ids;
    int both = ids ? 0 : n < row.n ? n : row.n, listed = ids ? row.n : 0;
    uint64_t mass = 0;
#pragma omp simd reduction(+ : mass)
    for (int i = 0; i < both; i++) mass += rule_mass(rule_excess(carry, p[i], q[i]));
#pragma omp simd reduction(+ : mass)
    for (int i = both; i < n; i++) mass += rule_mass(rule_excess(carry, p[i], 0));
#pragma omp simd reduction(+ : mass)
    for (int i = 0; i < listed; i++) {
        float x = p[ids[i]];
        mass += rule_mass(rule_excess(carry, x, q[i])) - rule_mass(rule_excess(carry, x, 0));
    }
    return mass;
}

/* rate[i] = p_i / E_i of `count` ids, a multiple of 16; the greatest. */
LOOP_CPU static float LOOP(race_step)(const float *restrict p, const uint32_t *restrict words, int count,
                                      float *restrict rate) {
    uint32_t best = 0; /* rates are not negative: their bits have their order */
#pragma omp simd reduction(max : best)
    for (int i = 0; i < count; i++) {
        rate[i] = p[i] / rule_race_time(words[i]);
        uint32_t bits = fmath_bits(rate[i]);
        best = bits > best ? bits : best;
    }
    return fmath_from_bits(best);
}

LOOP_CPU static int LOOP(race)(const float *p, int n, const int32_t *listed, uint64_t key, uint64_t position,
                               int purpose) {
    int winner = -1;
    float best = 0, rate[RACE_IDS], padded[RACE_IDS] = {0};
    uint32_t words[RACE_IDS];
    for (int i = 0; i < n; i += RACE_IDS) {
        const float *ids = p + i;
        int count = n - i < RACE_IDS ? (n - i + 15) / 16 * 16 : RACE_IDS;
        if (n - i < RACE_IDS) ids = memcpy(padded, ids, sizeof *p * (size_t)(n - i));
        if (LOOP(count_above)(ids, count, 0) == 0) continue;
        if (listed)
            race_listed_words(key, position, (uint64_t)purpose << 18, listed + i, n - i < count ? n - i : count, words);
        else
            race_words(key, position, ((uint64_t)purpose << 18) + (uint64_t)i / 4, count, words);
        float fastest = LOOP(race_step)(ids, words, count, rate);
        if (!(fastest > best)) continue;
        best = fastest;
        winner = i;
        while (rate[winner - i] != fastest) winner++;
    }
    return listed && winner >= 0 ? listed[winner] : winner;
}

static const struct vector LOOP(vector) = {
    LOOP(max),        LOOP(weights),    LOOP(mass),     LOOP(mass_min),    LOOP(divide), LOOP(count_above),
    LOOP(zero_below), LOOP(zero_after), LOOP(residual), LOOP(mass_excess), LOOP(race),
};
