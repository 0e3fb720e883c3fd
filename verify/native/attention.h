/* Attention of a few queries of one key-value head over the cache slots that their rows may see, in
   ascending order of slots. Only the order of seen slots matters, so a tree's row has the bits of
   the same tokens in a chain. */
#ifndef NATIVE_ATTENTION_H
#define NATIVE_ATTENTION_H

#include "seen.h"
#include "vec.h"

typedef struct {
    const float *query; /* scaled already */
    float *out;
    float *scores; /* seen.count floats, rounded up to 16 */
    Seen seen;
} Query;

#define SPAN 32 /* slots whose keys stay in the first-level cache while the queries pass */
#define MAX_QUERIES 24
#define TOGETHER (VL == 16 ? 3 : 1) /* queries that share each load of a key or value */

/* Products of n queries with eight keys, each summed in the same order. */
INLINE void score8(int n, const Query *q, const float *const *key, int64_t dim, int64_t i) {
    vf acc[8 * TOGETHER] = {{0}};
    for (int64_t d = 0; d < dim; d += VL)
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            vf shared = load(key[j] + d);
#pragma GCC unroll 3
            for (int k = 0; k < n; k++)
                acc[8 * k + j] = fma_(load(q[k].query + d), shared, acc[8 * k + j]);
        }
#pragma GCC unroll 3
    for (int k = 0; k < n; k++) sum8(acc + 8 * k, q[k].scores + i);
}

INLINE void score_plain(int n, const Query *q, const float *keys, int64_t dim, int64_t first,
                        int64_t end) {
    for (int64_t i = first; i < end; i += 8) {
        const float *key[8];
        for (int j = 0; j < 8; j++) key[j] = keys + (i + j) * dim;
        score8(n, q, key, dim, i);
    }
}

INLINE void score_rest(const Query *q, const float *keys, int64_t dim, int64_t first) {
    int64_t slot = first - 1;
    for (int64_t i = first; i < q->seen.count; i += 8) {
        const float *key[8];
        for (int j = 0; j < 8; j++) {
            if (i + j < q->seen.count) slot = next_slot(&q->seen, slot);
            key[j] = keys + slot * dim; /* past the end: the last seen slot again */
        }
        score8(1, q, key, dim, i);
    }
}

static float largest(const float *scores, int64_t count) {
    vf lanes = splat(-INFINITY);
    int64_t i = 0;
    for (; i + VL <= count; i += VL) lanes = larger(load(scores + i), lanes);
    float top = i < count ? scores[i] : lanes[0];
    for (; i < count; i++) top = scores[i] > top ? scores[i] : top;
    for (int j = 0; j < VL; j++) top = lanes[j] > top ? lanes[j] : top;
    return top;
}

static float exponentials(float *scores, int64_t count, float top) {
    vf total = {0};
    for (int64_t i = count; i % VL; i++) scores[i] = -INFINITY;
    for (int64_t i = 0; i < count; i += VL) {
        vf e = vexp(load(scores + i) - splat(top));
        store(scores + i, e);
        total += e;
    }
    return sum(total);
}

/* Add slots first to end - 1, which all of n queries see, to one part of their outputs. */
INLINE void mix_part(int n, int vectors, const Query *q, const float *values, int64_t dim,
                     int64_t first, int64_t end, int64_t d) {
    vf acc[TOGETHER][64 / VL];
#pragma GCC unroll 3
    for (int k = 0; k < n; k++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) acc[k][j] = load(q[k].out + d + VL * j);
    for (int64_t i = first; i < end; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) {
            vf shared = load(values + i * dim + d + VL * j);
#pragma GCC unroll 3
            for (int k = 0; k < n; k++)
                acc[k][j] = fma_(splat(q[k].scores[i]), shared, acc[k][j]);
        }
#pragma GCC unroll 3
    for (int k = 0; k < n; k++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) store(q[k].out + d + VL * j, acc[k][j]);
}

INLINE void mix(int n, const Query *q, const float *values, int64_t dim, int64_t first,
                int64_t end) {
    int64_t d = 0;
    for (; d + 64 <= dim; d += 64) mix_part(n, 64 / VL, q, values, dim, first, end, d);
    for (; d < dim; d += 16) mix_part(n, 16 / VL, q, values, dim, first, end, d);
}

INLINE void mix_rest(const Query *q, const float *values, int64_t dim) {
    int64_t slot = q->seen.start - 1;
    for (int64_t i = q->seen.start; i < q->seen.count; i++) {
        slot = next_slot(&q->seen, slot);
        for (int64_t d = 0; d < dim; d += VL)
            store(q->out + d,
                  fma_(splat(q->scores[i]), load(values + slot * dim + d), load(q->out + d)));
    }
}

/* Spans of slots outside, so that a span stays in the cache while all queries pass over it. */
INLINE void attend_any(const Query *queries, int64_t count, const float *keys,
                       const float *values, int64_t dim) {
    const int64_t start = queries[0].seen.start, eights = start & ~(int64_t)7;
    const Query *end = queries + count, *q;
    for (int64_t s = 0; s < eights; s += SPAN) {
        const int64_t stop = s + SPAN < eights ? s + SPAN : eights;
        for (q = queries; q + TOGETHER <= end; q += TOGETHER)
            score_plain(TOGETHER, q, keys, dim, s, stop);
        for (; q < end; q++) score_plain(1, q, keys, dim, s, stop);
    }
    float scale[MAX_QUERIES];
    for (q = queries; q < end; q++) {
        score_rest(q, keys, dim, eights);
        float top = largest(q->scores, q->seen.count);
        scale[q - queries] = 1.0f / exponentials(q->scores, q->seen.count, top);
        memset(q->out, 0, (size_t)dim * sizeof(float));
    }
    for (int64_t s = 0; s < start; s += SPAN) {
        const int64_t stop = s + SPAN < start ? s + SPAN : start;
        for (q = queries; q + TOGETHER <= end; q += TOGETHER)
            mix(TOGETHER, q, values, dim, s, stop);
        for (; q < end; q++) mix(1, q, values, dim, s, stop);
    }
    for (q = queries; q < end; q++) {
        mix_rest(q, values, dim);
        for (int64_t d = 0; d < dim; d += VL)
            store(q->out + d, load(q->out + d) * splat(scale[q - queries]));
    }
}

/* Up to MAX_QUERIES queries of one step. The usual head sizes are constants: their loops unroll. */
static void attend(const Query *queries, int64_t count, const float *keys, const float *values,
                   int64_t dim) {
    if (dim == 64) attend_any(queries, count, keys, values, 64);
    else if (dim == 128) attend_any(queries, count, keys, values, 128);
    else attend_any(queries, count, keys, values, dim);
}

#endif
