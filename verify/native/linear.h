/* out = x W^T for few rows of x. Each (row, output) pair owns one chain of fused multiply-adds over
   the columns, so its bits depend neither on the tile's shape nor on the rows beside it. */
#ifndef NATIVE_LINEAR_H
#define NATIVE_LINEAR_H

#include "formats.h"

#define MAX_GROUP 8  /* rows of x in one tile */
#define MAX_SUMS 24  /* sums in one tile, rounded up to 8 */
#define STRIP 48     /* weight rows that stay in the first-level cache while groups of x pass */
#define AHEAD 4096   /* bytes: a DRAM access before the weights are needed */

typedef struct {
    const float *x;
    int64_t stride; /* floats from one row of x to the next */
    float *out;     /* output `first` of row 0 */
    int64_t out_stride;
} Operands;

/* The processor's own prefetcher is lost in R interleaved rows; in order, it follows. */
INLINE void prefetch(const uint8_t *from, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i);
}

/* Block b of R weight rows times K rows of x. */
INLINE void block(int format, int R, int K, int64_t b, const uint8_t *const *row, const float *x,
                  int64_t stride, vf *acc) {
    vf weights[8][PARTS];
    const int hold = VL == 16 && K > 1; /* registers to spare: the rows share each load of x */
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
        load_block(format, row[r], b, weights[r]);
#pragma GCC unroll 4
        for (int j = 0; j < PARTS && !hold; j++)
#pragma GCC unroll 8
            for (int k = 0; k < K; k++)
                acc[k * R + r] =
                    fma_(weights[r][j], load(x + k * stride + VL * j), acc[k * R + r]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < PARTS && hold; j++)
#pragma GCC unroll 8
        for (int k = 0; k < K; k++) {
            vf shared = load(x + k * stride + VL * j);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++)
                acc[k * R + r] = fma_(weights[r][j], shared, acc[k * R + r]);
        }
}

/* Outputs o to o + R - 1 of K rows. Past `last` the row `last` is computed again, not stored. */
INLINE void tile(int format, int R, int K, const Weight *w, int64_t first, int64_t o, int64_t last,
                 Operands io) {
    const uint8_t *row[8];
    vf acc[MAX_SUMS] = {{0}};
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) row[r] = w->data + (o + r < last ? o + r : last) * w->row_bytes;
    for (int64_t b = 0; b < w->cols / BLOCK; b++) {
        int bytes = R * BLOCK_BYTES(format);
        prefetch(row[0] + AHEAD + b * bytes, bytes);
        block(format, R, K, b, row, io.x + b * BLOCK, io.stride, acc);
    }
    float sums[MAX_SUMS];
#pragma GCC unroll 3
    for (int i = 0; i < R * K; i += 8) sum8(acc + i, sums + i);
#pragma GCC unroll 8
    for (int k = 0; k < K; k++)
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
            if (o + r <= last) io.out[k * io.out_stride + o + r - first] = sums[k * R + r];
}

#define TILES(FORMAT, R, K)                                    \
    case K:                                                    \
        for (int64_t o = first; o <= last; o += R)             \
            tile(FORMAT, R, K, w, first, o, last, io);         \
        break;

/* The fastest R for each K as measured; 32 vector registers hold larger tiles than 16. */
#if VL == 16
#define TILE_SHAPES(F)                                      \
    TILES(F, 4, 1) TILES(F, 4, 2) TILES(F, 4, 3) TILES(F, 4, 4) \
    TILES(F, 4, 5) TILES(F, 4, 6) TILES(F, 3, 7) TILES(F, 3, 8)
#else
#define TILE_SHAPES(F)                                      \
    TILES(F, 4, 1) TILES(F, 2, 2) TILES(F, 2, 3) TILES(F, 2, 4) \
    TILES(F, 1, 5) TILES(F, 1, 6) TILES(F, 1, 7) TILES(F, 1, 8)
#endif

#define GROUP(NAME, FORMAT)                                                                     \
    static void NAME(const Weight *w, int64_t first, int64_t last, int64_t rows, Operands io) { \
        switch (rows) { TILE_SHAPES(FORMAT) }                                                   \
    }
GROUP(group_q4_1, Q4_1)
GROUP(group_q8_0, Q8_0)
GROUP(group_f16, F16)
GROUP(group_bf16, BF16)
GROUP(group_f32, F32)

/* Outputs first to last of at most MAX_GROUP rows. */
static void group(const Weight *w, int64_t first, int64_t last, int64_t rows, Operands io) {
    switch (w->format) {
        case Q4_1: group_q4_1(w, first, last, rows, io); break;
        case Q8_0: group_q8_0(w, first, last, rows, io); break;
        case F16: group_f16(w, first, last, rows, io); break;
        case BF16: group_bf16(w, first, last, rows, io); break;
        default: group_f32(w, first, last, rows, io);
    }
}

/* Rows of x in a group: small tiles read all of x per weight row, so it must stay in the first-level
   cache; large ones share what they read. */
static int64_t group_rows(int64_t cols) {
    const int64_t fit = 8192 / cols; /* floats in 32 KiB */
    return VL == 16 || fit > MAX_GROUP ? MAX_GROUP : fit < 4 ? 4 : fit;
}

/* Outputs first to end - 1 of any number of rows, in groups of even size. */
static void linear(const Weight *w, int64_t first, int64_t end, int64_t rows, Operands io) {
    const int64_t most = group_rows(w->cols), groups = (rows + most - 1) / most;
    const int64_t strip = groups > 1 ? STRIP : end - first;
    for (int64_t o = first; o < end; o += strip) {
        int64_t last = (o + strip < end ? o + strip : end) - 1;
        for (int64_t g = 0; g < groups; g++) {
            int64_t k = rows * g / groups, count = rows * (g + 1) / groups - k;
            Operands part = {io.x + k * io.stride, io.stride,
                             io.out + k * io.out_stride + o - first, io.out_stride};
            group(w, o, last, count, part);
        }
    }
}

#define DECODE(FORMAT)                                                              \
    case FORMAT:                                                                    \
        for (int64_t b = 0; b < w->cols / BLOCK; b++) {                             \
            vf weights[PARTS];                                                      \
            load_block(FORMAT, data, b, weights);                                   \
            for (int j = 0; j < PARTS; j++) store(out + BLOCK * b + VL * j, weights[j]); \
        }                                                                           \
        break;

static void decode_row(const Weight *w, int64_t row, float *out) {
    const uint8_t *data = w->data + row * w->row_bytes;
    switch (w->format) { DECODE(Q4_1) DECODE(Q8_0) DECODE(F16) DECODE(BF16) DECODE(F32) }
}

#endif
