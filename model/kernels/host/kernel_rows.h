/* Loops over one row: widening, RMSNorm, RoPE, exp. Included by kernels.h alone. */

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

static void rmsnorm(float *y, const float *x, const struct weight *norm, float eps) {
    const unsigned char *scale = norm->data;
    int count = norm->cols, bytes = dtype_bytes(norm->type);
    vec squares = vec_zero();
    for (int k = 0; k < count; k += LANES) {
        vec v = load_part(x + k, count - k);
        squares = vec_fma(v, v, squares);
    }
    vec factor = vec_set(1.0f / sqrtf(vec_sum(squares) / (float)count + eps));
    for (int k = 0; k < count; k += LANES) {
        vec v = vec_mul(load_part(x + k, count - k), factor);
        store_part(y + k, vec_mul(v, widen_part(scale + k * bytes, norm->type, count - k)), count - k);
    }
}

static void rope(float *head, const float *cos_sin, int half) {
    for (int i = 0; i < half; i++) {
        float a = head[i], b = head[i + half], c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
        head[i] = a * c - b * s;
        head[i + half] = b * c + a * s;
    }
}
