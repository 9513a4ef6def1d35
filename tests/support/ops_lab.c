#include "tests/support/ops_lab.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/philox.h"
#include "tests/support/support.h"

void lab_open(struct lab *lab, int threads) {
    *lab = (struct lab){0};
    struct device_options options = {.threads = threads};
    ck_ok(device_open(&lab->device, "host", &options));
    ck_ok(stream_create(lab->device, &lab->stream));
}

void lab_close(struct lab *lab) {
    stream_destroy(lab->stream);
    device_close(lab->device);
    while (lab->block_count > 0) lab_free_last(lab);
}

void *lab_alloc(struct lab *lab, size_t bytes) {
    ck_assert_int_lt(lab->block_count, LAB_BLOCKS_MAX);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    unsigned char *map = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    ck_assert_int_eq(mprotect(map + whole, page, PROT_NONE), 0);
    memset(map, 0xFF, whole);
    lab->blocks[lab->block_count++] = (struct lab_block){map, whole + page, whole - bytes};
    return map + whole - bytes;
}

void lab_free_last(struct lab *lab) {
    const struct lab_block *last = &lab->blocks[--lab->block_count];
    for (size_t i = 0; i < last->before; i++) require(last->map[i] == 0xFF, "written before the start of a block");
    munmap(last->map, last->bytes);
}

static uint32_t draw(struct lab *lab) {
    return philox_word(20240229, lab->draws++, 0, 0);
}

float lab_random(struct lab *lab) {
    return (float)(draw(lab) >> 8) * 0x1p-23f - 1.0f;
}

float *lab_random_floats(struct lab *lab, size_t n) {
    float *out = lab_alloc(lab, n * sizeof *out);
    for (size_t i = 0; i < n; i++) out[i] = lab_random(lab);
    return out;
}

int lab_pick(struct lab *lab, int first, int end) {
    return first + (int)(draw(lab) % (uint32_t)(end - first));
}

/* The f16 next to x toward zero; tiny values become subnormal. */
static uint16_t f16_from(float x) {
    int exponent;
    float magnitude = frexpf(fabsf(x), &exponent); /* [0.5, 1) * 2^exponent */
    uint16_t sign = x < 0 ? 0x8000 : 0;
    if (exponent < -13) return sign | (uint16_t)ldexpf(fabsf(x), 24);
    return sign | (uint16_t)((unsigned)(exponent + 14) << 10 | ((unsigned)ldexpf(magnitude, 11) & 0x3FF));
}

struct weight lab_weight(struct lab *lab, int rows, int cols, enum dtype type, float scale) {
    struct weight w = {.format = type, .rows = rows, .cols = cols};
    if (rows == 0) return (struct weight){0};
    const size_t n = (size_t)rows * (size_t)cols, bytes = (size_t)dtype_bytes(type);
    unsigned char *data = (unsigned char *)lab_alloc(lab, (n + 1) * bytes) + bytes;
    for (size_t i = 0; i < n; i++) {
        float value = lab_random(lab) * scale;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        uint16_t half = type == DTYPE_F16 ? f16_from(value) : (uint16_t)(bits >> 16);
        memcpy(data + i * bytes, type == DTYPE_F32 ? (void *)&value : (void *)&half, bytes);
    }
    w.data = data;
    return w;
}

static double f16_value(uint16_t h) {
    int exponent = h >> 10 & 31, mantissa = h & 0x3FF;
    double magnitude = exponent == 0    ? ldexp(mantissa, -24)
                       : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                        : ldexp(mantissa + 1024, exponent - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}

double lab_weight_at(const struct weight *w, int row, int col) {
    const unsigned char *p = w->data;
    p += ((size_t)row * (size_t)(w->stride ? w->stride : w->cols) + (size_t)col) * (size_t)dtype_bytes(w->format);
    float value;
    uint16_t half;
    if (w->format == DTYPE_F32) {
        memcpy(&value, p, sizeof value);
        return value;
    }
    memcpy(&half, p, sizeof half);
    if (w->format == DTYPE_F16) return f16_value(half);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}
