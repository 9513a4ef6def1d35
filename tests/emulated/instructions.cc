/* The instructions of inline assembly. One of a thread reads and writes registers of its frame; one of a warp is called once for
 * the lanes that met. A new one is a function and a line of the table at the end. */
#include <math.h>
#include <string.h>
#include <x86intrin.h>

#include <string>

#include "emulated.h"

#include "copies.h"
#include "ptx.h"

namespace emulated {

/* --- numbers -------------------------------------------------------------------------------------------- */

static float from_bits(uint32_t x) {
    float f;
    memcpy(&f, &x, sizeof f);
    return f;
}
static float of_half(uint32_t x) {
    return _cvtsh_ss((unsigned short)x);
}
static float of_bf16(uint32_t x) {
    return from_bits(x << 16);
}
static uint32_t to_half(double x) {
    const _Float16 h = (_Float16)x;
    uint16_t bits;
    memcpy(&bits, &h, sizeof bits);
    return bits;
}
static uint32_t to_bf16(double x) {
    const __nv_bfloat16 h = __double2bfloat16(x);
    uint16_t bits;
    memcpy(&bits, &h, sizeof bits);
    return bits;
}
static float of_fp8(uint32_t x, __nv_fp8_interpretation_t kind) {
    const __half_raw h = __nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)x, kind);
    return of_half(h.x);
}

static uint64_t cut_to(uint64_t x, int bits) {
    return bits == 64 ? x : x & ((1ull << bits) - 1);
}
static int64_t extend(uint64_t x, int bits) {
    return (int64_t)(x << (64 - bits)) >> (64 - bits);
}

/* --- memory --------------------------------------------------------------------------------------------- */

static char *address(const instruction &i, const frame &f, int argument, size_t bytes) {
    const uint64_t at = i.get(f, argument);
    if (i.is_shared) return (char *)shared_at((uint32_t)at, bytes);
    if (at % bytes != 0) fail("%s of %#lx, which is not aligned", i.name.c_str(), (unsigned long)at);
    return (char *)at;
}

/* How a cache is to treat what is read: nothing here, but an instruction that names a policy has one. */
enum { POLICY = 0x12F00000 };
static void make_policy(const instruction &i, frame &f) {
    i.set(f, 0, POLICY);
}
static void check_policy(const instruction &i, const frame &f) {
    if (i.has_policy && i.get(f, (int)i.arguments.size() - 1) != POLICY) fail("%s without a policy", i.name.c_str());
}

static void load(const instruction &i, frame &f) {
    check_policy(i, f);
    const size_t bytes = (size_t)i.bits / 8;
    const char *from = address(i, f, i.count, bytes * (size_t)i.count);
    for (int n = 0; n < i.count; n++) {
        uint64_t x = 0;
        memcpy(&x, from + bytes * (size_t)n, bytes);
        i.set(f, n, i.type == 's' ? (uint64_t)extend(x, i.bits) : x);
    }
}

static void store(const instruction &i, frame &f) {
    const size_t bytes = (size_t)i.bits / 8;
    char *to = address(i, f, 0, bytes * (size_t)i.count);
    for (int n = 0; n < i.count; n++) {
        const uint64_t x = i.get(f, n + 1);
        memcpy(to + bytes * (size_t)n, &x, bytes);
    }
}

static void nothing(const instruction &, frame &) {}

static void copy_async(const instruction &i, frame &f) {
    check_policy(i, f);
    const int bytes = (int)i.get(f, 2), read = i.arguments.size() > 3 ? (int)i.get(f, 3) : bytes;
    if (read < 0 || read > bytes) fail("%s reads %d bytes", i.name.c_str(), read);
    const uint64_t from = i.get(f, 1);
    if (from % (uint64_t)bytes != 0) fail("%s from %#lx, which is not aligned", i.name.c_str(), (unsigned long)from);
    self->copies->add({shared_at((uint32_t)i.get(f, 0), (size_t)bytes), (const void *)from, read, bytes});
}
static void copies_commit(const instruction &, frame &) {
    self->copies->commit();
}
static void copies_wait(const instruction &i, frame &f) {
    self->copies->wait(i.get(f, 0));
}
static void copies_wait_all(const instruction &, frame &) {
    self->copies->wait_all();
}

