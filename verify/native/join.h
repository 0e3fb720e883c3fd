/* The end of a block: its output, summed over the ranks that hold a part of it, joins the residual
   and is normalised for the next block. */
#ifndef NATIVE_JOIN_H
#define NATIVE_JOIN_H

#include "plan.h"

typedef struct {
    const float *weight; /* of the norm */
    uint64_t number;     /* of the meeting, where ranks meet */
} Join;

static void norm(const Plan *p, const float *weight, const float *in, int64_t rows, float *out) {
    for (int64_t r = 0; r < rows; r++, in += p->hidden, out += p->hidden) {
        vf squares = {0};
        for (int64_t i = 0; i < p->hidden; i += VL) {
            vf x = load(in + i);
            squares = fma_(x, x, squares);
        }
        float scale = 1.0f / sqrtf(sum(squares) / (float)p->hidden + (float)p->eps);
        for (int64_t i = 0; i < p->hidden; i += VL)
            store(out + i, load(in + i) * splat(scale) * load(weight + i));
    }
}

/* One pass per row over `count` parts: sum in the order of ranks, so that all ranks have the same
   bits, add to the residual, and normalise. Each thread does it for its own copy. */
INLINE void add_parts(int count, const Plan *p, const float *weight, const float *const *parts,
                      int64_t rows, const Own *own) {
    for (int64_t r = 0, at = 0; r < rows; r++, at += p->hidden) {
        float *residual = own->residual + at, *normed = own->normed + at;
        vf squares = {0};
        for (int64_t i = 0; i < p->hidden; i += VL) {
            vf total = load(parts[0] + at + i);
            for (int k = 1; k < count; k++) total += load(parts[k] + at + i);
            vf x = load(residual + i) + total;
            store(residual + i, x);
            squares = fma_(x, x, squares);
        }
        float scale = 1.0f / sqrtf(sum(squares) / (float)p->hidden + (float)p->eps);
        for (int64_t i = 0; i < p->hidden; i += VL)
            store(normed + i, load(residual + i) * splat(scale) * load(weight + i));
    }
}

/* Where a block's last product goes: in a fused join, straight to where the other ranks read. */
static float *part_of(const Plan *p, const Step *s, uint64_t number) {
    return s->way == FUSED ? slot_of(p->ranks, p->ranks->rank, number) : p->delta;
}

/* An all-reduce as a library has it: of a buffer, into the same buffer, and nothing else. */
static void sum_shared(const Plan *p, int64_t rows, Team *team, uint64_t number) {
    const Ranks *k = p->ranks;
    int64_t first, end;
    share(team, rows * p->hidden, VL, &first, &end);
    memcpy(slot_of(k, k->rank, number) + first, p->delta + first,
           (size_t)(end - first) * sizeof(float));
    wait_all(team);
    meet(k, team, number);
    for (int64_t i = first; i < end; i += VL) {
        vf total = load(slot_of(k, 0, number) + i);
        for (int64_t rank = 1; rank < k->world; rank++)
            total += load(slot_of(k, rank, number) + i);
        store(p->delta + i, total);
    }
    wait_all(team);
}

static void sum_by_library(const Plan *p, int64_t rows, Team *team) {
    const Ranks *k = p->ranks;
    if (team->index == 0 && k->library(p->delta, rows)) lose(k, k->rank);
    wait_all(team);
}

static void add_fused(const Plan *p, int64_t rows, const Team *team, const Own *own, Join join) {
    const Ranks *k = p->ranks;
    const float *parts[MAX_RANKS];
    for (int64_t rank = 0; rank < k->world; rank++) parts[rank] = slot_of(k, rank, join.number);
    meet(k, team, join.number);
    if (k->world == 2) add_parts(2, p, join.weight, parts, rows, own);
    else add_parts((int)k->world, p, join.weight, parts, rows, own);
}

/* End a block whose part of the sum is complete at `part_of`. */
static void end_block(const Plan *p, const Step *s, Team *team, const Own *own, Join join) {
    const float *whole[] = {p->delta};
    if (team->index == 0) s->sums[s->way]++;
    if (s->way == FUSED) {
        add_fused(p, s->rows, team, own, join);
        return;
    }
    if (s->way == SHARED) sum_shared(p, s->rows, team, join.number);
    if (s->way == LIBRARY) sum_by_library(p, s->rows, team);
    add_parts(1, p, join.weight, whole, s->rows, own);
}

#endif
