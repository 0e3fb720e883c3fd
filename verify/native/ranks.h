/* Ranks of one machine that share memory: how far each has come, what each adds to a sum, and the
   best of each one's part of the head. */
#ifndef NATIVE_RANKS_H
#define NATIVE_RANKS_H

#include <stdatomic.h>
#include <time.h>

#include "team.h"

#define MAX_RANKS 8
#define YIELDS 64 /* between two looks at the clock */

enum { NO_SUM, LIBRARY, SHARED, FUSED }; /* ways to sum over ranks; numbered in structs.py */

typedef struct {
    _Alignas(64) _Atomic uint64_t number; /* of the last meeting that this rank came to */
} Arrival;

typedef struct { /* the best two logits of one row */
    int64_t best;
    float high, second;
} Top;

typedef struct { /* mirrored in structs.py; memory that all ranks map, but for the last three */
    int64_t rank, world, slot_floats, timeout_ns;
    _Atomic int64_t *lost; /* 1 + the rank that was waited for in vain, or 0 */
    Arrival *arrivals;     /* [world] */
    float *slots;          /* [world, 2, slot_floats]: what a rank adds; meetings take turns */
    Top *tops;             /* [world, max_rows] */
    int64_t head_first;    /* the first vocabulary row of this rank's head */
    uint64_t number;       /* of the last meeting before this step */
    int (*library)(float *summed, int64_t rows);
} Ranks;

static float *slot_of(const Ranks *k, int64_t rank, uint64_t number) {
    return k->slots + (2 * rank + (int64_t)(number & 1)) * k->slot_floats;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void lose(const Ranks *k, int64_t rank) {
    int64_t nobody = 0;
    atomic_compare_exchange_strong(k->lost, &nobody, rank + 1);
}

/* Wait for one rank. Most are late by less than a spin lasts; after that, the core that this rank
   holds may be the one that the late rank needs. */
static void wait_for(const Ranks *k, int64_t rank, uint64_t number) {
    int64_t deadline = 0;
    const Arrival *arrival = k->arrivals + rank;
    for (int64_t i = 0; atomic_load_explicit(&arrival->number, memory_order_acquire) < number; i++) {
        if (i < SPINS) {
            pause_();
            continue;
        }
        sched_yield();
        if (i % YIELDS) continue;
        if (atomic_load(k->lost)) return;
        if (!deadline) deadline = now_ns() + k->timeout_ns;
        else if (now_ns() > deadline) lose(k, rank);
    }
}

/* What this rank wrote before is there for the others, and theirs for this one. Its threads must
   have met (wait_all). A slot is written again two meetings later: by then every rank has come to
   the meeting in between, so none still reads it. */
static void meet(const Ranks *k, const Team *team, uint64_t number) {
    if (team->index == 0)
        atomic_store_explicit(&k->arrivals[k->rank].number, number, memory_order_release);
    for (int64_t step = 1; step < k->world; step++)
        wait_for(k, (k->rank + step) % k->world, number);
}

#endif
