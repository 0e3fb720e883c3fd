/* out = x W^T for few rows of x. Each (row, output) pair owns one chain of fused multiply-adds over
   the columns, so its bits depend neither on the tile's shape nor on the rows beside it. */
#ifndef NATIVE_LINEAR_H
#define NATIVE_LINEAR_H

#include "formats.h"

#define MAX_DIRECT 8 /* rows of x up to which a weight is decoded straight into the tile */
#define BUFFERED 4   /* weight rows decoded at once for more rows of x */
#define TILE_SUMS 24 /* most sums of a tile, rounded up to 8 */

typedef struct {
    const float *x;
    int64_t stride; /* floats from one row of x to the next */
    float *out;     /* output `first` of row 0 */
    int64_t out_stride;
} Operands;

/* Outputs o to o + R - 1 of K rows. Past `last` the row `last` is computed again, not stored. */
INLINE void tile(int format, int R, int K, const Weight *w, int64_t first, int64_t o, int64_t last,
                 Operands io) {
    const uint8_t *row[8];
    vf acc[TILE_SUMS] = {{0}};
    const int64_t blocks = w->cols / BLOCK;
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) row[r] = w->data + (o + r < last ? o + r : last) * w->row_bytes;
    for (int64_t b = 0; b < blocks; b++) {
        const float *x = io.x + b * BLOCK;
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            vf weights[PARTS];
            load_block(format, row[r], b, weights);
#pragma GCC unroll 4
            for (int j = 0; j < PARTS; j++)
#pragma GCC unroll 8
                for (int k = 0; k < K; k++)
                    acc[k * R + r] =
                        fma_(weights[j], load(x + k * io.stride + VL * j), acc[k * R + r]);
        }
    }
    float sums[TILE_SUMS];
#pragma GCC unroll 3
    for (int i = 0; i < R * K; i += 8) sum8(acc + i, sums + i);
#pragma GCC unroll 8
    for (int k = 0; k < K; k++)
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
            if (o + r <= last) io.out[k * io.out_stride + o + r - first] = sums[k * R + r];
}

#define TILES(FORMAT, R, K)                                                       \
    case K:                                                                       \
        for (int64_t o = first; o <= last; o += R) tile(FORMAT, R, K, w, first, o, last, io); \
        break;

#if VL == 16 /* 32 registers: more weight rows share one load of x */
#define TILE_SHAPES(F) \
    TILES(F, 8, 1) TILES(F, 4, 2) TILES(F, 4, 3) TILES(F, 4, 4) \
    TILES(F, 2, 5) TILES(F, 2, 6) TILES(F, 2, 7) TILES(F, 2, 8)
#else
#define TILE_SHAPES(F) \
    TILES(F, 8, 1) TILES(F, 4, 2) TILES(F, 2, 3) TILES(F, 2, 4) \
    TILES(F, 1, 5) TILES(F, 1, 6) TILES(F, 1, 7) TILES(F, 1, 8)
#endif

#define DIRECT(NAME, FORMAT)                                                                  \
    static void NAME(const Weight *w, int64_t first, int64_t last, int64_t rows, Operands io) { \
        switch (rows) { TILE_SHAPES(FORMAT) }                                                 \
    }
DIRECT(direct_q4_1, Q4_1)
DIRECT(direct_q8_0, Q8_0)
DIRECT(direct_f16, F16)
DIRECT(direct_bf16, BF16)
DIRECT(direct_f32, F32)

static void direct(const Weight *w, int64_t first, int64_t last, int64_t rows, Operands io) {
    switch (w->format) {
        case Q4_1: direct_q4_1(w, first, last, rows, io); break;
        case Q8_0: direct_q8_0(w, first, last, rows, io); break;
        case F16: direct_f16(w, first, last, rows, io); break;
        case BF16: direct_bf16(w, first, last, rows, io); break;
        default: direct_f32(w, first, last, rows, io);
    }
}

static void decode_row(const Weight *w, int64_t row, float *out) {
    const uint8_t *data = w->data + row * w->row_bytes;
#define DECODE(FORMAT)                                                      \
    case FORMAT:                                                            \
        for (int64_t b = 0; b < w->cols / BLOCK; b++) {                     \
            vf weights[PARTS];                                              \
            load_block(FORMAT, data, b, weights);                           \
            for (int j = 0; j < PARTS; j++) store(out + BLOCK * b + VL * j, weights[j]); \
        }                                                                   \
        break;
    switch (w->format) { DECODE(Q4_1) DECODE(Q8_0) DECODE(F16) DECODE(BF16) DECODE(F32) }
}

/* Many rows: decode a few weight rows once, then run groups of rows of x over them. */
static void buffered(const Weight *w, int64_t first, int64_t last, int64_t rows, Operands io,
                     float *buffer) {
    const int64_t group = 4;
    for (int64_t o = first; o <= last; o += BUFFERED) {
        int64_t count = last - o + 1 < BUFFERED ? last - o + 1 : BUFFERED;
        for (int64_t r = 0; r < count; r++) decode_row(w, o + r, buffer + r * w->cols);
        Weight decoded = {(const uint8_t *)buffer, count, w->cols, 4 * w->cols, F32};
        for (int64_t k = 0; k < rows; k += group) {
            Operands part = {io.x + k * io.stride, io.stride,
                             io.out + k * io.out_stride + o - first, io.out_stride};
            direct_f32(&decoded, 0, count - 1, rows - k < group ? rows - k : group, part);
        }
    }
}

/* Outputs first to end - 1 of `rows` rows; `buffer` holds BUFFERED * cols floats. */
static void linear(const Weight *w, int64_t first, int64_t end, int64_t rows, Operands io,
                   float *buffer) {
    if (first >= end) return;
    if (rows <= MAX_DIRECT) direct(w, first, end - 1, rows, io);
    else buffered(w, first, end - 1, rows, io, buffer);
}

#endif
