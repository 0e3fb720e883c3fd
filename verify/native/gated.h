/* The first half of a gated feed-forward: silu(x gate^T) * (x up^T), each thread its own outputs. */
#ifndef NATIVE_GATED_H
#define NATIVE_GATED_H

#include "linear.h"
#include "team.h"

typedef struct {
    const Weight *gate, *up;
    float *gated, *lifted; /* [rows, width]: the result, and room for the other product */
    int64_t width;
} Gated;

static void gate_and_lift(const Gated *g, const float *x, int64_t stride, int64_t rows,
                          const Team *team) {
    const int64_t width = g->width;
    int64_t first, end;
    share(team, width, 16, &first, &end);
    Operands gate = {x, stride, g->gated + first, width};
    Operands lift = {x, stride, g->lifted + first, width};
    linear(g->gate, first, end, rows, gate);
    linear(g->up, first, end, rows, lift);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = r * width + first; i < r * width + end; i += VL) {
            vf y = load(g->gated + i);
            store(g->gated + i, y / (vexp(-y) + splat(1.0f)) * load(g->lifted + i));
        }
}

#endif
