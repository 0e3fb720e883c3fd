/* Threads of one step: an even share of the work for each, and a barrier that shares cores kindly. */
#ifndef NATIVE_TEAM_H
#define NATIVE_TEAM_H

#include <sched.h>
#include <stdint.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#define SPINS 4000 /* about 50 us, far above an even share's jitter; then give the core away */

typedef struct {
    _Alignas(64) int arrived;
    _Alignas(64) int round;
    _Alignas(64) int size;
} Barrier;

typedef struct {
    Barrier *barrier;
    int index, size;
} Team;

/* The calling thread's place. */
static Team member(Barrier *barrier) {
#ifdef _OPENMP
    return (Team){barrier, omp_get_thread_num(), omp_get_num_threads()};
#else
    return (Team){barrier, 0, 1};
#endif
}

static inline void pause_(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wait_all(Team *team) {
    Barrier *b = team->barrier;
    if (team->size == 1) return;
    int round = __atomic_load_n(&b->round, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&b->arrived, 1, __ATOMIC_ACQ_REL) == team->size) {
        __atomic_store_n(&b->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&b->round, round + 1, __ATOMIC_RELEASE);
        return;
    }
    for (int i = 0; __atomic_load_n(&b->round, __ATOMIC_ACQUIRE) == round; i++) {
        if (i < SPINS) pause_();
        else sched_yield();
    }
}

/* This thread's share of `count` items, in whole units. */
static void share(const Team *team, int64_t count, int64_t unit, int64_t *first, int64_t *end) {
    int64_t units = (count + unit - 1) / unit;
    *first = units * team->index / team->size * unit;
    *end = units * (team->index + 1) / team->size * unit;
    if (*end > count) *end = count;
    if (*first > count) *first = count;
}

#endif
