/* Loops over one row: widening, norms, RoPE, exp. Included by kernels.h alone. */

/* Up to 16 weights as f32; lanes past `count` are 0 and are not read. */
VEC vec widen_part(const unsigned char *p, const enum dtype type, int count) {
    if (count >= LANES) return vec_widen(p, type);
    unsigned char padded[LANES * sizeof(float)] = {0};
    memcpy(padded, p, (size_t)count * (size_t)dtype_bytes(type));
    return vec_widen(padded, type);
}
VEC vec load_part(const float *p, int count) {
    return count >= LANES ? vec_load(p) : vec_load_part(p, count);
}
VEC void store_part(float *p, vec a, int count) {
    if (count >= LANES)
        vec_store(p, a);
    else
        vec_store_part(p, a, count);
}
VEC float vec_sum(vec a) {
    float sums[4];
    vec_sum4(sums, a, vec_zero(), vec_zero(), vec_zero());
    return sums[0];
}

/* fmath_exp (base/fmath.h), operation by operation. */
VEC vec vec_exp(vec x) {
    const vec shift = vec_set(12582912.0f);
    x = vec_min(vec_set(89.0f), vec_max(vec_set(-104.0f), x)); /* NaN is the second operand, and stays */
    vec shifted = vec_fma(x, vec_set(0x1.715476p+0f), shift);
    vec n = vec_sub(shifted, shift);
    vec r = vec_fma(n, vec_set(0x1.05c610p-29f), vec_fma(n, vec_set(-0x1.62e430p-1f), x));
    vec p = vec_fma(r, vec_set(0x1.6d1270p-10f), vec_set(0x1.120cd4p-7f));
    p = vec_fma(r, p, vec_set(0x1.555518p-5f));
    p = vec_fma(r, p, vec_set(0x1.5554dcp-3f));
    p = vec_fma(r, p, vec_set(0.5f));
    return vec_scale(vec_add(vec_fma(vec_mul(r, r), p, r), vec_set(1.0f)), shifted);
}

static void widen(float *out, const void *values, enum dtype type, int count) {
    const unsigned char *p = values;
    for (int k = 0; k < count; k += LANES)
        store_part(out + k, widen_part(p + k * dtype_bytes(type), type, count - k), count - k);
}

/* x * factor * (weight + offset) + bias; without a weight, x * factor + bias. */
VEC vec norm_part(vec x, vec factor, const struct norm *norm, int k, int count) {
    const struct weight *w = &norm->weight, *bias = &norm->bias;
    vec v = vec_mul(x, factor);
    if (w->data) {
        vec scale = widen_part((const unsigned char *)w->data + k * dtype_bytes(w->format), w->format, count);
        if (norm->offset != 0) scale = vec_add(scale, vec_set(norm->offset));
        v = vec_mul(v, scale);
    }
    if (!bias->data) return v;
    return vec_add(v,
                   widen_part((const unsigned char *)bias->data + k * dtype_bytes(bias->format), bias->format, count));
}

/* y = x - mean(x) */
static void centre(float *y, const float *x, int count) {
    vec sum = vec_zero();
    for (int k = 0; k < count; k += LANES) sum = vec_add(sum, load_part(x + k, count - k));
    const vec mean = vec_set(vec_sum(sum) / (float)count);
    for (int k = 0; k < count; k += LANES) store_part(y + k, vec_sub(load_part(x + k, count - k), mean), count - k);
}

static void norm(float *y, const float *x, const struct norm *norm, int count) {
    if (norm->kind == NORM_NONE) {
        if (y != x) memcpy(y, x, (size_t)count * sizeof *y);
        return;
    }
    if (norm->kind == NORM_LAYER) {
        centre(y, x, count);
        x = y;
    }
    vec squares = vec_zero();
    for (int k = 0; k < count; k += LANES) {
        vec v = load_part(x + k, count - k);
        squares = vec_fma(v, v, squares);
    }
    vec factor = vec_set(1.0f / sqrtf(vec_sum(squares) / (float)count + norm->eps));
    for (int k = 0; k < count; k += LANES)
        store_part(y + k, norm_part(load_part(x + k, count - k), factor, norm, k, count - k), count - k);
}

static void rope(float *head, const struct rope *rope, const float *cos_sin, int head_dim) {
    for (int i = 0; i < head_dim / 2; i++) {
        float *a = head + rope_dim(rope, head_dim, i, 0), *b = head + rope_dim(rope, head_dim, i, 1);
        float x = *a, y = *b, c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
        *a = x * c - y * s;
        *b = y * c + x * s;
    }
}

/* cap * tanh(x / cap), in place; tanh(z) = 1 - 2 / (1 + exp(2 z)). */
static void soft_cap(float *x, float cap, int count) {
    for (int i = 0; i < count; i += LANES) {
        vec z = vec_div(load_part(x + i, count - i), vec_set(0.5f * cap));
        vec tanh = vec_sub(vec_set(1.0f), vec_div(vec_set(2.0f), vec_add(vec_set(1.0f), vec_exp(z))));
        store_part(x + i, vec_mul(vec_set(cap), tanh), count - i);
    }
}
