/* Attention of one query over the cache slots that its row may see, in ascending order of slots.
   Only the order of seen slots matters, so a tree's row has the bits of the same tokens in a chain. */
#ifndef NATIVE_ATTENTION_H
#define NATIVE_ATTENTION_H

#include "vec.h"

typedef struct {
    int64_t start;       /* slots before the step: all are seen */
    int64_t count;       /* seen slots in all */
    const uint8_t *mask; /* the row's columns of the step, or NULL: the first ones */
} Seen;

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

INLINE void score(const float *query, const float *keys, int64_t dim, const Seen *seen,
                  float *scores) {
    const int64_t plain = seen->start & ~(int64_t)7; /* whole eights before the step */
    const float *key[8];
    for (int64_t i = 0; i < plain; i += 8) {
        for (int j = 0; j < 8; j++) key[j] = keys + (i + j) * dim;
        score8(query, key, dim, scores + i);
    }
    int64_t slot = plain - 1;
    for (int64_t i = plain; i < seen->count; i += 8) {
        for (int j = 0; j < 8; j++) {
            if (i + j < seen->count) slot = next_slot(seen, slot);
            key[j] = keys + slot * dim; /* past the end: the last seen slot again */
        }
        score8(query, key, dim, scores + i);
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

INLINE void mix(int parts, const float *weights, const float *values, int64_t dim,
                const Seen *seen, float scale, float *out) {
    vf acc[64 / VL] = {{0}};
    int64_t slot = -1;
    for (int64_t i = 0; i < seen->count; i++) {
        slot = i < seen->start ? i : next_slot(seen, slot);
#pragma GCC unroll 8
        for (int j = 0; j < parts; j++)
            acc[j] = fma_(splat(weights[i]), load(values + slot * dim + VL * j), acc[j]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < parts; j++) store(out + VL * j, acc[j] * splat(scale));
}

INLINE void attend_any(const float *query, const float *keys, const float *values, int64_t dim,
                       const Seen *seen, float *scores, float *out) {
    score(query, keys, dim, seen, scores);
    float scale = 1.0f / exponentials(scores, seen->count, largest(scores, seen->count));
    int64_t d = 0;
    for (; d + 64 <= dim; d += 64) mix(64 / VL, scores, values + d, dim, seen, scale, out + d);
    for (; d < dim; d += 16) mix(16 / VL, scores, values + d, dim, seen, scale, out + d);
}

/* `scores` holds seen.count floats, rounded up to 16; the query is scaled already. The usual head
   sizes are constants, so that their loops unroll. */
static void attend(const float *query, const float *keys, const float *values, int64_t dim,
                   const Seen *seen, float *scores, float *out) {
    if (dim == 64) attend_any(query, keys, values, 64, seen, scores, out);
    else if (dim == 128) attend_any(query, keys, values, 128, seen, scores, out);
    else attend_any(query, keys, values, dim, seen, scores, out);
}

#endif
