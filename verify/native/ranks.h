/* Ranks of one machine that share memory: how far each has come, what each adds to a sum, and the
   best of each one's part of the head. */
#ifndef NATIVE_RANKS_H
#define NATIVE_RANKS_H

#include <stdatomic.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "team.h"

#define MAX_RANKS 8
#define YIELD_NS 300000 /* after the spins; a rank that is later than this is waited for asleep */
#define NAP_NS 20000000 /* between two looks at who was lost */

enum { NO_SUM, LIBRARY, SHARED, FUSED }; /* ways to sum over ranks; numbered in structs.py */

typedef struct {
    _Alignas(64) _Atomic uint32_t number; /* of the last meeting that this rank came to; wraps */
    _Atomic uint32_t sleepers;            /* threads that wait for it asleep */
    _Atomic int32_t core;                 /* where the rank was when it came */
} Arrival;

typedef struct { /* the best two logits of one row */
    int64_t best;
    float high, second;
} Top;

typedef struct { /* mirrored in structs.py; pointers are into memory that all ranks map */
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

static int is_there(const Arrival *arrival, uint64_t number) {
    uint32_t last = atomic_load_explicit(&arrival->number, memory_order_acquire);
    return (int32_t)(last - (uint32_t)number) >= 0;
}

#ifdef __linux__
/* Sleep until the number is another one than `last`, or for a nap. */
static void doze(_Atomic uint32_t *number, uint32_t last) {
    const struct timespec nap = {0, NAP_NS};
    syscall(SYS_futex, number, FUTEX_WAIT, last, &nap, NULL, 0);
}
static void wake(_Atomic uint32_t *number) {
    syscall(SYS_futex, number, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
extern int sched_getcpu(void); /* the header hides it without _GNU_SOURCE */
static int32_t this_core(void) { return sched_getcpu(); }
#else
static int32_t this_core(void) { return -1; }
static void doze(_Atomic uint32_t *number, uint32_t last) {
    (void)number, (void)last;
    sched_yield();
}
static void wake(_Atomic uint32_t *number) { (void)number; }
#endif

/* Said before the last look, so that a rank that comes in between sees that it must wake this one. */
static void sleep_for(Arrival *arrival, uint64_t number) {
    atomic_fetch_add(&arrival->sleepers, 1);
    uint32_t last = atomic_load(&arrival->number);
    if ((int32_t)(last - (uint32_t)number) < 0) doze(&arrival->number, last);
    atomic_fetch_sub(&arrival->sleepers, 1);
}

/* Wait for one rank. Most are late by less than the spins last, and one that shares this core can
   only come once this rank gives it up. One that is later has lost its core to another program:
   yield, and then sleep. The scheduler gives a sleeper its core back soon; a rank that had kept it
   busy would have spent its share when its turn comes. */
static void wait_for(const Ranks *k, int64_t rank, uint64_t number) {
    Arrival *arrival = k->arrivals + rank;
    const int64_t spins = atomic_load(&arrival->core) == this_core() ? 0 : SPINS;
    for (int64_t i = 0; i < spins; i++) {
        if (is_there(arrival, number)) return;
        pause_();
    }
    for (const int64_t began = now_ns(); !is_there(arrival, number);) {
        const int64_t waited = now_ns() - began;
        if (waited < YIELD_NS) {
            sched_yield();
            continue;
        }
        if (atomic_load(k->lost)) return;
        if (waited > k->timeout_ns) lose(k, rank);
        else sleep_for(arrival, number);
    }
}

/* What this rank wrote before is there for the others, and theirs for this one. Its threads must
   have met (wait_all). A slot is written again two meetings later: by then every rank has come to
   the meeting in between, so none still reads it. */
static void meet(const Ranks *k, const Team *team, uint64_t number) {
    if (team->index == 0) {
        Arrival *own = k->arrivals + k->rank;
        atomic_store_explicit(&own->core, this_core(), memory_order_relaxed);
        atomic_store(&own->number, (uint32_t)number);
        if (atomic_load(&own->sleepers)) wake(&own->number);
    }
    for (int64_t step = 1; step < k->world; step++)
        wait_for(k, (k->rank + step) % k->world, number);
}

#endif