static void map_address(const instruction &i, frame &f) {
    i.set(f, 0, address_of_rank((uint32_t)i.get(f, 1), (uint32_t)i.get(f, 2)));
}

/* --- barriers ------------------------------------------------------------------------------------------- */

static void bar_sync(const instruction &i, frame &f) {
    (void)wait_at((int)i.get(f, 0), i.arguments.size() > 1 ? (int)i.get(f, 1) : 0, 0);
}
static void bar_arrive(const instruction &i, frame &f) {
    arrive_at((int)i.get(f, 0), (int)i.get(f, 1));
}
static void cluster_arrives(const instruction &, frame &) {
    cluster_arrive();
}
static void cluster_waits(const instruction &, frame &) {
    cluster_wait();
}

/* --- tensor cores --------------------------------------------------------------------------------------- */

/* What a register of all lanes holds is a matrix of 8 rows, 4 lanes a row. */
static void unpack_half(const uint32_t *words, float *to) {
    for (int i = 0; i < WARP * 2; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)words + i))));
}
static void unpack_bf16(const uint32_t *words, float *to) {
    uint32_t bits[WARP * 2];
    for (int i = 0; i < WARP * 2; i++) bits[i] = (uint32_t)((const uint16_t *)words)[i] << 16;
    memcpy(to, bits, sizeof bits);
}
static void unpack_e4m3(const uint32_t *words, float *to) {
    for (int i = 0; i < WARP * 4; i++) to[i] = of_fp8(((const uint8_t *)words)[i], __NV_E4M3);
}
static void unpack_s8(const uint32_t *words, int *to) {
    for (int i = 0; i < WARP * 4; i++) to[i] = ((const int8_t *)words)[i];
}
static void unpack_u8(const uint32_t *words, int *to) {
    for (int i = 0; i < WARP * 4; i++) to[i] = ((const uint8_t *)words)[i];
}

/* d = a b + c, a [16, K] of HALVES pairs of registers, b [K, 8] of HALVES; a register holds EACH numbers. The products are added
 * one after the other, then to c. */
template <int EACH, int HALVES, typename Sum>
static void multiply(const instruction &i, uint32_t lanes, frame *const *of, void a_of(const uint32_t *, Sum *),
                     void b_of(const uint32_t *, Sum *)) {
    enum { PART = 4 * EACH };
    uint32_t words[3 * HALVES][WARP], any = 0;
    Sum d[16][8] = {};
    if (lanes != ~0u) fail("%s by lanes %08x", i.name.c_str(), lanes);
    for (int r = 0; r < 3 * HALVES; r++) {
        const int reg = i.arguments[(size_t)(4 + r)].reg;
        if (reg < 0) fail("%s of a number", i.name.c_str());
        for (int lane = 0; lane < WARP; lane++) any |= words[r][lane] = (uint32_t)of[lane]->reg[reg];
    }
    for (int half = 0; half < HALVES && any != 0; half++) { /* else k is past the end */
        Sum a[2][8][PART], b[8][PART], turned[PART][8];
        a_of(words[2 * half], a[0][0]), a_of(words[2 * half + 1], a[1][0]);
        b_of(words[2 * HALVES + half], b[0]);
        for (int k = 0; k < PART; k++)
            for (int column = 0; column < 8; column++) turned[k][column] = b[column][k];
        for (int row = 0; row < 16; row++)
            for (int k = 0; k < PART; k++)
                for (int column = 0; column < 8; column++) d[row][column] += a[row / 8][row % 8][k] * turned[k][column];
    }
    for (int j = 0; j < 4; j++)
        for (int lane = 0; lane < WARP; lane++)
            i.put<Sum>(*of[lane], j,
                       d[lane / 4 + j / 2 * 8][lane % 4 * 2 + j % 2] + i.as<Sum>(*of[lane], 4 + 3 * HALVES + j));
}
#define MULTIPLY(name, each, halves, a_of, b_of)                               \
    static void name(const instruction &i, uint32_t lanes, frame *const *of) { \
        multiply<each, halves>(i, lanes, of, a_of, b_of);                      \
    }
