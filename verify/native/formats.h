/* Weight formats: 32 consecutive weights of a row become vectors of floats in registers. */
#ifndef NATIVE_FORMATS_H
#define NATIVE_FORMATS_H

#include "vec.h"

enum { Q4_1, Q8_0, F16, BF16, F32 }; /* the order of FORMATS in packed.py */
#define BLOCK 32
#define PARTS (BLOCK / VL)
#define BLOCK_BYTES(F) ((F) == Q4_1 ? 20 : (F) == Q8_0 ? 34 : (F) == F32 ? 128 : 64)

typedef struct {
    const uint8_t *data;
    int64_t rows, cols, row_bytes, format;
} Weight;

INLINE float half_to_float(uint16_t h) {
#ifdef __F16C__
    return _cvtsh_ss(h);
#elif defined(__FLT16_MAX__)
    _Float16 f;
    memcpy(&f, &h, 2);
    return (float)f;
#else
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, body = h & 0x7FFF, bits;
    float f;
    if (body < 0x400) { /* zero and subnormal: a multiple of 2^-24 */
        f = (float)body * 0x1p-24f;
        return sign ? -f : f;
    }
    bits = sign | ((body << 13) + (body >= 0x7C00 ? 0x70000000u : 0x38000000u));
    memcpy(&f, &bits, 4);
    return f;
#endif
}
/* Every lane the half float at p; four bytes are read, which no format's block lacks. */
INLINE vf splat_half(const uint8_t *p) {
#if VL == 16
    int32_t bits;
    memcpy(&bits, p, 4);
    return (vf)_mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
#elif defined(__AVX2__) && defined(__F16C__)
    int32_t bits;
    memcpy(&bits, p, 4);
    return (vf)_mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
#else
    return splat(half_to_float((uint16_t)(p[0] | p[1] << 8)));
#endif
}
INLINE float half_at(const uint8_t *p) { uint16_t h; memcpy(&h, p, 2); return half_to_float(h); }

#if VL == 16
INLINE void load_q4_1(const uint8_t *p, vf *w) {
    const vf steps = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int32_t bits;
    memcpy(&bits, p, 4);
    __m128 dm = _mm_cvtph_ps(_mm_cvtsi32_si128(bits));
    /* All 16 values of the block, rounded once each as d * q + m is; then a look-up per weight. */
    __m512 table = _mm512_fmadd_ps((__m512)steps, _mm512_broadcastss_ps(dm),
                                   _mm512_broadcastss_ps(_mm_movehdup_ps(dm)));
    __m512i q = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p + 4)));
    w[0] = (vf)_mm512_permutexvar_ps(q, table);
    w[1] = (vf)_mm512_permutexvar_ps(_mm512_srli_epi32(q, 4), table);
}
INLINE vf bytes_to_float(const uint8_t *p) {
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
INLINE vf halves(const uint8_t *p) {
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
INLINE vf brains(const uint8_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return (vf)_mm512_slli_epi32(wide, 16);
}
#elif defined(__AVX2__) && defined(__F16C__)
INLINE void load_q4_1(const uint8_t *p, vf *w) {
    const __m256 d = (__m256)splat_half(p), m = (__m256)splat_half(p + 2);
    const __m256i low = _mm256_set1_epi32(15);
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
        __m256i q = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 4 + 8 * j)));
        __m256 near = _mm256_cvtepi32_ps(_mm256_and_si256(q, low));
        __m256 far = _mm256_cvtepi32_ps(_mm256_srli_epi32(q, 4));
        w[j] = fma_((vf)near, (vf)d, (vf)m);
        w[j + 2] = fma_((vf)far, (vf)d, (vf)m);
    }
}
INLINE vf bytes_to_float(const uint8_t *p) {
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
INLINE vf halves(const uint8_t *p) {
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
INLINE vf brains(const uint8_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return (vf)_mm256_slli_epi32(wide, 16);
}
#else
INLINE void load_q4_1(const uint8_t *p, vf *w) {
    const float d = half_at(p), m = half_at(p + 2);
    for (int i = 0; i < BLOCK; i++) {
        int q = i < 16 ? p[4 + i] & 15 : p[4 + i - 16] >> 4;
        w[i / VL][i % VL] = d * (float)q + m;
    }
}
INLINE vf bytes_to_float(const uint8_t *p) {
    vf w = {0};
    for (int i = 0; i < VL; i++) w[i] = (float)(int8_t)p[i];
    return w;
}
INLINE vf halves(const uint8_t *p) {
    vf w = {0};
    for (int i = 0; i < VL; i++) w[i] = half_at(p + 2 * i);
    return w;
}
INLINE vf brains(const uint8_t *p) {
    vi w = {0};
    for (int i = 0; i < VL; i++) w[i] = (int32_t)((uint32_t)(p[2 * i] | p[2 * i + 1] << 8) << 16);
    return (vf)w;
}
#endif

/* Block `b` of the row at `row`; `format` is a constant where this is inlined. */
INLINE void load_block(int format, const uint8_t *row, int64_t b, vf *w) {
    const uint8_t *block = row + BLOCK_BYTES(format) * b;
    if (format == Q4_1) {
        load_q4_1(block, w);
        return;
    }
    const vf d = format == Q8_0 ? splat_half(block) : (vf){0};
#pragma GCC unroll 4
    for (int j = 0; j < PARTS; j++) {
        if (format == Q8_0) w[j] = bytes_to_float(block + 2 + VL * j) * d;
        if (format == F16) w[j] = halves(block + 2 * VL * j);
        if (format == BF16) w[j] = brains(block + 2 * VL * j);
        if (format == F32) w[j] = load((const float *)block + VL * j);
    }
}

#endif
