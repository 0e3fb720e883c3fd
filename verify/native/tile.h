/* One tile of out = x W^T: R weight rows times K rows of x, with all sums in registers. Each (row,
   output) pair owns one chain of fused multiply-adds over the columns, so its bits depend neither
   on the tile's shape nor on the rows beside it. */
#ifndef NATIVE_TILE_H
#define NATIVE_TILE_H

#include "formats.h"

#define MAX_ROWS 4   /* weight rows in one tile */
#define MAX_GROUP 8  /* rows of x in one tile */
#define MAX_SUMS 16  /* sums in one tile, rounded up to 8 */
#define AHEAD 4096   /* bytes: a DRAM access before the weights are needed */

typedef struct {
    const float *x;
    int64_t stride; /* floats from one row of x to the next */
    float *out;     /* output `first` of row 0 */
    int64_t out_stride;
} Operands;

/* The value is computed here and stays in a register: left alone, GCC 12 delays it and spills. */
#if VL == 16
#define HOLD(v) __asm__("" : "+v"(v))
#else
#define HOLD(v) (void)0
#endif

/* The processor's own prefetcher is lost in R interleaved rows; in order, it follows. */
INLINE void prefetch(const uint8_t *from, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i);
}

INLINE void decode_rows(int format, int R, const uint8_t *const *row, int64_t b,
                        vf (*weights)[PARTS]) {
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
        load_block(format, row[r], b, weights[r]);
#pragma GCC unroll 4
        for (int j = 0; j < PARTS; j++) HOLD(weights[r][j]);
    }
}

/* The weight rows share each load of x. */
INLINE void multiply(int R, int K, vf (*weights)[PARTS], const float *x, int64_t stride, vf *acc) {
#pragma GCC unroll 4
    for (int j = 0; j < PARTS; j++)
#pragma GCC unroll 8
        for (int k = 0; k < K; k++) {
            vf shared = load(x + k * stride + VL * j);
            if (R > 1) HOLD(shared);
#pragma GCC unroll 4
            for (int r = 0; r < R; r++)
                acc[k * R + r] = fma_(weights[r][j], shared, acc[k * R + r]);
        }
}

/* With 32 registers, a block is decoded while the block before it is multiplied: the two use mostly
   different ports. Measured 4 to 8 % faster than decoding each block just before its products. */
INLINE void sum_pipelined(int format, int R, int K, const uint8_t *const *row, int64_t blocks,
                          Operands io, vf *acc) {
    vf now[MAX_ROWS][PARTS], next[MAX_ROWS][PARTS];
    decode_rows(format, R, row, 0, now);
    for (int64_t b = 0; b < blocks; b++) {
        prefetch(row[0] + AHEAD + b * R * BLOCK_BYTES(format), R * BLOCK_BYTES(format));
        decode_rows(format, R, row, b + 1 < blocks ? b + 1 : b, next);
        multiply(R, K, now, io.x + b * BLOCK, io.stride, acc);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++)
#pragma GCC unroll 4
            for (int j = 0; j < PARTS; j++) now[r][j] = next[r][j];
    }
}

/* With 16 registers, one weight row at a time is all that fits beside the sums. */
INLINE void sum_row_by_row(int format, int R, int K, const uint8_t *const *row, int64_t blocks,
                           Operands io, vf *acc) {
    for (int64_t b = 0; b < blocks; b++) {
        prefetch(row[0] + AHEAD + b * R * BLOCK_BYTES(format), R * BLOCK_BYTES(format));
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            vf weights[PARTS];
            load_block(format, row[r], b, weights);
#pragma GCC unroll 4
            for (int j = 0; j < PARTS; j++)
#pragma GCC unroll 8
                for (int k = 0; k < K; k++)
                    acc[k * R + r] =
                        fma_(weights[j], load(io.x + b * BLOCK + k * io.stride + VL * j),
                             acc[k * R + r]);
        }
    }
}

/* Outputs o to o + R - 1 of K rows. Past `last` the row `last` is computed again, not stored. */
INLINE void tile(int format, int R, int K, const Weight *w, int64_t first, int64_t o, int64_t last,
                 Operands io) {
    const uint8_t *row[MAX_ROWS];
    vf acc[MAX_SUMS] = {{0}};
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) row[r] = w->data + (o + r < last ? o + r : last) * w->row_bytes;
    if (VL == 16) sum_pipelined(format, R, K, row, w->cols / BLOCK, io, acc);
    else sum_row_by_row(format, R, K, row, w->cols / BLOCK, io, acc);
    float sums[MAX_SUMS];
#pragma GCC unroll 2
    for (int i = 0; i < R * K; i += 8) sum8(acc + i, sums + i);
#pragma GCC unroll 8
    for (int k = 0; k < K; k++)
#pragma GCC unroll 4
        for (int r = 0; r < R; r++)
            if (o + r <= last) io.out[k * io.out_stride + o + r - first] = sums[k * R + r];
}

#endif
