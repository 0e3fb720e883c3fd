/* What a step reads and writes: the model, its buffers, one step's input, one thread's own memory. */
#ifndef NATIVE_PLAN_H
#define NATIVE_PLAN_H

#include "attention.h"
#include "formats.h"
#include "ranks.h"

typedef struct {
    Weight q, k, v, o, gate, up, down;
    const float *input_norm, *post_norm;
} Layer;

typedef struct { /* mirrored field by field in structs.py */
    int64_t num_layers, hidden, intermediate, heads, kv_heads, head_dim, vocab, slots;
    int64_t threads, max_rows, num_captured;
    double eps;
    const int64_t *captured; /* layers whose inputs are features */
    const Layer *layers;
    Weight embedding, head;
    const float *final_norm, *cosines, *sines; /* [slots, head_dim / 2] */
    float *keys, *values;                      /* [num_layers, kv_heads, slots, head_dim] */
    float *query, *mixed, *delta, *gated, *lifted, *logits;
    float *scratch; /* [threads, scratch_floats()] */
    Top *tops;      /* [threads, max_rows] */
    Ranks *ranks;   /* NULL on one rank; heads, intermediate and head are then this rank's part */
} Plan;

typedef struct {
    const int64_t *tokens, *positions;
    const uint8_t *mask; /* NULL: causal */
    int64_t rows, start, first_logit;
    float *features; /* [rows, num_captured * hidden] */
    int64_t *best;
    float *margin;
    int64_t way;   /* how to sum over ranks */
    int64_t *sums; /* [ways]: how many sums ran each way */
} Step;

typedef struct { /* one thread's own memory */
    float *residual, *normed, *scores;
} Own;

/* Floats of scratch that each thread needs. */
static int64_t scratch_floats(const Plan *p) {
    int64_t floats = 2 * p->max_rows * p->hidden + MAX_QUERIES * (p->slots + 16);
    return (floats + 15) / 16 * 16;
}

static Own own_of(const Plan *p, const Team *team) {
    Own own;
    own.residual = p->scratch + team->index * scratch_floats(p);
    own.normed = own.residual + p->max_rows * p->hidden;
    own.scores = own.normed + p->max_rows * p->hidden;
    return own;
}

#endif
