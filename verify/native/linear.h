/* out = x W^T for any number of rows of x: tiles of the fastest shape for each number of rows. */
#ifndef NATIVE_LINEAR_H
#define NATIVE_LINEAR_H

#include "tile.h"

#define STRIP 48 /* weight rows that stay in the first-level cache while groups of x pass */

#define TILES(FORMAT, R, K)                                    \
    case K:                                                    \
        for (int64_t o = first; o <= last; o += R)             \
            tile(FORMAT, R, K, w, first, o, last, io);         \
        break;

/* The fastest R for each K as measured; 32 vector registers hold larger tiles than 16. */
#if VL == 16
#define TILE_SHAPES(F)                                          \
    TILES(F, 4, 1) TILES(F, 4, 2) TILES(F, 3, 3) TILES(F, 3, 4) \
    TILES(F, 2, 5) TILES(F, 2, 6) TILES(F, 2, 7) TILES(F, 2, 8)
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
