/* Vectors of VL floats: 16 with AVX-512, else 8. One order of lanes and sums for every tile shape. */
#ifndef NATIVE_VEC_H
#define NATIVE_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define VL 16
#else
#define VL 8
#endif
#define INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));

INLINE vf splat(float s) { return s - (vf){0}; }
INLINE vf load(const float *p) { vf v; memcpy(&v, p, sizeof v); return v; }
INLINE void store(float *p, vf v) { memcpy(p, &v, sizeof v); }

/* a > b ? a : b and a < b ? a : b: the second operand where one is NaN. */
#if VL == 16
INLINE vf larger(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf smaller(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
#elif defined(__AVX2__)
INLINE vf larger(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf smaller(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
#else
INLINE vf pick(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }
INLINE vf larger(vf a, vf b) { return pick(a > b, a, b); }
INLINE vf smaller(vf a, vf b) { return pick(a < b, a, b); }
#endif

/* Explicit, so that no tile shape rounds between product and sum while another does not. */
INLINE vf fma_(vf a, vf b, vf c) {
#if VL == 16
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* out[i] = sum of the lanes of v[i]; every i is summed in the same order. */
#ifdef __AVX2__
INLINE __m256 fold(vf v) {
#if VL == 16
    __m512d wide = _mm512_castps_pd((__m512)v);
    return _mm256_add_ps(_mm512_castps512_ps256((__m512)v),
                         _mm256_castpd_ps(_mm512_extractf64x4_pd(wide, 1)));
#else
    return (__m256)v;
#endif
}
INLINE __m256 fold2(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
}
INLINE __m256 fold4(const vf *v) {
    __m256 ab = fold2(fold(v[0]), fold(v[1])), cd = fold2(fold(v[2]), fold(v[3]));
    return _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xEE));
}
INLINE void sum8(const vf *v, float *out) {
    __m256 a = fold4(v), b = fold4(v + 4);
    _mm256_storeu_ps(out, _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20),
                                        _mm256_permute2f128_ps(a, b, 0x31)));
}
#else
INLINE void sum8(const vf *v, float *out) {
    for (int i = 0; i < 8; i++) {
        vf a = v[i];
        out[i] = ((a[0] + a[2]) + (a[1] + a[3])) + ((a[4] + a[6]) + (a[5] + a[7]));
    }
}
#endif

INLINE float sum(vf v) {
    const vf lanes[8] = {v, v, v, v, v, v, v, v};
    float out[8];
    sum8(lanes, out);
    return out[0];
}

/* e^x within 2 ulp; x is clamped to the range of normal floats, NaN stays NaN.
   Source: S. Moshier, Cephes, expf: the reduction and the polynomial's coefficients. */
INLINE vf vexp(vf x) {
    const vf low = splat(-87.3f), high = splat(88.3f), magic = splat(12582912.0f);
    x = larger(low, smaller(high, x));
    vf shifted = fma_(x, splat(1.44269504f), magic); /* the integer sits in the low mantissa bits */
    vf n = shifted - magic;
    vf r = fma_(n, splat(2.12194440e-4f), fma_(n, splat(-0.693359375f), x));
    vf p = splat(1.9875691500e-4f);
    p = fma_(p, r, splat(1.3981999507e-3f));
    p = fma_(p, r, splat(8.3334519073e-3f));
    p = fma_(p, r, splat(4.1665795894e-2f));
    p = fma_(p, r, splat(1.6666665459e-1f));
    p = fma_(p, r, splat(5.0000001201e-1f));
    p = fma_(p, r * r, r) + splat(1.0f);
    vi exponent = ((vi)shifted - (vi)magic + 127) << 23;
    return p * (vf)exponent;
}

#endif
