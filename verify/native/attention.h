/* Attention of a few queries of one key-value head over the cache slots that their rows may see, in
   ascending order of slots. Only the order of seen slots matters, so a tree's row has the bits of
   the same tokens in a chain. */
#ifndef NATIVE_ATTENTION_H
#define NATIVE_ATTENTION_H

#include "vec.h"

typedef struct {
    int64_t start;       /* slots before the step: all are seen */
    int64_t count;       /* seen slots in all */
    const uint8_t *mask; /* the row's columns of the step, or NULL: the first ones */
} Seen;

typedef struct {
    const float *query; /* scaled already */
    float *out;
    float *scores; /* seen.count floats, rounded up to 16 */
    Seen seen;
} Query;

#define SPAN 32 /* slots whose keys stay in the first-level cache while the queries pass */
#define MAX_QUERIES 24

static Seen seen_by(int64_t row, int64_t width, int64_t start, const uint8_t *mask) {
    Seen seen = {start, start, mask ? mask + row * width : NULL};
    if (!mask) seen.count += row + 1;
    else for (int64_t c = 0; c < width; c++) seen.count += seen.mask[c] != 0;
    return seen;
}

INLINE int64_t next_slot(const Seen *seen, int64_t slot) {
    slot++;
    if (seen->mask) while (slot >= seen->start && !seen->mask[slot - seen->start]) slot++;
    return slot;
}

/* Products of the query with eight keys, each summed in the same order. */
INLINE void score8(const float *query, const float *const *key, int64_t dim, float *scores) {
    vf acc[8] = {{0}};
    for (int64_t d = 0; d < dim; d += VL) {
        vf q = load(query + d);
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) acc[j] = fma_(q, load(key[j] + d), acc[j]);
    }
    sum8(acc, scores);
}

INLINE void score_plain(const Query *q, const float *keys, int64_t dim, int64_t first,
                        int64_t end) {
    for (int64_t i = first; i < end; i += 8) {
        const float *key[8];
        for (int j = 0; j < 8; j++) key[j] = keys + (i + j) * dim;
        score8(q->query, key, dim, q->scores + i);
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
        score8(q->query, key, dim, q->scores + i);
    }
}

static float largest(const float *scores, int64_t count) {
    vf lanes = splat(-INFINITY);
    float top = -INFINITY;
    int64_t i = 0;
    for (; i + VL <= count; i += VL) {
        vf x = load(scores + i);
        lanes = pick(x > lanes, x, lanes);
    }
    for (; i < count; i++) top = scores[i] > top ? scores[i] : top;
    for (int j = 0; j < VL; j++) top = lanes[j] > top ? lanes[j] : top;
    return top;
}

static float exponentials(float *scores, int64_t count, float top) {
    vf total = {0};
    for (int64_t i = 0; i < count; i += VL) {
        store(scores + i, vexp(load(scores + i) - splat(top)));
        for (int64_t j = count; j < i + VL; j++) scores[j] = 0;
        total += load(scores + i);
    }
    return sum(total);
}

/* Add seen slots first to end - 1, counted in the query's order, to one part of its output. */
INLINE void mix_part(int vectors, const Query *q, const float *values, int64_t dim, int64_t first,
                     int64_t end, float *out) {
    vf acc[64 / VL];
    int64_t slot = first - 1;
#pragma GCC unroll 8
    for (int j = 0; j < vectors; j++) acc[j] = load(out + VL * j);
    for (int64_t i = first; i < end; i++) {
        slot = i < q->seen.start ? i : next_slot(&q->seen, slot);
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            acc[j] = fma_(splat(q->scores[i]), load(values + slot * dim + VL * j), acc[j]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < vectors; j++) store(out + VL * j, acc[j]);
}

INLINE void mix(const Query *q, const float *values, int64_t dim, int64_t first, int64_t end) {
    int64_t d = 0;
    for (; d + 64 <= dim; d += 64) mix_part(64 / VL, q, values + d, dim, first, end, q->out + d);
    for (; d < dim; d += 16) mix_part(16 / VL, q, values + d, dim, first, end, q->out + d);
}

INLINE void attend_any(const Query *queries, int64_t count, const float *keys,
                       const float *values, int64_t dim) {
    const int64_t start = queries[0].seen.start, eights = start & ~(int64_t)7;
    const Query *end = queries + count;
    for (int64_t s = 0; s < eights; s += SPAN)
        for (const Query *q = queries; q < end; q++)
            score_plain(q, keys, dim, s, s + SPAN < eights ? s + SPAN : eights);
    float scale[MAX_QUERIES];
    for (const Query *q = queries; q < end; q++) {
        score_rest(q, keys, dim, eights);
        float top = largest(q->scores, q->seen.count);
        scale[q - queries] = 1.0f / exponentials(q->scores, q->seen.count, top);
        memset(q->out, 0, (size_t)dim * sizeof(float));
    }
    for (int64_t s = 0; s < start; s += SPAN)
        for (const Query *q = queries; q < end; q++)
            mix(q, values, dim, s, s + SPAN < start ? s + SPAN : start);
    for (const Query *q = queries; q < end; q++) {
        mix(q, values, dim, start, q->seen.count);
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