MULTIPLY(mma_bf16_k16, 2, 2, unpack_bf16, unpack_bf16)
MULTIPLY(mma_half_k16, 2, 2, unpack_half, unpack_half)
MULTIPLY(mma_bf16_k8, 2, 1, unpack_bf16, unpack_bf16)
MULTIPLY(mma_half_k8, 2, 1, unpack_half, unpack_half)
MULTIPLY(mma_e4m3_k32, 4, 2, unpack_e4m3, unpack_e4m3)
MULTIPLY(mma_s8_k32, 4, 2, unpack_s8, unpack_s8)
MULTIPLY(mma_u8_s8_k32, 4, 2, unpack_u8, unpack_s8)

/* 8 x 8 matrices of 16 bit: lane l gives the address of row l % 8 of matrix l / 8. */
static void load_matrices(const instruction &i, uint32_t lanes, frame *const *of) {
    const int count = i.matrices;
    const bool is_transposed = i.is_transposed;
    if (lanes != ~0u) fail("%s by lanes %08x", i.name.c_str(), lanes);
    for (int matrix = 0; matrix < count; matrix++) {
        const uint16_t *row[8];
        for (int r = 0; r < 8; r++)
            row[r] = (const uint16_t *)shared_at((uint32_t)i.get(*of[matrix * 8 + r], count), 16);
        for (int lane = 0; lane < WARP; lane++) {
            const int at = lane / 4, pair = lane % 4 * 2;
            const uint32_t low = is_transposed ? row[pair][at] : row[at][pair],
                           high = is_transposed ? row[pair + 1][at] : row[at][pair + 1];
            i.set(*of[lane], matrix, low | high << 16);
        }
    }
}

/* --- conversions ---------------------------------------------------------------------------------------- */

template <uint32_t TO(double)> static void pack_floats(const instruction &i, frame &f) {
    i.set(f, 0, TO(i.as<float>(f, 1)) << 16 | TO(i.as<float>(f, 2)));
}
template <uint32_t TO(double)> static void round_float(const instruction &i, frame &f) {
    i.set(f, 0, TO(i.as<float>(f, 1)));
}
template <float OF(uint32_t)> static void widen(const instruction &i, frame &f) {
    i.put(f, 0, OF((uint32_t)i.get(f, 1) & 0xFFFF));
}
template <__nv_fp8_interpretation_t KIND> static void halves_of_fp8(const instruction &i, frame &f) {
    const __half2_raw h = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)i.get(f, 1), KIND);
    i.set(f, 0, (uint32_t)h.y << 16 | h.x);
}
template <__nv_fp8_interpretation_t KIND> static void fp8_of_floats(const instruction &i, frame &f) {
    i.set(f, 0, __nv_cvt_float2_to_fp8x2(make_float2(i.as<float>(f, 2), i.as<float>(f, 1)), __NV_SATFINITE, KIND));
}
static void float_of_s32(const instruction &i, frame &f) {
    i.put(f, 0, (float)i.as<int32_t>(f, 1));
}
static void float_of_u32(const instruction &i, frame &f) {
    i.put(f, 0, (float)i.as<uint32_t>(f, 1));
}

/* --- whole numbers -------------------------------------------------------------------------------------- */

static uint64_t lookup3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t x = 0;
    for (int entry = 0; entry < 8; entry++)
        if (table >> entry & 1) x |= (entry & 4 ? a : ~a) & (entry & 2 ? b : ~b) & (entry & 1 ? c : ~c);
    return x;
}
static void lop3(const instruction &i, frame &f) {
    i.set(f, 0, lookup3((uint32_t)i.get(f, 1), (uint32_t)i.get(f, 2), (uint32_t)i.get(f, 3), (uint32_t)i.get(f, 4)));
}

static void permute(const instruction &i, frame &f) {
    const uint64_t bytes = cut_to(i.get(f, 1), 32) | i.get(f, 2) << 32;
    uint32_t x = 0;
    if (i.name != "prmt.b32") fail("%s has a mode", i.name.c_str());
    for (int n = 0; n < 4; n++) {
        const uint32_t choice = (uint32_t)i.get(f, 3) >> 4 * n & 15, byte = (uint32_t)(bytes >> choice % 8 * 8) & 255;
        x |= (choice & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * n;
    }
    i.set(f, 0, x);
}

static void move(const instruction &i, frame &f) {
    if (i.arguments.size() == 3 && i.bits == 64) /* mov.b64 d, {low, high} */
        return i.set(f, 0, cut_to(i.get(f, 1), 32) | i.get(f, 2) << 32);
    if (i.arguments.size() == 3 && i.bits == 32) {
        if (i.arguments[0].reg >= 0 && i.arguments[1].reg >= 0 && i.arguments[2].reg < 0)
            fail("mov that takes a register apart");
        return i.set(f, 0, cut_to(i.get(f, 1), 16) | cut_to(i.get(f, 2), 16) << 16);
    }
    i.set(f, 0, cut_to(i.get(f, 1), i.bits));
}

template <typename Run> static void binary(const instruction &i, frame &f, Run run) {
    const uint64_t a = i.get(f, 1), b = i.get(f, 2);
    if (i.type == 'f') fail("no such instruction here yet: %s", i.name.c_str());
    i.set(f, 0, cut_to(run(a, b, i.bits, i.type == 's'), i.bits));
}
#define BINARY(name, expression)                                                        \
    static void name(const instruction &i, frame &f) {                                  \
        binary(i, f, [](uint64_t a, uint64_t b, int bits, bool is_signed) -> uint64_t { \
            (void)bits, (void)is_signed;                                                \
            return expression;                                                          \
        });                                                                             \
    }
BINARY(and_bits, a &b)
BINARY(or_bits, a | b)
BINARY(xor_bits, a ^ b)
BINARY(add_whole, a + b)
BINARY(sub_whole, a - b)
BINARY(mul_low, a *b)
BINARY(shift_left, cut_to(b, 32) >= (unsigned)bits ? 0 : a << b)
BINARY(shift_right, is_signed ? (uint64_t)(extend(a, bits) >> (cut_to(b, 32) >= (unsigned)bits ? bits - 1 : (int)b))
                    : cut_to(b, 32) >= (unsigned)bits ? 0
                                                      : cut_to(a, bits) >> b)

static void mad_low(const instruction &i, frame &f) {
    i.set(f, 0, cut_to(i.get(f, 1) * i.get(f, 2) + i.get(f, 3), i.bits));
}
static void not_bits(const instruction &i, frame &f) {
    i.set(f, 0, cut_to(~i.get(f, 1), i.bits));
}
static void select(const instruction &i, frame &f) {
    i.set(f, 0, i.get(f, i.get(f, 3) ? 1 : 2));
}
static void extract_bits(const instruction &i, frame &f) {
    const int from = (int)i.get(f, 2) & 255, count = (int)i.get(f, 3) & 255;
    const uint64_t x = count == 0 || from >= 32 ? 0 : cut_to(cut_to(i.get(f, 1), 32) >> from, count);
    i.set(f, 0, i.type == 's' && count > 0 ? cut_to((uint64_t)extend(x, count), 32) : x);
}
static void set_predicate(const instruction &i, frame &f) {
    const uint64_t a = i.get(f, 1), b = i.get(f, 2);
    const double x = i.type == 'f' ? i.as<float>(f, 1) : 0, y = i.type == 'f' ? i.as<float>(f, 2) : 0;
    auto by = [&](auto l, auto r) {
        return i.has("eq")   ? l == r
               : i.has("ne") ? l != r
               : i.has("lt") ? l < r
               : i.has("le") ? l <= r
               : i.has("gt") ? l > r
               : i.has("ge") ? l >= r
                             : (fail("%s", i.name.c_str()), false);
    };
    i.set(f, 0,
          i.type == 'f'   ? by(x, y)
          : i.type == 's' ? by(extend(a, i.bits), extend(b, i.bits))
                          : by(cut_to(a, i.bits), cut_to(b, i.bits)));
}

/* --- floats --------------------------------------------------------------------------------------------- */

static float add_of(float a, float b, float) {
    return a + b;
}
static float sub_of(float a, float b, float) {
    return a - b;
}
static float mul_of(float a, float b, float) {
    return a * b;
}
static float max_or_nan(float a, float b, float) {
    return a != a ? a : b != b || b > a ? b : a;
}
static float max_of(float a, float b, float) {
    return fmaxf(a, b);
}
static float min_of(float a, float b, float) {
    return fminf(a, b);
}
static float power_of_2(float a, float, float) {
    return exp2f(a);
}
static float inverse(float a, float, float) {
    return 1.0f / a;
}
static float inverse_root(float a, float, float) {
    return 1.0f / sqrtf(a);
}
static float third(const instruction &i, const frame &f, int n) {
    return i.arguments.size() > (size_t)n ? i.as<float>(f, n) : 0;
}
template <float RUN(float, float, float)> static void of_floats(const instruction &i, frame &f) {
    i.put(f, 0, RUN(i.as<float>(f, 1), third(i, f, 2), third(i, f, 3)));
}

/* Pairs of 16-bit floats, of which sums and products are exact in f64. */
static double plus(double a, double b, double) {
    return a + b;
}
static double minus(double a, double b, double) {
    return a - b;
}
static double times(double a, double b, double) {
    return a * b;
}
static double fused(double a, double b, double c) {
    return a * b + c;
}
static double larger(double a, double b, double) {
    return fmax(a, b);
}
static double smaller(double a, double b, double) {
    return fmin(a, b);
}
template <float OF(uint32_t), uint32_t TO(double), double RUN(double, double, double)>
static void of_pairs(const instruction &i, frame &f) {
    uint32_t x = 0;
    for (int n = 0; n < 2; n++) {
        double a[3] = {};
        for (size_t k = 0; k + 1 < i.arguments.size(); k++)
            a[k] = OF((uint32_t)(i.get(f, (int)k + 1) >> 16 * n) & 0xFFFF);
        x |= TO(RUN(a[0], a[1], a[2])) << 16 * n;
    }
    i.set(f, 0, x);
}
template <double RUN(double, double, double)> static void of_halves(const instruction &i, frame &f) {
    of_pairs<of_half, to_half, RUN>(i, f);
}
template <double RUN(double, double, double)> static void of_bf16s(const instruction &i, frame &f) {
    of_pairs<of_bf16, to_bf16, RUN>(i, f);
}
static void fma_float(const instruction &i, frame &f) {
    i.put(f, 0, fmaf(i.as<float>(f, 1), i.as<float>(f, 2), i.as<float>(f, 3)));
}

/* --- the table ------------------------------------------------------------------------------------------ */

static const struct entry entries[] = {
    {"ld", load, nullptr},
    {"st", store, nullptr},
    {"createpolicy", make_policy, nullptr},
    {"prefetch", nothing, nullptr},
    {"prefetchu", nothing, nullptr},
    {"membar", nothing, nullptr},
    {"fence", nothing, nullptr},
    {"griddepcontrol", nothing, nullptr},
    {"cp.async.cg.shared.global", copy_async, nullptr},
    {"cp.async.ca.shared.global", copy_async, nullptr},
    {"cp.async.commit_group", copies_commit, nullptr},
    {"cp.async.wait_group", copies_wait, nullptr},
    {"cp.async.wait_all", copies_wait_all, nullptr},
    {"mapa.shared::cluster.u32", map_address, nullptr},
    {"bar.sync", bar_sync, nullptr},
    {"bar.arrive", bar_arrive, nullptr},
    {"barrier.sync", bar_sync, nullptr},
    {"barrier.cluster.arrive", cluster_arrives, nullptr},
    {"barrier.cluster.wait", cluster_waits, nullptr},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", nullptr, mma_bf16_k16},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", nullptr, mma_half_k16},
    {"mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", nullptr, mma_bf16_k8},
    {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", nullptr, mma_half_k8},
    {"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", nullptr, mma_e4m3_k32},
    {"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", nullptr, mma_s8_k32},
    {"mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32", nullptr, mma_u8_s8_k32},
    {"ldmatrix.sync.aligned.m8n8", nullptr, load_matrices},
    {"cvt.rn.f16x2.f32", pack_floats<to_half>, nullptr},
    {"cvt.rn.bf16x2.f32", pack_floats<to_bf16>, nullptr},
    {"cvt.rn.f16.f32", round_float<to_half>, nullptr},
    {"cvt.rn.bf16.f32", round_float<to_bf16>, nullptr},
    {"cvt.f32.f16", widen<of_half>, nullptr},
    {"cvt.f32.bf16", widen<of_bf16>, nullptr},
    {"cvt.rn.f32.s32", float_of_s32, nullptr},
    {"cvt.rn.f32.u32", float_of_u32, nullptr},
    {"cvt.rn.f16x2.e4m3x2", halves_of_fp8<__NV_E4M3>, nullptr},
    {"cvt.rn.f16x2.e5m2x2", halves_of_fp8<__NV_E5M2>, nullptr},
    {"cvt.rn.satfinite.e4m3x2.f32", fp8_of_floats<__NV_E4M3>, nullptr},
    {"cvt.rn.satfinite.e5m2x2.f32", fp8_of_floats<__NV_E5M2>, nullptr},
    {"lop3.b32", lop3, nullptr},
    {"prmt.b32", permute, nullptr},
    {"mov", move, nullptr},
    {"and", and_bits, nullptr},
    {"or", or_bits, nullptr},
    {"xor", xor_bits, nullptr},
    {"not", not_bits, nullptr},
    {"shl", shift_left, nullptr},
    {"shr", shift_right, nullptr},
    {"add", add_whole, nullptr},
    {"sub", sub_whole, nullptr},
    {"mul.lo", mul_low, nullptr},
    {"mad.lo", mad_low, nullptr},
    {"selp", select, nullptr},
    {"setp", set_predicate, nullptr},
    {"bfe", extract_bits, nullptr},
    {"add.f32", of_floats<add_of>, nullptr},
    {"add.rn.f32", of_floats<add_of>, nullptr},
    {"sub.f32", of_floats<sub_of>, nullptr},
    {"mul.f32", of_floats<mul_of>, nullptr},
    {"mul.rn.f32", of_floats<mul_of>, nullptr},
    {"max.f32", of_floats<max_of>, nullptr},
    {"max.NaN.f32", of_floats<max_or_nan>, nullptr},
    {"min.f32", of_floats<min_of>, nullptr},
    {"fma.rn.f32", fma_float, nullptr},
    {"ex2.approx.f32", of_floats<power_of_2>, nullptr},
    {"ex2.approx.ftz.f32", of_floats<power_of_2>, nullptr},
    {"rcp.approx.f32", of_floats<inverse>, nullptr},
    {"rcp.approx.ftz.f32", of_floats<inverse>, nullptr},
    {"rsqrt.approx.f32", of_floats<inverse_root>, nullptr},
    {"add.f16x2", of_halves<plus>, nullptr},
    {"add.rn.f16x2", of_halves<plus>, nullptr},
    {"sub.f16x2", of_halves<minus>, nullptr},
    {"sub.rn.f16x2", of_halves<minus>, nullptr},
    {"mul.f16x2", of_halves<times>, nullptr},
    {"mul.rn.f16x2", of_halves<times>, nullptr},
    {"fma.rn.f16x2", of_halves<fused>, nullptr},
    {"max.f16x2", of_halves<larger>, nullptr},
    {"min.f16x2", of_halves<smaller>, nullptr},
    {"fma.rn.bf16x2", of_bf16s<fused>, nullptr},
    {"mul.bf16x2", of_bf16s<times>, nullptr}, /* 9.0 */
    {"mul.rn.bf16x2", of_bf16s<times>, nullptr},
    {"add.bf16x2", of_bf16s<plus>, nullptr},
    {"add.rn.bf16x2", of_bf16s<plus>, nullptr},
    {"sub.rn.bf16x2", of_bf16s<minus>, nullptr},
};

const struct entry *find_entry(const std::string &name) {
    const struct entry *best = nullptr;
    for (const struct entry &e : entries) {
        const size_t length = strlen(e.name);
        if (name.compare(0, length, e.name) != 0 || (name.size() > length && name[length] != '.')) continue;
        if (!best || length > strlen(best->name)) best = &e;
    }
    return best;
}

} /* namespace emulated */
